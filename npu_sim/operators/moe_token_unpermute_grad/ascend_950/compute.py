"""MoeTokenUnpermuteGrad on Ascend 950: computation in the product's order.

Source: specification page ``moe_token_unpermute_grad_950``, "Order".
"""

from typing import TYPE_CHECKING

from npu_sim.operators.moe_token_unpermute_grad.compute import (
    dropped_indices,
    find_last_writers,
    lost_rows,
    write_gradients,
)
from npu_sim.operators.shared.token_sums import negative_indices
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
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
