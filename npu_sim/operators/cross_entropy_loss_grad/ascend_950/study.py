"""Studies of CrossEntropyLossGrad on Ascend 950.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Case, Result, Text
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.compute import pass_rows
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.plan import row_ranges, sums_weights
from npu_sim.operators.cross_entropy_loss_grad.study import rules_of_exp
from npu_sim.operators.shared.labelled_rows.study import sums_in_passes
from npu_sim.operators.shared.study import Claim, OpenRule, StudyCall, probe_terms, trees
from npu_sim.tiling.cross_entropy_loss_grad import NONE

CODES = 3
"""Different terms of a probe; each is the weight of a class of its own."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of weights over the rows.

    Without weights the terms are zeros and ones, whose sum is exact in any order. The probes need a
    class for each term, and a result in fp32.
    """
    case = call.case
    row, dtype = case.row, case.specs["log_prob"].dtype
    if not (sums_weights(case.row) and row.weighted and row.N > 2):
        return
    if row.C <= CODES or dtype != "float32":
        return
    yield Claim(
        output="x_grad",
        element=(0, 0),
        elements=row.N * row.C,
        terms=tuple(Text("weight of row {row}", row=row_index) for row_index in range(row.N)),
        tree=divisor_tree(case),
        outside=partial(_outside, call),
    )


def divisor_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the sum of weights: passes of each core, then the cores."""
    return trees.row_sum(sums_in_passes(row_ranges(case), pass_rows(case), trees.row_sum))


def _outside(call: StudyCall, codes: Array) -> Array:
    """Run one probe after another; return S, the number of units that survive in each sum.

    Class 1 weighs 1, its neighbours weigh the huge value and its negative. With log_prob = 0, the
    gradient of a row of weight 1 at another class is 1/S.
    """
    row = call.case.row
    weight = np.ones(row.C, np.float32)
    weight[:CODES] = probe_terms(np.array([-1, 0, 1]), "float32")
    ignored = row.C - 1 if row.ignore_index >= 0 else row.ignore_index
    probe = call.with_attributes(ignore_index=ignored)
    fixed: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.zeros((row.N, row.C), np.float32),
        "weight": weight,
    }
    counts = np.empty(len(codes), np.int64)
    for position, code in enumerate(codes):
        target = (code + 1).astype(call.tensors["target"].dtype)
        result = probe.outputs(**fixed, target=target)["x_grad"]
        gradient = float(result[int(np.argmax(code == 0)), CODES])
        counts[position] = 0 if np.isinf(gradient) else round(1 / gradient)
    return counts


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of x_grad: exp and quotients, with ``none`` without smoothing exp alone."""
    divides = call.case.row.reduction != NONE or call.arguments.label_smoothing > 0
    yield from rules_of_exp(call, result, divides=divides)
