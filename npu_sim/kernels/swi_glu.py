"""SwiGlu and its gradient: out = a / (1 + exp(-a)) * b, where a and b are the halves of a row of x.

Elements are independent, so threads split pieces of rows evenly, regardless of the simulated core
split. The order of the operations of an element depends on the dtype and, in the gradient, on the
product.

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
MINUS_64 = {np.int16: 0xD400, np.uint16: 0xC280, np.float32: 0xC2800000}
"""Bit pattern of -64 by storage type; no number with a smaller one is below ``low``."""
ROOT_DISTANCE = np.float32(1e-3)
SMALLEST_NORMAL = np.float32(2.0**-126)
_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)
Floats = NDArray[np.float32]
Counts = NDArray[np.int64]
"""Of every chunk the number of low values, of infinite ones, and of those near the root."""


class Call(NamedTuple):
    """What both kernels read: x as (rows, 2 * columns), its bits and those of -64.

    Quotients below ``least`` are lost; ``streams`` asks for non-temporal stores.
    """

    x: NDArray[Any]
    patterns: NDArray[Any]
    lowest: int
    least: np.float32
    streams: bool


class Piece(NamedTuple):
    """Columns of one row: storage of both halves and of y_grad, bits of a, and fp32 results.

    SwiGlu has no y_grad and one result; the quotients of 16-bit numbers pass through ``out_b``.
    """

    a: NDArray[Any]
    b: NDArray[Any]
    grad: NDArray[Any]
    patterns: NDArray[Any]
    out_a: Floats
    out_b: Floats


@device_function
def _divided(numerator: np.float32, d: np.float32, least: np.float32) -> np.float32:
    """Return a quotient; smaller ones than ``least`` become a zero of their sign."""
    quotient = numerator / d
    return quotient * _ZERO if abs(quotient) < least else quotient


@kernel
def _fill(chunk: int, numbers, is_silu: bool, least: np.float32, table: Floats) -> None:
    """Compute silu or sigmoid of all 16-bit numbers."""
    for pattern in range(numbers.size):
        wide = widen(numbers[pattern])
        numerator = wide if is_silu else _ONE
        table[pattern] = _divided(numerator, exp_plus_one(-wide), least)


@cache
def table_of(storage: type[np.generic], is_silu: bool, least: np.float32) -> Floats:
    """Return fp32(a / d), or fp32(1 / d), of every 16-bit number a, by its bit pattern (256 KiB).

    It is computed once per process: the quotient depends on a alone, and an exp in fp64 for each
    of the 2^16 numbers takes less time than for the elements of any large tensor.
    """
    table = np.empty(1 << 16, np.float32)
    _fill.over(1, np.arange(1 << 16).astype(np.uint16).view(storage), is_silu, least, table)
    return table


@device_function
def _forward_at(column: int, s: np.float32, piece: Piece) -> None:
    product = s * piece.a[column] if piece.a.itemsize == 4 else s
    piece.out_b[column] = product * widen(piece.b[column])


@device_function
def _gradient_at(column: int, s: np.float32, piece: Piece) -> None:
    a, b, grad = widen(piece.a[column]), widen(piece.b[column]), widen(piece.grad[column])
    t = (s * (_ONE - s)) * a + s
    piece.out_a[column] = (t * b) * grad if piece.a.itemsize == 4 else (t * grad) * b
    piece.out_b[column] = (s * a) * grad


@device_function
def _gradient_at_grad_first(column: int, s: np.float32, piece: Piece) -> None:
    a, b, grad = widen(piece.a[column]), widen(piece.b[column]), widen(piece.grad[column])
    product = grad * s
    piece.out_a[column] = (((_ONE - s) * a + _ONE) * product) * b
    piece.out_b[column] = product * a


@device_function
def _quotient(a: np.float32, least: np.float32) -> np.float32:
    return _divided(_ONE, exp_plus_one(-a), least)


@device_function
def _compute(piece: Piece, table: Floats, least: np.float32, element_at: Any) -> Any:
    """Compute the elements of a piece by ``element_at``; return the highest bit pattern of a.

    Quotients of fp32 numbers are computed two at a time, as one alone waits for its exp; those of
    16-bit numbers are read from the table.
    """
    a, patterns, size = piece.a, piece.patterns, piece.a.size
    highest = patterns[0]
    if a.itemsize == 4:
        half = size // 2
        for column in range(half):
            other = column + half
            highest = max(highest, max(patterns[column], patterns[other]))
            element_at(column, _quotient(a[column], least), piece)
            element_at(other, _quotient(a[other], least), piece)
        if size % 2:
            highest = max(highest, patterns[size - 1])
            element_at(size - 1, _quotient(a[size - 1], least), piece)
        return highest
    for column in range(size):
        highest = max(highest, patterns[column])
    for column in range(size):
        piece.out_b[column] = table[patterns[column]]
    for column in range(size):
        element_at(column, piece.out_b[column], piece)
    return highest


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
def _count_lowest(a, low: np.float32, counts: Counts) -> None:
    """Count finite values below ``low``, and -inf."""
    for column in range(a.size):
        value = widen(a[column])
        counts[0] += -_INFINITY < value < low
        counts[1] += value == -_INFINITY


@device_function
def _count_others(a, root: np.float32, counts: Counts) -> None:
    """Count +inf, and values within `ROOT_DISTANCE` of ``root``, in integers as wide as fp32."""
    gates, near = np.int32(0), np.int32(0)
    for column in range(a.size):
        value = widen(a[column])
        gates = np.int32(gates + (value == _INFINITY))
        near = np.int32(near + (abs(value - root) < ROOT_DISTANCE))
    counts[1] += gates
    counts[2] += near


@kernel
def _forward(
    chunk: int, call: Call, table: Floats, low: np.float32, scratch: Floats, counts: Counts, out
) -> None:
    """Compute a chunk of the pieces of all rows."""
    x, columns = call.x, out.shape[1]
    first, stop = _pieces_of(chunk, len(scratch), out)
    for number in range(first, stop):
        row, begin, end = _piece(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        values = scratch[chunk, : end - begin]
        piece = Piece(a, b, b, call.patterns[row, begin:end], values, values)
        if _compute(piece, table, call.least, _forward_at) >= call.lowest:
            _count_lowest(a, low, counts[chunk])
        store_rounded(values, out[row, begin:end], call.streams)
    end_streams()


@kernel
def _gradient(
    chunk: int,
    call: Call,
    y_grad,
    table: Floats,
    grad_first: bool,
    low: np.float32,
    root: np.float32,
    scratch: Floats,
    counts: Counts,
    x_grad,
) -> None:
    """Compute a chunk of the pieces of all rows."""
    x, columns = call.x, y_grad.shape[1]
    first, stop = _pieces_of(chunk, len(scratch), y_grad)
    for number in range(first, stop):
        row, begin, end = _piece(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        grad, bits = y_grad[row, begin:end], call.patterns[row, begin:end]
        out_a, out_b = scratch[chunk, 0, : end - begin], scratch[chunk, 1, : end - begin]
        piece = Piece(a, b, grad, bits, out_a, out_b)
        if grad_first:
            highest = _compute(piece, table, call.least, _gradient_at_grad_first)
        else:
            highest = _compute(piece, table, call.least, _gradient_at)
        if highest >= call.lowest:
            _count_lowest(a, low, counts[chunk])
        _count_others(a, root, counts[chunk])
        store_rounded(out_a, x_grad[row, begin:end], call.streams)
        store_rounded(out_b, x_grad[row, columns + begin : columns + end], call.streams)
    end_streams()


def _prepared(x: NDArray[Any], is_silu: bool, flushes: bool, streams: bool) -> tuple[Call, Floats]:
    storage, least = x.dtype.type, SMALLEST_NORMAL if flushes else _ZERO
    table = table_of(storage, is_silu, least) if x.itemsize == 2 else np.empty(0, np.float32)
    return Call(x, x.view(f"u{x.itemsize}"), MINUS_64[storage], least, streams), table


def swi_glu(x: NDArray[Any], flushes: bool, low: np.float32, out: NDArray[Any]) -> list[int]:
    """Compute out (rows, columns) from x (rows, 2 * columns), storage arrays of one dtype.

    With ``flushes``, the division loses subnormal results. Returns the numbers of the values of a
    that are finite and below ``low``, and that are -inf.
    """
    threads = threads_for(x.nbytes + out.nbytes)
    scratch = thread_scratch(threads, PIECE_COLUMNS)
    counts = np.zeros((threads, 2), np.int64)
    call, table = _prepared(x, True, flushes, out.nbytes > STREAM_BYTES)
    _forward.over(threads, call, table, low, scratch, counts, out)
    return [int(count) for count in counts.sum(axis=0)]


def swi_glu_grad(
    x: NDArray[Any],
    y_grad: NDArray[Any],
    flushes: bool,
    grad_first: bool,
    low: np.float32,
    root: np.float32,
    x_grad: NDArray[Any],
) -> list[int]:
    """Compute x_grad, of the shape of x (rows, 2 * columns), from y_grad (rows, columns).

    With ``flushes``, the division loses subnormal results; with ``grad_first``, y_grad is the first
    factor. Returns the numbers of the values of a that are finite and below ``low``, infinite, and
    within `ROOT_DISTANCE` of ``root``; nan counts none.
    """
    threads = threads_for(x.nbytes + y_grad.nbytes + x_grad.nbytes)
    scratch = thread_scratch(threads, 2, PIECE_COLUMNS)
    counts = np.zeros((threads, 3), np.int64)
    call, table = _prepared(x, False, flushes, x_grad.nbytes > STREAM_BYTES)
    _gradient.over(threads, call, y_grad, table, grad_first, low, root, scratch, counts, x_grad)
    return [int(count) for count in counts.sum(axis=0)]
