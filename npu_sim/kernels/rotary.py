"""Rotary position embedding: y = x*cos + rot(x)*sin, its gradient, and those of cos and sin.

The order of operations of an element is the same in all layouts, on all cores and products; so
threads split rows evenly, regardless of the simulated core split. Sums of the gradients of cos and
sin belong to a row of cos, whose summands have one fixed order.

Slow reference with the order of operations: ``tests/reference/rotary.py``.

Source: specification pages ``rotary_position_embedding`` and ``rotary_position_embedding_grad``,
section "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import STREAM_BYTES, end_streams
from npu_sim.kernels.vectors.lanes_edges import store_rounded
from npu_sim.numbers.scalars import widen

PIECE_ELEMENTS = 2048
"""Elements of a piece of rows; it stays in the L1 cache between computing and rounding."""
FROM_ZERO, FROM_FIRST, BY_HEAD = 0, 1, 2
"""Order of a sum: row-major from +0 or from its first summand, or over batches for every head."""
_ZERO = np.float32(0)
Floats = NDArray[np.float32]


class Tensors(NamedTuple):
    """Storage arrays of four axes, y flat; cos and sin have 1 where they are repeated."""

    x: NDArray[Any]
    cos: NDArray[Any]
    sin: NDArray[Any]
    y: NDArray[Any]


class Sums(NamedTuple):
    """Storage arrays of the gradients of cos and sin."""

    dy: NDArray[Any]
    x: NDArray[Any]
    dcos: NDArray[Any]
    dsin: NDArray[Any]


@device_function
def _rotate_half(x, cos, sin, out: Floats) -> None:
    half = x.size // 2
    for column in range(half):
        low, high = widen(x[column]), widen(x[half + column])
        out[column] = low * widen(cos[column]) - high * widen(sin[column])
        out[half + column] = high * widen(cos[half + column]) + low * widen(sin[half + column])


@device_function
def _rotate_pairs(x, cos, sin, out: Floats) -> None:
    for pair in range(x.size // 2):
        even, odd = 2 * pair, 2 * pair + 1
        low, high = widen(x[even]), widen(x[odd])
        out[even] = low * widen(cos[even]) - high * widen(sin[even])
        out[odd] = high * widen(cos[odd]) + low * widen(sin[odd])


@device_function
def _turn_back_half(dy, cos, sin, out: Floats) -> None:
    half = dy.size // 2
    for column in range(half):
        low, high = widen(dy[column]), widen(dy[half + column])
        out[column] = high * widen(sin[half + column]) + low * widen(cos[column])
        out[half + column] = high * widen(cos[half + column]) - low * widen(sin[column])


@device_function
def _turn_back_pairs(dy, cos, sin, out: Floats) -> None:
    for pair in range(dy.size // 2):
        even, odd = 2 * pair, 2 * pair + 1
        low, high = widen(dy[even]), widen(dy[odd])
        out[even] = high * widen(sin[odd]) + low * widen(cos[even])
        out[odd] = high * widen(cos[odd]) - low * widen(sin[even])


@device_function
def _row(axes, number: int) -> tuple[int, int, int]:
    """Return the first three indices of a row."""
    rest = number // axes[2]
    first = rest // axes[1]
    return first, rest - first * axes[1], number - rest * axes[2]


@kernel
def _rotate(
    chunk: int,
    tensors: Tensors,
    interleaves: bool,
    turns_back: bool,
    streams: bool,
    scratch: Floats,
) -> None:
    """Compute a chunk of the pieces of all rows."""
    x, cos, sin, y = tensors
    axes, columns, chunks = x.shape, x.shape[3], len(scratch)
    rows = axes[0] * axes[1] * axes[2]
    most = max(PIECE_ELEMENTS // columns, 1)
    pieces = (rows + most - 1) // most
    for piece in range(pieces * chunk // chunks, pieces * (chunk + 1) // chunks):
        begin = piece * most
        end = min(begin + most, rows)
        first, second, third = _row(axes, begin)
        for number in range(begin, end):
            if third == axes[2]:
                first, second, third = _row(axes, number)
            i, j, k = min(first, cos.shape[0] - 1), min(second, cos.shape[1] - 1), third
            k = min(k, cos.shape[2] - 1)
            own_x, own_cos, own_sin = x[first, second, third], cos[i, j, k], sin[i, j, k]
            start = (number - begin) * columns
            values = scratch[chunk, start : start + columns]
            if turns_back:
                if interleaves:
                    _turn_back_pairs(own_x, own_cos, own_sin, values)
                else:
                    _turn_back_half(own_x, own_cos, own_sin, values)
            elif interleaves:
                _rotate_pairs(own_x, own_cos, own_sin, values)
            else:
                _rotate_half(own_x, own_cos, own_sin, values)
            third += 1
        size = (end - begin) * columns
        store_rounded(scratch[chunk, :size], y[begin * columns : begin * columns + size], streams)
    end_streams()


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
        i, j, k = _row(axes, number)
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


def rotate(tensors: Tensors, interleaves: bool, turns_back: bool = False) -> None:
    """Compute y from x; ``turns_back``: the gradient of x, from that of y in its place."""
    threads = threads_for(tensors.x.nbytes + tensors.y.nbytes)
    scratch = thread_scratch(threads, max(PIECE_ELEMENTS, tensors.x.shape[3]))
    streams = tensors.y.nbytes > STREAM_BYTES
    _rotate.over(threads, tensors, interleaves, turns_back, streams, scratch)


def sum_products(tensors: Sums, interleaves: bool, order: int) -> None:
    """Compute the gradients of cos and sin; ``order`` is one of the orders of a sum."""
    threads = threads_for(2 * tensors.dy.nbytes)
    scratch = thread_scratch(threads, 4, tensors.dy.shape[3])
    _sum.over(threads, tensors, interleaves, order, scratch)
