"""The plan of SwiGluGrad: its buffers; the rest is SwiGlu's.

Source: specification page ``swi_glu_grad``.
"""

from npu_sim.framework.vocabulary import Case, Description
from npu_sim.operators.swi_glu.plan import ALIGNED, caveats, describe_tiles, one_buffer
from npu_sim.tiling import swi_glu_grad as tiler

ONE_BUFFER = one_buffer(tiler.tile)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    buffers = tiler.buffers(case.tiling, case.row.dtype)
    return describe_tiles(case, buffers, (ALIGNED, ONE_BUFFER), caveats(case))
