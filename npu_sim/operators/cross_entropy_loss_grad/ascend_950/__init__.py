"""CrossEntropyLossGrad on Ascend 950: labels of int32 too, own planner and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import system_workspace
from npu_sim.operators.cross_entropy_loss_grad.ascend_950 import declaration
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler

DIFFERENCES = Differences(
    arguments=declaration.ARGUMENTS,
    axes=declaration.AXES,
    checks=declaration.CHECKS,
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    used_bytes=tiler.used_bytes,
    assumed=(system_workspace("cross_entropy_loss_grad_950, Tiling"),),
)
