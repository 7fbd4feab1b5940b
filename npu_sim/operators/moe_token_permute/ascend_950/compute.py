"""MoeTokenPermute on Ascend 950: computation; int8 tokens leave out ids beyond the experts.

Source: specification page ``moe_token_permute_950``, "Result".
"""

from typing import TYPE_CHECKING

import numpy as np

from npu_sim.language import Text
from npu_sim.operators.moe_token_permute import compute as shared
from npu_sim.plans.model import Caveat
from npu_sim.tiling.ascend_950.moe_token_permute import EXPERTS, INT8

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
    """Sort the ids and copy the rows; with int8 tokens only ids from 0 to 10239 take part."""
    if run.case.row.dtype == INT8:
        _compute_int8(run)
    else:
        shared.compute(run)


def _compute_int8(run: "Run") -> None:
    """Copy the rows of the valid ids; the others have place -1, and rows without one stay 0."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            shared.check_ids(run.tensors["indices"])
    with run.watch.stage("load"):
        from npu_sim.kernels.moe_token_permute import sort_ids
    with run.watch.stage("compute"):
        ids = run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        permuted.fill(0)
        if not run.case.row.hidden:
            places.fill(0)
            return
        (valid,) = np.nonzero((ids >= 0) & (ids < EXPERTS))
        positions = np.empty(valid.size, np.int32)
        sort_ids(ids[valid], positions)
        places.fill(-1)
        places[valid] = positions
        entries = np.empty_like(valid)
        entries[positions] = valid
        kept = entries[: len(permuted)]
        permuted[: kept.size] = run.stored("tokens")[kept // run.case.row.num_topk]
    if valid.size < ids.size:
        run.caveats += (_rows_not_written(ids.size - valid.size),)


def _rows_not_written(missing: int) -> Caveat:
    message = Text(
        "{missing} ids are outside 0..{last}: their place is -1 and their rows are never written, "
        "the memory keeps what it held (here 0). Read in the public sources; not run on a device",
        missing=missing,
        last=EXPERTS - 1,
    )
    return Caveat(code="rows_not_written", argument="indices", message=message)
