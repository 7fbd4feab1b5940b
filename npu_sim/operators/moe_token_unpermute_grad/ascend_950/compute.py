"""MoeTokenUnpermuteGrad on Ascend 950: computation.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

import numpy as np

from npu_sim.framework.vocabulary import Run, core_ranges
from npu_sim.operators.moe_token_unpermute_grad.compute import (
    dropped_indices,
    find_last_writers,
    lost_rows,
    write_gradients,
)
from npu_sim.operators.shared.routed_tokens.compute import negative_indices
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler


def compute(run: Run) -> None:
    """Compute both gradients; a negative index is a dropped row here."""
    tiling, indices = run.case.tiling, run.tensors["sorted_indices"]

    def find_stops() -> list[int]:
        return [stop for _, stop in core_ranges(tiler.core_range, tiling)]

    with run.watch.stage("check"):
        writers = find_last_writers(indices, tiling.entries, find_stops, run.order)
    cut = tiling.cut.main_columns, tiling.cut.main_blocks
    write_gradients(run, writers, tiling.hidden, folds_once=True, cut=cut)
    run.caveats = (
        *negative_indices(indices),
        *dropped_indices(np.flatnonzero(indices >= tiling.entries), tiling.entries),
        *lost_rows(writers),
    )
