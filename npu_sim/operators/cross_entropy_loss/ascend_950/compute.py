"""CrossEntropyLoss on Ascend 950: computation.

Source: specification page ``cross_entropy_loss_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Case, Run, Text
from npu_sim.operators.cross_entropy_loss.compute import Setting, check_labels, compute_with
from npu_sim.operators.shared.labelled_rows.compute import label_failure
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss import MEAN, NONE

LOWEST = {"float16": np.float32(np.finfo(np.float16).min)}
"""Smallest maximum of a row by dtype of the input; -3.4028235e38 for the others (page, "m")."""


def compute(run: Run) -> None:
    """Check the labels, and compute log_prob and the loss."""
    with run.watch.stage("check"):
        target = run.stored("target").astype(np.int64, copy=False)
        check_labels(run.case, target)
        _require_mask(run.case, target)
        setting = setting_of(run.case, target)
    compute_with(run, setting)


def setting_of(case: Case, target: np.ndarray) -> Setting:
    """Return how Ascend 950 computes a call."""
    from npu_sim.kernels import cross_entropy_loss as kernels

    tiling, is_whole = case.tiling, _has_whole_rows(case)
    form = kernels.Form(
        lowest=LOWEST.get(case.specs["input"].dtype, np.finfo(np.float32).min),
        least_exp=kernels.SMALLEST_NORMAL,
        is_two_step=True,
        sign=np.float32(-1),
        ignored_loss=np.float32(-0.0 if is_whole else 0.0),
        ignored_smoothing=np.float32(0),
    )
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    pass_rows = max(tiling.passes.rows, 1) if is_whole else tiler.PASS_ROWS
    cores = kernels.Cores(np.array(ranges, np.int64), pass_rows=pass_rows, is_whole=is_whole)
    split = kernels.Split(tiling.blocks.columns, max(tiling.blocks.sums, 1))
    order = "whole" if is_whole else "blocks"
    return Setting(*_compared(case, target), form, split, order, cores, _loss)


def _has_whole_rows(case: Case) -> bool:
    return tiler.schedule_of(case.tiling) != tiler.CUT_COLUMNS


def _compared(case: Case, target: np.ndarray) -> tuple[np.ndarray, int]:
    """Return labels and ignore_index as the kernel compares them: whole rows, in 32 bits."""
    ignored = case.row.ignore_index
    low = tiler.low_bits(ignored)
    if not _has_whole_rows(case) or low == ignored:
        return target, ignored
    return np.where(target == ignored, low, target), low


def _require_mask(case: Case, target: np.ndarray) -> None:
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
    raise label_failure(target, int(np.argmax(masked)), case.row.C, hint)


def _flushed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers with 0 in place of subnormal ones."""
    from npu_sim.kernels.cross_entropy_loss import SMALLEST_NORMAL

    flushed: np.ndarray = np.where(np.abs(numbers) < SMALLEST_NORMAL, np.float32(0), numbers)
    return flushed


def _loss(case: Case, parts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the loss in fp32, each operation rounded (page, "Kernel and order")."""
    factor, by_class = tiler.factors(case.arguments.label_smoothing, case.row.C)
    loss, weight, smoothed = parts[:3] if case.row.reduction == NONE else totals[:, None]
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
