"""RmsNorm: y = (x * rstd) * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon).

Order of accumulation: the squares of a row are summed in fp32, in 64 lane accumulators (key 2), by
halving (keys 0 and 3), or in pieces, each by halving (key 1). Rows are independent, so threads
split them evenly, regardless of the simulated core split. Each row is read twice (sum, then y); the
second read hits the cache.

Ascend 950: key 5000 folds the squares of a row to a power of two, adds the lanes of every register
as a tree, then these sums as a tree; its root is refined by fused steps. Key 2001 takes pieces of a
row in pairs, whose sums go to lists of 256.

Slow reference with the order of additions: ``tests/reference/rms_norm.py``. The orders of Ascend
950 as trees, which tests verify with probes: ``npu_sim/operators/rms_norm/ascend_950/study.py``.

Sources: specification pages ``rms_norm``, section "Kernels and accumulation order", and
``rms_norm_950``, "Kernels and order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    ONE,
    ORDERED_LANES,
    STREAM_ROW_BYTES,
    ZERO,
    Floats,
    end_streams,
    is_streamed,
    load,
    load_ordered,
    multiply_add,
    prefetch,
    splat,
    store_lanes,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, write_row
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    SLOTS,
    add_lanes,
    add_slot,
    clear,
    front_of,
    halve,
    keep_lanes,
    level,
    pair_sum,
    paired,
    power_tree,
)
from npu_sim.numbers.arrays import address_of
from npu_sim.numbers.scalars import widen

LANES = 0
"""Whole rows, summed in 64 lane accumulators: key 2."""
HALVING = 1
"""Whole rows, summed by halving: keys 0 and 3."""
PIECES = 2
"""Rows in pieces, each summed by halving: key 1."""
FOLDED = 3
"""Ascend 950, key 5000: whole rows, folded once."""
LISTS = 4
"""Ascend 950, key 2001: rows in pieces, whose sums go to lists."""

LOOKAHEAD_BYTES = 8192
"""Minimum prefetch distance for x while y is written; without it the memory bus would idle between
the two passes."""
PREFETCHED_ROW_BYTES = 1 << 17
"""Rows longer than this are not prefetched a whole row ahead: they would be evicted from L2 before
use."""
ALIGNED_BYTES = 512
"""The squares of a piece are filled with zeros up to a multiple of this many bytes of x."""
REGISTERS = 4 * LANE_COUNT
"""Scratch of Ascend 950: four registers, then the lists, then the squares of a piece."""
LIST_SLOTS = 3 * SLOTS
_HALF, _MINUS_HALF, _THREE_HALVES = np.float32(0.5), np.float32(-0.5), np.float32(1.5)
_INFINITY = np.float32(np.inf)
SMALLEST_NORMAL = np.float32(2.0**-126)
LARGEST_INVERTED = np.float32(2.0**126)
"""The reciprocal of a larger number is subnormal, which division replaces by 0."""


class Split(NamedTuple):
    """Summation of a row."""

    path: int
    piece_columns: int
    """Columns of a piece, with `PIECES` and `LISTS`."""
    fold: int = 0
    """With `FOLDED`, the elements that the first fold of a row leaves."""
    pieces: int = 0
    """With `LISTS`, the pieces of the power of two below a row."""


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
def _lane_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares: 64 lane accumulators, then a tree over the lanes."""
    accumulators = scratch[:LANE_COUNT]
    first = splat(ZERO, accumulators)
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
def _halved_sums(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares: piece by piece, each piece by halving."""
    total, piece_columns = ZERO, split.piece_columns if split.path == PIECES else x.size
    for begin in range(0, x.size, piece_columns):
        piece = x[begin : min(x.size, begin + piece_columns)]
        total = total + _halved_sum(piece, scratch)
    return total


@device_function
def _put_squares(x: NDArray[Any], begin: int, end: int, padded: int, squares: Floats) -> None:
    """Write the squares of the columns begin..end, and zeros up to ``padded`` values."""
    count = end - begin
    whole = count // ORDERED_LANES * ORDERED_LANES
    for position in range(0, whole, ORDERED_LANES):
        store_lanes(squares, position, square(x, begin + position))
    for position in range(whole, count):
        squares[position] = square_one(x, begin + position)
    clear(squares[count:padded])


@device_function
def _folded_register_sum(
    x: NDArray[Any], begin: int, partner: int, tail: Floats, lanes: Floats
) -> np.float32:
    """Return tree64 of the squares of a register and of its partner, as far as that exists.

    ``tail`` (64,) is scratch for a partner that the end of the row cuts.
    """
    if partner + LANE_COUNT <= x.size:
        for lane in range(0, LANE_COUNT, ORDERED_LANES):
            store_lanes(lanes, lane, square(x, begin + lane) + square(x, partner + lane))
        return add_lanes(lanes)
    _put_squares(x, min(partner, x.size), x.size, LANE_COUNT, tail)
    for lane in range(0, LANE_COUNT, ORDERED_LANES):
        store_lanes(lanes, lane, square(x, begin + lane) + load_ordered(tail, lane))
    return add_lanes(lanes)


@device_function
def _folded_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares of key 5000."""
    fold, sums = split.fold, scratch[: 2 * LANE_COUNT]
    lanes, tail = scratch[2 * LANE_COUNT : 3 * LANE_COUNT], scratch[3 * LANE_COUNT : REGISTERS]
    if x.size < LANE_COUNT:
        _put_squares(x, 0, x.size, LANE_COUNT, lanes)
        return add_lanes(lanes)
    # A row of 64 columns, whose fold is 32, is one register without a partner.
    registers = max(fold // LANE_COUNT, 1)
    for number in range(registers):
        begin = number * LANE_COUNT
        partner = max(fold, LANE_COUNT) + begin
        sums[number] = _folded_register_sum(x, begin, partner, tail, lanes)
    if registers <= LANE_COUNT:
        return power_tree(sums, registers, lanes)
    return pair_sum(sums, 0, LANE_COUNT, lanes)


@device_function
def _piece_sum(x: NDArray[Any], begin: int, count: int, power: int, scratch: Floats) -> np.float32:
    """Return ``S(count, power)`` of the squares from ``begin`` on."""
    step = ALIGNED_BYTES // x.itemsize
    padded = (count + step - 1) // step * step
    squares = scratch[REGISTERS + LIST_SLOTS :]
    _put_squares(x, begin, begin + count, padded, squares)
    sums, lanes = scratch[:LANE_COUNT], scratch[LANE_COUNT : 2 * LANE_COUNT]
    return paired(squares, padded, power, sums, lanes)


@device_function
def _listed_sum(x, split: Split, scratch: Floats) -> np.float32:
    """Return the sum of squares of key 2001."""
    piece, half = split.piece_columns, split.piece_columns // 2
    rest = x.size - split.pieces * piece
    pairs, tail = rest // piece, rest % piece
    lanes, levels = scratch[:LANE_COUNT], scratch[REGISTERS : REGISTERS + LIST_SLOTS]
    clear(levels)
    begin = 0
    for number in range(split.pieces):
        first, first_power, second, second_power = piece, piece, 0, 0
        if number < pairs:
            second, second_power = piece, piece
        elif number == pairs and tail > half:
            second, second_power = tail, half
        elif number == pairs and tail > 0:
            first, first_power, second, second_power = half + tail, half, half, half
        slot = _piece_sum(x, begin, first, first_power, scratch)
        begin += first
        if second > 0:
            slot = slot + _piece_sum(x, begin, second, second_power, scratch)
            begin += second
        add_slot(levels, number, slot, lanes, 1)
    return level(levels, split.pieces, lanes)


@device_function
def _rstd(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings."""
    return ONE / np.sqrt(total * average + epsilon)


@device_function
def _refined_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) by the fused steps of key 5000.

    Division and root give 0 for subnormal inputs and results (page ``ascend_950``, "Numerics").
    """
    v = total * average + epsilon
    if v == _INFINITY:
        return ZERO
    if v == ZERO:
        return _INFINITY
    if v < SMALLEST_NORMAL and v > -SMALLEST_NORMAL:
        r = _INFINITY
    else:
        r = ZERO if v > LARGEST_INVERTED else ONE / v
    y0 = np.sqrt(r)
    t = (v * _MINUS_HALF) * y0
    y1 = y0 * multiply_add(t, y0, _THREE_HALVES)
    d1 = multiply_add(-v, r, ONE)
    r2 = multiply_add(-y1, y1, r)
    d2 = multiply_add(v, r2, d1)
    return multiply_add(d2 * y1, _HALF, y1)


@device_function
def _plain_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings; a subnormal sum counts as 0."""
    v = total * average + epsilon
    return _INFINITY if v < SMALLEST_NORMAL else ONE / np.sqrt(v)


class Row(NamedTuple):
    """Inputs of y = (x*rstd)*gamma for one row, rounded once."""

    x: NDArray[Any]
    gamma: NDArray[Any]
    rstd: np.float32
    ahead: int
    """Prefetch distance for x, in elements."""


@device_function
def _line_of(row: Row, column: int) -> Any:
    """Return a cache line of y."""
    prefetch(row.x, column + row.ahead)
    return (load(row.x, column) * row.rstd) * load_like(row.gamma, column, row.x)


@device_function
def _part_of(row: Row, column: int, begin: int, stop: int) -> Any:
    """Return the elements begin..stop of a cache line of y."""
    x = load_some(row.x, column, begin, stop, row.x)
    return (x * row.rstd) * load_some(row.gamma, column, begin, stop, row.x)


@device_function
def _compute_rows(
    chunk: int,
    rows: Rows,
    settings: Settings,
    split: Split,
    scratch: Floats,
    sum_row: Any,
    root: Any,
) -> None:
    """Compute a chunk of the rows.

    ``sum_row(x, split, scratch)`` and ``root(total, average, epsilon)`` are constants of a kernel.
    """
    count, chunks = len(rows.x), len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        x, y = rows.x[row], rows.y[row]
        rstd = root(sum_row(x, split, scratch[chunk]), settings.average, settings.epsilon)
        rows.rstd[row] = rstd
        inputs = Row(x, rows.gamma, rstd, settings.ahead)
        write_row(inputs, y, settings.streams, _line_of, _part_of)
    end_streams()


@kernel
def _narrow_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Sum in lane accumulators."""
    _compute_rows(chunk, rows, settings, split, scratch, _lane_sum, _rstd)


@kernel
def _halved_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Sum by halving, whole rows or in pieces."""
    _compute_rows(chunk, rows, settings, split, scratch, _halved_sums, _rstd)


@kernel
def _folded_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Key 5000."""
    _compute_rows(chunk, rows, settings, split, scratch, _folded_sum, _refined_root)


@kernel
def _listed_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Key 2001."""
    _compute_rows(chunk, rows, settings, split, scratch, _listed_sum, _plain_root)


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
    kernel, scratch_size = {
        LANES: (_narrow_rows, LANE_COUNT),
        HALVING: (_halved_rows, max(columns, LANE_COUNT)),
        PIECES: (_halved_rows, max(split.piece_columns, LANE_COUNT)),
        FOLDED: (_folded_rows, REGISTERS),
        LISTS: (_listed_rows, REGISTERS + LIST_SLOTS + split.piece_columns + ALIGNED_BYTES),
    }[split.path]
    settings = Settings(np.float32(1) / np.float32(columns), epsilon, lookahead(x), streams(y))
    scratch = thread_scratch(threads, scratch_size)
    kernel.over(threads, Rows(x, gamma, y, rstd), settings, split, scratch)
