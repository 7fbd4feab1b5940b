"""RmsNorm: y = (x * rstd) * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon).

Order of accumulation: the squares of a row are summed in fp32, in 64 lane accumulators (key 2), by
halving (keys 0 and 3), or in pieces, each by halving (key 1). Rows are independent, so threads
split them evenly, regardless of the simulated core split. Each row is read twice (sum, then y); the
second read hits the cache.

Slow reference with the order of additions: ``tests/reference/rms_norm.py``.

Source: specification page ``rms_norm``, section "Kernels and accumulation order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import thread_scratch, threads_for
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    ORDERED_LANES,
    STREAM_ROW_BYTES,
    end_streams,
    is_streamed,
    load,
    load_ordered,
    prefetch,
    splat,
    store,
    store_lanes,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, store_some
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    add_lanes,
    clear,
    front_of,
    halve,
    keep_lanes,
)
from npu_sim.numbers.arrays import address_of
from npu_sim.numbers.scalars import narrow, widen

LANES = 0
"""Whole rows, summed in 64 lane accumulators: key 2."""
HALVING = 1
"""Whole rows, summed by halving: keys 0 and 3."""
PIECES = 2
"""Rows in pieces, each summed by halving: key 1."""

LOOKAHEAD_BYTES = 8192
"""Minimum prefetch distance for x while y is written; without it the memory bus would idle between
the two passes."""
PREFETCHED_ROW_BYTES = 1 << 17
"""Rows longer than this are not prefetched a whole row ahead: they would be evicted from L2 before
use."""
_ZERO, _ONE = np.float32(0), np.float32(1)
Floats = NDArray[np.float32]


class Split(NamedTuple):
    """Summation of a row: the path, and the columns of a piece (used by `PIECES` only)."""

    path: int
    piece_columns: int


class Rows(NamedTuple):
    """Inputs and outputs of a call; see `rms_norm`."""

    x: NDArray[Any]
    gamma: NDArray[Any]
    y: NDArray[Any]
    rstd: Floats


class Settings(NamedTuple):
    """Constants of a call."""

    average: np.float32
    """1 / columns."""
    epsilon: np.float32
    ahead: int
    """Prefetch distance for x, in elements."""
    streams: bool
    """Whether y is written with non-temporal stores."""


@device_function
def square(x, column: int) -> Any:
    """Return the squares of some columns."""
    lanes = load_ordered(x, column)
    return lanes * lanes


@device_function
def square_one(x, column: int) -> np.float32:
    """Return the square of one column."""
    value = widen(x[column])
    return value * value


@device_function
def _lane_sum(x, accumulators: Floats) -> np.float32:
    """Return the sum of squares: 64 lane accumulators (scratch), then a tree over the lanes."""
    first = splat(_ZERO, accumulators)
    second, third, fourth = first, first, first
    whole = x.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        first = first + square(x, column)
        second = second + square(x, column + ORDERED_LANES)
        third = third + square(x, column + 2 * ORDERED_LANES)
        fourth = fourth + square(x, column + 3 * ORDERED_LANES)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, x.size):
        accumulators[column - whole] = accumulators[column - whole] + square_one(x, column)
    return add_lanes(accumulators)


@device_function
def _halved_sum(x, squares: Floats) -> np.float32:
    """Return the sum of squares by ``halving``, fusing the first step. ``squares`` is scratch."""
    front = front_of(x.size)
    back = x.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        store_lanes(squares, column, square(x, column) + square(x, front + column))
    for column in range(both, whole, ORDERED_LANES):
        store_lanes(squares, column, square(x, column))
    for column in range(whole, front):
        squares[column] = square_one(x, column)
    for column in range(both, back):
        squares[column] = squares[column] + square_one(x, front + column)
    if front < LANE_COUNT:
        clear(squares[front:LANE_COUNT])
    return halve(squares, max(front, LANE_COUNT))


@device_function
def _rstd(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings."""
    return _ONE / np.sqrt(total * average + epsilon)


@device_function
def normalise_row(x, gamma, scale: np.float32, ahead: int, y, streams: bool) -> None:
    """Compute y = (x*rstd)*gamma for one row, rounding once.

    With ``streams``, use non-temporal stores. Prefetches x ``ahead`` elements ahead.
    """
    line = LINE_BYTES // y.itemsize
    if y.size < line:
        for column in range(y.size):
            y[column] = narrow((widen(x[column]) * scale) * widen(gamma[column]), y)
        return
    if not streams:
        for begin in range(0, y.size, line):
            # The last vector may overlap the previous one; both write the same values.
            column = min(begin, y.size - line)
            prefetch(x, column + ahead)
            store(y, column, (load(x, column) * scale) * load_like(gamma, column, x))
        return
    first = to_next_line(y, 0)
    end = first + (y.size - first) // line * line
    for column in range(first, end, line):
        prefetch(x, column + ahead)
        stream(y, column, (load(x, column) * scale) * load_like(gamma, column, x))
    # The partial cache lines at both ends, which are shared with the neighbouring rows.
    for side in range(2):
        column, begin, stop = end, 0, y.size - end
        if side == 0:
            column, begin, stop = first - line, line - first, line
        if begin < stop:
            xs = load_some(x, column, begin, stop, x)
            gammas = load_some(gamma, column, begin, stop, x)
            store_some(y, column, (xs * scale) * gammas, begin, stop)


@device_function
def _finish_row(rows: Rows, row: int, total: np.float32, settings: Settings) -> None:
    """Write rstd and y of a row, given its sum of squares."""
    rows.rstd[row] = _rstd(total, settings.average, settings.epsilon)
    x, y, scale = rows.x[row], rows.y[row], rows.rstd[row]
    normalise_row(x, rows.gamma, scale, settings.ahead, y, settings.streams)


@kernel
def _narrow_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Compute a chunk of the rows, summing in lane accumulators."""
    count, chunks = len(rows.x), len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        total = _lane_sum(rows.x[row], scratch[chunk, :LANE_COUNT])
        _finish_row(rows, row, total, settings)
    end_streams()


@kernel
def _whole_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Compute a chunk of the rows, summing by halving."""
    count, chunks = len(rows.x), len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        total = _halved_sum(rows.x[row], scratch[chunk])
        _finish_row(rows, row, total, settings)
    end_streams()


@kernel
def _rows_in_pieces(
    chunk: int, rows: Rows, settings: Settings, piece_columns: int, scratch: Floats
) -> None:
    """Compute a chunk of the rows, summing piece by piece, each piece by halving."""
    (count, columns), chunks = rows.x.shape, len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        total = _ZERO
        for begin in range(0, columns, piece_columns):
            piece = rows.x[row, begin : min(columns, begin + piece_columns)]
            total = total + _halved_sum(piece, scratch[chunk])
        _finish_row(rows, row, total, settings)
    end_streams()


def streams(y: NDArray[Any]) -> bool:
    """Return whether y is written with non-temporal stores.

    Short rows qualify only if they are cache-line aligned at both ends.
    """
    are_aligned = address_of(y) % LINE_BYTES == 0 and y.shape[1] * y.itemsize % LINE_BYTES == 0
    return is_streamed(y, LINE_BYTES if are_aligned else STREAM_ROW_BYTES)


def lookahead(x: NDArray[Any]) -> int:
    """Return the prefetch distance in elements: one row, unless rows are short or very long."""
    row_bytes = x.shape[1] * x.itemsize
    is_row = LOOKAHEAD_BYTES < row_bytes <= PREFETCHED_ROW_BYTES
    return (row_bytes if is_row else LOOKAHEAD_BYTES) // x.itemsize


def rms_norm(
    x: NDArray[Any],
    gamma: NDArray[Any],
    split: Split,
    epsilon: np.float32,
    y: NDArray[Any],
    rstd: Floats,
) -> None:
    """Compute y and rstd.

    Parameters
    ----------
    x, y : (rows, columns)
        Storage arrays of one dtype; at least one column.
    gamma : (columns,)
        Storage array of the same dtype or float32.
    split
        Path of the summation.
    epsilon
        Added to the mean of the squares.
    rstd : float32 (rows,)
    """
    threads, columns = threads_for(x.nbytes + y.nbytes), x.shape[1]
    longest = {LANES: LANE_COUNT, HALVING: columns, PIECES: split.piece_columns}[split.path]
    scratch = thread_scratch(threads, max(longest, LANE_COUNT))
    rows, average = Rows(x, gamma, y, rstd), np.float32(1) / np.float32(columns)
    settings = Settings(average, epsilon, lookahead(x), streams(y))
    if split.path == LANES:
        _narrow_rows.over(threads, rows, settings, scratch)
    elif split.path == HALVING:
        _whole_rows.over(threads, rows, settings, scratch)
    else:
        _rows_in_pieces.over(threads, rows, settings, split.piece_columns, scratch)
