"""Timeline of AddRmsNorm on Ascend 950.

Source: specification page ``add_rms_norm_950``; rates of vector instructions are not published.
"""

from npu_sim.framework.vocabulary import Plan, TensorSpec
from npu_sim.operators.add_rms_norm.timeline import tensor_views
from npu_sim.operators.shared.normalised_rows.timeline import copy_of, gamma_in, rstd_out
from npu_sim.tiling.ascend_950 import add_rms_norm as tiler
from npu_sim.timelines import (
    Loop,
    Node,
    Program,
    Step,
    Work,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

LIVE = ("x1", "x2", "x", "rstd", "row_sums", "fp32", "register_sums", "work", "levels", "pair")
ASSUMPTION = "a piece of x1 and x2 is copied in again for y"


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    x1 = TensorSpec.parse(plan.arguments["x1"])
    columns, written = plan.tiling["numCol"], {order.output for order in plan.order}
    step, assumptions = plan.tiling["rowFactor"], tuple[str, ...]()
    if plan.tiling_key == tiler.KEY_FULL_LOAD:
        groups = ranged_cores(
            plan, "rows", step, lambda rows: _whole_rows(rows, columns, x1, written)
        )
        once = gamma_in(columns, x1.itemsize)
        cores = {core: (once, *nodes) for core, nodes in groups.items()}
    else:
        piece, assumptions = plan.tiling["ubFactor"], (ASSUMPTION,)
        cores = ranged_cores(
            plan, "rows", step, lambda rows: _split_rows(rows, columns, piece, x1, written)
        )
    phase = vector_phase("rows", cores, in_buffers=2, out_buffers=2)
    return Program((phase,), assumptions=assumptions, views=tensor_views(plan))


def _sums(elements: int, rows: int) -> tuple[Work, ...]:
    return (fp32.combine(elements, 2), fp32.add_up(elements), fp32.exp_root_or_quotient(rows))


def _rstd(rows: int, written: set[str], held: tuple[str, ...] = ("gamma",)) -> tuple[Node, ...]:
    return (rstd_out(rows, held),) if "rstd" in written else ()


def _whole_rows(rows: int, columns: int, x1: TensorSpec, written: set[str]) -> tuple[Node, ...]:
    elements = rows * columns
    copy, outputs = copy_of(x1, elements), tuple(sorted(written - {"rstd"}))
    tile = vector_tile(
        (copy, copy),
        (*_sums(elements, rows), fp32.combine(elements, 2)),
        (copy,) * len(outputs),
        Step(
            "y",
            "rows {rows}: x = x1 + x2; x * x is folded and added as trees; y = x * rstd * gamma",
            ("x1", "x2"),
            outputs,
            ("gamma",),
            (*LIVE, "gamma", "y"),
        ),
    )
    return tile, *_rstd(rows, written)


def _split_rows(
    rows: int, columns: int, piece: int, x1: TensorSpec, written: set[str]
) -> tuple[Node, ...]:
    def sums(width: int) -> tuple[Node, ...]:
        copy, outputs = copy_of(x1, width), tuple(sorted(written & {"x"}))
        step = Step(
            "sum",
            "row {row} of the group, columns {columns}: x = x1 + x2; x * x is added in pairs of "
            "registers",
            ("x1", "x2"),
            outputs,
            live=LIVE,
        )
        tile = vector_tile((copy, copy), _sums(width, 1), (copy,) * len(outputs), step)
        return (Loop((tile,), rows, "row", 1),)

    def results(width: int) -> tuple[Node, ...]:
        copy = copy_of(x1, width)
        step = Step(
            "y",
            "row {row} of the group, columns {columns}: y = x * rstd * gamma",
            ("x1", "x2"),
            ("y",),
            ("gamma",),
            (*LIVE, "gamma", "y"),
        )
        tile = vector_tile((copy, copy), (fp32.combine(width, 3),), (copy,), step)
        return gamma_in(width, x1.itemsize), Loop((tile,), rows, "row", 1)

    return (
        *ranged("columns", 0, columns, piece, sums),
        *ranged("columns", 0, columns, piece, results),
        *_rstd(rows, written, ()),
    )
