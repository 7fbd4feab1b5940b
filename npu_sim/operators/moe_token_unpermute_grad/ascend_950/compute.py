"""MoeTokenUnpermuteGrad on Ascend 950: computation.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from npu_sim.framework.vocabulary import FP32_BYTES, VECTOR_LANES, Case, Run, ceil_div
from npu_sim.operators.moe_token_unpermute_grad.compute import (
    dropped_indices,
    find_last_writers,
    lost_rows,
    write_gradients,
)
from npu_sim.operators.shared.routed_tokens.compute import negative_indices
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler


def _zeros_beyond(case: Case) -> int:
    """Return how far the stores of key 20011 pass the Unified Buffer; 0 or less if they do not."""
    tiling, hidden = case.tiling, case.row.hidden
    if tiling.tiling_key != tiler.KEY_WHOLE or hidden <= VECTOR_LANES:
        return 0
    used = tiler.used_bytes(case.row, tiling, case.device, case.rules)
    stored = FP32_BYTES * ceil_div(hidden, VECTOR_LANES)
    return used - tiler.register_sum_bytes(hidden) + stored - case.device.ub_bytes


def compute(run: Run) -> None:
    """Compute both gradients; a negative index is a dropped row here."""
    tiling, indices = run.case.tiling, run.tensors["sorted_indices"]
    with run.watch.stage("check"):
        stops = [tiler.core_range(tiling, core)[1] for core in range(tiling.block_dim)]
        writers = find_last_writers(indices, tiling.entries, stops, run.order)
    cut = tiling.cut.main_columns, tiling.cut.main_blocks
    write_gradients(run, writers, tiling.hidden, folds_once=True, cut=cut)
    run.caveats = (
        *negative_indices(indices),
        *dropped_indices(indices, tiling.entries),
        *lost_rows(writers),
    )
