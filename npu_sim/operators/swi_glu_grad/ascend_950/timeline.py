"""Timeline of SwiGluGrad on Ascend 950.

Source: specification page ``swi_glu_950``.
"""

from dataclasses import replace
from functools import partial

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text
from npu_sim.operators.shared.gated_halves.timeline import WHERE, tensor_views
from npu_sim.operators.swi_glu_grad.timeline import BACKWARD
from npu_sim.tiling.ascend_950 import swi_glu_grad as tiler
from npu_sim.timelines import Copy, Instruction, Nodes, Program, ranged, vector_phase, vector_tile

TILE = replace(
    BACKWARD.step,
    says=Text("{where}: {says}", where=WHERE, says=BACKWARD.step.says),
    live=(*BACKWARD.step.live, "x", "out", "index"),
)
INSTRUCTIONS = tuple(
    Instruction(kind, "float32", 0, times)
    for kind, times in (
        ("adds_muls_maxs_mins", 5),
        ("exp_ln_sqrt_div", 2),
        ("duplicate_create_index", 1),
        ("add_sub_mul_max_min", 6),
    )
)
"""Instructions between loads and stores (page, "Kernel")."""


def program(plan: Plan) -> Program:
    """Return the work of every core: pieces of its rows and columns."""
    x, tiling = TensorSpec.parse(plan.arguments["x"]), plan.tiling
    copies, half = bool((plan.tiling_key or 0) % 10), x.nbytes // 2

    def nodes(rows: tuple[int, int], columns: tuple[int, int]) -> Nodes:
        width = columns[1] - columns[0]
        most_rows, most_columns = tiler.piece(
            copies, tiling["ubSize"], x.itemsize, tiling["colTotal"], width
        )

        def tile(count: int, wide: int) -> Nodes:
            elements = count * wide
            a, grad = (
                Copy(x.itemsize * elements, elements, tensor_bytes=total)
                for total in (x.nbytes, half)
            )
            vector = tuple(replace(instruction, elements=elements) for instruction in INSTRUCTIONS)
            return (vector_tile((a, grad, a), vector, (a, a), TILE),)

        return ranged(
            "rows",
            *rows,
            most_rows,
            lambda count: ranged("columns", *columns, most_columns, partial(tile, count)),
        )

    cores = {work.core: nodes(work.ranges["rows"], work.ranges["columns"]) for work in plan.cores}
    views = tensor_views(tiling["rowTotal"], tiling["colTotal"], ("x", "y_grad", "out"))
    return Program((vector_phase("tiles", cores, 2, 2),), views=views)
