"""MoeTokenUnpermute on Ascend 950: own planner, and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_unpermute_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import system_workspace
from npu_sim.operators.moe_token_unpermute.ascend_950 import declaration
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler

DIFFERENCES = Differences(
    checks=declaration.CHECKS,
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    used_bytes=tiler.used_bytes,
    assumed=(system_workspace("moe_token_unpermute_950, Tiling"),),
    empty="empty: no tokens or no columns, nothing runs",
    planner_message=None,
)
