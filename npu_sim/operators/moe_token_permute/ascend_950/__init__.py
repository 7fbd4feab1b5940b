"""MoeTokenPermute on Ascend 950: int8 tokens too, own planners and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_permute_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import system_workspace
from npu_sim.operators.moe_token_permute.ascend_950 import declaration
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler

DIFFERENCES = Differences(
    axes=declaration.AXES,
    derived=declaration.DERIVED,
    checks=declaration.CHECKS,
    tiling=tiler.Tiling,
    tile=tiler.tile,
    used_bytes=tiler.used_bytes,
    assumed=(system_workspace("moe_token_permute_950, Tiling"),),
    planner_message=None,
)
