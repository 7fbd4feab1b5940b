"""Plan of SwiGluGrad on Ascend 950.

Source: specification page ``swi_glu_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    WorkspacePart,
    caveat,
    core_ranges,
    core_works,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.gated_halves.plan import few_cores, strided_inputs
from npu_sim.tiling.ascend_950 import swi_glu_grad as tiler

COPIED_APART = Condition(
    "halves copied apart",
    Text("half a row has {bytes} bytes or more", bytes=tiler.ALIGNED_BYTES),
    tiler.copies_halves,
    "a and b are copied in one by one, and columns may be split over cores",
    "rows are copied in whole, and their halves taken apart in the Unified Buffer",
    ("col",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    parts = core_ranges(tiler.part_of, tiling)
    rows = [(part.start, part.stop) for part, _ in parts]
    columns = [(part.start, part.stop) for _, part in parts]
    untouched = WorkspacePart(
        name="untouched",
        bytes=tiler.UNTOUCHED_BYTES * tiling.block_dim,
        kind="kernel",
        note="no kernel reads or writes it",
    )
    copies = tiler.copies_halves(case.row, case.device, case.rules)
    piece_rows, piece_columns = tiler.piece(
        copies, tiling.ub_bytes, case.specs["x"].itemsize, tiling.columns, tiling.last_columns
    )
    return vector_plan(
        case,
        path="move align" if copies else "rearrange",
        path_reason=Text(
            "{row_parts} parts of the rows x {column_parts} parts of the columns",
            row_parts=tiling.row_parts,
            column_parts=tiling.column_parts,
        ),
        per_core=Text(
            "pieces of up to {rows} rows x {columns} columns",
            rows=piece_rows,
            columns=piece_columns,
        ),
        buffers=tiler.buffers(copies, tiling.ub_bytes),
        ranges=rows,
        cores=lambda: core_works({"rows": rows, "columns": columns}),
        workspace=(SYSTEM_WORKSPACE, untouched),
        conditions=lambda: [decision(case, COPIED_APART, col=case.row.col)],
        caveats=caveats(case),
    )


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    yield caveat(
        "results_differ_between_products",
        "out",
        "A2 and A3 multiply in another order: last bits of the gradient can differ from theirs",
    )
    yield from few_cores(case)
    yield from strided_inputs(case)
