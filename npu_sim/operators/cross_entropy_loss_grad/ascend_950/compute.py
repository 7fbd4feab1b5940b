"""CrossEntropyLossGrad on Ascend 950: computation.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import AclnnError, Case, Run, Text
from npu_sim.kernels import cross_entropy_loss_grad as kernels
from npu_sim.kernels.shared.elementwise import widen_array
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.plan import row_ranges, sums_weights
from npu_sim.operators.cross_entropy_loss_grad.compute import all_ignored
from npu_sim.operators.shared.labelled_rows.compute import label_failure
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE

CUT_PASS_ROWS = 64
"""Rows whose weights are added at once where columns are cut (page, "S")."""


def pass_rows(case: Case) -> int:
    """Return the rows whose weights a core adds at once."""
    is_whole = tiler.schedule_of(case.tiling) == tiler.WHOLE_ROWS
    return tiler.rows_at_once(case.tiling) if is_whole else CUT_PASS_ROWS


def compute(run: Run) -> None:
    """Check the labels and compute x_grad."""
    case, tiling = run.case, run.case.tiling
    if tiler.schedule_of(tiling) == tiler.EMPTY:
        return
    row, is_whole = case.row, tiler.schedule_of(tiling) == tiler.WHOLE_ROWS
    with run.watch.stage("check"):
        weight = run.stored("weight") if row.weighted else np.empty(0, np.float32)
        target = run.stored("target").astype(np.int64, copy=False)
        labels = kernels.Labels(target, weight, row.C, row.ignore_index, False)
        passes = kernels.Passes(np.array(row_ranges(case), np.int64), pass_rows(case), is_whole)
        survey = kernels.survey_labels(labels, passes, sums_weights(case.row))
        if survey.out_of_range >= 0:
            raise _label_failure(case, target, survey.out_of_range)
        run.caveats = tuple(all_ignored(case, survey.ignored))
    with run.watch.stage("compute"):
        divisor = (
            np.float32(row.N)
            if row.reduction == MEAN and not sums_weights(case.row)
            else survey.divisor
        )
        is_plain = not is_whole and row.reduction != NONE
        division = kernels.Division(divisor, flushes_exp=True, flushes=is_plain)
        grad_loss = widen_array(run.stored("grad_loss")).reshape(-1)
        log_prob, x_grad = run.stored("log_prob"), run.written("x_grad")
        kernels.write_gradient(grad_loss, division, log_prob, labels, x_grad)


def _label_failure(case: Case, target: np.ndarray, place: int) -> AclnnError:
    ignored = case.row.ignore_index
    hint = Text("0 <= label < {columns}; nothing was written", columns=case.row.C)
    if ignored < 0:
        hint = Text(
            "{hint}; a negative ignore_index, here {ignored}, masks nothing on Ascend 950: give "
            "ignored rows a label from 0 to C - 1 and set ignore_index to it",
            hint=hint,
            ignored=ignored,
        )
    return label_failure(case, target, place, hint)
