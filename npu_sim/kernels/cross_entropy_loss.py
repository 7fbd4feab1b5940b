"""CrossEntropyLoss: log_prob = x - log(sum(exp(x))), and the parts of the loss of every row.

Three passes over a row: its maximum, the sum of exp(x - maximum), and log_prob. Rows are
independent, so threads split them evenly, regardless of the simulated core split. Afterwards each
core adds the losses of its rows, and the sums of the cores are added.

exp and ln are computed in fp64 and rounded once; a row's terms are added in fp32 in the order of
the product:

- Atlas A2 and A3: chunks, each cut into pieces of 8192 columns; a piece is one tree of neighbours,
  and the sums of the pieces are added one after the other. log_prob = x - (ln(sum) + maximum).
- Ascend 950, whole rows: folded onto a power of two (`folded_sum`). Cut rows: blocks of columns,
  the second half of them added to the first element by element, each then summed by the library's
  row sum, and the sums of the blocks as a tree. log_prob = (x - maximum) - ln(sum), and subnormal
  results of exp are 0.

Slow reference with the order of additions: ``tests/reference/cross_entropy_loss.py``.

Sources: specification pages ``cross_entropy_loss``, section "Kernel", and
``cross_entropy_loss_950``, "Kernel and order".
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    exp_nearest,
    larger,
    largest,
    load_block,
    zero_below,
    zero_block,
)
from npu_sim.kernels.vectors.lanes import (
    GROUP_LANES,
    ZERO,
    Floats,
    Integers,
    end_streams,
    load,
    load_group,
    prefetch_lines,
    store_lanes,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, streams_rows, write_row
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    add_lanes,
    add_to,
    clear,
    fold,
    groups16,
    largest_power,
    row_sum,
    tree64,
)
from npu_sim.numbers.scalars import widen

PIECE_COLUMNS = 8192
"""Columns that one tree of Atlas A2 and A3 adds."""
HALF_TREE = 4096
"""Values of the first half of such a tree."""
PARTIAL_SUMS = PIECE_COLUMNS // LANE_COUNT
SMALLEST_NORMAL = np.float32(2.0**-126)
NEVER = 1 << 62
"""A place of partial sums that none reaches: nothing is overwritten."""
LOSS, WEIGHT, SMOOTHING, MAXIMUM, LOGARITHM = range(5)
"""Rows of the array with numbers for every row of the call."""
SUMMED = 3
"""Rows of that array that the cores add up."""


class Form(NamedTuple):
    """What the products compute differently, apart from the order of additions."""

    lowest: np.float32
    """Smallest maximum of a row."""
    least_exp: np.float32
    """Results of exp below it are 0."""
    is_two_step: bool
    """Whether maximum and logarithm are subtracted one after the other."""
    sign: np.float32
    """Factor of the log-probability of the label."""
    ignored_loss: np.float32
    """Loss of an ignored row; its weight is 0."""
    ignored_smoothing: np.float32


class Split(NamedTuple):
    """How the columns of a row are added."""

    columns: int
    """Columns of a chunk or block; of a whole row on Ascend 950, with its padding."""
    sums: int = 1
    """Blocks of a cut row on Ascend 950 that are left after pairing."""


class Labels(NamedTuple):
    """Labels of a call and the weights of the classes."""

    target: Integers
    """All in [0, C), or ``ignored``."""
    weight: Floats
    """Weight of every class; empty if there are none."""
    ignored: int
    smooths: bool
    """Whether the log-probabilities of every row are added up."""


class Rows(NamedTuple):
    """Input and outputs of a call, one row for each label."""

    x: NDArray[Any]
    log_prob: NDArray[Any]
    parts: Floats
    """(5, N): loss, weight, smoothing, maximum and logarithm of the sum of every row."""


class Row(NamedTuple):
    """Values of one row: ((x - first) - second) * weight."""

    x: NDArray[Any]
    weight: Floats
    """Weight of every class; empty: 1."""
    first: np.float32
    second: np.float32
    least_exp: np.float32


@device_function
def _exp_at(row: Row, column: int) -> Any:
    """Return exp(x - first) of a group of columns; prefetch those of the next row."""
    prefetch_lines(row.x, column + row.x.size, GROUP_LANES)
    return zero_below(exp_nearest(load_group(row.x, column) - row.first), row.least_exp)


@device_function
def _log_prob_at(row: Row, column: int) -> Any:
    """Return the log-probabilities of a group of columns, with weights multiplied by them."""
    log_prob = (load_group(row.x, column) - row.first) - row.second
    return log_prob * load_group(row.weight, column) if row.weight.size > 0 else log_prob


@device_function
def _write_terms(row: Row, begin: int, end: int, values: Floats, terms_at: Any) -> None:
    """Write the terms of the columns begin..end; ``values`` has three more groups, for scratch.

    The last vector may overlap the previous one; both write the same values.
    """
    count = end - begin
    if count >= GROUP_LANES:
        for place in range(0, count, GROUP_LANES):
            place = min(place, count - GROUP_LANES)
            store_lanes(values, place, terms_at(row, begin + place))
        return
    # Fewer columns than a vector has: read from a copy of that size.
    copies = values[GROUP_LANES:]
    clear(copies[: 2 * GROUP_LANES])
    for column in range(count):
        copies[column] = widen(row.x[begin + column])
        if row.weight.size > 0:
            copies[GROUP_LANES + column] = row.weight[begin + column]
    weight = copies[GROUP_LANES : 2 * GROUP_LANES if row.weight.size > 0 else GROUP_LANES]
    copy = Row(copies[:GROUP_LANES], weight, row.first, row.second, row.least_exp)
    store_lanes(values, 0, terms_at(copy, 0))


@device_function
def _tree(values: Floats, sums: Floats, lanes: Floats) -> np.float32:
    """Return the sum of at most 8192 values as a tree of neighbours, never -0."""
    groups = 0
    for begin in range(0, values.size, LANE_COUNT):
        group = values[begin : begin + LANE_COUNT]
        sums[groups] = add_lanes(group) if group.size == LANE_COUNT else tree64(group, lanes)
        groups += 1
    total = tree64(sums[: min(groups, LANE_COUNT)], lanes)
    if groups > LANE_COUNT:
        total = total + tree64(sums[LANE_COUNT:groups], lanes)
    return total + ZERO


@device_function
def _pieces_sum(row: Row, split: Split, values: Floats, lanes: Floats, terms_at: Any) -> np.float32:
    """Return the sum of a row of Atlas A2 and A3."""
    total, sums = ZERO, lanes[LANE_COUNT : LANE_COUNT + PARTIAL_SUMS]
    lanes = lanes[:LANE_COUNT]
    for chunk in range(0, row.x.size, split.columns):
        stop = min(chunk + split.columns, row.x.size)
        for begin in range(chunk, stop, PIECE_COLUMNS):
            end = min(begin + PIECE_COLUMNS, stop)
            _write_terms(row, begin, end, values, terms_at)
            total = total + _tree(values[: end - begin], sums, lanes)
    return total


@device_function
def folded_sum(values: Floats, lanes: Floats) -> np.float32:
    """Return the library's sum that keeps its source, of a multiple of 8 values (page, "rn").

    Overwrites the values.
    """
    count = values.size
    if count <= LANE_COUNT:
        return row_sum(values, lanes)
    power = largest_power(count)
    if power == count:
        power //= 2
    behind = count - power
    whole = behind // LANE_COUNT * LANE_COUNT
    fold(values, power, whole)
    add_to(values[: behind - whole], values[power + whole : count])
    groups16(values, power // LANE_COUNT)
    return add_lanes(values[:LANE_COUNT])


@device_function
def _whole_sum(row: Row, split: Split, values: Floats, lanes: Floats, terms_at: Any) -> np.float32:
    """Return the sum of a whole row of Ascend 950."""
    _write_terms(row, 0, row.x.size, values, terms_at)
    clear(values[row.x.size : split.columns])
    return folded_sum(values[: split.columns], lanes[:LANE_COUNT])


@device_function
def _blocks_sum(row: Row, split: Split, values: Floats, lanes: Floats, terms_at: Any) -> np.float32:
    """Return the sum of a cut row of Ascend 950."""
    columns, half = split.columns, values.size // 2
    sums, partner = lanes[LANE_COUNT : LANE_COUNT + split.sums], values[half:]
    for block in range(split.sums):
        begin = block * columns
        end = min(begin + columns, row.x.size)
        _write_terms(row, begin, end, values[:half], terms_at)
        begin += split.sums * columns
        if begin < row.x.size:
            count = min(columns, row.x.size - begin)
            _write_terms(row, begin, begin + count, partner, terms_at)
            add_to(values[:count], partner[:count])
        padded = (end - block * columns + 7) // 8 * 8
        clear(values[end - block * columns : padded])
        sums[block] = row_sum(values[:padded], lanes[:LANE_COUNT])
    return _neighbours(sums)


@device_function
def _neighbours(values: Floats) -> np.float32:
    """Return the sum of a power of two of values as a tree of neighbours; overwrites them."""
    count = values.size
    while count > 1:
        count //= 2
        for position in range(count):
            values[position] = values[2 * position] + values[2 * position + 1]
    return values[0]


@device_function
def _maximum(x: NDArray[Any], lowest: np.float32) -> np.float32:
    """Return the maximum of a row and ``lowest``; nan is skipped."""
    step, found = block_length(x), lowest
    if x.size < step:
        for column in range(x.size):
            found = max(found, widen(x[column]))
        return found
    block = zero_block(x) + lowest
    for column in range(0, x.size, step):
        block = larger(load_block(x, min(column, x.size - step)), block)
    return largest(block)


@device_function
def _logarithm(x: np.float32) -> np.float32:
    return np.float32(math.log(np.float64(x))) if x > ZERO else x - np.float32(np.inf)


@device_function
def _line_of(row: Row, column: int) -> Any:
    """Return a cache line of log_prob."""
    return (load(row.x, column) - row.first) - row.second


@device_function
def _part_of(row: Row, column: int, begin: int, stop: int) -> Any:
    """Return the elements begin..stop of a cache line of log_prob."""
    return (load_some(row.x, column, begin, stop, row.x) - row.first) - row.second


@device_function
def _compute_rows(
    chunk: int,
    rows: Rows,
    labels: Labels,
    form: Form,
    split: Split,
    streams: bool,
    scratch: tuple[Floats, Floats],
    sum_row: Any,
) -> None:
    """Compute a chunk of the rows; ``sum_row`` is a constant of a kernel."""
    count, chunks = len(rows.x), len(scratch[0])
    values, lanes, parts = scratch[0][chunk], scratch[1][chunk], rows.parts
    for number in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        x, label = rows.x[number], labels.target[number]
        highest = _maximum(x, form.lowest)
        exps = Row(x, labels.weight, highest, ZERO, form.least_exp)
        logarithm = _logarithm(sum_row(exps, split, values, lanes, _exp_at))
        parts[MAXIMUM, number], parts[LOGARITHM, number] = highest, logarithm
        first = highest if form.is_two_step else logarithm + highest
        second = logarithm if form.is_two_step else ZERO
        row = Row(x, labels.weight, first, second, ZERO)
        write_row(row, rows.log_prob[number], streams, _line_of, _part_of)
        if label == labels.ignored:
            parts[LOSS, number], parts[WEIGHT, number] = form.ignored_loss, ZERO
            parts[SMOOTHING, number] = form.ignored_smoothing
            continue
        weight = labels.weight[label] if labels.weight.size > 0 else np.float32(1)
        log_prob = (widen(x[label]) - first) - second
        parts[LOSS, number], parts[WEIGHT, number] = (log_prob * form.sign) * weight, weight
        if labels.smooths:
            parts[SMOOTHING, number] = -sum_row(row, split, values, lanes, _log_prob_at)
    end_streams()


@kernel
def _pieces(chunk, rows, labels, form, split, streams, scratch) -> None:
    """Rows of Atlas A2 and A3."""
    _compute_rows(chunk, rows, labels, form, split, streams, scratch, _pieces_sum)


@kernel
def _whole(chunk, rows, labels, form, split, streams, scratch) -> None:
    """Whole rows of Ascend 950."""
    _compute_rows(chunk, rows, labels, form, split, streams, scratch, _whole_sum)


@kernel
def _blocks(chunk, rows, labels, form, split, streams, scratch) -> None:
    """Cut rows of Ascend 950."""
    _compute_rows(chunk, rows, labels, form, split, streams, scratch, _blocks_sum)


KERNELS = {"pieces": _pieces, "whole": _whole, "blocks": _blocks}
"""Kernels by the order in which they add a row."""


def loss_of_rows(rows: Rows, labels: Labels, form: Form, split: Split, order: str) -> None:
    """Write log_prob, and the parts of the loss of every row.

    Parameters
    ----------
    rows
        ``x`` and ``log_prob`` (N, C) are storage arrays of one dtype, with at least one column.
    labels, form, split
        See the classes.
    order
        Key of ``KERNELS``.
    """
    threads = threads_for(rows.x.nbytes + rows.log_prob.nbytes)
    longest = PIECE_COLUMNS if order == "pieces" else max(split.columns, LANE_COUNT)
    space = longest + 3 * GROUP_LANES
    values = thread_scratch(threads, 2 * space if order == "blocks" else space)
    lanes = thread_scratch(threads, LANE_COUNT + max(PARTIAL_SUMS, split.sums))
    streams = streams_rows(rows.log_prob)
    KERNELS[order].over(threads, rows, labels, form, split, streams, (values, lanes))


class Cores(NamedTuple):
    """How the cores add up the losses of the rows."""

    ranges: Integers
    """(cores, 2): first row and the row after the last of every core."""
    overwritten: int = NEVER
    """Atlas A2 and A3: partial sums beyond this place overwrite the sum of the first 4096 rows."""
    pass_rows: int = 0
    """Ascend 950: rows that a core adds at once."""
    is_whole: bool = False
    """Ascend 950: whether rows are whole, whose passes are added by the library's sum."""


@device_function
def _core_sum(values: Floats, overwritten: int, lanes: Floats) -> np.float32:
    """Return the sum of the rows of a core of Atlas A2 and A3, as the product has it.

    Of more than 8192 rows it adds the first 4096, and where the partial sums of 64 rows each lie
    upon the result, what is left are those that came last.
    """
    sums, count = lanes[LANE_COUNT : LANE_COUNT + PARTIAL_SUMS], values.size
    lanes = lanes[:LANE_COUNT]
    partial_sums = (count - HALF_TREE + LANE_COUNT - 1) // LANE_COUNT
    if count <= HALF_TREE or count == PIECE_COLUMNS:
        return _tree(values, sums, lanes)
    first = HALF_TREE + LANE_COUNT * overwritten
    if partial_sums > overwritten:
        total = tree64(values[first : min(first + LANE_COUNT, count)], lanes) + ZERO
    else:
        total = _tree(values[:HALF_TREE], sums, lanes)
    return total if count > PIECE_COLUMNS else total + _tree(values[HALF_TREE:], sums, lanes)


@kernel
def _sum_cores(part: int, parts: Floats, cores: Cores, scratch: Floats, totals: Floats) -> None:
    """Add one of the parts of the loss: per core, then over at most 64 cores."""
    lanes, core_sums = scratch[part], scratch[part, LANE_COUNT + PARTIAL_SUMS :]
    overwritten = cores.overwritten if part == LOSS else NEVER
    for core in range(len(cores.ranges)):
        values = parts[part, cores.ranges[core, 0] : cores.ranges[core, 1]]
        core_sums[core] = _core_sum(values, overwritten, lanes)
    totals[part] = tree64(core_sums[: len(cores.ranges)], lanes[:LANE_COUNT]) + ZERO


@kernel
def _sum_cores_in_passes(
    part: int, parts: Floats, cores: Cores, scratch: Floats, totals: Floats
) -> None:
    """Add one of the parts of the loss as Ascend 950 does; overwrites it."""
    lanes, sums = scratch[part, :LANE_COUNT], scratch[part, LANE_COUNT : LANE_COUNT + 8]
    clear(sums)
    for core in range(len(cores.ranges)):
        total = ZERO
        for begin in range(cores.ranges[core, 0], cores.ranges[core, 1], cores.pass_rows):
            values = parts[part, begin : min(begin + cores.pass_rows, cores.ranges[core, 1])]
            added = row_sum(values, lanes) if cores.is_whole else tree64(values, lanes)
            total = added + total
        sums[core % 8] = total + sums[core % 8]
    totals[part] = _neighbours(sums)


def totals_of(parts: Floats, cores: Cores) -> Floats:
    """Return the sums of losses, weights and smoothing, of ``parts`` (3, N), over all rows."""
    parts = parts.copy()  # sums overwrite it
    totals = np.zeros(len(parts), np.float32)
    scratch = thread_scratch(len(parts), LANE_COUNT + PARTIAL_SUMS + len(cores.ranges))
    sum_cores = _sum_cores_in_passes if cores.pass_rows else _sum_cores
    sum_cores.over(len(parts), parts, cores, scratch, totals)
    return totals
