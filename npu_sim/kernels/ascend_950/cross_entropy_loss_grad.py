"""CrossEntropyLossGrad on Ascend 950: x_grad = exp(log_prob) * q, less q at the label of every row.

q is the row's gradient of the loss, divided by the divisor of ``mean``, times the mask and the
weight of its label. The divisor is the sum of mask * weight: every core adds its rows in passes,
each with the library's row sum, then the sums of the cores are added the same way. Labels and
ignore_index are compared as integers; a negative ignore_index masks nothing.

Plain divisions and exp turn subnormal results into 0. Each piece of a row is written by
`write_piece` of the A2 kernel.

Slow reference with the order of additions: ``tests/ascend_950/test_cross_entropy_loss_grad.py``.

Source: specification page ``cross_entropy_loss_grad_950``, "Order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.cross_entropy_loss_grad import (
    MODERATE_LIMITS,
    PIECE_COLUMNS,
    flush,
    write_piece,
)
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lanes import end_streams, is_streamed
from npu_sim.kernels.vectors.row_sums import LANE_COUNT, row_sum

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

_ZERO = np.float32(0)
_ONE = np.float32(1)


class Labels(NamedTuple):
    """Labels of a call and the weights of the classes."""

    target: Integers
    weight: Floats
    """Empty if there are no weights."""
    columns: int
    ignored: int
    """The label that is masked; negative for none."""


class Passes(NamedTuple):
    """How the cores add the divisor of ``mean``.

    Attributes
    ----------
    ranges
        (cores, 2): first row and the row after the last of every core.
    rows
        Rows of a pass.
    start_at_zero
        Whether a core with less than a pass adds its sum to +0 too.
    """

    ranges: Integers
    rows: int
    start_at_zero: bool


class Counts(NamedTuple):
    """Results of `_survey` and its scratch.

    Attributes
    ----------
    labels
        (2,): first row whose label is out of range, or -1; masked rows.
    values
        (N,): mask * weight of every row; overwritten by the sums.
    sums
        (cores + 1,): sum of every core, and their sum.
    lanes
        (64,): scratch.
    """

    labels: Integers
    values: Floats
    sums: Floats
    lanes: Floats


@device_function
def _mask_of(label: int, labels: Labels) -> np.float32:
    """Return 0 for the ignored label, 1 for others."""
    return _ZERO if label == labels.ignored else _ONE


@device_function
def _core_sum(values: Floats, passes: Passes, lanes: Floats) -> np.float32:
    """Return the sum of the values of one core; overwrites them."""
    if values.size < passes.rows and not passes.start_at_zero:
        return row_sum(values, lanes)
    total = _ZERO
    for begin in range(0, values.size, passes.rows):
        total = total + row_sum(values[begin : begin + passes.rows], lanes)
    return total


@kernel
def _survey(chunk: int, labels: Labels, passes: Passes, sums_up: bool, counts: Counts) -> None:
    """Check and count the labels; with ``sums_up`` add the values of each core, then these sums."""
    counts.labels[0], counts.labels[1] = -1, 0
    for row in range(labels.target.size):
        label = labels.target[row]
        if not 0 <= label < labels.columns:
            counts.labels[0] = row
            return
        mask = _mask_of(label, labels)
        counts.labels[1] += mask == _ZERO
        counts.values[row] = mask * labels.weight[label] if labels.weight.size else mask
    if not sums_up:
        return
    cores = len(passes.ranges)
    for core in range(cores):
        first, last = passes.ranges[core, 0], passes.ranges[core, 1]
        counts.sums[core] = _core_sum(counts.values[first:last], passes, counts.lanes)
    for core in range(cores):
        counts.values[core] = counts.sums[core]
    counts.sums[cores] = row_sum(counts.values[:cores], counts.lanes)


class Survey(NamedTuple):
    """Result of checking and counting the labels.

    Attributes
    ----------
    out_of_range
        Row of the first label outside [0, C); -1 when there is none.
    ignored
        Number of masked rows.
    divisor
        Sum of mask * weight, when requested.
    """

    out_of_range: int
    ignored: int
    divisor: np.float32


class Division(NamedTuple):
    """Division of the gradients of the loss.

    Attributes
    ----------
    divisor
        S of ``mean``; 1 for other reductions.
    is_plain
        Whether it is a plain division, which turns subnormal numbers into 0.
    """

    divisor: np.float32
    is_plain: bool


@device_function
def _factor(loss: np.float32, label: int, labels: Labels, division: Division) -> np.float32:
    """Return q of a row.

    The product may multiply by mask * weight at once: with a mask of 0 or 1 that gives equal bits.
    """
    if division.is_plain:
        loss = flush(flush(loss) / flush(division.divisor))
    else:
        loss = loss / division.divisor
    factor = loss * _mask_of(label, labels)
    return factor * labels.weight[label] if labels.weight.size else factor


class Gradient(NamedTuple):
    """Inputs and output of `_write_rows`; see `write_gradient`."""

    grad_loss: Floats
    division: Division
    log_prob: NDArray[Any]
    out: NDArray[Any]


@kernel
def _write_rows(
    chunk: int, chunks: int, streams: bool, gradient: Gradient, limit: int, labels: Labels
) -> None:
    """Write a chunk of the pieces of all rows."""
    out, grad_loss = gradient.out, gradient.grad_loss
    columns = out.shape[1]
    pieces = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS
    is_per_row = grad_loss.size > 1
    all_pieces = out.shape[0] * pieces
    for number in range(all_pieces * chunk // chunks, all_pieces * (chunk + 1) // chunks):
        row = number // pieces
        begin = (number - row * pieces) * PIECE_COLUMNS
        end = min(begin + PIECE_COLUMNS, columns)
        label = labels.target[row]
        factor = _factor(grad_loss[row if is_per_row else 0], label, labels, gradient.division)
        log_prob, piece = gradient.log_prob[row, begin:end], out[row, begin:end]
        write_piece(log_prob, limit, factor, label - begin, piece, streams, True)
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
        np.empty(2, np.int64),
        np.empty(labels.target.size, np.float32),
        np.empty(cores + 1, np.float32),
        np.empty(LANE_COUNT, np.float32),
    )
    _survey.over(1, labels, passes, sums_up, counts)
    first, ignored = counts.labels.tolist()
    return Survey(first, ignored, counts.sums[cores])


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
        All in [0, C).
    """
    limit = MODERATE_LIMITS[log_prob.dtype]
    chunks = threads_for(log_prob.nbytes + out.nbytes)
    gradient = Gradient(grad_loss, division, log_prob, out)
    _write_rows.over(chunks, chunks, is_streamed(out), gradient, limit, labels)
