"""Plan of SwiGluGrad.

Source: specification page ``swi_glu_grad``.
"""

from npu_sim.framework.vocabulary import Case, Description
from npu_sim.operators.shared.gated_halves.plan import describe_tiles, one_buffer_with
from npu_sim.tiling import swi_glu_grad

ONE_BUFFER = one_buffer_with(swi_glu_grad.tile)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    return describe_tiles(case, swi_glu_grad.BUFFERS, ONE_BUFFER)
