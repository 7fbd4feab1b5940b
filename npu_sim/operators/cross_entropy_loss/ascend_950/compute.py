"""CrossEntropyLoss on Ascend 950: computation.

Source: specification page ``cross_entropy_loss_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Array, Case, Run, Text, core_ranges
from npu_sim.kernels import cross_entropy_loss as kernels
from npu_sim.operators.cross_entropy_loss.compute import Setting, compute_with
from npu_sim.operators.shared.labelled_rows.compute import label_failure
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE


def compute(run: Run) -> None:
    """Check the labels, and compute log_prob and the loss."""
    compute_with(run, setting_of, _require_mask)


def setting_of(case: Case, target: Array) -> Setting:
    """Return how Ascend 950 computes a call."""
    tiling, is_whole, ignored = case.tiling, _has_whole_rows(case), case.row.ignore_index
    zero = np.float32(0)
    lowest = np.finfo(np.float16 if case.specs["input"].dtype == "float16" else np.float32).min
    form = kernels.Form(
        lowest=np.float32(lowest),
        least_exp=kernels.SMALLEST_NORMAL,
        is_two_step=True,
        sign=np.float32(-1),
        ignored_loss=-zero if is_whole else zero,
        ignored_smoothing=zero,
    )
    if is_whole:  # labels are compared in 32 bits
        low = tiler.low_bits(ignored)
        target, ignored = np.where(target == ignored, low, target), low
    ranges, pass_rows = core_ranges(tiler.row_range, tiling), max(tiling.passes.rows, 1)
    cores = kernels.Cores(np.array(ranges), pass_rows=pass_rows, is_whole=is_whole)
    split = kernels.Split(tiling.blocks.columns, tiling.blocks.sums)
    return Setting(target, ignored, form, split, "whole" if is_whole else "blocks", cores, _loss)


def _has_whole_rows(case: Case) -> bool:
    return tiler.schedule_of(case.tiling) != tiler.CUT_COLUMNS


def _require_mask(case: Case, target: Array) -> None:
    """Refuse labels equal to a negative ignore_index where columns are cut, with 361001."""
    ignored = case.row.ignore_index
    masked = target == ignored
    if _has_whole_rows(case) or ignored >= 0 or not masked.any():
        return
    hint = Text(
        "0 <= label < {columns}; a negative ignore_index, here {ignored}, masks nothing on Ascend "
        "950 where rows are cut: give ignored rows a label from 0 to C - 1 and set ignore_index to "
        "it; nothing was written",
        columns=case.row.C,
        ignored=ignored,
    )
    raise label_failure(case, target, int(np.argmax(masked)), hint)


def _flushed(numbers: Array) -> Array:
    """Return numbers with 0 in place of subnormal ones."""
    return np.where(np.abs(numbers) < kernels.SMALLEST_NORMAL, np.float32(0), numbers)


def _loss(case: Case, sums: Array) -> Array:
    """Return the loss in fp32, each operation rounded (page, "Kernel and order")."""
    factor, by_class = tiler.factors(case.arguments.label_smoothing, case.row.C)
    loss, weight, smoothed = sums
    with np.errstate(all="ignore"):
        if case.row.reduction == MEAN:
            loss, smoothed = (
                _flushed(_flushed(total) / _flushed(weight)) for total in (loss, smoothed)
            )
        if case.row.label_smoothing:
            loss = loss * factor + smoothed * by_class
        elif case.row.reduction == NONE and _has_whole_rows(case):
            loss = loss * factor
        return np.asarray(loss)
