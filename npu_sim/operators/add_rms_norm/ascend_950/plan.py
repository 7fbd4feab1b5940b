"""Plan of AddRmsNorm on Ascend 950.

Source: specification page ``add_rms_norm_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Description,
    Evidence,
    Text,
    caveat,
    decision,
)
from npu_sim.operators.add_rms_norm.plan import common_caveats, description
from npu_sim.operators.shared.normalised_rows.plan import path_on_950
from npu_sim.tiling.add_rms_norm import FULL
from npu_sim.tiling.ascend_950 import add_rms_norm as tiler
from npu_sim.tiling.ascend_950.rms_norm import WIDEST_FULL_LOAD, full_load_columns
from npu_sim.tiling.common import FP32

FULL_LOAD = Condition(
    "full load",
    Text(
        "a padded row has at most {widest} elements and fits beside x1, x2, x and y",
        widest=WIDEST_FULL_LOAD,
    ),
    tiler.loads_whole_rows,
    "whole rows, several at a time; squares are folded once, then registers are added as trees",
    "rows are cut into pieces of columns, whose sums are added in lists of 256",
    ("col",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan; its kernel was read, not run: a model."""
    tiling, col_align = case.tiling, full_load_columns(case.row.col, case.row.dtype)
    most_rows = tiler.rows_in_ub(case.row, case.device)
    path, reason, per_core = path_on_950(case, tiling.ub_factor, tiling.row_factor, most_rows)
    return description(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        buffers=tiler.buffers(tiling, case.row)._asdict(),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: [decision(case, FULL_LOAD, col=case.row.col, col_align=col_align)],
        caveats=(*_caveats(case), *common_caveats(case)),
        evidence=Evidence.MODEL,
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    tiling, row = case.tiling, case.row
    yield caveat(
        "results_differ_between_products",
        "y",
        "A2 and A3 round otherwise, add the squares in another order and take another root: y, "
        "rstd, and x of fp16 can differ from theirs",
    )
    if row.dtype != FP32:
        yield caveat(
            "rstd_of_unrounded_sum",
            "rstd" if row.outputs == FULL else "y",
            "rstd and y are those of x1 + x2 before it is rounded, not of x as it is stored, which "
            "a gradient reads",
        )
    if tiling.rows < row.row:
        yield caveat(
            "short_modes_compute_few_rows",
            "y",
            "the planner takes both axes of gamma (1, columns) off x1: it plans {planned} of "
            "{rows} rows, and writes no others, as the public sources say; the simulator gives 0 "
            "there. Not run on a device",
            planned=tiling.rows,
            rows=row.row,
            not_modelled="*",
        )
    if tiling.tiling_key == tiler.KEY_SPLIT and tiling.block_factor * row.col > 1 << 32:
        yield caveat(
            "row_offset_wraps",
            "x1",
            "the start of a row inside a core is counted in 32 bits: rows that begin beyond 2^32 "
            "elements of a core are read and written at that place modulo 2^32; the simulator "
            "computes as if they were not",
            not_modelled="*",
        )
