"""The plan of RmsNorm on Ascend 950: path, buffers, conditions and warnings.

Source: specification page ``rms_norm_950``.
"""

from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, counted, decision, vector_plan
from npu_sim.language import Text
from npu_sim.operators.rms_norm.plan import workspace_parts, zero_epsilon_caveats
from npu_sim.plans.model import Caveat
from npu_sim.tiling.ascend_950 import rms_norm as tiler
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.rms_norm import problem_of_row

OFFSET_BITS = 32
"""Bits in which key 2001 passes the start of a row to its sum (page, "Warnings")."""
PATHS = {tiler.KEY_FULL_LOAD: "full load", tiler.KEY_SPLIT: "split"}

FULL_LOAD = Condition(
    "full load",
    Text(
        "a padded row has at most {widest} elements and fits beside its y, gamma and sums",
        widest=tiler.WIDEST_FULL_LOAD,
    ),
    lambda row, device, rules: tiler.loads_whole_rows(problem_of_row(row), device),
    "whole rows, several at a time; squares are folded once, then registers are added as trees",
    "rows are cut into pieces of columns, whose sums are added in lists of 256",
    ("col",),
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling = case.tiling
    plan = vector_plan(
        case,
        path=PATHS[tiling.tiling_key],
        path_reason=_path_reason(case),
        per_core=_per_core(case),
        buffers=_buffers(case),
        ranges=[tiler.row_range(tiling, core) for core in range(tiling.block_dim)],
        workspace=workspace_parts(case),
        conditions=[decision(case, FULL_LOAD, col=case.row.col, col_align=_padded_columns(case))],
        caveats=(*_caveats(case), *zero_epsilon_caveats(case)),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling, case.arguments.epsilon)}


def _padded_columns(case: Case) -> int:
    return tiler.full_load_columns(problem_of_row(case.row))


def _buffers(case: Case) -> dict[str, int]:
    return tiler.buffers(case.tiling, problem_of_row(case.row))._asdict()


def _path_reason(case: Case) -> str:
    width = f"col_align {_padded_columns(case)}"
    if case.tiling.tiling_key == tiler.KEY_FULL_LOAD:
        return Text(
            "{width}: {row_factor} rows fit the buffer",
            width=width,
            row_factor=tiler.rows_in_ub(problem_of_row(case.row), case.device),
        )
    return Text("{width} does not fit the buffer whole", width=width)


def _per_core(case: Case) -> str:
    tiling = case.tiling
    if tiling.tiling_key == tiler.KEY_FULL_LOAD:
        groups = counted(ceil_div(tiling.block_factor, tiling.ub_factor), "group")
        return Text("{groups} of up to {rows} rows", groups=groups, rows=tiling.ub_factor)
    return Text(
        "{pieces} pieces of up to {ub_factor} columns",
        pieces=ceil_div(case.row.col, tiling.ub_factor),
        ub_factor=tiling.ub_factor,
    )


def _caveats(case: Case) -> list[Caveat]:
    """Return the warnings of a plan (page, "Warnings")."""
    caveats = [
        Caveat(
            code="rstd_differs_between_products",
            argument="rstd",
            message="A2 and A3 add the squares in another order and take another root: the last "
            "bits of rstd can differ from theirs",
        )
    ]
    row = case.row
    if case.tiling.tiling_key == tiler.KEY_SPLIT and row.row * row.col > 1 << OFFSET_BITS:
        caveats.append(
            Caveat(
                code="row_offset_wraps",
                argument="x",
                message=Text(
                    "the start of a row goes to its sum in {bits} bits: the sums of rows that "
                    "begin beyond 2^{bits} elements are those of other rows; the simulator "
                    "computes as if they were not. Read in the public sources; not run on a device",
                    bits=OFFSET_BITS,
                ),
            )
        )
    return caveats
