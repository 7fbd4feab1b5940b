"""Timeline of RmsNorm on Ascend 950.

Source: specification page ``rms_norm_950``.
"""

from dataclasses import replace

from npu_sim.framework.vocabulary import Plan, TensorSpec
from npu_sim.operators.rms_norm.timeline import tensor_views
from npu_sim.operators.shared.normalised_rows.timeline import copy_of, gamma_in, rstd_out
from npu_sim.tiling.ascend_950 import rms_norm as tiler
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

SUMMING = ("x", "rstd", "register_sums", "row_sums", "fp32", "work", "levels", "pair")
WRITING = (*SUMMING, "gamma", "y")
Y_OF_ROWS = Step(
    "y",
    "rows {rows}: x * x is folded and added as trees; y = x * rstd * gamma",
    ("x",),
    ("y",),
    ("gamma",),
    WRITING,
)
Y_OF_PIECE = replace(
    Y_OF_ROWS, says="row {row} of the group, columns {columns}: y = x * rstd * gamma"
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    x, gamma = (TensorSpec.parse(plan.arguments[name]) for name in ("x", "gamma"))
    columns, factor = plan.tiling["num_col"], plan.tiling["ub_factor"]
    assumptions: tuple[str, ...] = ()
    if plan.tiling_key == tiler.KEY_FULL_LOAD:
        once = gamma_in(columns, gamma.itemsize)
        groups = ranged_cores(plan, "rows", factor, lambda rows: _whole_rows(rows, columns, x))
        cores = {core: (once, *nodes) for core, nodes in groups.items()}
    else:
        assumptions = ("gamma is copied in once for every 64 rows of a core",)
        cores = ranged_cores(
            plan,
            "rows",
            tiler.SPLIT_ROWS,
            lambda rows: _split_rows(rows, columns, factor, x, gamma.itemsize),
        )
    return Program(
        (vector_phase("rows", cores, in_buffers=2, out_buffers=2),),
        assumptions=assumptions,
        views=tensor_views(plan),
    )


def _sum_of_squares(elements: int, rows: int) -> tuple[Work, ...]:
    return fp32.combine(elements), fp32.add_up(elements), fp32.exp_root_or_quotient(rows)


def _whole_rows(rows: int, columns: int, x: TensorSpec) -> tuple[Node, ...]:
    elements, copy = rows * columns, copy_of(x, rows * columns)
    vector = (*_sum_of_squares(elements, rows), fp32.combine(elements, 2))
    return vector_tile((copy,), vector, (copy,), Y_OF_ROWS), rstd_out(rows)


def _split_rows(rows: int, columns: int, piece: int, x: TensorSpec, gamma: int) -> tuple[Node, ...]:
    def sums(width: int) -> tuple[Node, ...]:
        tile = vector_tile(
            (copy_of(x, width),),
            _sum_of_squares(width, 1),
            step=Step(
                "sum",
                "row {row} of the group, columns {columns}: x * x is added in pairs of registers",
                ("x",),
                live=SUMMING,
            ),
        )
        return (Loop((tile,), rows, "row", 1),)

    def results(width: int) -> tuple[Node, ...]:
        copy = copy_of(x, width)
        tile = vector_tile((copy,), (fp32.combine(width, 2),), (copy,), Y_OF_PIECE)
        return gamma_in(width, gamma), Loop((tile,), rows, "row", 1)

    return (
        *ranged("columns", 0, columns, piece, sums),
        *ranged("columns", 0, columns, piece, results),
        rstd_out(rows, ()),
    )
