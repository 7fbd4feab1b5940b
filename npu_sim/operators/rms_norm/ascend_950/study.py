"""Studies of RmsNorm on Ascend 950.

Source: specification page ``rms_norm_950``.
"""

from collections.abc import Iterator

from npu_sim.operators.shared.normalised_rows.study import (
    pieces_tree,
    refined_root,
    row_claim,
    whole_tree,
)
from npu_sim.operators.shared.study import Claim, StudyCall


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row."""
    if call.case.tiling.fold > 0:
        yield row_claim(call, whole_tree(call.case), refined_root)
    else:
        yield row_claim(call, pieces_tree(call.case))
