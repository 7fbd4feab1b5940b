"""Tiling of SwiGluGrad on Ascend 950, which has a planner of its own: pure integer functions.

Source: specification page ``swi_glu_950``, section "aclnnSwiGluGrad".
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BF16,
    BLOCK_BYTES,
    FP16,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    UINT32_MASK,
    Field,
    Raw,
    align,
    align_down,
    ceil_div,
    element_bytes,
    nothing,
    raw_planner,
)
from npu_sim.tiling.swi_glu import Problem, split_at

KEY_BASE = 1000000
"""Tiling key without dtype and copying mode."""
PACK_BYTES = 512
"""Columns are split over cores in pieces of this size."""
CORE_ELEMENTS = 8192
"""Elements of half of x for which the planner takes one core."""
ALIGNED_BYTES = 1024
"""From this size of half a row on, halves are copied apart: keys that end in 1."""
UNTOUCHED_BYTES = 32
"""Workspace for every core in addition to the system's, which no kernel uses."""
COPIED_TENSORS, REARRANGED_TENSORS, BUFFER_STEP = 10, 20, 256
"""Parts of the Unified Buffer by copying mode, and their granularity in bytes."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: dtype, and 1 for halves copied apart", "1000021")]
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "usedCoreNum")]
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", f"{SYSTEM_WORKSPACE_BYTES} + 32 * vector_cores")
    ]
    rows: Annotated[int, Field("rows: product of the axes before dim", vendor="rowTotal")]
    columns: Annotated[int, Field("columns of half a row", vendor="colTotal")]
    part_rows: Annotated[int, Field("rows of a core", "row", "rowBase")]
    part_columns: Annotated[int, Field("columns of a core", "col", "colBase")]
    last_rows: Annotated[int, Field("rows of the last cores", "row", "rowTail")]
    last_columns: Annotated[int, Field("columns of the last cores", "col", "colTail")]
    ub_bytes: Annotated[int, Field("Unified Buffer", "ub_bytes", "ubSize")]
    row_parts: Annotated[int, Field("parts of the rows", "vector_cores", "rowTileNum")]
    column_parts: Annotated[int, Field("parts of the columns", "vector_cores", "colTileNum")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


class Cut(NamedTuple):
    """Parts of the rows and of the columns, and their cost; no parts if there is no cut."""

    row_parts: int
    column_parts: int
    cost: int


def copies_halves(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether the halves of a row are copied apart; else they are taken apart on chip."""
    return problem.col * element_bytes(problem.dtype) >= ALIGNED_BYTES


def wanted_cores(problem: Problem, blocks: int, cores: int) -> int:
    """Return the number of cores that the planner tries to use (page, "want")."""
    elements = problem.row * blocks * (PACK_BYTES // element_bytes(problem.dtype))
    return max(min(elements // CORE_ELEMENTS & UINT32_MASK, cores), 1)


def is_tried(parts: int, want: int) -> bool:
    """Return whether the planner tries so many parts of the rows (page, "Cuts m")."""
    number = 1
    while (number - 1) ** 2 < want:
        if parts in (number, want // number):
            return True
        number += 1
    return False


def cost_of(problem: Problem, blocks: int, row_parts: int, column_parts: int, want: int) -> int:
    """Return the work of the core with most of it, less a discount for uneven parts."""
    rows, columns = ceil_div(problem.row, row_parts), ceil_div(blocks, column_parts)
    cost = rows * columns
    if row_parts * column_parts != want:
        return cost
    if problem.row % row_parts == 0:
        return cost - rows * (blocks % columns)
    if blocks % column_parts == 0:
        return cost - problem.row % rows * column_parts
    return cost - problem.row % rows * (blocks % columns)


def cut(problem: Problem, blocks: int, want: int, splits_columns: bool) -> Cut:
    """Return how the planner cuts the rows and columns over cores."""
    best = Cut(0, 0, 0)
    for row_parts in range(1, want + 1):
        column_parts = max(want // row_parts, 1)
        is_legal = row_parts <= problem.row and column_parts <= blocks
        if not is_tried(row_parts, want) or not is_legal:
            continue
        if column_parts > 1 and not splits_columns:
            continue
        is_even = problem.row % row_parts == 0 and blocks % column_parts == 0
        if row_parts * column_parts == want and is_even:
            return Cut(row_parts, column_parts, 0)
        cost = cost_of(problem, blocks, row_parts, column_parts, want)
        is_cheaper = cost < best.cost or (cost == best.cost and column_parts < best.column_parts)
        if best.row_parts == 0 or is_cheaper:
            best = Cut(row_parts, column_parts, cost)
    return best


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call; ``status`` is 1 (the product's 561002) without rows, columns or cores."""
    if min(problem.row, problem.col, device.vector_cores) <= 0:
        return NO_TILING
    blocks = ceil_div(problem.col, PACK_BYTES // element_bytes(problem.dtype))
    want = wanted_cores(problem, blocks, device.vector_cores)
    copies = copies_halves(problem, device, rules)
    best = cut(problem, blocks, want, copies)
    if best.row_parts == 0:
        return NO_TILING
    dtype = 1
    if problem.dtype == FP16:
        dtype = 0
    elif problem.dtype == BF16:
        dtype = 2
    cores = best.row_parts * best.column_parts
    rows, columns = problem.row // best.row_parts, problem.col // best.column_parts
    return Tiling(
        status=SUCCESS,
        tiling_key=KEY_BASE + 10 * dtype + int(copies),
        block_dim=cores,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES + UNTOUCHED_BYTES * cores,
        rows=problem.row,
        columns=problem.col,
        part_rows=rows,
        part_columns=columns,
        last_rows=rows + problem.row % best.row_parts,
        last_columns=columns + problem.col % best.column_parts,
        ub_bytes=device.ub_bytes,
        row_parts=best.row_parts,
        column_parts=best.column_parts,
    )


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; the shape of yGrad must fit."""
    x, y_grad, dim = tuple(inputs["x_shape"]), tuple(inputs["y_grad_shape"]), inputs["dim"]
    if not -len(x) <= dim < len(x) or x[dim] % 2:
        return None
    half = list(x)
    half[dim] //= 2
    return split_at(x, dim, inputs["dtype"]) if tuple(half) == y_grad else None


KERNELS = {"swi_glu_grad": raw_planner(problem_of, tile)}


def part_of(tiling: Tiling, core: int) -> tuple[range, range]:
    """Return the rows and the columns of a core.

    The last column part of the last but one row part redoes rows of the next part (page, "Parts
    of a core").
    """
    row_part, column_part = divmod(core, tiling.column_parts)
    rows, columns = tiling.part_rows, tiling.part_columns
    if (core + 1) // tiling.column_parts >= tiling.row_parts - 1:
        rows = tiling.last_rows
    if column_part == tiling.column_parts - 1:
        columns = tiling.last_columns
    first_row, first_column = row_part * tiling.part_rows, column_part * tiling.part_columns
    return range(first_row, first_row + rows), range(first_column, first_column + columns)


def buffers(copies: bool, ub_bytes: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core (page, "Parts of a core")."""
    if copies:
        size = 2 * align_down(ub_bytes // COPIED_TENSORS, BUFFER_STEP)
        return dict.fromkeys(("a", "b", "y_grad", "out_a", "out_b"), size)
    size = align_down(ub_bytes // REARRANGED_TENSORS, BUFFER_STEP)
    halves = dict.fromkeys(("a", "b", "out_a", "out_b"), size)
    return {"x": 4 * size, "y_grad": 2 * size, "out": 4 * size, **halves, "index": BUFFER_STEP}


def piece(copies: bool, ub_bytes: int, size: int, half: int, columns: int) -> tuple[int, int]:
    """Return the rows and columns that are in the Unified Buffer at a time.

    Parameters
    ----------
    copies
        Whether the halves of a row are copied apart.
    ub_bytes, size
        Unified Buffer, and bytes of an element.
    half, columns
        Columns of half a row, and those of them that are the core's.
    """
    if not copies:
        room = 2 * align_down(ub_bytes // REARRANGED_TENSORS, BUFFER_STEP)
        return room // (2 * half * size), columns
    room = align_down(ub_bytes // COPIED_TENSORS, BUFFER_STEP)
    if columns * size > room:
        return 1, room // size
    return room // align(columns * size, BLOCK_BYTES), columns
