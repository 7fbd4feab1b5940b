"""Studies of MoeTokenPermute on Ascend 950: rows that a race can overwrite.

Source: specification page ``moe_token_permute_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Result, Text
from npu_sim.operators.moe_token_permute.ascend_950.plan import overwriting_rows
from npu_sim.operators.shared.study import LastWrites, StudyCall


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows that a race can overwrite, with what they can hold."""
    rows, overwriting = result.outputs[output], overwriting_rows(call.case)
    names = Text("its own row"), Text("the row that its core fetches two rounds later")
    for row in np.flatnonzero(result.order_dependent[output].mask).tolist():
        core = row // call.case.tiling.moves.core_rows
        yield LastWrites((row,), rows[[row, overwriting[row]]], (core, core), names)
