"""SwiGlu on Ascend 950: the planner and order of A2 and A3; division loses subnormal results.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``swi_glu_950``.
"""

from npu_sim.framework.operator import Differences

DIFFERENCES = Differences(
    absent=("instructions",)  # no rates of vector instructions are published
)
