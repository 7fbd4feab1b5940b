"""RmsNorm in the product's arithmetic and accumulation order.

Rows do not depend on each other, so every thread takes an equal share of them, whatever the
simulated cores take. A row is read twice, once for its sum and once for y; between the two it stays
in the cache.

Source: specification page ``rms_norm``, section "Kernels and accumulation order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    STREAM_ROW_BYTES,
    end_streams,
    is_streamed,
    load,
    prefetch,
    splat,
    store,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, keep, load_ordered
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import clear, front_of, halve, keep_lanes
from npu_sim.numbers.arrays import address_of
from npu_sim.numbers.scalars import narrow, widen

LANES = 0
"""Whole rows, summed in 64 lane accumulators: key 2."""
HALVING = 1
"""Whole rows, summed by halving: keys 0 and 3."""
PIECES = 2
"""Rows in pieces, each summed by halving: key 1."""

LOOKAHEAD_BYTES = 8192
"""How far ahead x is asked for, at least, while y is written: then the memory would have nothing
else to read."""
KEPT_ROW_BYTES = 1 << 17
"""Longer rows are not asked for a whole row ahead: they would be gone again from the second-level
cache."""
_ZERO, _ONE = np.float32(0), np.float32(1)
Floats = NDArray[np.float32]


class Split(NamedTuple):
    """How a row is summed: the path, and the columns of a piece, which only `PIECES` looks at."""

    path: int
    piece_columns: int


@device_function
def _square(x, column: int) -> Any:
    """Return the squares of some columns."""
    lanes = load_ordered(x, column)
    return lanes * lanes


@device_function
def _square_one(x, column: int) -> np.float32:
    """Return the square of one column."""
    value = widen(x[column])
    return value * value


@device_function
def _lane_sum(x, accumulators: Floats) -> np.float32:
    """Sum the squares of a row over 64 lane accumulators, then the lanes as a tree; ``accumulators`` (64,) is scratch."""
    first = splat(_ZERO, accumulators)
    second, third, fourth = first, first, first
    whole = x.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        first = first + _square(x, column)
        second = second + _square(x, column + ORDERED_LANES)
        third = third + _square(x, column + 2 * ORDERED_LANES)
        fourth = fourth + _square(x, column + 3 * ORDERED_LANES)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, x.size):
        accumulators[column - whole] = accumulators[column - whole] + _square_one(x, column)
    return add_lanes(accumulators)


@device_function
def _halved_sum(x, squares: Floats) -> np.float32:
    """Sum the squares of a row by ``halving``, the first time while they are made; ``squares`` is scratch."""
    front = front_of(x.size)
    back = x.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        keep(squares, column, _square(x, column) + _square(x, front + column))
    for column in range(both, whole, ORDERED_LANES):
        keep(squares, column, _square(x, column))
    for column in range(whole, front):
        squares[column] = _square_one(x, column)
    for column in range(both, back):
        squares[column] = squares[column] + _square_one(x, front + column)
    if front < LANE_COUNT:
        clear(squares[front:LANE_COUNT])
    return halve(squares, max(front, LANE_COUNT))


@device_function
def _rstd(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings."""
    return _ONE / np.sqrt(total * average + epsilon)


@device_function
def _normalise_row(x, gamma, scale: np.float32, ahead: int, y, streams: bool) -> None:
    """Second pass over a row: y = (x*rstd)*gamma, rounded once; ``streams`` stores it past the cache.

    Meanwhile it asks for x ``ahead`` elements further on.
    """
    line = LINE_BYTES // y.itemsize
    if y.size < line:
        for column in range(y.size):
            y[column] = narrow((widen(x[column]) * scale) * widen(gamma[column]), y)
        return
    if not streams:
        for begin in range(0, y.size, line):
            column = min(
                begin, y.size - line
            )  # the last line may overlap the one before: what is written twice is the same
            prefetch(x, column + ahead)
            store(y, column, (load(x, column) * scale) * load_like(gamma, column, x))
        return
    first = to_next_line(y, 0)
    end = first + (y.size - first) // line * line
    for column in range(first, end, line):
        prefetch(x, column + ahead)
        stream(y, column, (load(x, column) * scale) * load_like(gamma, column, x))
    # What remains of the lines at both ends, which belong to the neighbouring rows as well.
    for side in range(2):
        column, begin, stop = (
            (first - line, line - first, line) if side == 0 else (end, 0, y.size - end)
        )
        if begin < stop:
            lanes = (load_some(x, column, begin, stop, x) * scale) * load_some(
                gamma, column, begin, stop, x
            )
            store_some(y, column, lanes, begin, stop)


@kernel
def _narrow_rows(share, x, gamma, average, epsilon, ahead, streams, y, rstd, scratch):
    """Sum the rows of a share in lane accumulators, and write their y and rstd."""
    rows, shares = len(x), len(scratch)
    for row in range(rows * share // shares, rows * (share + 1) // shares):
        rstd[row] = _rstd(_lane_sum(x[row], scratch[share, :LANE_COUNT]), average, epsilon)
        _normalise_row(x[row], gamma, rstd[row], ahead, y[row], streams)
    end_streams()


@kernel
def _whole_rows(share, x, gamma, average, epsilon, ahead, streams, y, rstd, scratch):
    """Sum the rows of a share by halving, and write their y and rstd."""
    rows, shares = len(x), len(scratch)
    for row in range(rows * share // shares, rows * (share + 1) // shares):
        rstd[row] = _rstd(_halved_sum(x[row], scratch[share]), average, epsilon)
        _normalise_row(x[row], gamma, rstd[row], ahead, y[row], streams)
    end_streams()


@kernel
def _rows_in_pieces(
    share, x, gamma, average, epsilon, ahead, streams, piece_columns, y, rstd, scratch
):
    """Sum the rows of a share piece by piece, each by halving, and write their y and rstd."""
    (rows, columns), shares = x.shape, len(scratch)
    for row in range(rows * share // shares, rows * (share + 1) // shares):
        total = _ZERO
        for begin in range(0, columns, piece_columns):
            total = total + _halved_sum(
                x[row, begin : min(columns, begin + piece_columns)], scratch[share]
            )
        rstd[row] = _rstd(total, average, epsilon)
        _normalise_row(x[row], gamma, rstd[row], ahead, y[row], streams)
    end_streams()


def _streams(y: NDArray[Any]) -> bool:
    """Whether y is stored past the cache: even short rows, where each begins and ends with a cache line."""
    shares_no_line = address_of(y) % LINE_BYTES == 0 and y.shape[1] * y.itemsize % LINE_BYTES == 0
    return is_streamed(y, LINE_BYTES if shares_no_line else STREAM_ROW_BYTES)


def _lookahead(x: NDArray[Any]) -> int:
    """Return how many elements ahead x is asked for: the next row, unless rows are short or very long."""
    row_bytes = x.shape[1] * x.itemsize
    return (
        row_bytes if LOOKAHEAD_BYTES < row_bytes <= KEPT_ROW_BYTES else LOOKAHEAD_BYTES
    ) // x.itemsize


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
        How a row is summed.
    epsilon
        What is added to the mean of the squares.
    rstd : float32 (rows,)
    """
    threads, columns = threads_for(x.nbytes + y.nbytes), x.shape[1]
    longest = {LANES: LANE_COUNT, HALVING: columns, PIECES: split.piece_columns}[split.path]
    scratch = thread_scratch(threads, max(longest, LANE_COUNT))
    arguments = x, gamma, np.float32(1) / np.float32(columns), epsilon, _lookahead(x), _streams(y)
    if split.path == LANES:
        _narrow_rows.over(threads, *arguments, y, rstd, scratch)
    elif split.path == HALVING:
        _whole_rows.over(threads, *arguments, y, rstd, scratch)
    else:
        _rows_in_pieces.over(threads, *arguments, split.piece_columns, y, rstd, scratch)
