"""The plan of SwiGluGrad: its buffers; the rest is SwiGlu's.

Source: specification page ``swi_glu_grad``.
"""

from npu_sim.framework.vocabulary import Case, Description
from npu_sim.operators.swi_glu.plan import describe_tiles, one_buffer_with
from npu_sim.tiling import swi_glu_grad as tiler

ONE_BUFFER = one_buffer_with(tiler.tile)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    return describe_tiles(case, tiler.BUFFERS, ONE_BUFFER)
