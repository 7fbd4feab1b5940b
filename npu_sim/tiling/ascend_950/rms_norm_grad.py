"""Tiling of RmsNormGrad on Ascend 950: pure integer functions.

dx and dgamma are computed one after the other; every key has its own tiling structure.

Source: specification page ``rms_norm_grad_950``, section "Tiling". Shapes are checked as on the
other products (:mod:`npu_sim.tiling.rms_norm_grad`), except for tensors without rows.
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    DTYPE_CODES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    UINT32_MASK,
    VECTOR_LANES,
    BlockDim,
    Field,
    Part,
    Raw,
    align,
    align_down,
    bit_length,
    ceil_div,
    element_bytes,
    equal_parts,
    largest_power,
    nothing,
    raw_planner,
    vendor_fields,
)
from npu_sim.tiling.rms_norm_grad import Problem, Shapes, shape_error

KEY_FULL_LOAD, KEY_BLOCKS, KEY_NO_ROWS, KEY_BIG_ROWS = 7000, 7001, 8000, 9000
"""Tiling keys: columns go to cores, and all rows lie in the Unified Buffer, or rows come in blocks
of 64; there are no rows, dgamma becomes nan; rows go to cores ("big M")."""
WIDE_STEP = 10
"""Added to a key when a row does not fit the buffers of dx."""

WIDEST_ROW = 6144
"""Widest row whose dx is computed at once (page, "bodyPart")."""
BLOCK_ROWS, SET_COLUMNS = 64, 64
"""Rows of a block; columns of a set, on keys 7000 and 7001."""
SET_ROW_BYTES = FP32_BYTES * SET_COLUMNS
"""Unified Buffer of one fp32 row of a set."""
BIG_ROWS_PER_CORE = 32
"""Key 9000: cols <= 32 * cores <= rows (page, "big M")."""
WHOLE_COLUMNS = 8192
"""Key 8000: columns that one core fills (page, "row 0")."""
BLOCK_ROW_BYTES, BIG_RESERVED_BYTES = 1032, 768
"""Unified Buffer of a row of a block on key 7001, and of key 9000 beside its columns."""

DX_BUFFER_BYTES, DX_GAMMA_BYTES = 24576, 24576
WIDE_PIECE_BYTES, WIDE_PRODUCT_BYTES = 16384, 32768
LEVEL_BYTES, WORK_BYTES, SUM_BYTES, RSTD_BYTES = 1024, 1024, 256, 256
"""Buffers of dx (page, "Unified Buffer of a core")."""


class DxSplit(NamedTuple):
    """Rows of dx over the cores, ``dxTilingData``."""

    rows: Annotated[int, Field("rows", vendor="rows")]
    columns: Annotated[int, Field("columns", vendor="cols")]
    block_factor: Annotated[int, Field("rows of a core in dx", "row", "blockFactorDx")]
    cores: Annotated[int, Field("cores that compute dx", "vector_cores", "usedCoreNumDx")]
    body: Annotated[
        int, Field("columns that later ones are added to; 0 for whole rows", "col", "bodyPart")
    ]


class ColumnSplit(NamedTuple):
    """Columns of dgamma over the cores in sets of 64, keys 7000 and 7001."""

    several_sets: Annotated[
        int, Field("1 where a core has several sets of 64 columns", "1", "isMultiColset")
    ]
    cores: Annotated[int, Field("cores that compute dgamma", "vector_cores", "usedCoreNumDG")]
    columns: Annotated[int, Field("columns of a core", "col + 63", "colsPerCoreDG")]
    tail_cores: Annotated[int, Field("cores with one set more", "vector_cores", "tailCoreNumDG")]
    tail_columns: Annotated[int, Field("columns of such a core", "col + 127", "colsPerTailCoreDG")]
    last_columns: Annotated[int, Field("columns of the last set", "64", "colsLastCoreDG")]
    is_full_load: Annotated[int, Field("1 where all rows fit the buffer", "1", "isFullLoad")]
    rows_in_ub: Annotated[
        int, Field("rows in the Unified Buffer at a time", "ub_bytes", "rowsPerUBDG")
    ]
    blocks: Annotated[int, Field("blocks of 64 rows", "row", "totalBlockCountDG")]
    whole_blocks: Annotated[int, Field("whole blocks", "row", "mainBlockCountDG")]
    partial_blocks: Annotated[int, Field("blocks of fewer rows", "1", "tailBlockCountwithPadDG")]
    levels: Annotated[int, Field("levels of the tree over blocks", "63", "binaryAddKDG")]
    folded_blocks: Annotated[
        int, Field("blocks that a fold leaves", "row", "powerOfTwoBlockCountDG")
    ]
    other_blocks: Annotated[
        int, Field("whole blocks that it adds to them", "row", "tailBlockCountWithoutPadDG")
    ]
    rows_beyond: Annotated[int, Field("rows beyond the power of two below", "row", "rowsTailDG")]
    always_0: Annotated[int, Field("0", vendor="powerofTwoValueDG")]
    block_bytes: Annotated[int, Field("bytes of a block", vendor="blockSize")]
    lanes: Annotated[int, Field("fp32 lanes", vendor="vlFp32")]


class RowBlocks(NamedTuple):
    """Blocks of 64 rows of one core on key 9000."""

    rows: Annotated[int, Field("rows", "row + 1", "MToProcess")]
    whole: Annotated[int, Field("whole blocks", "row", "MLoop")]
    total: Annotated[int, Field("blocks", "row + 1", "MTotalLoop")]
    tail: Annotated[int, Field("rows of the last, partial block", "64", "MTail")]
    folded: Annotated[
        int, Field("blocks that a fold leaves; 0 for one block", "row", "BasicBlockLoop")
    ]
    others: Annotated[int, Field("whole blocks that it adds to them", "row", "MainFoldCount")]
    caches: Annotated[int, Field("sums kept at a time", "64", "CacheBufferCount")]
    result: Annotated[int, Field("index of the sum with the result", "64", "ResultCacheID")]


class RowSplit(NamedTuple):
    """Rows of dgamma over the cores, key 9000."""

    cores: Annotated[
        int, Field("cores that add rows of dgamma", "vector_cores", "dgammaUsedCoreNum")
    ]
    rows: Annotated[int, Field("rows of a core", "row", "dgammaMPerBlock")]
    longer: Annotated[
        int, Field("first cores with one row more", "vector_cores", "dgammaMReminder")
    ]
    whole_pieces: Annotated[int, Field("whole pieces of columns", "col", "dgammaNloop")]
    last_piece: Annotated[int, Field("columns of the last, shorter piece", "col", "dgammaNtail")]
    block_rows: Annotated[int, Field("rows of a block", "64", "dgammaMfactorBlockAligned")]
    piece: Annotated[
        int,
        Field(
            "padded columns of a piece; 33 to 64 select the order of rows",
            "col + 15",
            "dgammaNfactorBlockAligned",
        ),
    ]
    main: Annotated[RowBlocks, Part("dgamma{}MainBlock", " of the first cores")]
    other: Annotated[RowBlocks, Part("dgamma{}TailBlock", " of the other cores")]
    merge_columns: Annotated[
        int, Field("columns that core 0 merges at a time", "col + 7", "dgammaAInnerAlignedStg1")
    ]
    merge_steps: Annotated[int, Field("steps of the merge", "col", "dgammaAOuterStg1")]
    merge_tail: Annotated[int, Field("columns of its last step", "col", "dgammaATailStg1")]


class NanSplit(NamedTuple):
    """Columns of nan over the cores, key 8000."""

    columns: Annotated[int, Field("columns", vendor="cols")]
    ub_bytes: Annotated[int, Field("Unified Buffer", vendor="ubSize")]
    cores: Annotated[int, Field("cores that fill dgamma", "vector_cores", "usedCoreNumDG")]
    core_columns: Annotated[int, Field("columns of a core", "col", "colsPerCoreDG")]
    last_columns: Annotated[
        int, Field("columns of the last core; may be negative", "col", "colsLastCoreDG")
    ]
    piece: Annotated[int, Field("columns of a piece", "col", "colsPerUBDG")]
    pieces: Annotated[int, Field("whole pieces of a core", "col", "coreUbBlockCount")]
    tail: Annotated[int, Field("columns of its last piece", "col", "tailUbCols")]
    last_pieces: Annotated[int, Field("whole pieces of the last core", "col", "lastCoreBlockCount")]
    last_tail: Annotated[int, Field("columns of its last piece", "col", "lastCoreTailUbCols")]


class Tiling(NamedTuple):
    """Result of the planner; parts that the key does not have are 0."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 7000 columns, 7001 blocks of rows, 8000 no rows, 9000 rows", "9010")
    ]
    block_dim: BlockDim
    schedule_mode: Annotated[int, Field("1: all cores start together", "1")]
    workspace_bytes: Annotated[
        int, Field("workspace of the kernel", f"{SYSTEM_WORKSPACE_BYTES} + 4 * vector_cores * col")
    ]
    dx: Annotated[DxSplit, Part()]
    column_sets: Annotated[ColumnSplit, Part()]
    row_blocks: Annotated[RowSplit, Part()]
    nan: Annotated[NanSplit, Part()]


NO_TILING = nothing(Tiling)


def is_wide(columns: int) -> bool:
    """Return whether a row is cut into pieces for dx."""
    return columns > WIDEST_ROW


def splits_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether there are many more rows than columns: key 9000 (page, "big M")."""
    least = BIG_ROWS_PER_CORE * device.vector_cores
    return problem.col <= least and problem.row >= 2 * problem.col and problem.row >= least


def holds_all_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether all rows of a set of columns fit the Unified Buffer twice: key 7000.

    A set has 64 columns of dy, 64 of x, rstd, and 64 columns of products with one row more (page,
    "isFullLoad").
    """
    column = align(FP32_BYTES * problem.row, 32)
    longer_column = align(FP32_BYTES * (problem.row + 1), 32)
    return device.ub_bytes >= 2 * ((2 * SET_COLUMNS + 1) * column + SET_COLUMNS * longer_column)


def split_columns(problem: Problem, device: Device, rules: Any) -> ColumnSplit:
    """Return the split of dgamma by columns, keys 7000 and 7001."""
    cores, sets = device.vector_cores, ceil_div(problem.col, SET_COLUMNS)
    last = problem.col - SET_COLUMNS * (sets - 1)
    several, used, columns, tails, tail_columns = 0, sets, SET_COLUMNS, 1, last
    if sets > cores:
        several, used = 1, cores
        columns = SET_COLUMNS * (sets // cores)
        if columns * cores > problem.col:
            columns -= SET_COLUMNS
        tails = sets - columns // SET_COLUMNS * cores
        tail_columns = columns + SET_COLUMNS
    is_full = holds_all_rows(problem, device, rules)
    # Conditional expressions stand before the call: Numba takes none among so many arguments.
    in_ub, blocks, whole, partial, power = problem.row, 0, 0, 0, 0
    if not is_full:
        in_ub = largest_power(device.ub_bytes // 2 // BLOCK_ROW_BYTES)
        blocks, whole = ceil_div(problem.row, BLOCK_ROWS), problem.row // BLOCK_ROWS
        partial, power = blocks - whole, largest_power(whole)
    return ColumnSplit(
        several_sets=several,
        cores=used,
        columns=columns,
        tail_cores=tails,
        tail_columns=tail_columns,
        last_columns=last,
        is_full_load=int(is_full),
        rows_in_ub=in_ub,
        blocks=blocks,
        whole_blocks=whole,
        partial_blocks=partial,
        levels=max(bit_length(power) - 1, 0),
        folded_blocks=power,
        other_blocks=whole - power,
        rows_beyond=problem.row - largest_power(problem.row),
        always_0=0,
        block_bytes=32,
        lanes=VECTOR_LANES,
    )


def row_blocks(rows: int) -> RowBlocks:
    """Return the blocks of a core with this many rows."""
    total, whole = ceil_div(rows, BLOCK_ROWS), rows // BLOCK_ROWS
    folded = 0 if total <= 1 else largest_power(total - 1)
    return RowBlocks(
        rows=rows,
        whole=whole,
        total=total,
        tail=rows % BLOCK_ROWS,
        folded=folded,
        others=whole - folded,
        caches=max(bit_length(folded), 1),
        result=max(bit_length(folded) - 1, 0),
    )


def merge_width(cores: int, ub_bytes: int) -> int:
    """Return the columns that core 0 can merge at a time, on key 9000 (page, "Merge")."""
    return align_down(ub_bytes // (2 * FP32_BYTES) // (cores + 1), 8)


def split_rows(problem: Problem, device: Device) -> RowSplit:
    """Return the split of dgamma by rows, key 9000; ``piece`` is 0 when no column fits."""
    size = element_bytes(problem.dtype)
    unit = 32 // size
    used = min(ceil_div(problem.row, BLOCK_ROWS), device.vector_cores)
    rows_per_core = problem.row // used
    main, other = row_blocks(rows_per_core + 1), row_blocks(rows_per_core)
    row_bytes = BLOCK_ROWS * (6 * size + 4) + 4 * (3 + main.caches)
    most = align_down((device.ub_bytes - BIG_RESERVED_BYTES) // row_bytes, unit)
    piece = align(min(most, problem.col), unit)
    inner = merge_width(used, device.ub_bytes)
    if piece <= 0 or inner <= 0:
        return NO_TILING.row_blocks
    merged = align(min(problem.col, inner), 8)
    steps = ceil_div(problem.col, merged)
    return RowSplit(
        cores=used,
        rows=rows_per_core,
        longer=problem.row - used * rows_per_core,
        whole_pieces=problem.col // piece,
        last_piece=problem.col % piece,
        block_rows=BLOCK_ROWS,
        piece=piece,
        main=main,
        other=other,
        merge_columns=merged,
        merge_steps=steps,
        merge_tail=problem.col - (steps - 1) * merged,
    )


def split_nan(columns: int, device: Device) -> NanSplit:
    """Return the split of a dgamma without rows, key 8000."""
    if columns <= WHOLE_COLUMNS:
        return NanSplit(
            columns=columns,
            ub_bytes=device.ub_bytes,
            cores=1,
            core_columns=columns,
            last_columns=columns,
            piece=columns,
            pieces=0,
            tail=columns,
            last_pieces=0,
            last_tail=columns,
        )
    columns_per_core = ceil_div(columns, device.vector_cores)
    last = columns - columns_per_core * (device.vector_cores - 1)
    piece, pieces, tail, last_pieces, last_tail = columns_per_core, 0, columns_per_core, 0, last
    if 8 * columns_per_core > device.ub_bytes:
        piece = largest_power(device.ub_bytes // 8)
        pieces, last_pieces = ceil_div(columns_per_core, piece) - 1, ceil_div(last, piece) - 1
        tail, last_tail = columns_per_core - piece * pieces, last - piece * last_pieces
    return NanSplit(
        columns=columns,
        ub_bytes=device.ub_bytes,
        cores=device.vector_cores,
        core_columns=columns_per_core,
        last_columns=last,
        piece=piece,
        pieces=pieces,
        tail=tail,
        last_pieces=last_pieces,
        last_tail=last_tail,
    )


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without columns or cores, and on a chip whose Unified
    Buffer holds no column.
    """
    cores, none = device.vector_cores, NO_TILING
    if problem.row < 0 or problem.col <= 0 or cores <= 0:
        return NO_TILING
    if problem.row & UINT32_MASK == 0:  # the planner tests it in 32 bits
        return Tiling(
            status=SUCCESS,
            tiling_key=KEY_NO_ROWS,
            block_dim=cores,
            schedule_mode=1,
            workspace_bytes=SYSTEM_WORKSPACE_BYTES,
            dx=none.dx,
            column_sets=none.column_sets,
            row_blocks=none.row_blocks,
            nan=split_nan(problem.col, device),
        )
    used, rows_per_core, _ = equal_parts(problem.row, cores)
    wide = body = 0
    if is_wide(problem.col):
        half = (problem.col + rules.mean_has_all_columns) // 2
        wide, body = WIDE_STEP, 1 << bit_length(half - 1)  # page, "bodyPart", and "Warnings"
    dx = DxSplit(problem.row, problem.col, rows_per_core, used, body)
    if splits_rows(problem, device, rules):
        rows = split_rows(problem, device)
        if rows.piece <= 0:
            return NO_TILING
        return Tiling(
            status=SUCCESS,
            tiling_key=KEY_BIG_ROWS + wide,
            block_dim=max(dx.cores, rows.cores),
            schedule_mode=1,
            workspace_bytes=SYSTEM_WORKSPACE_BYTES + FP32_BYTES * rows.cores * problem.col,
            dx=dx,
            column_sets=none.column_sets,
            row_blocks=rows,
            nan=none.nan,
        )
    columns = split_columns(problem, device, rules)
    key = KEY_FULL_LOAD if columns.is_full_load == 1 else KEY_BLOCKS
    return Tiling(
        status=SUCCESS,
        tiling_key=key + wide,
        block_dim=cores,
        schedule_mode=1,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        dx=dx,
        column_sets=columns,
        row_blocks=none.row_blocks,
        nan=none.nan,
    )


def is_big(tiling: Tiling) -> bool:
    """Return whether rows of dgamma go to cores."""
    return tiling.tiling_key in (KEY_BIG_ROWS, KEY_BIG_ROWS + WIDE_STEP)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each key has its own structure."""
    if tiling.tiling_key == KEY_NO_ROWS:
        return vendor_fields(tiling.nan)
    fields = vendor_fields(tiling.row_blocks if is_big(tiling) else tiling.column_sets)
    return {"dxTilingData": vendor_fields(tiling.dx), **fields}


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    shapes = Shapes(*(tuple(inputs[f"{name}_shape"]) for name in Shapes._fields))
    dtype, gamma_dtype = inputs["dtype"], inputs["gamma_dtype"]
    dtypes_fit = inputs.get("rstd_dtype", "float32") == "float32" and gamma_dtype in (
        "float32",
        dtype,
    )
    if not dtypes_fit or shape_error(shapes, takes_no_rows=True) is not None:
        return None
    return Problem(shapes.rows, shapes.columns, DTYPE_CODES[dtype], inputs["deterministic"])


KERNELS = {"rms_norm_grad": raw_planner(problem_of, tile, vendor_structure)}


DxBuffers = namedtuple(
    "DxBuffers", ("dy", "x", "dx", "gamma", "rstd", "fp32_products", "sums", "levels", "work")
)
"""Bytes in the Unified Buffer of one core while it computes dx."""
DgammaBuffers = namedtuple(
    "DgammaBuffers",
    ("rstd", "dy", "x", "fp32_products", "second_products", "out", "row_sum", "cache"),
)
"""Bytes in the Unified Buffer of one core while it computes dgamma."""


def dx_buffers(tiling: Tiling) -> DxBuffers:
    """Return the buffers of dx; all 0 without rows."""
    columns = tiling.dx.columns
    if columns == 0:
        return DxBuffers(0, 0, 0, 0, 0, 0, 0, 0, 0)
    if is_wide(columns):
        piece = 2 * WIDE_PIECE_BYTES
        return DxBuffers(
            dy=piece,
            x=piece,
            dx=piece,
            gamma=piece,
            rstd=2 * RSTD_BYTES,
            fp32_products=WIDE_PRODUCT_BYTES,
            sums=SUM_BYTES,
            levels=3 * LEVEL_BYTES,
            work=WORK_BYTES,
        )
    padded = align(columns, 128)
    rows = WIDEST_ROW // padded
    whole = 2 * DX_BUFFER_BYTES
    sums = FP32_BYTES * align(rows, 64)
    return DxBuffers(
        dy=whole,
        x=whole,
        dx=whole,
        gamma=DX_GAMMA_BYTES,
        rstd=2 * sums,
        fp32_products=FP32_BYTES * rows * padded,
        sums=sums,
        levels=0,
        work=0,
    )


def dgamma_buffers(tiling: Tiling, dtype_code: int) -> DgammaBuffers:
    """Return the buffers of dgamma before the merge of key 9000."""
    if tiling.tiling_key == KEY_NO_ROWS:
        return DgammaBuffers(
            rstd=0,
            dy=0,
            x=0,
            fp32_products=0,
            second_products=0,
            out=2 * FP32_BYTES * tiling.nan.piece,
            row_sum=0,
            cache=0,
        )
    if is_big(tiling):
        width, size = tiling.row_blocks.piece, element_bytes(dtype_code)
        inputs = 3 * BLOCK_ROWS * width * size
        cache = FP32_BYTES * width * tiling.row_blocks.main.caches
        return DgammaBuffers(
            rstd=3 * FP32_BYTES * BLOCK_ROWS,
            dy=inputs,
            x=inputs,
            fp32_products=FP32_BYTES * BLOCK_ROWS * width,
            second_products=0,
            out=2 * FP32_BYTES * width,
            row_sum=FP32_BYTES * width,
            cache=cache,
        )
    rows, is_full = tiling.column_sets.rows_in_ub, tiling.column_sets.is_full_load
    inputs = 2 * SET_ROW_BYTES * rows
    second_products, cache = 0, 0
    if not is_full:
        second_products = 2 * SET_ROW_BYTES * (BLOCK_ROWS + 1)
        cache = 2 * SET_ROW_BYTES * (tiling.column_sets.levels + 32)
    return DgammaBuffers(
        rstd=2 * align(FP32_BYTES * rows, 32),
        dy=inputs,
        x=inputs,
        fp32_products=2 * SET_ROW_BYTES * (rows + 1),
        second_products=second_products,
        out=0,
        row_sum=0,
        cache=cache,
    )


def merge_bytes(tiling: Tiling, ub_bytes: int) -> int:
    """Return the Unified Buffer of core 0 in the merge of key 9000."""
    if not is_big(tiling):
        return 0
    cores = tiling.row_blocks.cores
    return 2 * FP32_BYTES * merge_width(cores, ub_bytes) * (cores + 1)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the most Unified Buffer in use on a core in any phase."""
    dx, dgamma = dx_buffers(tiling), dgamma_buffers(tiling, row.dtype)
    most: int = max(sum(dx), sum(dgamma), merge_bytes(tiling, device.ub_bytes))
    return most
