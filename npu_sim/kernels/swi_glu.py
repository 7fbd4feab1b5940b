"""SwiGlu and its gradient: out = a / (1 + exp(-a)) * b, where a and b are the halves of a row of x.

Elements are independent, so threads split pieces of rows evenly, regardless of the simulated core
split. The order of the operations of an element depends on the dtype and, in the gradient, on the
product. Ascend 950 loses subnormal results of its division.

Slow reference with the order of operations: ``tests/reference/swi_glu.py``.

Source: specification pages ``swi_glu``, ``swi_glu_grad`` and ``swi_glu_950``, section "Kernel".
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lane_blocks import exp_plus_one
from npu_sim.kernels.vectors.lanes import STREAM_BYTES, end_streams
from npu_sim.kernels.vectors.lanes_edges import store_rounded
from npu_sim.numbers.scalars import widen

PIECE_COLUMNS = 2048
"""Columns of a piece; it stays in the L1 cache between computing and rounding."""
MINUS_64 = {np.int16: 0xD400, np.uint16: 0xC280}
"""Bit pattern of -64 by storage type; only numbers with larger ones are below `Limits.low`."""
ROOT_DISTANCE = np.float32(1e-3)
SMALLEST_NORMAL = np.float32(2.0**-126)
_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)
Floats = NDArray[np.float32]
Counts = NDArray[np.int64]
"""Of every chunk the number of low values, of gates, and of values near the root."""


class Limits(NamedTuple):
    """Values of a that are counted; nan counts none."""

    low: np.float32
    """Finite values below it."""
    gate: np.float32
    """An infinite value besides -inf."""
    root: np.float32
    """Values within `ROOT_DISTANCE` of it."""


class Halves(NamedTuple):
    """Tensors of a call as (rows, columns); ``x`` and ``x_grad`` have two columns for each."""

    x: NDArray[Any]
    y_grad: NDArray[Any]
    x_grad: NDArray[Any]


@device_function
def _divided(numerator: np.float32, d: np.float32, is_950: bool) -> np.float32:
    """Return a quotient; on Ascend 950 a subnormal one becomes a zero of its sign."""
    quotient = numerator / d
    return quotient * _ZERO if is_950 and abs(quotient) < SMALLEST_NORMAL else quotient


@device_function
def _forward_of_fp32(a, b, is_950: bool, out: Floats) -> None:
    for column in range(a.size):
        s = _divided(_ONE, exp_plus_one(-a[column]), is_950)
        out[column] = (s * a[column]) * b[column]


@device_function
def _forward_of_16_bits(patterns, table: Floats, b, out: Floats) -> None:
    for column in range(b.size):
        out[column] = table[patterns[column]] * widen(b[column])


@kernel
def _fill(chunk: int, numbers, is_950: bool, table: Floats) -> None:
    """Compute silu of all 16-bit numbers."""
    for pattern in range(numbers.size):
        wide = widen(numbers[pattern])
        table[pattern] = _divided(wide, exp_plus_one(-wide), is_950)


@cache
def silu_table(storage: type[np.generic], is_950: bool) -> Floats:
    """Return fp32(a / d) of every 16-bit number a, by its bit pattern (256 KiB).

    It is computed once per process: the quotient depends on a alone, and an exp in fp64 for each
    of the 2^16 numbers takes less time than for the elements of any large tensor.
    """
    table = np.empty(1 << 16, np.float32)
    _fill.over(1, np.arange(1 << 16).astype(np.uint16).view(storage), is_950, table)
    return table


@device_function
def _gradient_of(a, b, grad, is_950: bool, out_a: Floats, out_b: Floats) -> None:
    for column in range(a.size):
        wide, factor, g = widen(a[column]), widen(b[column]), widen(grad[column])
        s = _divided(_ONE, exp_plus_one(-wide), is_950)
        if is_950:
            gs = g * s
            out_b[column] = gs * wide
            out_a[column] = (((_ONE - s) * wide + _ONE) * gs) * factor
        else:
            t = (s * (_ONE - s)) * wide + s
            out_b[column] = (s * wide) * g
            out_a[column] = (t * factor) * g if a.itemsize == 4 else (t * g) * factor


@device_function
def _piece(number: int, columns: int) -> tuple[int, int, int]:
    """Return the row of a piece, and the range of its columns."""
    pieces = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS
    row = number // pieces
    begin = (number - row * pieces) * PIECE_COLUMNS
    return row, begin, min(begin + PIECE_COLUMNS, columns)


@device_function
def _pieces_of(chunk: int, chunks: int, out) -> tuple[int, int]:
    """Return the range of the pieces of a chunk; ``out`` has rows of half the columns of x."""
    pieces = out.shape[0] * ((out.shape[1] + PIECE_COLUMNS - 1) // PIECE_COLUMNS)
    return pieces * chunk // chunks, pieces * (chunk + 1) // chunks


@device_function
def _may_overflow(patterns, lowest: int) -> bool:
    """Return whether a 16-bit number is beyond a negative one, by their bit patterns."""
    highest = np.uint16(0)
    for column in range(patterns.size):
        highest = max(highest, patterns[column])
    return highest >= lowest


@device_function
def _count(a, limits: Limits, counts: Counts) -> None:
    """Add the numbers of the values in ``a`` that `Limits` names."""
    low, gates, near = 0, 0, 0
    for column in range(a.size):
        value = widen(a[column])
        low += (value < limits.low) & (value > -_INFINITY)
        gates += (value == -_INFINITY) | (value == limits.gate)
        near += abs(value - limits.root) < ROOT_DISTANCE
    counts[0] += low
    counts[1] += gates
    counts[2] += near


@kernel
def _forward(
    chunk: int,
    x,
    patterns,
    lowest: int,
    table: Floats,
    is_950: bool,
    streams: bool,
    limits: Limits,
    scratch: Floats,
    counts: Counts,
    out,
) -> None:
    """Compute a chunk of the pieces of all rows.

    Of 16-bit numbers, ``patterns`` are those of x, and ``lowest`` is the one of -64.
    """
    columns = out.shape[1]
    first, stop = _pieces_of(chunk, len(scratch), out)
    for number in range(first, stop):
        row, begin, end = _piece(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        values = scratch[chunk, : end - begin]
        if x.itemsize == 4:
            _count(a, limits, counts[chunk])
            _forward_of_fp32(a, b, is_950, values)
        else:
            bits = patterns[row, begin:end]
            if _may_overflow(bits, lowest):
                _count(a, limits, counts[chunk])
            _forward_of_16_bits(bits, table, b, values)
        store_rounded(values, out[row, begin:end], streams)
    end_streams()


@kernel
def _gradient(
    chunk: int,
    halves: Halves,
    is_950: bool,
    streams: bool,
    limits: Limits,
    scratch: Floats,
    counts: Counts,
) -> None:
    """Compute a chunk of the pieces of all rows."""
    x, y_grad, x_grad = halves
    columns = y_grad.shape[1]
    first, stop = _pieces_of(chunk, len(scratch), y_grad)
    for number in range(first, stop):
        row, begin, end = _piece(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        grad = y_grad[row, begin:end]
        _count(a, limits, counts[chunk])
        out_a, out_b = scratch[chunk, 0, : end - begin], scratch[chunk, 1, : end - begin]
        if is_950:
            _gradient_of(a, b, grad, True, out_a, out_b)  # compiled without the other branch
        else:
            _gradient_of(a, b, grad, False, out_a, out_b)
        store_rounded(out_a, x_grad[row, begin:end], streams)
        store_rounded(out_b, x_grad[row, columns + begin : columns + end], streams)
    end_streams()


def swi_glu(x: NDArray[Any], is_950: bool, limits: Limits, out: NDArray[Any]) -> list[int]:
    """Compute out (rows, columns) from x (rows, 2 * columns), storage arrays of one dtype.

    Returns the numbers of the values of a that ``limits`` names, in its order.
    """
    threads = threads_for(x.nbytes + out.nbytes)
    scratch = thread_scratch(threads, PIECE_COLUMNS)
    counts, streams = np.zeros((threads, 3), np.int64), out.nbytes > STREAM_BYTES
    is_fp32, storage = x.dtype == np.float32, x.dtype.type
    patterns = np.empty((0, 0), np.uint16) if is_fp32 else x.view(np.uint16)
    table = np.empty(0, np.float32) if is_fp32 else silu_table(storage, is_950)
    lowest, options = MINUS_64.get(storage, 0), (is_950, streams, limits)
    _forward.over(threads, x, patterns, lowest, table, *options, scratch, counts, out)
    return [int(count) for count in counts.sum(axis=0)]


def swi_glu_grad(
    x: NDArray[Any], y_grad: NDArray[Any], is_950: bool, limits: Limits, x_grad: NDArray[Any]
) -> list[int]:
    """Compute x_grad, of the shape of x (rows, 2 * columns), from y_grad (rows, columns).

    Returns counts as `swi_glu` does.
    """
    threads = threads_for(x.nbytes + y_grad.nbytes + x_grad.nbytes)
    scratch = thread_scratch(threads, 2, PIECE_COLUMNS)
    counts, streams = np.zeros((threads, 3), np.int64), x_grad.nbytes > STREAM_BYTES
    halves = Halves(x, y_grad, x_grad)
    _gradient.over(threads, halves, is_950, streams, limits, scratch, counts)
    return [int(count) for count in counts.sum(axis=0)]
