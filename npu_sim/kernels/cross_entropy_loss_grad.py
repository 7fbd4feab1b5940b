"""CrossEntropyLossGrad: x_grad = exp(log_prob) * nll, less nll at the label of every row.

nll is the row's gradient of the loss, divided by the divisor of the reduction, times the mask and
weight of its label. Rows and columns are independent, so threads split pieces of rows evenly,
regardless of the simulated core split. Only the divisor of ``mean`` depends on the cores: each core
sums the weights of its rows, then the sums of the cores are added, both by ``reduce_sum``.

Ascend 950: a core adds its rows in passes, each with the library's row sum, and the sums of the
cores are added the same way. Labels and ignore_index are compared as integers; a negative
ignore_index masks nothing. Plain divisions and exp turn subnormal results into 0.

Slow references with the order of additions: ``tests/reference/cross_entropy_loss_grad.py`` and
``tests/ascend_950/test_cross_entropy_loss_grad.py``.

Sources: specification pages ``cross_entropy_loss_grad``, section "Kernel and order", and
``cross_entropy_loss_grad_950``, "Order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, threads_for
from npu_sim.kernels.vectors.lane_blocks import (
    LOWEST_MODERATE,
    block_length,
    exp_fp32,
    exp_moderate,
    exp_rounded,
    larger,
    largest,
    load_block,
    load_from_memory,
    patterns_at,
    store_numbers,
    stream_numbers,
)
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    NOTHING_YET,
    ONE,
    ZERO,
    Floats,
    Integers,
    end_streams,
    is_streamed,
    load,
    prefetch_to_write,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, write_ends
from npu_sim.kernels.vectors.row_sums import LANE_COUNT, reduce_sum, row_sum
from npu_sim.numbers.scalars import BF16_SHIFT, narrow, widen

CACHED_COLUMNS = 8192
"""Columns of a piece; a piece and its result stay in the L1 or L2 cache."""

SMALLEST_NORMAL = np.float32(2.0**-126)
MODERATE_LIMITS = {
    np.dtype(np.float32): int(np.float32(LOWEST_MODERATE).view(np.int32)),
    np.dtype(np.int16): int(np.float16(LOWEST_MODERATE).view(np.int16)),
    np.dtype(np.uint16): int(np.float32(LOWEST_MODERATE).view(np.int32)) >> BF16_SHIFT,
}
"""Pattern of the lowest moderate number by storage dtype. As signed integers the patterns of
negative numbers grow with their magnitude, and those of all others are larger: no element of [-87,
-0] has a pattern above its limit, and every other has."""


class Labels(NamedTuple):
    """Labels of a call and the weights of the classes."""

    target: Integers
    weight: Floats
    """Weight of every class; empty if there are no weights."""
    columns: int
    """C: labels are in [0, C)."""
    ignored: int
    """ignore_index: rows with this label are masked."""
    in_fp32: bool
    """Whether labels and ``ignored`` are compared in fp32; ``ignored`` is then a label of its own,
    which may be outside [0, C)."""


class Passes(NamedTuple):
    """How the cores add the divisor of ``mean``."""

    ranges: Integers
    """(cores, 2): first row and the row after the last of every core."""
    rows: int = 0
    """Rows of a pass; 0 for a core that sums all its rows at once."""
    start_at_zero: bool = False
    """Whether a core with less than a pass adds its sum to +0 too."""


class Survey(NamedTuple):
    """Result of checking and counting the labels."""

    out_of_range: int
    """Row of the first label outside [0, C); -1 when there is none."""
    ignored: int
    """Number of masked rows."""
    aliased: int
    """Number of those rows whose label differs from ignore_index as an integer."""
    divisor: np.float32
    """Sum of mask * weight of all rows, when requested; otherwise 1."""


class Counts(NamedTuple):
    """Results of `_survey` and its scratch."""

    labels: Integers
    """(3,): first row whose label is out of range, masked rows, aliased rows; see `Survey`."""
    values: Floats
    """(N,): mask, or mask * weight, of every row; overwritten by the sums."""
    sums: Floats
    """(cores + 1,): sum of each core's values, and the sum of these sums."""
    lanes: Floats
    """(64,): scratch."""


@device_function
def _mask_of(label: np.int64, labels: Labels) -> np.float32:
    """Return 0 for the ignored label, 1 for others."""
    if labels.in_fp32:
        return ZERO if np.float32(label) == np.float32(np.int64(labels.ignored)) else ONE
    return ZERO if label == labels.ignored else ONE


@device_function
def _weighted(factor: np.float32, label: np.int64, labels: Labels) -> np.float32:
    """Return ``factor`` times mask and weight of a label.

    The device multiplies by mask * weight at once in places: with a mask of 0 or 1 the bits are the
    same. So is the multiplication by 1 for label smoothing 0.
    """
    factor = factor * _mask_of(label, labels)
    if labels.weight.size == 0:
        return factor
    # An ignored label may be outside [0, C).
    return factor * (labels.weight[label] if 0 <= label < labels.weight.size else ZERO)


@device_function
def _reduced(values: Floats, passes: Passes, lanes: Floats) -> np.float32:
    """Return the sum of the values of one core, or of the sums of all."""
    return reduce_sum(values, lanes)


@device_function
def _sum_of_passes(values: Floats, passes: Passes, lanes: Floats) -> np.float32:
    """Like `_reduced`, pass by pass; overwrites the values."""
    is_one_pass = 0 < values.size < passes.rows and not passes.start_at_zero
    total = NOTHING_YET if is_one_pass else ZERO
    for begin in range(0, values.size, passes.rows):
        total = total + row_sum(values[begin : begin + passes.rows], lanes)
    return total


@device_function
def _survey_labels(
    labels: Labels, passes: Passes, sums_up: bool, counts: Counts, sum_core: Any
) -> None:
    """Check and count the labels; with ``sums_up`` add the values of each core, then these sums.

    ``sum_core(values, passes, lanes)`` is a constant of a kernel.
    """
    first, masked, aliased = -1, 0, 0
    for row in range(labels.target.size):
        label = labels.target[row]
        is_class = not labels.in_fp32 or label != labels.ignored
        if is_class and not 0 <= label < labels.columns and first < 0:
            first = row
        if _mask_of(label, labels) == ZERO:
            masked += 1
            aliased += label != labels.ignored
        counts.values[row] = _weighted(ONE, label, labels)
    counts.labels[0], counts.labels[1], counts.labels[2] = first, masked, aliased
    if not sums_up or first >= 0:
        return
    cores = len(passes.ranges)
    for core in range(cores + 1):
        values, passes_of_values = counts.sums[:cores], Passes(passes.ranges, cores + 1, False)
        if core < cores:
            values = counts.values[passes.ranges[core, 0] : passes.ranges[core, 1]]
            passes_of_values = passes
        counts.sums[core] = sum_core(values, passes_of_values, counts.lanes)


@kernel
def _survey(chunk: int, labels: Labels, passes: Passes, sums_up: bool, counts: Counts) -> None:
    """Survey the labels; a core sums all its values at once."""
    _survey_labels(labels, passes, sums_up, counts, _reduced)


@kernel
def _survey_in_passes(
    chunk: int, labels: Labels, passes: Passes, sums_up: bool, counts: Counts
) -> None:
    """Survey the labels; a core sums its values in passes."""
    _survey_labels(labels, passes, sums_up, counts, _sum_of_passes)


@device_function
def _scale_moderate(log_prob, factor: np.float32, out):
    """Write exp(log_prob) * factor for log_prob in [-87, -0]; return the largest bit pattern.

    The result is valid only if that pattern is at most the limit in ``MODERATE_LIMITS``. There is
    at least one block of columns. The last block overlaps the previous one; both write the same
    values.
    """
    step = block_length(out)
    last = out.size - step
    patterns = patterns_at(log_prob, last)
    for index in range(0, last + 1, step):
        patterns = larger(patterns, patterns_at(log_prob, index))
        store_numbers(out, index, exp_moderate(load_from_memory(log_prob, index, True)) * factor)
    store_numbers(out, last, exp_moderate(load_block(log_prob, last)) * factor)
    return largest(patterns)


@device_function
def _part_of(inputs: tuple[NDArray[Any], np.float32], column: int, begin: int, stop: int) -> Any:
    """Return exp(log_prob) * factor for the elements begin..stop of a cache line."""
    log_prob, factor = inputs
    return exp_moderate(load_some(log_prob, column, begin, stop, log_prob)) * factor


@device_function
def _stream_moderate(log_prob, factor: np.float32, out):
    """Like `_scale_moderate`, with non-temporal stores.

    Writes whole cache lines, then the partial lines at both ends. The line at the end of the row is
    prefetched: fetched late, it would delay the lines behind it.
    """
    step, line = block_length(out), LINE_BYTES // out.itemsize
    first, last = to_next_line(out, 0), out.size - step
    lines_end = first + (out.size - first) // line * line
    if lines_end < out.size:
        prefetch_to_write(out, lines_end)
    patterns = larger(patterns_at(log_prob, 0), patterns_at(log_prob, last))
    blocks_end = first + (lines_end - first) // step * step
    for index in range(first, blocks_end, step):
        patterns = larger(patterns, patterns_at(log_prob, index))
        stream_numbers(out, index, exp_moderate(load_from_memory(log_prob, index, True)) * factor)
    for index in range(blocks_end, lines_end, line):
        patterns = larger(patterns, patterns_at(log_prob, min(index, last)))
        stream(out, index, exp_moderate(load(log_prob, index)) * factor)
    write_ends((log_prob, factor), out, first, lines_end, _part_of)
    return largest(patterns)


@device_function
def flush(number: np.float32) -> np.float32:
    """Return 0 for a subnormal number, others as they are."""
    return ZERO if abs(number) < SMALLEST_NORMAL else number


@device_function
def _scale(log_prob, factor: np.float32, out, flushes: bool) -> None:
    """Write exp(log_prob) * factor for any values."""
    for column in range(out.size):
        exp = exp_fp32(widen(log_prob[column]))
        out[column] = narrow((flush(exp) if flushes else exp) * factor, out)


@device_function
def write_piece(
    log_prob, limit, factor: np.float32, label: int, out, streams: bool, flushes: bool
) -> None:
    """Write a piece of a row; ``label`` is relative to its first column and may lie outside.

    ``limit`` is the pattern of the lowest moderate number of the storage dtype. With ``flushes``,
    subnormal results of exp become 0.
    """
    pattern = limit + 1
    if factor - factor == ZERO and out.size >= block_length(out):
        pattern = np.int64(
            _stream_moderate(log_prob, factor, out)
            if streams
            else _scale_moderate(log_prob, factor, out)
        )
    if pattern > limit:
        _scale(log_prob, factor, out, flushes)
    if 0 <= label < out.size:
        # exp(log_prob) * nll - nll cancels where log_prob is near 0.
        exp = exp_rounded(widen(log_prob[label]))
        out[label] = narrow((flush(exp) if flushes else exp) * factor - factor, out)


class Division(NamedTuple):
    """Division of the gradients of the loss, and treatment of subnormal numbers."""

    divisor: np.float32
    """S of ``mean``; 1 for other reductions: a division by 1 changes nothing."""
    flushes_exp: bool = False
    """Whether exp turns subnormal results into 0."""
    flushes: bool = False
    """Whether the division turns subnormal numbers into 0."""


class Gradient(NamedTuple):
    """Inputs and output of `_write_rows`; see `write_gradient`."""

    grad_loss: Floats
    division: Division
    log_prob: NDArray[Any]
    out: NDArray[Any]


@device_function
def _factor(loss: np.float32, label: np.int64, labels: Labels, division: Division) -> np.float32:
    """Return nll of a row."""
    divisor = division.divisor
    loss = flush(flush(loss) / flush(divisor)) if division.flushes else loss / divisor
    return _weighted(loss, label, labels)


@kernel
def _write_rows(
    chunk: int, chunks: int, streams: bool, gradient: Gradient, limit: int, labels: Labels
) -> None:
    """Write a chunk of the pieces of all rows."""
    out, grad_loss, division = gradient.out, gradient.grad_loss, gradient.division
    columns = out.shape[1]
    pieces = (columns + CACHED_COLUMNS - 1) // CACHED_COLUMNS
    is_per_row = grad_loss.size > 1
    all_pieces = out.shape[0] * pieces
    for number in range(all_pieces * chunk // chunks, all_pieces * (chunk + 1) // chunks):
        row = number // pieces
        begin = (number - row * pieces) * CACHED_COLUMNS
        end = min(begin + CACHED_COLUMNS, columns)
        label = labels.target[row]
        factor = _factor(grad_loss[row if is_per_row else 0], label, labels, division)
        log_prob, piece = gradient.log_prob[row, begin:end], out[row, begin:end]
        write_piece(log_prob, limit, factor, label - begin, piece, streams, division.flushes_exp)
    end_streams()


def survey_labels(labels: Labels, passes: Passes, sums_up: bool) -> Survey:
    """Check and count labels, and sum their weights in the order of the device.

    Parameters
    ----------
    labels, passes
        See the classes.
    sums_up
        Whether the divisor is a sum.
    """
    cores = len(passes.ranges)
    counts = Counts(
        np.empty(3, np.int64),
        np.empty(labels.target.size, np.float32),
        np.empty(cores + 1, np.float32),
        np.empty(LANE_COUNT, np.float32),
    )
    survey = _survey_in_passes if passes.rows else _survey
    survey.over(1, labels, passes, sums_up, counts)
    first, ignored, aliased = counts.labels.tolist()
    return Survey(first, ignored, aliased, counts.sums[cores] if sums_up else ONE)


def write_gradient(
    grad_loss: Floats, division: Division, log_prob: NDArray[Any], labels: Labels, out: NDArray[Any]
) -> None:
    """Compute x_grad.

    Parameters
    ----------
    grad_loss : float32 (N,) or (1,)
        One gradient for every row, or one for all.
    division
        Of the reduction.
    log_prob, out : (N, C)
        Storage arrays of one dtype; ``out`` is written.
    labels
        All in [0, C), or the ignored label.
    """
    chunks = threads_for(log_prob.nbytes + out.nbytes)
    gradient = Gradient(grad_loss, division, log_prob, out)
    _write_rows.over(
        chunks, chunks, is_streamed(out), gradient, MODERATE_LIMITS[log_prob.dtype], labels
    )
