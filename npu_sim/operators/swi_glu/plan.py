"""Plan of SwiGlu.

Source: specification page ``swi_glu``.
"""

from npu_sim.framework.vocabulary import Case, Description
from npu_sim.operators.shared.gated_halves.plan import describe_tiles, one_buffer_with
from npu_sim.tiling import swi_glu as tiler

ONE_BUFFER = one_buffer_with(tiler.tile)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    return describe_tiles(case, tiler.BUFFERS, ONE_BUFFER)
