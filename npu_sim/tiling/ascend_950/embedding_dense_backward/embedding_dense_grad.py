"""Tiling of EmbeddingDenseGrad on Ascend 950: pure integer functions.

Cores split the columns. Rows are sorted inside the kernel, in batches.

Source: specification page ``embedding_dense_backward_950``, "Tiling of V1".
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Range,
    Raw,
    align,
    align_down,
    ceil_div,
    chunk_range,
    element_bytes,
    nothing,
    vendor_fields,
)

LEAST_COLUMN_BYTES = 128
"""Bytes of grad of the columns that a core takes at least."""
CLEARED_BYTES = 1024
"""Unit in which the clearing of the output is split over cores."""
MOST_FULL_LOAD_ROWS = 1024
"""Most rows that are in the Unified Buffer together."""
DTYPE_DIGITS = (4, 2, 1)
"""Last digit of the tiling key, by dtype code."""
FULL_LOAD_KEYS = 114
"""Largest tiling key of calls whose rows are in the Unified Buffer together."""
LEAST_ROWS = 5
"""Rows of a batch that must fit for a core to keep all its columns: one group of the sum."""
RESERVED_BYTES = 128
"""Unified Buffer that stays free."""
SORT_BYTES = 11
"""Bytes that the sort takes for a row, besides its index."""
SORT_RESERVED_BYTES = 512
SORT_ROWS = 32
"""The sort pads to a multiple of so many rows."""


class Problem(NamedTuple):
    """One call; the size of an index is that of the kernel, 4 or 8 bytes."""

    rows: int
    dim: int
    num_weights: int
    dtype: int
    index_bytes: int
    scale_grad_by_freq: bool


class Scan(NamedTuple):
    """Pieces of the second pass, which scales and narrows the sums; all 0 without one."""

    rows: Annotated[int, Field("second pass: weight rows at a time", "num_weights + 1")]
    row_pieces: Annotated[int, Field("second pass: pieces of the rows", "num_weights + 1")]
    last_rows: Annotated[int, Field("second pass: rows of the last piece", "num_weights + 1")]
    columns: Annotated[int, Field("second pass: columns at a time", "dim")]
    column_pieces: Annotated[int, Field("second pass: pieces of the columns", "dim")]
    last_columns: Annotated[int, Field("second pass: columns of the last piece", "dim")]


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 101 to 114 all rows at once, 401 to 404 and 801 to 804 in batches")
    ]
    block_dim: int
    schedule_mode: Annotated[int, Field("1: all cores start together", "1", none=-1)]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel",
            "system_workspace_bytes + 8 * (rows + num_weights + 1024) * (dim + vector_cores + 64)",
        ),
    ]
    num_weights: Annotated[int, Field("rows of the output", vendor="numWeights")]
    dim: Annotated[int, Field("columns", vendor="embeddingDim")]
    batch_rows: Annotated[int, Field("rows of a batch", "rows", vendor="indicesFactor")]
    batch_elements: Annotated[int, Field("elements of a batch", "ub_bytes", vendor="gradFactor")]
    batches: Annotated[int, Field("batches of rows", "rows", vendor="loopPerCoreIndice")]
    last_batch_rows: Annotated[
        int, Field("rows of the last batch", "rows", vendor="indicesFactorTail")
    ]
    core_columns: Annotated[int, Field("columns of a core", "dim", vendor="embeddingDimPerCore")]
    last_core_columns: Annotated[
        int, Field("columns of the last core", "dim", vendor="embeddingDimLastCore")
    ]
    columns: Annotated[int, Field("columns at a time", "ub_bytes", vendor="gradFactorPerRow")]
    column_pieces: Annotated[
        int, Field("pieces of a core's columns", "dim", vendor="loopPerCoreGrad")
    ]
    last_columns: Annotated[
        int, Field("columns of the last piece", "ub_bytes", vendor="gradFactorPerRowTail")
    ]
    sort_bytes: Annotated[int, Field("bytes of the sort", "ub_bytes", vendor="sortSharedBufSize")]
    process_cores: Annotated[int, Field("cores that add", "vector_cores", vendor="processBlock")]
    clear_cores: Annotated[int, Field("cores that clear", "vector_cores", vendor="clearBlock")]
    scan: Scan


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def is_full_load(tiling: Tiling) -> bool:
    """Return whether all rows are in the Unified Buffer together."""
    return tiling.tiling_key <= FULL_LOAD_KEYS


def sort_bytes(rows: int, index_bytes: int) -> int:
    """Return the bytes of the sort with positions (page, "sort(n)")."""
    return align(rows, SORT_ROWS) * (SORT_BYTES + index_bytes) + SORT_RESERVED_BYTES


def least_columns(size: int) -> int:
    """Return the least columns of a core, and the least that it takes at a time."""
    return LEAST_COLUMN_BYTES // size


def columns_of_core(problem: Problem, cores: int) -> int:
    """Return the columns of a core."""
    least = least_columns(element_bytes(problem.dtype))
    return min(problem.dim, max(least, ceil_div(problem.dim, cores)))


def full_load_columns(problem: Problem, device: Device) -> int:
    """Return the columns that fit the Unified Buffer with all rows; 0 when too few do."""
    if problem.rows > MOST_FULL_LOAD_ROWS:
        return 0
    size, index_bytes = element_bytes(problem.dtype), problem.index_bytes
    padded = align(problem.rows, BLOCK_BYTES // index_bytes)
    free = (
        device.ub_bytes
        - RESERVED_BYTES
        - sort_bytes(padded, index_bytes)
        - 5 * padded * index_bytes
    )
    columns = align_down(free // (2 * size) // problem.rows, BLOCK_BYTES // size)
    return columns if columns >= least_columns(size) or columns == problem.dim else 0


def batch_bytes(problem: Problem, columns: int, rows: int) -> int:
    """Return the Unified Buffer of a batch (page, "size(A, S)")."""
    size = element_bytes(problem.dtype)
    padded = align(rows, BLOCK_BYTES // problem.index_bytes)
    return (
        rows * align(columns, BLOCK_BYTES // size) * size
        + FP32_BYTES * rows * align(columns, 8)
        + 5 * padded * problem.index_bytes
        + RESERVED_BYTES
        + sort_bytes(padded, problem.index_bytes)
    )


def fitting_rows(problem: Problem, columns: int, ub_bytes: int) -> int:
    """Return the most rows of a batch that fit the Unified Buffer; 0 when none do."""
    low, high = 0, problem.rows
    while low < high:
        middle = (low + high + 1) // 2
        if batch_bytes(problem, columns, middle) <= ub_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def scan_bytes(problem: Problem, columns: int, rows: int) -> int:
    """Return the Unified Buffer of the second pass (page, "size2(A, V)")."""
    size = element_bytes(problem.dtype)
    padded = align(columns, BLOCK_BYTES // size)
    if problem.scale_grad_by_freq:
        counters = align(rows, BLOCK_BYTES // problem.index_bytes) * problem.index_bytes
        return 2 * FP32_BYTES * rows * padded + counters
    return rows * padded * (FP32_BYTES + size)


def scan_of(problem: Problem, core_columns: int, ub_bytes: int) -> Scan:
    """Return the second pass: it scales, and narrows 16-bit results."""
    if problem.dtype == FP32 and not problem.scale_grad_by_freq:
        return NO_TILING.scan
    weights = max(problem.num_weights, 1)
    columns, rows = core_columns, weights
    if scan_bytes(problem, core_columns, weights) >= ub_bytes:
        cuts_rows = scan_bytes(problem, core_columns, 1) < ub_bytes
        low, high = 1, weights
        if not cuts_rows:
            low, high = least_columns(element_bytes(problem.dtype)), core_columns
        while low < high:
            middle = (low + high + 1) // 2
            columns, rows = (core_columns, middle) if cuts_rows else (middle, 1)
            if scan_bytes(problem, columns, rows) <= ub_bytes:
                low = middle
            else:
                high = middle - 1
        columns, rows = (core_columns, low) if cuts_rows else (low, 1)
    row_pieces, column_pieces = ceil_div(weights, rows), ceil_div(core_columns, columns)
    return Scan(
        rows,
        row_pieces,
        weights - (row_pieces - 1) * rows,
        columns,
        column_pieces,
        core_columns - (column_pieces - 1) * columns,
    )


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without rows, columns or cores, and on a chip whose
    Unified Buffer is too small for a row.
    """
    rows, dim, cores, ub_bytes = problem.rows, problem.dim, device.vector_cores, device.ub_bytes
    if min(rows, dim, cores) <= 0:
        return NO_TILING
    size = element_bytes(problem.dtype)
    core_columns = columns_of_core(problem, cores)
    process_cores = ceil_div(dim, core_columns)
    cleared = ceil_div(problem.num_weights * dim, CLEARED_BYTES // size)
    clear_cores = ceil_div(cleared, ceil_div(cleared, cores)) if cleared > 0 else 0
    columns, scan = full_load_columns(problem, device), NO_TILING.scan
    workspace = SYSTEM_WORKSPACE_BYTES
    if columns > 0:
        core_columns = ceil_div(dim, process_cores)
        key = 100 + DTYPE_DIGITS[problem.dtype] + (10 if problem.scale_grad_by_freq else 0)
        batch_rows = rows
    else:
        columns, batch_rows = core_columns, rows
        if batch_bytes(problem, core_columns, rows) >= ub_bytes:
            if batch_bytes(problem, core_columns, LEAST_ROWS) >= ub_bytes:
                columns = least_columns(size)
            batch_rows = fitting_rows(problem, columns, ub_bytes)
        if batch_rows <= 0:
            return NO_TILING
        key = 100 * problem.index_bytes + DTYPE_DIGITS[problem.dtype]
        scan = scan_of(problem, core_columns, ub_bytes)
        workspace += problem.num_weights * (problem.index_bytes + FP32_BYTES * dim)
    batches, pieces = ceil_div(rows, batch_rows), ceil_div(core_columns, columns)
    last_batch_rows = rows - (batches - 1) * batch_rows if key > FULL_LOAD_KEYS else 0
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=max(clear_cores, process_cores),
        schedule_mode=1,
        workspace_bytes=workspace,
        num_weights=problem.num_weights,
        dim=dim,
        batch_rows=batch_rows,
        batch_elements=batch_rows * align(columns, BLOCK_BYTES // size),
        batches=batches,
        last_batch_rows=last_batch_rows,
        core_columns=core_columns,
        last_core_columns=dim - (process_cores - 1) * core_columns,
        columns=columns,
        column_pieces=pieces,
        last_columns=core_columns - (pieces - 1) * columns,
        sort_bytes=sort_bytes(
            align(batch_rows, BLOCK_BYTES // problem.index_bytes), problem.index_bytes
        ),
        process_cores=process_cores,
        clear_cores=clear_cores,
        scan=scan,
    )


def core_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of columns that a core takes; cores that only clear have none."""
    return chunk_range(core, tiling.core_columns, tiling.dim)


SCALE_NAMES = (
    "indicesFactorFreq",
    "loopPerCoreIndiceFreq",
    "indicesFactorFreqTail",
    "gradFactorPerRowFreq",
    "loopPerCoreGradFreq",
    "gradFactorPerRowTailFreq",
)
CAST_NAMES = ("baseWCast", "cntWCast", "tailWCast", "baseACast", "cntACast", "tailACast")
"""The vendor's names of the second pass, in the order of `Scan`."""


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names; a second pass fills one group of names."""
    scan_fields = dict.fromkeys(SCALE_NAMES + CAST_NAMES, 0)
    scale = arguments["scale_grad_by_freq"]
    scan_fields |= zip(SCALE_NAMES if scale else CAST_NAMES, tiling.scan, strict=True)
    return {
        **vendor_fields(tiling),
        **scan_fields,
        "paddingIdx": arguments["padding_idx"],
        "scaleGradByFreq": int(scale),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    *leading, dim = inputs["grad_shape"]
    rows, indices_dtype = prod(leading), inputs["indices_dtype"]
    if indices_dtype not in ("int32", "int64") or rows != prod(inputs["indices_shape"]):
        return None
    return Problem(
        rows,
        dim,
        inputs["num_weights"],
        DTYPE_CODES[inputs["grad_dtype"]],
        8 if indices_dtype == "int64" else 4,
        inputs["scale_grad_by_freq"],
    )


def buffers(tiling: Tiling, size: int, index_bytes: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of a core that adds a batch (page, "Unified Buffer").

    Results are fp32 unless all rows are one batch.
    """
    rows, gradients = tiling.batch_rows, tiling.batch_elements * size
    indices, words = align(rows * index_bytes, BLOCK_BYTES), align(4 * rows, BLOCK_BYTES)
    sums = FP32_BYTES * rows * align(tiling.columns, 8)
    return {
        "indices": indices,
        "starts of runs": words + 64,
        "groups": words,
        "sorted indices": indices + 64,
        "positions": words,
        "sort": tiling.sort_bytes,
        "gradient rows": gradients,
        "results": gradients if is_full_load(tiling) else sums,
    }


def scan_buffers(tiling: Tiling, size: int, index_bytes: int, scale: bool) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of a core in the second pass; 0 without one."""
    elements = tiling.scan.rows * align(tiling.scan.columns, BLOCK_BYTES // size)
    if scale:
        counters = align(tiling.scan.rows * index_bytes, BLOCK_BYTES)
        return {"sums": 2 * FP32_BYTES * elements, "counters": counters}
    return {"sums": elements * (FP32_BYTES + size)}
