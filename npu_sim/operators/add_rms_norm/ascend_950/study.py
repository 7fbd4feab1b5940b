"""Studies of AddRmsNorm on Ascend 950.

Source: specification page ``add_rms_norm_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Result
from npu_sim.operators.add_rms_norm.ascend_950.compute import arithmetic_of, split_of
from npu_sim.operators.add_rms_norm.study import rules_of_root
from npu_sim.operators.shared.normalised_rows.study import (
    pieces_tree,
    refined_root,
    row_claim,
    whole_tree,
)
from npu_sim.operators.shared.study import Changes, Claim, OpenRule, StudyCall, any_number_of_rows

CHANGES = Changes(row_counts=any_number_of_rows)


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row, where a call gives rstd."""
    if "rstd" not in call.case.specs:
        return
    if call.case.tiling.fold > 0:
        yield row_claim(call, whole_tree(call.case), refined_root)
    else:
        yield row_claim(call, pieces_tree(call.case))


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of rstd, which contains a root and a quotient, and of y."""
    yield from rules_of_root(call, result, split_of, arithmetic_of)
