"""Timeline of SwiGlu on A2, A3 and the Atlas inference series.

Source: specification page ``swi_glu``, "Vector instructions of a tile".
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.gated_halves.timeline import (
    TileLists,
    tile_instructions,
    tiles_program,
)
from npu_sim.tiling.swi_glu import BUFFERS
from npu_sim.timelines import NARROWING, WIDENING, InstructionLists, Program, Step

FORWARD = TileLists(
    (("duplicate",),),
    (
        ("muls",),
        ("exp",),
        ("adds",),
        ("div", "ones", "out"),
        ("mul", "out", "a"),
        ("mul", "out", "b"),
    ),
    (
        (WIDENING,),
        ("muls",),
        ("exp",),
        ("adds",),
        ("div", "a_fp32", "out_fp32"),
        (WIDENING,),
        ("mul", "out_fp32", "a_fp32"),
        (NARROWING,),
    ),
    Step("tile", "out = a / (1 + exp(-a)) * b", ("x", "x"), ("out",), live=sum(BUFFERS, ())),
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return tiles_program(plan, FORWARD)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; bf16 was compared with a device."""
    return tile_instructions(plan, FORWARD)
