"""SwiGluGrad on Ascend 950: own planner and order of operations.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``swi_glu_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.tiling.ascend_950 import swi_glu_grad as tiler

DIFFERENCES = Differences(
    tiling=tiler.Tiling,
    tile=tiler.tile,
    absent=("instructions",),  # no rates of vector instructions are published
)
