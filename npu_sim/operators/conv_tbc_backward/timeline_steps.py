"""What the tiles of ConvTbcBackward hold and add, block by block, as matrices.

Source: specification page ``conv_tbc_backward``, "Tiling model" and "Planner of deterministic gradWeight".
"""

from npu_sim.plans.model import Plan
from npu_sim.timelines.step_table import Step, StepTable, View

OTHERS = {"gradInput": "weight", "gradWeight": "input"}
"""What self is multiplied by."""
NOTES = ("", "load", "out", "load, out")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    views: list[View] = []
    found: dict[tuple[str, str], Step] = {}
    for gradient, other in OTHERS.items():
        if gradient in plan.tiling:
            m, n, k = _block(plan.tiling[gradient])
            own, factor, result = (
                f"self of a {gradient} block",
                f"{other} of a {gradient} block",
                f"{gradient} block",
            )
            by_m, by_n, by_k = {"m": 1.0}, {"n": 1.0}, {"k": 1.0}
            views += [
                View(own, m, k, by_m, by_k),
                View(factor, k, n, by_k, by_n),
                View(result, m, n, by_m, by_n),
            ]
            found |= {(gradient, note): _step(note, (own, factor), result, other) for note in NOTES}
    return StepTable(tuple(views), found)


def _block(tiling: dict[str, int]) -> tuple[int, int, int]:
    """Return rows, columns and reduction of the largest block of a core."""
    if "baseM" in tiling:
        return tiling["singleCoreM"], tiling["singleCoreN"], tiling["kValue"]
    return tiling["single_m"], tiling["single_n"], tiling["single_reduction"]


def _step(note: str, factors: tuple[str, str], result: str, other: str) -> Step:
    says = f"block rows {{m}}, columns {{n}}: the accumulator in L0C += self x {other} over {{k}} of the reduction, one base block of it"
    if "load" in note:
        says += "; both come to L1 first"
    if "out" in note:
        says += "; the accumulator goes out"
    read = "load" in note
    live = ("self", other, "self tile", f"{other} tile", "accumulator")
    return Step(
        says,
        factors if read else (),
        (result,) if "out" in note else (),
        () if read else factors,
        live,
    )
