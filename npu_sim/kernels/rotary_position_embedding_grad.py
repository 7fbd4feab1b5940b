"""RotaryPositionEmbeddingGrad: the gradients of cos and sin, sums of x*dy and rot(x)*dy.

A sum belongs to a row of cos, whose summands have one fixed order, so threads split the rows of cos
evenly. The gradient of x is a rotation back (`npu_sim.kernels.shared.rotation`).

Slow reference with the order of operations: ``tests/reference/rotary.py``.

Source: specification page ``rotary_position_embedding_grad``, section "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.shared.rotation import row_of
from npu_sim.kernels.vectors.lanes import end_streams
from npu_sim.kernels.vectors.lanes_edges import store_rounded
from npu_sim.numbers.scalars import widen

FROM_ZERO, FROM_FIRST, BY_HEAD = 0, 1, 2
"""Order of a sum: row-major from +0 or from its first summand, or over batches for every head."""
_ZERO = np.float32(0)
Floats = NDArray[np.float32]


class Sums(NamedTuple):
    """Storage arrays of the gradients of cos and sin."""

    dy: NDArray[Any]
    x: NDArray[Any]
    dcos: NDArray[Any]
    dsin: NDArray[Any]


@device_function
def _add_products(x, dy, interleaves: bool, starts: bool, cos: Floats, sin: Floats) -> None:
    """Add x*dy and rot(x)*dy; with ``starts`` they replace the sums."""
    half = x.size // 2
    for pair in range(half):
        low, high = (2 * pair, 2 * pair + 1) if interleaves else (pair, half + pair)
        x_low, x_high = widen(x[low]), widen(x[high])
        dy_low, dy_high = widen(dy[low]), widen(dy[high])
        if starts:
            cos[low], cos[high] = x_low * dy_low, x_high * dy_high
            sin[low], sin[high] = -x_high * dy_low, x_low * dy_high
        else:
            cos[low] += x_low * dy_low
            cos[high] += x_high * dy_high
            sin[low] += -x_high * dy_low
            sin[high] += x_low * dy_high


@device_function
def _span(axis: int, repeated: int, index: int) -> tuple[int, int]:
    """Return the range of an axis of dy that goes with an index of cos."""
    return (0, axis) if repeated == 1 else (index, index + 1)


@kernel
def _sum(chunk: int, tensors: Sums, interleaves: bool, order: int, scratch: Floats) -> None:
    """Sum a chunk of the rows of cos."""
    dy, x, dcos, dsin = tensors
    axes, chunks = dcos.shape, len(scratch)
    rows = axes[0] * axes[1] * axes[2]
    cos, sin = scratch[chunk, 0], scratch[chunk, 1]
    head_cos, head_sin = scratch[chunk, 2], scratch[chunk, 3]
    for number in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
        i, j, k = row_of(axes, number)
        first, first_end = _span(dy.shape[0], axes[0], i)
        second, second_end = _span(dy.shape[1], axes[1], j)
        third, third_end = _span(dy.shape[2], axes[2], k)
        for column in range(cos.size):
            cos[column], sin[column] = _ZERO, _ZERO
        if order == BY_HEAD:
            for c in range(third, third_end):
                for a in range(first, first_end):
                    _add_products(
                        x[a, second, c],
                        dy[a, second, c],
                        interleaves,
                        a == first,
                        head_cos,
                        head_sin,
                    )
                for column in range(cos.size):
                    starts = c == third
                    cos[column] = head_cos[column] if starts else cos[column] + head_cos[column]
                    sin[column] = head_sin[column] if starts else sin[column] + head_sin[column]
        else:
            starts = order == FROM_FIRST
            for a in range(first, first_end):
                for b in range(second, second_end):
                    for c in range(third, third_end):
                        _add_products(x[a, b, c], dy[a, b, c], interleaves, starts, cos, sin)
                        starts = False
        store_rounded(cos, dcos[i, j, k], False)
        store_rounded(sin, dsin[i, j, k], False)
    end_streams()


def sum_products(tensors: Sums, interleaves: bool, order: int) -> None:
    """Compute the gradients of cos and sin; ``order`` is one of the orders of a sum."""
    threads = threads_for(2 * tensors.dy.nbytes)
    scratch = thread_scratch(threads, 4, tensors.dy.shape[3])
    _sum.over(threads, tensors, interleaves, order, scratch)
