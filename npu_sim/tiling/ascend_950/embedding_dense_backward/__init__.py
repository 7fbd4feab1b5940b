"""Tiling of EmbeddingDenseGradV2 on Ascend 950: pure integer functions.

Cores split the sorted rows in batches; what a core sums of its first and last index goes through
workspace, and a merge adds it up.

Source: specification page ``embedding_dense_backward_950``, "Tiling of V2".
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1
from npu_sim.tiling.ascend_950.embedding_dense_backward.embedding_dense_grad import Problem
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Range,
    Raw,
    align,
    align_down,
    ceil_div,
    element_bytes,
    equal_parts,
    nothing,
    raw_planner,
    vendor_fields,
)

KEY = 1000000
"""Tiling key without its last two digits: scale, and columns in pieces."""
PIECE_BYTES = 512
"""Bytes of grad of the columns that a batch takes at a time."""
OUTER_COLUMNS = 2048
"""Columns of the running sum of one index that the Unified Buffer holds."""
STEP_BYTES = 4096
"""Step in which the Unified Buffer for a batch is lowered until every core has a batch."""
INDEX_PADDING_BYTES = 64
"""Bytes behind a buffer of indices, and behind one of counts."""
BATCH_ROWS = 32
"""A batch has a multiple of so many rows."""
WORKSPACE_HEAD_BYTES, SLOT_HEAD_BYTES, SLOT_ALIGNMENT = 128, 256, 128
"""Workspace besides that of the system and the slots; that of a slot besides its row, which is
padded to a multiple of the last."""
POSITION_BYTES = 4
"""Bytes of the position of a row."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 1000000, 10 more with scale, 1 more with columns in pieces")
    ]
    block_dim: Annotated[int, Field("cores that work", vendor="usedCoreNum")]
    schedule_mode: Annotated[int, Field("1: all cores start together", "1", none=-1)]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel",
            bound="system_workspace_bytes"
            " + 8 * (rows + num_weights + 1024) * (dim + vector_cores + 64)",
        ),
    ]
    rows: Annotated[int, Field("rows of grad", vendor="scatterDimSize")]
    dim: Annotated[int, Field("columns", vendor="elewiseDimSize")]
    num_weights: Annotated[int, Field("rows of the output", vendor="numWeights")]
    batches: Annotated[int, Field("batches of rows", "rows", vendor="scatterDimLoopNum")]
    batch_rows: Annotated[int, Field("rows of a batch", "ub_bytes", vendor="scatterFactor")]
    piece_columns: Annotated[
        int, Field("columns of a batch at a time", "512", vendor="elewiseFactor")
    ]
    pieces: Annotated[
        int, Field("pieces of a batch in an outer piece", "2048", vendor="elewiseDimLoopNum")
    ]
    outer_pieces: Annotated[
        int, Field("outer pieces of a row, of 2048 columns", "dim", vendor="elewiseDimOuterLoopNum")
    ]
    core_batches: Annotated[int, Field("batches of a core", "rows", vendor="normalBlockLoopNum")]
    last_core_batches: Annotated[
        int, Field("batches of the last core", "rows", vendor="tailBlockLoopNum")
    ]
    merge_cores: Annotated[
        int, Field("cores that merge", "vector_cores", vendor="blockNumForLastProcess")
    ]
    merge_columns: Annotated[
        int,
        Field("columns of the merge at a time", "ub_bytes", vendor="elewiseDimLastPerUbProcessNum"),
    ]
    merge_last_columns: Annotated[
        int, Field("columns of the last piece", "dim", vendor="elewiseDimLastProcessTailNum")
    ]
    merge_pieces: Annotated[
        int, Field("pieces of a core in the merge", "dim", vendor="elewiseDimLastNormalLoopNum")
    ]
    merge_last_pieces: Annotated[
        int, Field("pieces of the last core", "dim", vendor="elewiseDimLastTailLoopNum")
    ]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def piece_columns_of(dim: int, size: int) -> int:
    """Return the columns of a batch at a time (page, "elewiseFactor")."""
    return dim if dim * size <= PIECE_BYTES else PIECE_BYTES // size


def has_pieces(problem: Problem) -> bool:
    """Return whether a batch takes its columns piece by piece."""
    return problem.dim > piece_columns_of(problem.dim, element_bytes(problem.dtype))


def running_bytes(dim: int) -> int:
    """Return the bytes of the running sum of one index."""
    return align(min(FP32_BYTES * dim, FP32_BYTES * OUTER_COLUMNS), BLOCK_BYTES)


def rows_per_batch(problem: Problem, device: Device) -> int:
    """Return the rows of a batch; 0 when none fit.

    The Unified Buffer for a batch is lowered until every core has a batch.
    """
    size = element_bytes(problem.dtype)
    columns = align(piece_columns_of(problem.dim, size), BLOCK_BYTES // size)
    row_bytes = 2 * problem.index_bytes + POSITION_BYTES + 2 * columns * size
    reserved = running_bytes(problem.dim) + 2 * INDEX_PADDING_BYTES
    available, found = device.ub_bytes, 0
    while True:
        rows = align_down((available - reserved) // row_bytes, BATCH_ROWS)
        if rows <= 0:
            break
        found = rows
        if ceil_div(problem.rows, rows) >= device.vector_cores:
            break
        available -= STEP_BYTES
        if available <= STEP_BYTES:
            break
    return found


def slots(cores: int) -> int:
    """Return the slots of the merge: two of every core, without the first one."""
    return 2 * cores - 1


def index_slot_bytes(cores: int, index_bytes: int) -> int:
    """Return the bytes of the indices of all slots (page, "ib")."""
    return align(slots(cores) + 1, BLOCK_BYTES // index_bytes) * index_bytes


def count_slot_bytes(cores: int, index_bytes: int) -> int:
    """Return the bytes of the counts of all slots as they are read (page, "fb")."""
    return align(slots(cores) + 1, BLOCK_BYTES // index_bytes) * BLOCK_BYTES


def merged_columns(cores: int, index_bytes: int, size: int, device: Device) -> int:
    """Return the columns that a core merges at a time."""
    indices = index_slot_bytes(cores, index_bytes)
    padded_indices = 2 * (indices + INDEX_PADDING_BYTES)  # and counts
    frequencies = 2 * indices + count_slot_bytes(cores, index_bytes)
    free = device.ub_bytes - padded_indices - frequencies
    columns = align_down(free, BLOCK_BYTES) // ((FP32_BYTES + size) * slots(cores))
    return align_down(columns, BLOCK_BYTES // FP32_BYTES)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    Parameters
    ----------
    problem
        The call.
    device
        The SoC.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) without rows, columns or cores, and on a chip whose
        Unified Buffer is too small for a batch of rows, or for a column of the merge.
    """
    dim, size = problem.dim, element_bytes(problem.dtype)
    if min(problem.rows, dim, device.vector_cores) <= 0:
        return NO_TILING
    batch_rows = rows_per_batch(problem, device)
    if batch_rows == 0:
        return NO_TILING
    batches = ceil_div(problem.rows, batch_rows)
    cores, core_batches, last_core_batches = equal_parts(batches, device.vector_cores)
    piece_columns = piece_columns_of(dim, size)
    merge_columns = merged_columns(cores, problem.index_bytes, size, device)
    if merge_columns <= 0:
        return NO_TILING
    merge_pieces = ceil_div(dim, merge_columns)
    merge_cores, core_pieces, last_pieces = equal_parts(merge_pieces, cores)
    padded = align(piece_columns, BLOCK_BYTES // size)
    key = KEY + (10 if problem.scale_grad_by_freq else 0) + (1 if has_pieces(problem) else 0)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=cores,
        schedule_mode=1,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES
        + WORKSPACE_HEAD_BYTES
        + 2 * cores * (SLOT_HEAD_BYTES + align(FP32_BYTES * dim, SLOT_ALIGNMENT)),
        rows=problem.rows,
        dim=dim,
        num_weights=problem.num_weights,
        batches=batches,
        batch_rows=batch_rows,
        piece_columns=piece_columns,
        pieces=ceil_div(min(dim, OUTER_COLUMNS), padded),
        outer_pieces=ceil_div(dim, OUTER_COLUMNS),
        core_batches=core_batches,
        last_core_batches=last_core_batches,
        merge_cores=merge_cores,
        merge_columns=merge_columns,
        merge_last_columns=dim - (merge_pieces - 1) * merge_columns,
        merge_pieces=core_pieces,
        merge_last_pieces=last_pieces,
    )


def core_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of sorted rows that a core takes."""
    rows_per_core = tiling.batch_rows * tiling.core_batches
    return core * rows_per_core, min((core + 1) * rows_per_core, tiling.rows)


def buffers(tiling: Tiling, size: int, index_bytes: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of a core that sums rows (page, "Unified Buffer")."""
    rows = tiling.batch_rows
    values = rows * align(tiling.piece_columns, BLOCK_BYTES // size) * size
    indices = rows * index_bytes + INDEX_PADDING_BYTES
    return {
        "gradient rows": values,
        "indices": indices,
        "positions": POSITION_BYTES * rows,
        "counts": indices,
        "results": values,
        "running row": running_bytes(tiling.dim),
    }


def merge_buffers(tiling: Tiling, size: int, index_bytes: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of a core that merges (page, "Unified Buffer")."""
    elements = slots(tiling.block_dim) * tiling.merge_columns
    indices = index_slot_bytes(tiling.block_dim, index_bytes)
    return {
        "slots": FP32_BYTES * elements,
        "results": size * elements,
        "indices": indices + INDEX_PADDING_BYTES,
        "counts": indices + INDEX_PADDING_BYTES,
        "frequencies": 2 * indices,
        "frequencies as read": count_slot_bytes(tiling.block_dim, index_bytes),
    }


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names."""
    return {**vendor_fields(tiling), "paddingIdx": arguments["padding_idx"]}


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    leading, out = inputs["grad_shape"][:-1], inputs["out_shape"]
    fits = leading and len(out) == 2 and out[0] == inputs["num_weights"]
    return v1.problem_of(inputs, rules) if fits else None


KERNELS = {
    "embedding_dense_grad_v2": raw_planner(problem_of, tile, vendor_structure),
    "embedding_dense_grad": raw_planner(v1.problem_of, v1.tile, v1.vendor_structure),
}
