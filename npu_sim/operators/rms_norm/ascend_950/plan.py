"""Plan of RmsNorm on Ascend 950.

Source: specification page ``rms_norm_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    caveat,
    core_ranges,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.normalised_rows.plan import (
    KERNEL_PARTS,
    copied_outputs,
    path_on_950,
    zero_epsilon_caveats,
)
from npu_sim.tiling.ascend_950 import rms_norm as tiler
from npu_sim.tiling.rms_norm import row_range

OFFSET_BITS = 32
"""Bits in which key 2001 passes the start of a row to its sum (page, "Warnings")."""
FULL_LOAD = Condition(
    "full load",
    Text(
        "a padded row has at most {widest} elements and fits beside its y, gamma and sums",
        widest=tiler.WIDEST_FULL_LOAD,
    ),
    tiler.loads_whole_rows,
    "whole rows, several at a time; squares are folded once, then registers are added as trees",
    "rows are cut into pieces of columns, whose sums are added in lists of 256",
    ("col",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, col_align = case.tiling, tiler.full_load_columns(case.row.col, case.row.dtype)
    piece = tiling.ub_factor if tiling.tiling_key == tiler.KEY_SPLIT else 0
    most_rows = tiler.rows_in_ub(case.row, case.device)
    path, reason, per_core = path_on_950(case, piece, tiling.ub_factor, most_rows)
    return vector_plan(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        buffers=tiler.buffers(tiling, case.row)._asdict(),
        ranges=core_ranges(row_range, tiling),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=[*KERNEL_PARTS, *copied_outputs(case)],
        conditions=lambda: [decision(case, FULL_LOAD, col=case.row.col, col_align=col_align)],
        caveats=_caveats(case),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    yield caveat(
        "rstd_differs_between_products",
        "rstd",
        "A2 and A3 add the squares in another order and take another root: the last bits "
        "of rstd can differ from theirs",
    )
    row = case.row
    if case.tiling.tiling_key == tiler.KEY_SPLIT and row.row * row.col > 1 << OFFSET_BITS:
        yield caveat(
            "row_offset_wraps",
            "x",
            "the start of a row goes to its sum in {bits} bits: the sums of rows that begin "
            "beyond 2^{bits} elements are those of other rows; the simulator computes as if "
            "they were not. Read in the public sources; not run on a device",
            bits=OFFSET_BITS,
            not_modelled="*",
            since="9.1",
        )
    yield from zero_epsilon_caveats(case)
