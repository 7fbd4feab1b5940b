"""RmsNormGrad on Ascend 950: own planner, kernels and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``rms_norm_grad_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import system_workspace
from npu_sim.operators.rms_norm_grad.ascend_950 import declaration
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler

DIFFERENCES = Differences(
    checks=declaration.CHECKS,
    tiling=tiler.Tiling,
    tile=tiler.tile,
    used_bytes=tiler.used_bytes,
    assumed=(system_workspace("rms_norm_grad_950, Tiling"),),
    absent=(
        "instructions",  # no rates of vector instructions are published
        "parts",  # no sum depends on the order in which cores finish
    ),
)
