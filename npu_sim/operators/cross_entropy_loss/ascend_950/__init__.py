"""CrossEntropyLoss on Ascend 950: labels of int32 too, own planner and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``cross_entropy_loss_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import SYSTEM_WORKSPACE_BYTES, Assumed
from npu_sim.operators.cross_entropy_loss.ascend_950 import declaration
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler

DIFFERENCES = Differences(
    arguments=declaration.ARGUMENTS,
    axes=declaration.AXES,
    checks=declaration.CHECKS,
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page cross_entropy_loss_950, Tiling",
        ),
    ),
    absent=("instructions",),
)
