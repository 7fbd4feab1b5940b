"""AddRmsNorm on Ascend 950: own planner and kernels, the contract of A2 and A3.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``add_rms_norm_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.tiling.ascend_950 import add_rms_norm as tiler

DIFFERENCES = Differences(
    tiling=tiler.Tiling,
    tile=tiler.tile,
    absent=("instructions",),  # no rates of vector instructions are published
)
