"""Plans of SwiGlu and SwiGluGrad on tiles of rows and columns.

Source: specification pages ``swi_glu`` and ``swi_glu_grad``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    alignment,
    caveat,
    counted,
    decision,
    vector_plan,
)
from npu_sim.tiling import swi_glu as tiler

FEW_ELEMENTS = 4096
"""Size of half of x from which on idle cores are worth a warning (page, "Warnings")."""


def _nearest_aligned(row: Any, device: Any, rules: Any) -> Iterator[int]:
    """Yield the widths nearest to that of a call of which one is whole blocks, the other not."""
    block = alignment(row.dtype)
    if row.col % block == 0:
        yield row.col + 1
    else:
        yield from sorted(
            (row.col // block * block, row.col // block * block + block),
            key=lambda col: abs(col - row.col),
        )


ALIGNED = Condition(
    "aligned",
    "col is a multiple of the elements of a block of 32 bytes",
    lambda row, *_: tiler.is_aligned(row),
    "copies move whole blocks",
    "rows are padded to whole blocks in the Unified Buffer",
    ("col",),
    candidates={"col": _nearest_aligned},
)


def one_buffer_with(tile: Any) -> Condition:
    """Return the condition that a planner uses one buffer for every tensor."""

    def holds(row: Any, device: Any, rules: Any) -> bool:
        tiling = tile(row, device, rules)
        return bool(tiling.status == 0 and not tiling.is_double_buffer)

    return Condition(
        "one buffer",
        "every core would have two tiles with two buffers, and has one with one buffer",
        holds,
        "one larger tile on every core",
        "two buffers: a tile is copied while the one before is computed",
        ("row",),
    )


def describe_tiles(case: Case, names: tiler.Buffers, one_buffer: Condition) -> Description:
    """Return what either operator states of a plan, given its buffers and its condition."""
    tiling = case.tiling
    values = {"row": case.row.row, "col": case.row.col}
    return vector_plan(
        case,
        path="two buffers" if tiling.is_double_buffer else "one buffer",
        path_reason=Text(
            "tiles of {rows} x {columns}",
            rows=counted(tiling.tile_rows, "row"),
            columns=counted(tiling.tile_columns, "column"),
        ),
        per_core=Text(
            "core c takes the tiles c, c + {cores}, ...; columns first", cores=tiling.block_dim
        ),
        buffers=tiler.buffers(tiling, case.row.dtype, names),
        ranges=[(0, tiler.tile_count(tiling, core)) for core in range(tiling.block_dim)],
        unit="tile",
        workspace=(SYSTEM_WORKSPACE,),
        conditions=lambda: [
            decision(case, condition, **values) for condition in (ALIGNED, one_buffer)
        ],
        caveats=caveats(case),
    )


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan of either operator (page, "Warnings a plan gives")."""
    yield from few_cores(case)
    yield from strided_inputs(case)
    tiling = case.tiling
    if case.rules.checks_last_gap == 0 and tiler.wraps_last_gap(tiling, case.row):
        yield caveat(
            "tail_pitch_wraps",
            "x",
            "release {release}: the gap between the rows of the last {columns} columns does not "
            "fit 16 bits; all their rows but the first are read from, and in the gradient written "
            "to, wrong places; the simulator computes as if they were not. Another number of "
            "columns or rows avoids it",
            release=case.profile.release,
            columns=tiling.columns % tiling.tile_columns,
            not_modelled="*",
        )


def few_cores(case: Case) -> Iterator[Caveat]:
    """Yield the warning that cores are idle."""
    used, cores = case.tiling.block_dim, case.device.vector_cores
    if used < cores and case.row.row * case.row.col >= FEW_ELEMENTS:
        yield caveat(
            "few_cores",
            "x",
            "{used} of {cores} cores work: more rows use more of them, also by another order of "
            "the axes before and from dim on",
            used=used,
            cores=cores,
        )


def strided_inputs(case: Case) -> Iterator[Caveat]:
    """Yield a warning for each strided input, which documents do not always allow."""
    for copy in case.copies:
        name = copy.inputs[0].name
        yield caveat(
            "strided_input",
            name,
            "{name} is not contiguous: the operator definition asks for a copy, which is launched "
            "first; documents do not allow it for every input",
            name=name,
        )
