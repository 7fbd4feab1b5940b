"""Timeline of SwiGluGrad: its instructions on a tile; the rest is SwiGlu's.

Source: specification page ``swi_glu_grad``, "Vector instructions of a tile".
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.gated_halves.timeline import (
    TileLists,
    tile_instructions,
    tiles_program,
)
from npu_sim.tiling.swi_glu_grad import BUFFERS
from npu_sim.timelines import NARROWING, WIDENING, InstructionLists, Program, Step

BACKWARD = TileLists(
    (),
    (
        ("muls",),
        ("exp",),
        ("adds",),
        ("duplicate",),
        ("div", "temp", "s"),
        ("mul", "s", "a"),
        ("mul", "out_b", "y_grad"),
        ("muls",),
        ("adds",),
        ("mul", "s", "temp"),
        ("mul", "out_a", "a"),
        ("muls",),
        ("add", "out_a", "s"),
        ("mul", "out_a", "b"),
        ("mul", "out_a", "y_grad"),
    ),
    (
        (WIDENING,),
        ("muls",),
        ("exp",),
        ("adds",),
        ("duplicate",),
        ("div", "temp", "s"),
        ("mul", "s", "a_fp32"),
        (WIDENING,),
        ("mul", "result", "y_grad_fp32"),
        (NARROWING,),
        ("muls",),
        ("adds",),
        ("mul", "s", "temp"),
        ("mul", "result", "a_fp32"),
        ("muls",),
        ("add", "result", "s"),
        (WIDENING,),
        ("mul", "result", "y_grad_fp32"),
        ("mul", "result", "a_fp32"),
        (NARROWING,),
    ),
    Step(
        "tile",
        "s = 1/(1 + exp(-a)); out_b = s*a*grad; out_a = (s*(1-s)*a + s)*b*grad",
        ("x", "y_grad", "x"),
        ("out", "out"),
        live=BUFFERS.tensors + BUFFERS.fp32_of_16_bits,
    ),
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return tiles_program(plan, BACKWARD)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; bf16 was compared with a device."""
    return tile_instructions(plan, BACKWARD)
