"""Timeline of RmsNorm on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``rms_norm_950``, "Unified Buffer of a core" and "Kernels and order".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.ascend_950.rms_norm import KEY_FULL_LOAD, SPLIT_ROWS
from npu_sim.tiling.common import FP32_BYTES
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Program,
    Work,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View

GAMMA_ONCE = "gamma is copied in once for every 64 rows of a core"


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    x, gamma = (TensorSpec.parse(plan.arguments[name]) for name in ("x", "gamma"))
    columns, factor = plan.tiling["num_col"], plan.tiling["ub_factor"]
    if plan.tiling_key == KEY_FULL_LOAD:
        core_nodes = ranged_cores(plan, "rows", factor, lambda rows: _whole_rows(rows, columns, x))
        cores = {core: (_gamma_in(columns, gamma), *nodes) for core, nodes in core_nodes.items()}
        return Program((vector_phase("rows", cores, in_buffers=2, out_buffers=2),))
    cores = ranged_cores(
        plan, "rows", SPLIT_ROWS, lambda rows: _split_rows(rows, columns, factor, x, gamma)
    )
    phase = vector_phase("rows", cores, in_buffers=2, out_buffers=2)
    return Program((phase,), assumptions=(GAMMA_ONCE,))


def _copy(x: TensorSpec, elements: int) -> Copy:
    return Copy(x.itemsize * elements, elements, tensor_bytes=x.nbytes)


def _gamma_in(columns: int, gamma: TensorSpec) -> Node:
    return vector_tile((Copy(gamma.itemsize * columns, columns),), note="gamma")


def _sum_of_squares(elements: int, rows: int) -> tuple[Work, ...]:
    return fp32.combine(elements), fp32.add_up(elements), fp32.exp_root_or_quotient(rows)


def _scaling(elements: int) -> tuple[Work, ...]:
    return (fp32.combine(elements, 2),)


def _rstd_out(rows: int) -> Node:
    return vector_tile(copy_out=(Copy(FP32_BYTES * rows, rows),), note="rstd")


def _whole_rows(rows: int, columns: int, x: TensorSpec) -> tuple[Node, ...]:
    elements = rows * columns
    copy = _copy(x, elements)
    vector = (*_sum_of_squares(elements, rows), *_scaling(elements))
    return vector_tile((copy,), vector, (copy,), note="y"), _rstd_out(rows)


def _split_rows(
    rows: int, columns: int, piece: int, x: TensorSpec, gamma: TensorSpec
) -> tuple[Node, ...]:
    def sums(width: int) -> tuple[Node, ...]:
        vector = _sum_of_squares(width, 1)
        return (Loop((vector_tile((_copy(x, width),), vector, note="sum"),), rows, "row", 1),)

    def results(width: int) -> tuple[Node, ...]:
        copy = _copy(x, width)
        tile = vector_tile((copy,), _scaling(width), (copy,), note="y")
        return _gamma_in(width, gamma), Loop((tile,), rows, "row", 1)

    return (
        *ranged("columns", 0, columns, piece, sums),
        *ranged("columns", 0, columns, piece, results),
        _rstd_out(rows),
    )


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    rows, columns = plan.tiling["num_row"], plan.tiling["num_col"]
    whole = plan.tiling_key == KEY_FULL_LOAD
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    views = (
        View("x", rows, columns, by_row, by_column),
        View("gamma", 1, columns, by_column=by_column),
        View("rstd", rows, by_row=by_row),
        View("y", rows, columns, by_row, by_column),
    )
    sums = ("x", "rstd", "register_sums", "row_sums", "fp32", "work", "levels", "pair")
    gamma = ("gamma",) if whole else ()
    written = "row {row} of the group, columns {columns}: y = x * rstd * gamma"
    if whole:
        written = "rows {rows}: x * x is folded and added as trees; y = x * rstd * gamma"
    added = "row {row} of the group, columns {columns}: x * x is added in pairs of registers"
    descriptions = {
        "gamma": Step("gamma is copied in", ("gamma",), live=("gamma",)),
        "sum": Step(added, ("x",), live=sums),
        "y": Step(written, ("x",), ("y",), ("gamma",), (*sums, "gamma", "y")),
        "rstd": Step("rstd of rows {rows} is copied out", (), ("rstd",), gamma, ("rstd", *gamma)),
    }
    return StepTable(views, {("rows", note): step for note, step in descriptions.items()})
