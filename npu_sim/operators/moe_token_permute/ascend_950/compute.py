"""MoeTokenPermute on Ascend 950: computation; int8 tokens leave out ids beyond the experts.

Source: specification page ``moe_token_permute_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Run, caveat
from npu_sim.kernels.moe_token_permute import sort_ids
from npu_sim.operators.moe_token_permute import compute as common
from npu_sim.operators.moe_token_permute.ascend_950.plan import (
    ROW_OVERWRITTEN,
    overwriting_rows,
    reuses_buffer,
)
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler


def compute(run: Run) -> None:
    """Sort the ids and copy the rows; with int8 tokens only ids from 0 to 10239 take part."""
    if run.case.row.dtype == tiler.INT8:
        _compute_int8(run)
    else:
        common.compute(run)
    if reuses_buffer(run.case):
        run.masks["permuted_tokens"] = lambda: overwriting_rows(run.case) >= 0
        run.races["permuted_tokens"] = ROW_OVERWRITTEN


def _compute_int8(run: Run) -> None:
    """Copy the rows of the valid ids; the others have place -1, and rows without one stay 0."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            common.check_ids(run.tensors["indices"])
    with run.watch.stage("compute"):
        ids = run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        permuted.fill(0)
        if not run.case.row.hidden:
            places.fill(0)
            return
        (valid,) = np.nonzero((ids >= 0) & (ids < tiler.EXPERTS))
        positions = np.empty(valid.size, np.int32)
        sort_ids(ids[valid], positions)
        places.fill(-1)
        places[valid] = positions
        entries = np.empty_like(valid)
        entries[positions] = valid
        kept = entries[: len(permuted)]
        permuted[: kept.size] = run.stored("tokens")[kept // run.case.row.num_topk]
    if valid.size < ids.size:
        run.caveats += (
            caveat(
                "rows_not_written",
                "indices",
                "{missing} ids are outside 0..{last}: their place is -1 and their rows are never "
                "written, the memory keeps what it held (here 0). Read in the public sources; not "
                "run on a device",
                missing=ids.size - valid.size,
                last=tiler.EXPERTS - 1,
            ),
        )
