"""CrossEntropyLossGrad in the product's arithmetic: x_grad = exp(log_prob) * nll, less nll at the label of every row.

Source: specification page ``cross_entropy_loss_grad``, section "Kernel and order".
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.exponential import LOWEST_MODERATE, exp_fp32, exp_moderate, exp_rounded
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    larger,
    largest,
    load_block,
    patterns_at,
    store_numbers,
    stream_numbers,
)
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    end_streams,
    is_streamed,
    load,
    prefetch_lines,
    prefetch_to_write,
    splat,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, merge, store_some
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, reduce_sum
from npu_sim.numbers.rounding import BF16_SHIFT
from npu_sim.numbers.scalars import narrow, widen

PIECE_COLUMNS = 8192
"""Columns a thread takes at once: one piece and its result stay in the first- or second-level
cache."""

LOOKAHEAD_BYTES = 8192
"""How far ahead log_prob is asked for, across the ends of rows: the processor's own prefetching
left it waiting for a quarter of the time in fp32 and a third in 16 bits. 4 to 64 KiB made no
difference."""

_ZERO = np.float32(0)
_ONE = np.float32(1)
_MODERATE_LIMITS = {
    np.dtype(np.float32): int(np.float32(LOWEST_MODERATE).view(np.int32)),
    np.dtype(np.int16): int(np.float16(LOWEST_MODERATE).view(np.int16)),
    np.dtype(np.uint16): int(np.float32(LOWEST_MODERATE).view(np.int32)) >> BF16_SHIFT,
}
"""Pattern of the lowest moderate number by storage dtype. As signed integers the patterns of
negative numbers grow with their magnitude, and those of all others are larger: no element of [-87,
-0] has a pattern above its limit, and every other has."""
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Survey(NamedTuple):
    """What the labels say before anything is computed.

    Attributes
    ----------
    out_of_range
        Row of the first label outside [0, C) that is not ignore_index; -1 when there is none.
    ignored
        Rows whose label counts as ignore_index.
    aliased
        Those of them whose label is another one.
    divisor
        What ``mean`` divides by; 1 for other reductions.
    """

    out_of_range: int
    ignored: int
    aliased: int
    divisor: np.float32


@device_function
def _mask_of(label: np.int64, ignored: np.float32) -> np.float32:
    """Return 0 for the ignored label and 1 for others; compared in fp32, as the device does."""
    return _ZERO if np.float32(label) == ignored else _ONE


@device_function
def _weight_of(label: np.int64, weight: Floats) -> np.float32:
    """Return the weight of a label; an ignored label outside [0, C) reads none."""
    return weight[label] if 0 <= label < weight.size else _ZERO


@device_function
def _survey_rows(target, weight, weighted, columns, ignore_index, ignored, weights, found) -> None:
    """Look at the labels of one core: write mask or mask * weight to ``weights``, and what a :class:`Survey` counts to ``found``."""
    out_of_range, masked, aliased = -1, 0, 0
    for row in range(target.size):
        label = target[row]
        if label != ignore_index and not 0 <= label < columns and out_of_range < 0:
            out_of_range = row
        mask = _mask_of(label, ignored)
        if mask == _ZERO:
            masked += 1
            aliased += label != ignore_index
        weights[row] = mask * _weight_of(label, weight) if weighted else mask
    found[0], found[1], found[2] = out_of_range, masked, aliased


@kernel
def _survey(
    share,
    target,
    weight,
    weighted,
    columns,
    ignore_index,
    ignored,
    ranges,
    weights,
    found,
    sums: Floats,
    lanes: Floats,
) -> None:
    """Survey the labels of every core; write the sum of each core's weights to ``sums``, and in the last place the sum of these."""
    cores = len(ranges)
    for core in range(cores + 1):
        terms = sums[:cores]
        if core < cores:
            first, last = ranges[core, 0], ranges[core, 1]
            terms = weights[first:last]
            _survey_rows(
                target[first:last],
                weight,
                weighted,
                columns,
                ignore_index,
                ignored,
                terms,
                found[core],
            )
        sums[core] = reduce_sum(terms, lanes)


@device_function
def _scale_moderate(log_prob, factor: np.float32, out):
    """Write exp(log_prob) * factor where every log_prob is in [-87, -0]; return the largest pattern, which tells whether it was.

    There is at least one block of columns. The last block overlaps the one before; what is written
    twice is the same.
    """
    step = block_length(out)
    last = out.size - step
    patterns = patterns_at(log_prob, last)
    for index in range(0, last + 1, step):
        prefetch_lines(log_prob, index + LOOKAHEAD_BYTES // out.itemsize, step)
        patterns = larger(patterns, patterns_at(log_prob, index))
        store_numbers(out, index, exp_moderate(load_block(log_prob, index)) * factor)
    store_numbers(out, last, exp_moderate(load_block(log_prob, last)) * factor)
    return largest(patterns)


@device_function
def _stream_moderate(log_prob, factor: np.float32, label: int, at_label: np.float32, out):
    """The same past the cache: whole lines, then the parts of lines at both ends; the element of ``label`` is ``at_label`` at once.

    Stored later it would have to be fetched back, and hold up the lines behind it; so would the end
    of the row, which is asked for.
    """
    step, line = block_length(out), LINE_BYTES // out.itemsize
    first = to_next_line(out, 0)
    lines_end = first + (out.size - first) // line * line
    if lines_end < out.size:
        prefetch_to_write(out, lines_end)
    patterns = larger(patterns_at(log_prob, 0), patterns_at(log_prob, out.size - step))
    in_lines = first <= label < lines_end
    label_line = label - (label - first) % line if in_lines else lines_end
    begin = first
    for stop in (label_line, lines_end):
        blocks_end = begin + (stop - begin) // step * step
        for index in range(begin, blocks_end, step):
            prefetch_lines(log_prob, index + LOOKAHEAD_BYTES // out.itemsize, step)
            patterns = larger(patterns, patterns_at(log_prob, index))
            stream_numbers(out, index, exp_moderate(load_block(log_prob, index)) * factor)
        for index in range(blocks_end, stop, line):
            patterns = larger(patterns, patterns_at(log_prob, min(index, out.size - step)))
            stream(out, index, exp_moderate(load(log_prob, index)) * factor)
        begin = stop
        if in_lines and stop == label_line:
            patterns = larger(patterns, patterns_at(log_prob, min(label_line, out.size - step)))
            lanes, place = exp_moderate(load(log_prob, label_line)) * factor, label - label_line
            below = merge(lanes, splat(at_label, out), place, out)
            stream(out, label_line, merge(below, lanes, place + 1, out))
            begin = label_line + line
            in_lines = False
    for side in range(2):
        column, start, stop = (
            (first - line, line - first, line)
            if side == 0
            else (lines_end, 0, out.size - lines_end)
        )
        if start < stop:
            store_some(
                out,
                column,
                exp_moderate(load_some(log_prob, column, start, stop, out)) * factor,
                start,
                stop,
            )
    if 0 <= label < first or lines_end <= label < out.size:
        out[label] = narrow(at_label, out)
    return largest(patterns)


@device_function
def _scale(log_prob, factor: np.float32, out) -> None:
    """Write exp(log_prob) * factor."""
    for column in range(out.size):
        out[column] = narrow(exp_fp32(widen(log_prob[column])) * factor, out)


@device_function
def _write_piece(log_prob, limit, factor: np.float32, label: int, out, streams: bool) -> None:
    """Write a piece of a row; ``label`` counts from its first column and may lie outside."""
    is_finite = factor - factor == _ZERO
    found, at_label = limit + 1, _ZERO
    if 0 <= label < out.size:
        # exp(log_prob) * nll - nll cancels where log_prob is near 0.
        at_label = exp_rounded(widen(log_prob[label])) * factor - factor
    if is_finite and out.size >= block_length(out):
        if streams:
            found = np.int64(_stream_moderate(log_prob, factor, label, at_label, out))
        else:
            found = np.int64(_scale_moderate(log_prob, factor, out))
    if found > limit:
        _scale(log_prob, factor, out)
    if 0 <= label < out.size and (found > limit or not streams):
        out[label] = narrow(at_label, out)


@kernel
def _write_rows(
    share,
    shares,
    streams,
    grad_loss: Floats,
    divisor,
    log_prob,
    limit,
    target,
    weight,
    weighted,
    ignored,
    out,
) -> None:
    """Write a share of the pieces of all rows."""
    columns = out.shape[1]
    pieces = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS
    one_for_a_row = grad_loss.size > 1
    all_pieces = out.shape[0] * pieces
    for item in range(all_pieces * share // shares, all_pieces * (share + 1) // shares):
        row = item // pieces
        begin = (item - row * pieces) * PIECE_COLUMNS
        end = min(begin + PIECE_COLUMNS, columns)
        label = target[row]
        # Label smoothing 0 multiplies the gradient by 1 first, which changes nothing; so does a
        # divisor of 1.
        factor = (grad_loss[row if one_for_a_row else 0] / divisor) * _mask_of(label, ignored)
        if weighted:
            factor = factor * _weight_of(label, weight)
        _write_piece(
            log_prob[row, begin:end], limit, factor, label - begin, out[row, begin:end], streams
        )
    end_streams()


def survey_labels(
    target: Integers,
    weight: Floats | None,
    columns: int,
    ignore_index: int,
    ranges: Integers,
    mean: bool,
    core_sums: Floats | None = None,
) -> Survey:
    """Check and count labels, and sum their weights in the order of the product.

    Parameters
    ----------
    target : int64 (N,)
    weight : float32 (C,), or None
    columns
        C.
    ranges : int64 (cores, 2)
        First row and the row after the last of every core.
    mean
        Whether the divisor is wanted.
    core_sums : float32 (cores,), or None
        Where every core leaves its sum: workspace of the product.
    """
    found = np.empty((len(ranges), 3), np.int64)
    sums = np.empty(len(ranges) + 1, np.float32)
    weights, lanes = np.empty(target.size, np.float32), np.empty(LANE_COUNT, np.float32)
    options = weight is not None, columns, ignore_index, _as_fp32(ignore_index)
    _survey.over(1, target, _or_empty(weight), *options, ranges, weights, found, sums, lanes)
    if core_sums is not None:
        core_sums[:] = sums[:-1]
    places, ignored, aliased = found.T.tolist()
    first = next(
        (int(ranges[core, 0]) + place for core, place in enumerate(places) if place >= 0), -1
    )
    return Survey(first, sum(ignored), sum(aliased), sums[-1] if mean else _ONE)


def write_gradient(
    grad_loss: Floats,
    divisor: np.float32,
    log_prob: NDArray[Any],
    target: Integers,
    weight: Floats | None,
    ignore_index: int,
    out: NDArray[Any],
) -> None:
    """Compute x_grad.

    Parameters
    ----------
    grad_loss : float32 (N,) or (1,)
        One gradient for every row, or one for all.
    divisor
        From the survey.
    log_prob, out : (N, C)
        Storage arrays of one dtype; ``out`` is written.
    target : int64 (N,)
        Labels in [0, C), or ``ignore_index``.
    weight : float32 (C,), or None
    """
    limit, ignored = _MODERATE_LIMITS[log_prob.dtype], _as_fp32(ignore_index)
    shares = threads_for(log_prob.nbytes + out.nbytes)
    _write_rows.over(
        shares,
        shares,
        is_streamed(out),
        grad_loss,
        divisor,
        log_prob,
        limit,
        target,
        _or_empty(weight),
        weight is not None,
        ignored,
        out,
    )


def _or_empty(weight: Floats | None) -> Floats:
    return np.empty(0, np.float32) if weight is None else weight


@lru_cache(maxsize=64)
def _as_fp32(ignore_index: int) -> np.float32:
    rounded: np.float32 = np.int64(ignore_index).astype(np.float32)
    return rounded
