"""SwiGluGrad on Ascend 950: own planner and order of operations.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``swi_glu_950``.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Description,
    Plan,
    TensorSpec,
    Text,
    WorkspacePart,
    caveat,
    core_works,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.normalised_rows import SYSTEM
from npu_sim.operators.swi_glu.plan import few_cores, strided_inputs
from npu_sim.operators.swi_glu.timeline import WHERE, tensor_views
from npu_sim.operators.swi_glu_grad.compute import compute as compute_as
from npu_sim.operators.swi_glu_grad.timeline import BACKWARD
from npu_sim.tiling.ascend_950 import swi_glu_grad as tiler
from npu_sim.timelines import Copy, Instruction, Node, Program, ranged, vector_phase, vector_tile

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
    parts = [tiler.part_of(tiling, core) for core in range(tiling.block_dim)]
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
        workspace=(SYSTEM, untouched),
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


compute = partial(compute_as, is_950=True)

TILE = replace(
    BACKWARD.step,
    says=Text("{where}: {says}", BACKWARD.step, where=WHERE),
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

    def nodes(rows: tuple[int, int], columns: tuple[int, int]) -> tuple[Node, ...]:
        width = columns[1] - columns[0]
        most_rows, most_columns = tiler.piece(
            copies, tiling["ubSize"], x.itemsize, tiling["colTotal"], width
        )

        def tile(count: int, wide: int) -> tuple[Node, ...]:
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


instructions = None
"""No rates of vector instructions are published."""

FIELDS: dict[str, Any] = {"tiling": tiler.Tiling, "tile": tiler.tile}
"""Fields of the declaration that differ on Ascend 950."""
