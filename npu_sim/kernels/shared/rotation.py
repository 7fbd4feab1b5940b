"""Rotary position embedding: y = x*cos + rot(x)*sin, and the gradient of x.

The order of operations of an element is the same in all layouts, on all cores and products; so
threads split rows evenly, regardless of the simulated core split.

Slow reference with the order of operations: ``tests/reference/rotary.py``.

Source: specification pages ``rotary_position_embedding`` and ``rotary_position_embedding_grad``,
section "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import STREAM_BYTES, end_streams, prefetch_ahead
from npu_sim.kernels.vectors.lanes_edges import store_rounded
from npu_sim.numbers.scalars import widen

PIECE_ELEMENTS = 2048
"""Elements of a piece of rows; it stays in the L1 cache between computing and rounding."""
Floats = NDArray[np.float32]


class Tensors(NamedTuple):
    """Storage arrays of four axes, y flat; cos and sin have 1 where they are repeated."""

    x: NDArray[Any]
    cos: NDArray[Any]
    sin: NDArray[Any]
    y: NDArray[Any]


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
    if x.size % 2 == 1:  # the last column has no partner
        last = x.size - 1
        out[last] = widen(x[last]) * widen(cos[last])


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
def row_of(axes, number: int) -> tuple[int, int, int]:
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
        first, second, third = row_of(axes, begin)
        for number in range(begin, end):
            if third == axes[2]:
                first, second, third = row_of(axes, number)
            i, j, k = min(first, cos.shape[0] - 1), min(second, cos.shape[1] - 1), third
            k = min(k, cos.shape[2] - 1)
            own_x, own_cos, own_sin = x[first, second, third], cos[i, j, k], sin[i, j, k]
            if streams:
                prefetch_ahead(own_x, 0, columns)
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


def rotate(tensors: Tensors, interleaves: bool, turns_back: bool = False) -> None:
    """Compute y from x; ``turns_back``: the gradient of x, from that of y in its place."""
    threads = threads_for(tensors.x.nbytes + tensors.y.nbytes)
    scratch = thread_scratch(threads, max(PIECE_ELEMENTS, tensors.x.shape[3]))
    streams = tensors.y.nbytes > STREAM_BYTES
    _rotate.over(threads, tensors, interleaves, turns_back, streams, scratch)
