"""RmsNorm on Ascend 950: y = (x * rstd) * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon).

Order of accumulation, in fp32: key 5000 folds the squares of a row to a power of two, adds the
lanes of every register as a tree, then these sums as a tree; its root is refined by fused steps.
Key 2001 takes pieces of a row in pairs, whose sums go to lists of 256. Rows are independent, so
threads split them evenly, regardless of the simulated core split.

The order as a tree, which tests verify with probes: ``npu_sim/operators/rms_norm/ascend_950``.

Source: specification page ``rms_norm_950``, "Kernels and order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import thread_scratch, threads_for
from npu_sim.kernels.rms_norm import (
    Rows,
    Settings,
    lookahead,
    normalise_row,
    square,
    square_one,
    streams,
)
from npu_sim.kernels.vectors.lane_type import multiply_add
from npu_sim.kernels.vectors.lanes import ORDERED_LANES, end_streams, load_ordered, store_lanes
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    SLOTS,
    add_lanes,
    add_slot,
    fill_zeros,
    level,
    pair_sum,
    paired,
    power_tree,
    start_levels,
)

LISTS = 3
"""Lists of sums of key 2001."""
ALIGNED_BYTES = 512
"""The squares of a piece are filled with zeros up to a multiple of this many bytes of x."""
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_MINUS_HALF, _THREE_HALVES = np.float32(-0.5), np.float32(1.5)
_INFINITY = np.float32(np.inf)
SMALLEST_NORMAL = np.float32(2.0**-126)
LARGEST_INVERTED = np.float32(2.0**126)
"""The reciprocal of a larger number is subnormal, which division replaces by 0."""
Floats = NDArray[np.float32]


class Split(NamedTuple):
    """Summation of a row."""

    fold: int
    """Elements that the first fold of a row leaves; 0 on key 2001."""
    piece_columns: int
    """Columns of a piece on key 2001."""
    pieces: int
    """On key 2001, the pieces of the power of two below a row."""


@device_function
def _put_squares(x: NDArray[Any], begin: int, end: int, padded: int, squares: Floats) -> None:
    """Write the squares of the columns begin..end, and zeros up to ``padded`` values."""
    count = end - begin
    whole = count // ORDERED_LANES * ORDERED_LANES
    for position in range(0, whole, ORDERED_LANES):
        store_lanes(squares, position, square(x, begin + position))
    for position in range(whole, count):
        squares[position] = square_one(x, begin + position)
    fill_zeros(squares, count, padded)


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
def _whole_sum(x: NDArray[Any], fold: int, tail: Floats, sums: Floats, lanes: Floats) -> np.float32:
    """Return the sum of squares of key 5000; ``sums`` (128,) is scratch."""
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
def _refined_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) by the fused steps of key 5000.

    Division and root give 0 for subnormal inputs and results (page ``ascend_950``, "Numerics").
    """
    v = total * average + epsilon
    if v == _INFINITY:
        return _ZERO
    if v == _ZERO:
        return _INFINITY
    if v < SMALLEST_NORMAL and v > -SMALLEST_NORMAL:
        r = _INFINITY
    else:
        r = _ZERO if v > LARGEST_INVERTED else _ONE / v
    y0 = np.sqrt(r)
    t = (v * _MINUS_HALF) * y0
    y1 = y0 * multiply_add(t, y0, _THREE_HALVES)
    d1 = multiply_add(-v, r, _ONE)
    r2 = multiply_add(-y1, y1, r)
    d2 = multiply_add(v, r2, d1)
    return multiply_add(d2 * y1, _HALF, y1)


@device_function
def _plain_root(total: np.float32, average: np.float32, epsilon: np.float32) -> np.float32:
    """Return 1 / sqrt(total * average + epsilon) in four roundings; a subnormal sum counts as 0."""
    v = total * average + epsilon
    if v < SMALLEST_NORMAL:
        return _INFINITY
    return _ONE / np.sqrt(v)


@kernel
def _full_load(chunk: int, rows: Rows, settings: Settings, fold: int, kept: Floats) -> None:
    """Compute a chunk of the rows by key 5000."""
    count, chunks = len(rows.x), len(kept)
    sums, lanes = kept[chunk, : 2 * LANE_COUNT], kept[chunk, 2 * LANE_COUNT : 3 * LANE_COUNT]
    tail = kept[chunk, 3 * LANE_COUNT : 4 * LANE_COUNT]
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        total = _whole_sum(rows.x[row], fold, tail, sums, lanes)
        rstd = _refined_root(total, settings.average, settings.epsilon)
        rows.rstd[row] = rstd
        x, y = rows.x[row], rows.y[row]
        normalise_row(x, rows.gamma, rstd, settings.ahead, y, settings.streams)
    end_streams()


@device_function
def _piece_sum(
    x: NDArray[Any], begin: int, count: int, power: int, squares: Floats, kept: Floats
) -> np.float32:
    """Return ``S(count, power)`` of the squares from ``begin`` on."""
    step = ALIGNED_BYTES // x.itemsize
    padded = (count + step - 1) // step * step
    _put_squares(x, begin, begin + count, padded, squares)
    sums, lanes = kept[:LANE_COUNT], kept[LANE_COUNT : 2 * LANE_COUNT]
    return paired(squares, padded, power, sums, lanes)


@device_function
def _pieces_sum(
    x: NDArray[Any], split: Split, squares: Floats, levels: Floats, kept: Floats
) -> np.float32:
    """Return the sum of squares of key 2001."""
    piece, half = split.piece_columns, split.piece_columns // 2
    rest = x.size - split.pieces * piece
    pairs, tail = rest // piece, rest % piece
    lanes = kept[:LANE_COUNT]
    start_levels(levels)
    begin = 0
    for number in range(split.pieces):
        first, first_power, second, second_power = piece, piece, 0, 0
        if number < pairs:
            second, second_power = piece, piece
        elif number == pairs and tail > half:
            second, second_power = tail, half
        elif number == pairs and tail > 0:
            first, first_power, second, second_power = half + tail, half, half, half
        slot = _piece_sum(x, begin, first, first_power, squares, kept)
        begin += first
        if second > 0:
            slot = slot + _piece_sum(x, begin, second, second_power, squares, kept)
            begin += second
        add_slot(levels, number, slot, lanes)
    return level(levels, split.pieces, lanes)


@kernel
def _split_rows(
    chunk: int,
    rows: Rows,
    settings: Settings,
    split: Split,
    scratch: Floats,
    levels: Floats,
    kept: Floats,
) -> None:
    """Compute a chunk of the rows by key 2001."""
    count, chunks = len(rows.x), len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        total = _pieces_sum(rows.x[row], split, scratch[chunk], levels[chunk], kept[chunk])
        rstd = _plain_root(total, settings.average, settings.epsilon)
        rows.rstd[row] = rstd
        x, y = rows.x[row], rows.y[row]
        normalise_row(x, rows.gamma, rstd, settings.ahead, y, settings.streams)
    end_streams()


def rms_norm(
    x: NDArray[Any],
    gamma: NDArray[Any],
    split: Split,
    epsilon: np.float32,
    y: NDArray[Any],
    rstd: Floats,
) -> None:
    """Compute y and rstd; parameters as for :func:`npu_sim.kernels.rms_norm.rms_norm`."""
    threads, columns = threads_for(x.nbytes + y.nbytes), x.shape[1]
    rows = Rows(x, gamma, y, rstd)
    average = np.float32(1) / np.float32(columns)
    settings = Settings(average, epsilon, lookahead(x), streams(y))
    kept = thread_scratch(threads, 4 * LANE_COUNT)
    if split.fold > 0:
        _full_load.over(threads, rows, settings, split.fold, kept)
    else:
        scratch = thread_scratch(threads, split.piece_columns + ALIGNED_BYTES)
        levels = thread_scratch(threads, LISTS, SLOTS)
        _split_rows.over(threads, rows, settings, split, scratch, levels, kept)
