"""AddRmsNorm: x = x1 + x2, rstd = 1 / sqrt(mean(x^2) + epsilon) and y = x * rstd * gamma.

A product decides which sum is squared, the rounded or the unrounded one, whether the squares or
their sum are divided by the columns, and how often y is rounded (`Arithmetic`). Rows are
independent, so threads split them evenly, regardless of the simulated core split. The sums of a row
stay in the cache in fp32 until its y is written.

Slow reference with the order of additions: ``tests/reference/add_rms_norm.py``.

Sources: specification page ``add_rms_norm``, section "Kernels and accumulation order", and
``add_rms_norm_950``, "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.shared.square_sums import (
    FOLDED,
    LIST_SLOTS,
    LISTS,
    PIECES,
    REGISTERS,
    Split,
    folded_sum,
    inverse_root,
    listed_sum,
    normal_root,
    refined_root,
)
from npu_sim.kernels.vectors.lanes import (
    AHEAD_BYTES,
    NOTHING_YET,
    ONE,
    ORDERED_LANES,
    ZERO,
    Floats,
    Lanes,
    end_streams,
    load_ordered,
    prefetch,
    rounded,
    saturated,
    splat,
    store_lanes,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, streams_rows, write_row
from npu_sim.kernels.vectors.row_sums import LANE_COUNT, add_lanes, clear, keep_lanes
from npu_sim.numbers.scalars import widen

INFINITY = np.float32(np.inf)


class Rows(NamedTuple):
    """Inputs and outputs of a call: storage arrays of one dtype, and rstd; at least one column."""

    x1: NDArray[Any]
    """(rows, columns), as are x2 and y."""
    x2: NDArray[Any]
    gamma: NDArray[Any]
    """(columns,)"""
    y: NDArray[Any]
    rstd: Floats
    """float32 (rows,)"""
    x: NDArray[Any]
    """The sum, (rows, columns); (0, columns) where it is not written."""


class Arithmetic(NamedTuple):
    """Where a product rounds; by default, x and y once."""

    squares_rounded: bool = False
    """Whether the sum is rounded to the dtype of x before it is squared."""
    rereads: bool = False
    """Whether y is computed from x as it is stored."""
    rounds_twice: bool = False
    """Whether y is rounded before gamma too."""
    scales_squares: bool = False
    """Whether every square is divided by the columns, instead of their sum."""
    clears_sign: bool = False
    """Whether x is stored plus 0, so that -0 becomes 0."""
    largest: np.float32 = INFINITY
    """Largest magnitude where overflows saturate."""


class Settings(NamedTuple):
    """Constants of a call."""

    split: Split
    """Path of the summation."""
    arithmetic: Arithmetic
    scale: np.float32
    """Factor of a square."""
    average: np.float32
    """Factor of the sum."""
    epsilon: np.float32
    addend: np.float32
    """What is added to x when it is stored; -0 changes nothing."""
    streams: bool
    """Whether x and y are written with non-temporal stores."""


class Scaled(NamedTuple):
    """Inputs of y for one row."""

    sums: Floats
    gamma: NDArray[Any]
    y: NDArray[Any]
    rstd: np.float32
    settings: Settings
    x1: NDArray[Any]
    x2: NDArray[Any]
    """Rows of the inputs: while y is written, the next ones are prefetched."""


@device_function
def _rounded(lanes: Lanes, like: Any, settings: Settings) -> Lanes:
    return rounded(lanes, like)


@device_function
def _saturated(lanes: Lanes, like: Any, settings: Settings) -> Lanes:
    return rounded(saturated(lanes, settings.arithmetic.largest), like)


@device_function
def _put_sums(x1: Any, x2: Any, settings: Settings, round_lanes: Any, sums: Floats) -> None:
    """Write the sums of a row in fp32, rounded if they are squared so, and zeros behind them."""
    for begin in range(0, x1.size, ORDERED_LANES):
        if begin + ORDERED_LANES <= x1.size:
            prefetch(x1, begin + AHEAD_BYTES // x1.itemsize)
            prefetch(x2, begin + AHEAD_BYTES // x2.itemsize)
            lanes = load_ordered(x1, begin) + load_ordered(x2, begin)
        else:
            for column in range(begin, x1.size):
                sums[column] = widen(x1[column]) + widen(x2[column])
            clear(sums[x1.size : begin + ORDERED_LANES])
            lanes = load_ordered(sums, begin)
        if settings.arithmetic.squares_rounded:
            lanes = round_lanes(lanes, x1, settings)
        store_lanes(sums, begin, lanes)


@device_function
def _scaled_square(values: Floats, column: int, scale: np.float32) -> Lanes:
    lanes = load_ordered(values, column)
    return lanes * lanes * scale


@device_function
def _scaled_sum(values: Floats, scale: np.float32, accumulators: Floats) -> np.float32:
    """Return the sum of scaled squares: 64 lane accumulators, then a tree over the lanes."""
    first = splat(ZERO, accumulators)
    second, third, fourth = first, first, first
    whole = values.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        first = first + _scaled_square(values, column, scale)
        second = second + _scaled_square(values, column + ORDERED_LANES, scale)
        third = third + _scaled_square(values, column + 2 * ORDERED_LANES, scale)
        fourth = fourth + _scaled_square(values, column + 3 * ORDERED_LANES, scale)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, values.size):
        square = values[column] * values[column] * scale
        accumulators[column - whole] = accumulators[column - whole] + square
    return add_lanes(accumulators)


@device_function
def _scaled_sums(values: Floats, settings: Settings, scratch: Floats) -> np.float32:
    """Return the sum of scaled squares, piece by piece."""
    total, columns = ZERO, settings.split.piece_columns
    for begin in range(0, values.size, columns):
        piece = values[begin : min(values.size, begin + columns)]
        total = total + _scaled_sum(piece, settings.scale, scratch[:LANE_COUNT])
    return total


@device_function
def _folded_sum(values: Floats, settings: Settings, scratch: Floats) -> np.float32:
    return folded_sum(values, settings.split, scratch)


@device_function
def _listed_sum(values: Floats, settings: Settings, scratch: Floats) -> np.float32:
    return listed_sum(values, settings.split, scratch)


@device_function
def _x_line(inputs: Any, column: int) -> Lanes:
    sums, addend, x = inputs
    return load_like(sums, column, x) + addend


@device_function
def _x_part(inputs: Any, column: int, begin: int, stop: int) -> Lanes:
    sums, addend, x = inputs
    return load_some(sums, column, begin, stop, x) + addend


@device_function
def _scale(lanes: Lanes, gamma: Lanes, row: Scaled, round_lanes: Any) -> Lanes:
    """Return some elements of y, before they are stored."""
    settings = row.settings
    if settings.arithmetic.rereads:
        lanes = round_lanes(lanes, row.y, settings) + settings.addend
    lanes = lanes * row.rstd
    if settings.arithmetic.rounds_twice:
        lanes = round_lanes(lanes, row.y, settings)
    return lanes * gamma


@device_function
def _y_line(inputs: Any, column: int) -> Lanes:
    row, round_lanes = inputs
    prefetch(row.x1, column + row.x1.size)
    prefetch(row.x2, column + row.x2.size)
    gamma = load_like(row.gamma, column, row.y)
    return _scale(load_like(row.sums, column, row.y), gamma, row, round_lanes)


@device_function
def _y_part(inputs: Any, column: int, begin: int, stop: int) -> Lanes:
    row, round_lanes = inputs
    gamma = load_some(row.gamma, column, begin, stop, row.y)
    return _scale(load_some(row.sums, column, begin, stop, row.y), gamma, row, round_lanes)


@device_function
def _compute_rows(
    chunk: int,
    rows: Rows,
    settings: Settings,
    scratch: Floats,
    round_lanes: Any,
    sum_row: Any,
    root: Any,
) -> None:
    """Compute a chunk of the rows.

    The functions are constants of a kernel: ``round_lanes(lanes, like, settings)``,
    ``sum_row(values, settings, scratch)`` and ``root(total, average, epsilon)``.
    """
    count, chunks, columns = len(rows.x1), len(scratch), rows.x1.shape[1]
    sums, others = scratch[chunk][:columns], scratch[chunk][columns + ORDERED_LANES :]
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        x1, x2 = rows.x1[row], rows.x2[row]
        _put_sums(x1, x2, settings, round_lanes, scratch[chunk])
        total = sum_row(sums, settings, others)
        rstd = root(total, settings.average, settings.epsilon)
        rows.rstd[row] = rstd
        if len(rows.x) > 0:
            x = rows.x[row]
            write_row((sums, settings.addend, x), x, settings.streams, _x_line, _x_part)
        y = rows.y[row]
        inputs = Scaled(sums, rows.gamma, y, rstd, settings, x1, x2), round_lanes
        write_row(inputs, y, settings.streams, _y_line, _y_part)
    end_streams()


@kernel
def _lane_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Sum in lane accumulators, whole rows or in pieces."""
    _compute_rows(chunk, rows, settings, scratch, _rounded, _scaled_sums, inverse_root)


@kernel
def _saturated_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Sum in lane accumulators where overflows saturate."""
    _compute_rows(chunk, rows, settings, scratch, _saturated, _scaled_sums, inverse_root)


@kernel
def _folded_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Ascend 950, key 1000."""
    _compute_rows(chunk, rows, settings, scratch, _rounded, _folded_sum, refined_root)


@kernel
def _listed_rows(chunk: int, rows: Rows, settings: Settings, scratch: Floats) -> None:
    """Ascend 950, key 2000."""
    _compute_rows(chunk, rows, settings, scratch, _rounded, _listed_sum, normal_root)


def add_rms_norm(rows: Rows, split: Split, arithmetic: Arithmetic, epsilon: np.float32) -> None:
    """Compute y, rstd and x of some rows.

    Parameters
    ----------
    split
        Path of the summation: ``PIECES``, ``FOLDED`` or ``LISTS``.
    arithmetic
        Where the product rounds.
    epsilon
        Added to the mean of the squares.
    """
    columns = rows.x1.shape[1]
    threads = threads_for(rows.x1.nbytes + rows.x2.nbytes + rows.y.nbytes + rows.x.nbytes)
    kernel, scratch_size = {
        PIECES: (_lane_rows if arithmetic.largest == INFINITY else _saturated_rows, LANE_COUNT),
        FOLDED: (_folded_rows, REGISTERS),
        LISTS: (_listed_rows, REGISTERS + LIST_SLOTS + split.piece_columns + split.granule),
    }[split.path]
    average = np.float32(1) / np.float32(columns)
    settings = Settings(
        split,
        arithmetic,
        scale=average if arithmetic.scales_squares else ONE,
        average=ONE if arithmetic.scales_squares else average,
        epsilon=epsilon,
        addend=ZERO if arithmetic.clears_sign else NOTHING_YET,
        streams=streams_rows(rows.y),
    )
    scratch = thread_scratch(threads, columns + ORDERED_LANES + scratch_size)
    kernel.over(threads, rows, settings, scratch)
