"""Tiling of MoeTokenPermute on Ascend 950: pure integer functions.

The call runs the kernel MoeInitRoutingV2 there, for int8 tokens MoeInitRoutingV3. Both sort the ids
and move the rows of the tokens; V3 counts the tokens of every expert too.

Source: specification page ``moe_token_permute_950``, sections "Tiling of V2" and "Tiling of V3".
"""

from collections import namedtuple
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Part,
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
from npu_sim.tiling.moe_token_permute import (
    SORT_ENTRIES,
    Pieces,
    Problem,
    kept_rows,
    merging_cores,
    pieces_of,
    sort_cores,
)

V2, V3 = "moe_init_routing_v2", "moe_init_routing_v3"
TOKEN_DTYPES = ("float32", "float16", "bfloat16", "int8")
INT8 = TOKEN_DTYPES.index("int8")
INDEX_DTYPES = ("int32", "int64")
INT32 = INDEX_DTYPES.index("int32")
SORT_PIECE_ENTRIES = 8192
V2_CACHE_BYTES, V3_CACHE_BYTES = 40960, 65536
"""Unified Buffer that is left to the cache of the threads."""
KEY_ONE_CORE, KEY_SEVERAL_CORES = 11001, 11002
KEY_V3_ONE_CORE, KEY_V3_SEVERAL_CORES, KEY_V3_EMPTY = 10000000, 11000000, 3000000
SORT_OUT_ENTRIES = 2048
V3_SORT_OUT_ENTRIES = 1024
WIDEST_PIECE = 16376
"""Most columns of a piece of a row."""
MOST_SCATTERED = 6
"""Most experts of a token whose rows are scattered (page, "Scatter")."""
LEAST_ROWS = 8
EXPERTS = 10240
"""Ids from 0 to 10239 take part with int8 tokens."""
COUNT_BYTES = 163872
"""Unified Buffer of the counts of V3, beside the ids."""
COUNTS_BYTES = 81920
"""Workspace of the counts of V3."""
QUEUE_BYTES = 36
"""Unified Buffer of a row of V3 beside its columns."""
MOST_BUFFERS = 6
_ENTRIES = "num_tokens * num_topk + 31"


class Sort(NamedTuple):
    """Split of the sort: the pieces of the last core, and those of every other."""

    cores: Annotated[int, Field("cores that sort", "vector_cores", "needCoreNum")]
    core: Annotated[Pieces, Part("perCore{}", " of a core", _ENTRIES)]
    last: Annotated[Pieces, Part("lastCore{}", " of the last core", _ENTRIES)]
    most_entries: Annotated[
        int, Field("entries that fit a core at a time", "ub_bytes", "oneLoopMaxElements")
    ]


class RowLoops(NamedTuple):
    """Split of a stage that passes over rows or entries; missing parts are 0."""

    cores: Annotated[int, Field("cores of the stage", "vector_cores", "needCoreNum")]
    kept_rows: Annotated[int, Field("rows of permuted_tokens", _ENTRIES, "activateRows")]
    core_rows: Annotated[int, Field("rows of a core", _ENTRIES, "perCoreRows")]
    core_at_once: Annotated[
        int, Field("rows at a time", "max(ub_bytes, num_tokens * num_topk)", "perCorePerLoopRows")
    ]
    core_rest: Annotated[
        int,
        Field(
            "rows of the last time", "max(ub_bytes, num_tokens * num_topk)", "perCoreLastLoopRows"
        ),
    ]
    last_rows: Annotated[int, Field("rows of the last core", _ENTRIES, "lastCoreRows")]
    last_at_once: Annotated[
        int,
        Field(
            "rows at a time on the last core",
            "max(ub_bytes, num_tokens * num_topk)",
            "lastCorePerLoopRows",
        ),
    ]
    last_rest: Annotated[
        int,
        Field(
            "rows of the last time on the last core",
            "max(ub_bytes, num_tokens * num_topk)",
            "lastCoreLastLoopRows",
        ),
    ]
    core_loops: Annotated[int, Field("times of a core", _ENTRIES, "perCoreLoops")]
    last_loops: Annotated[int, Field("times of the last core", _ENTRIES, "lastCoreLoops")]
    piece: Annotated[
        int,
        Field("columns of a piece; rows where they are scattered", "2 * ub_bytes", "perLoopCols"),
    ]
    last_piece: Annotated[int, Field("columns of the last piece", "2 * ub_bytes", "lastLoopCols")]
    pieces: Annotated[int, Field("pieces of a row", "hidden", "colLoops")]
    scatters: Annotated[int, Field("1 when rows are scattered", "1", "scatterMode")]


class Counts(NamedTuple):
    """Split of the counting of tokens by expert, for int8 tokens; else 0."""

    cores: Annotated[int, Field("cores that count", "vector_cores", "needCoreNum")]
    core: Annotated[Pieces, Part("perCore{}", " of a core", _ENTRIES)]
    last: Annotated[Pieces, Part("lastCore{}", " of the last core", _ENTRIES)]


class Copies(NamedTuple):
    """Split of the copies of rows, for int8 tokens; else 0."""

    cores: Annotated[int, Field("cores that move rows", "vector_cores", "needCoreNum")]
    core_rows: Annotated[int, Field("rows of a core", _ENTRIES, "perCoreIndicesElements")]
    last_rows: Annotated[int, Field("rows of the last core", _ENTRIES, "lastCoreIndicesElements")]
    core_loops: Annotated[int, Field("times of a core", _ENTRIES, "perCoreIndicesLoops")]
    core_piece: Annotated[int, Field("rows at a time", _ENTRIES, "perCorePerLoopIndicesElements")]
    core_last_piece: Annotated[
        int, Field("rows of the last time", _ENTRIES, "perCoreLastLoopIndicesElements")
    ]
    last_loops: Annotated[int, Field("times of the last core", _ENTRIES, "lastCoreIndicesLoops")]
    last_piece: Annotated[
        int, Field("rows at a time on the last core", _ENTRIES, "lastCorePerLoopIndicesElements")
    ]
    last_last_piece: Annotated[
        int, Field("rows of its last time", _ENTRIES, "lastCoreLastLoopIndicesElements")
    ]
    pieces: Annotated[int, Field("pieces of a row", "hidden", "colsLoops")]
    piece: Annotated[int, Field("columns of a piece", "hidden", "perLoopCols")]
    last_piece_columns: Annotated[int, Field("columns of the last piece", "hidden", "lastLoopCols")]
    rows: Annotated[int, Field("rows in all", _ENTRIES, "activeNum")]
    buffers: Annotated[int, Field("buffers for rows", "6", "xCopyInQueueBufferNum")]


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 11001, for int8 10000000, one core sorts; 11002, 11000000 several; "
            "3000000 none",
            str(KEY_V3_SEVERAL_CORES),
        ),
    ]
    block_dim: Annotated[int, Field("cores of the launch", "vector_cores")]
    schedule_mode: Annotated[int, Field("1: all cores start together", "1", none=-1)]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel",
            f"{SYSTEM_WORKSPACE_BYTES + COUNTS_BYTES} + 32 * num_tokens * num_topk "
            "+ 64 * vector_cores",
        ),
    ]
    cores: Annotated[int, Field("vector cores", "vector_cores", "coreNum")]
    tokens: Annotated[int, Field("tokens", vendor="n")]
    columns: Annotated[int, Field("columns", vendor="cols")]
    top_k: Annotated[int, Field("experts of a token", vendor="k")]
    sort: Annotated[Sort, Part(vendor="")]
    merging_cores: Annotated[
        int, Field("cores that merge before the last one does", "vector_cores")
    ]
    places: Annotated[RowLoops, Part(vendor="")]
    unread: Annotated[RowLoops, Part(vendor="")]
    moves: Annotated[RowLoops, Part(vendor="")]
    counts: Annotated[Counts, Part(vendor="")]
    copies: Annotated[Copies, Part(vendor="")]


NO_TILING = nothing(Tiling)


def bytes_of_token(problem: Problem) -> int:
    """Return the bytes of an element of tokens."""
    return 1 if problem.dtype == INT8 else element_bytes(problem.dtype)


def usable_bytes(problem: Problem, device: Device) -> int:
    """Return the Unified Buffer that the planner distributes (page, "u")."""
    return device.ub_bytes - (V3_CACHE_BYTES if problem.dtype == INT8 else V2_CACHE_BYTES)


def most_entries(problem: Problem, device: Device) -> int:
    """Return the entries that a core sorts at a time (page, "cap")."""
    usable = usable_bytes(problem, device)
    if problem.dtype != INT8 and problem.indices_dtype != INT32:
        return align_down(usable // 33, SORT_ENTRIES)
    return usable // 32


def split_sort(entries: int, most: int, cores: int) -> Sort:
    """Split a sort over cores and pieces; one core sorts alone if it holds all entries."""
    if entries <= most:
        whole = Pieces(entries, 1, entries, entries)
        return Sort(int(entries > 0), whole, whole, most)
    need, entries_per_core = sort_cores(entries, most, cores)
    loops, last, last_piece, rest = 0, 0, 0, 0
    while rest <= 0:
        loops, last = ceil_div(entries_per_core, most), entries - (need - 1) * entries_per_core
        last_piece = align(ceil_div(last, loops), SORT_ENTRIES)
        rest = last - (loops - 1) * last_piece
        if rest <= 0:
            # The product takes one step at a time until ``rest`` is positive. A step raises
            # ``last`` by 32 * (need - 1), lowers ``loops`` by at most 1 and never shortens
            # ``last_piece``: none before the last of these steps makes ``rest`` positive.
            steps = 1 + -rest // (SORT_ENTRIES * (need - 1) + last_piece)
            entries_per_core -= SORT_ENTRIES * steps
    core = pieces_of(entries_per_core, most)
    return Sort(need, core, Pieces(last, loops, last_piece, rest), most)


def remainder(rows: int, at_once: int) -> int:
    """Return ``rows % at_once``, or all rows where they are at most ``at_once``."""
    return rows if rows <= at_once else rows % at_once


def stage(problem: Problem, cores: int, at_once: int, piece: int, wide: int, kept: int) -> RowLoops:
    """Return the loops over all entries, ``at_once`` at a time, in pieces of columns.

    ``wide`` is the number that the fields of the columns state where a row is one piece.
    """
    need, entries_per_core, last = equal_parts(problem.num_tokens * problem.num_topk, cores)
    first_piece, last_piece = wide, wide
    pieces = ceil_div(problem.hidden, piece) if piece else 1
    if pieces > 1:
        first_piece, last_piece = piece, problem.hidden % piece
    return RowLoops(
        cores=need,
        kept_rows=kept,
        core_rows=entries_per_core,
        core_at_once=min(entries_per_core, at_once),
        core_rest=remainder(entries_per_core, at_once),
        last_rows=last,
        last_at_once=min(last, at_once),
        last_rest=remainder(last, at_once),
        core_loops=ceil_div(entries_per_core, at_once),
        last_loops=ceil_div(last, at_once),
        piece=first_piece,
        last_piece=last_piece,
        pieces=pieces,
        scatters=0,
    )


def places_stage(problem: Problem, device: Device) -> RowLoops:
    """Return the loops that write the places of the entries (page, srcToDstComputeParamsOp)."""
    cores = device.vector_cores
    at_once = (usable_bytes(problem, device) - 1024 - 32 * cores) // 64 // 2
    need, rows_per_core, last = equal_parts(problem.num_tokens * problem.num_topk, cores)
    return RowLoops(
        cores=need,
        kept_rows=0,
        core_rows=rows_per_core,
        core_at_once=min(rows_per_core, at_once),
        core_rest=rows_per_core - (ceil_div(rows_per_core, at_once) - 1) * at_once,
        last_rows=last,
        last_at_once=min(last, at_once),
        last_rest=last - (ceil_div(last, at_once) - 1) * at_once,
        core_loops=0,
        last_loops=0,
        piece=0,
        last_piece=0,
        pieces=0,
        scatters=0,
    )


def gather_stage(
    problem: Problem, device: Device, available: int, entry_bytes: int, reserved: int, kept: int
) -> RowLoops:
    """Return the loops that gather rows.

    Of the ``available`` bytes, ``entry_bytes`` are for every entry, and ``reserved`` stay free.
    ``kept`` is the number of rows of permuted_tokens; -1 for loops over all entries.
    """
    columns, size = problem.hidden, bytes_of_token(problem)
    entries, cores = problem.num_tokens * problem.num_topk, device.vector_cores
    entries_per_core, row = ceil_div(entries, cores), align(columns * size, BLOCK_BYTES)
    ids = align(entry_bytes * entries_per_core + reserved, BLOCK_BYTES)
    if ids + row < available:
        wide = 2 * columns if kept >= 0 and ids + 2 * row < available else columns
        return stage(problem, cores, entries, columns, wide, max(kept, 0))
    piece = WIDEST_PIECE
    buffered = row if columns < WIDEST_PIECE else align(piece * size, BLOCK_BYTES)
    at_once = align_down((available - buffered - reserved) // entry_bytes, SORT_ENTRIES)
    if columns >= WIDEST_PIECE and entries_per_core < at_once:
        piece = align_down((available - ids) // size, SORT_ENTRIES)
    return stage(problem, cores, at_once, piece, columns, max(kept, 0))


def scatters(problem: Problem, device: Device) -> bool:
    """Return whether each core writes consecutive rows, fetched from their tokens."""
    row = problem.hidden * bytes_of_token(problem)
    whole = row > 0 and row % BLOCK_BYTES == 0
    return whole and scattered_rows(problem, device) >= 2 and problem.num_topk <= MOST_SCATTERED


def scattered_rows(problem: Problem, device: Device) -> int:
    """Return the rows that half the Unified Buffer holds at a time (page, "R")."""
    size = bytes_of_token(problem)
    half = usable_bytes(problem, device) // 2
    return align_down(half // (problem.hidden * size + FP32_BYTES), BLOCK_BYTES // size)


def times(rows: int, most: int) -> int:
    """Return the rows of the last time, at least 8; all of a time where they divide evenly."""
    rest = rows if rows <= most else rows % most
    return most if rest == 0 else max(LEAST_ROWS, rest)


def idle_stage(kept: int, core_rows: int, last_rows: int, scatters: int) -> RowLoops:
    """Return loops that move nothing; a structure states the other numbers all the same."""
    return RowLoops(0, kept, core_rows, 0, 0, last_rows, 0, 0, 0, 0, 0, 0, 0, scatters)


def moves_stage(problem: Problem, device: Device) -> RowLoops:
    """Return the loops that move the rows (page, gatherOutComputeParamsOp)."""
    cores, kept = device.vector_cores, problem.kept_rows
    half = usable_bytes(problem, device) // 2
    if problem.hidden == 0:
        return idle_stage(kept, 0, 0, 0)
    if not scatters(problem, device):
        return gather_stage(problem, device, half, FP32_BYTES, 0, kept)
    if kept == 0:
        _, entries, last_entries = equal_parts(problem.num_tokens * problem.num_topk, cores)
        return idle_stage(0, entries, last_entries, 1)
    rows = scattered_rows(problem, device)
    need = ceil_div(kept, ceil_div(kept, cores))
    rows_per_core = ceil_div(kept, need)
    last = kept - rows_per_core * (need - 1)
    most = (half - rows * problem.hidden * bytes_of_token(problem)) // FP32_BYTES
    at_once = max(LEAST_ROWS, min(rows_per_core, most))
    return RowLoops(
        cores=need,
        kept_rows=kept,
        core_rows=rows_per_core,
        core_at_once=at_once,
        core_rest=times(rows_per_core, most),
        last_rows=last,
        last_at_once=at_once,
        last_rest=times(last, most),
        core_loops=ceil_div(rows_per_core, at_once),
        last_loops=ceil_div(last, at_once),
        piece=rows,
        last_piece=rows,
        pieces=1,
        scatters=1,
    )


def count_stage(problem: Problem, device: Device) -> Counts:
    """Return the loops that count the tokens of every expert."""
    entries = problem.num_tokens * problem.num_topk
    need, entries_per_core, last = equal_parts(entries, device.vector_cores)
    most = (usable_bytes(problem, device) - COUNT_BYTES) // FP32_BYTES
    return Counts(need, counted(entries_per_core, most), counted(last, most))


def counted(entries: int, most: int) -> Pieces:
    """Return the even pieces, of at most ``most`` entries, in which a core counts."""
    loops = ceil_div(entries, most)
    piece = ceil_div(entries, loops)
    return Pieces(entries, loops, piece, entries - (loops - 1) * piece)


def copy_stage(problem: Problem, device: Device) -> Copies:
    """Return the loops that copy rows of int8."""
    entries, usable = problem.num_tokens * problem.num_topk, usable_bytes(problem, device)
    need, entries_per_core, last = equal_parts(entries, device.vector_cores)
    columns = problem.hidden
    while (usable // 2) // (align(columns, BLOCK_BYTES) + QUEUE_BYTES) <= 0:
        columns = ceil_div(columns, 2)
    row = align(columns, BLOCK_BYTES)
    at_once = min((usable // 2) // (row + QUEUE_BYTES), entries_per_core)
    last_at_once = min(at_once, last)
    loops, last_loops = ceil_div(entries_per_core, at_once), ceil_div(last, last_at_once)
    pieces = ceil_div(problem.hidden, columns)
    used = 2 * (align(FP32_BYTES * at_once, BLOCK_BYTES) + at_once * row + 32 * at_once)
    more = (usable - used) // (at_once * row)
    buffers = min(more + 2, MOST_BUFFERS) if more > 0 else 2
    return Copies(
        cores=need,
        core_rows=entries_per_core,
        last_rows=last,
        core_loops=loops,
        core_piece=at_once,
        core_last_piece=entries_per_core - (loops - 1) * at_once,
        last_loops=last_loops,
        last_piece=last_at_once,
        last_last_piece=last - (last_loops - 1) * last_at_once,
        pieces=pieces,
        piece=columns,
        last_piece_columns=problem.hidden - (pieces - 1) * columns,
        rows=entries,
        buffers=buffers,
    )


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call: of MoeInitRoutingV3, the kernel for int8 tokens, else of MoeInitRoutingV2.

    ``kept_rows`` is not read with int8 tokens. ``status`` is 1 (the product's 561002) without
    cores, and on a chip whose Unified Buffer is
    smaller than the areas that the planner takes off.
    """
    is_int8 = problem.dtype == INT8
    least = COUNT_BYTES + FP32_BYTES if is_int8 else 65536
    if device.vector_cores <= 0 or usable_bytes(problem, device) < least:
        return NO_TILING
    entries, cores, none = problem.num_tokens * problem.num_topk, device.vector_cores, NO_TILING
    most, block_dim, workspace = most_entries(problem, device), cores, SYSTEM_WORKSPACE_BYTES
    sort, counts, copies = split_sort(entries, most, cores), none.counts, none.copies
    places = unread = moves = none.places
    if is_int8:
        key = KEY_V3_ONE_CORE if entries <= most else KEY_V3_SEVERAL_CORES
        if entries and problem.hidden:
            counts, copies = count_stage(problem, device), copy_stage(problem, device)
            workspace += 28 * entries + 64 * cores + COUNTS_BYTES
        else:
            key, sort, block_dim = KEY_V3_EMPTY, none.sort, 1
            copies = Copies(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
    else:
        key = KEY_ONE_CORE if entries <= most else KEY_SEVERAL_CORES
        workspace += 32 * entries + 8 * cores
        moves = idle_stage(problem.kept_rows, 0, 0, 0)
        if entries:
            places = places_stage(problem, device)
            unread = gather_stage(problem, device, usable_bytes(problem, device), 8, 32, -1)
            moves = moves_stage(problem, device)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=block_dim,
        schedule_mode=1,
        workspace_bytes=workspace,
        cores=cores,
        tokens=problem.num_tokens,
        columns=problem.hidden,
        top_k=problem.num_topk,
        sort=sort,
        merging_cores=merging_cores(sort.cores),
        places=places,
        unread=unread,
        moves=moves,
        counts=counts,
        copies=copies,
    )


V2_ZEROS = (
    "expertCapacity",
    "expertNum",
    "dropPadMode",
    "expertTokensCountOrCumsumFlag",
    "expertTokensBeforeCapacityFlag",
)
V3_ZEROS = (
    "expertStart",
    "rowIdxType",
    "isInputScale",
    "isInputOffset",
    "gatherFirstFullload",
    "epFullload",
    "dropPadMode",
    "smoothType",
    "expertCapacity",
)
"""Fields of the structures that are 0."""


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each kernel has its own structure."""
    fields: Raw = {
        **vendor_fields(tiling),
        "vbsComputeParamsOp": vendor_fields(tiling.sort),
        "vmsMiddleComputeParamsOp": {"needCoreNum": tiling.merging_cores},
    }
    if tiling.tiling_key < KEY_V3_EMPTY:
        return {
            **fields,
            **dict.fromkeys(V2_ZEROS, 0),
            "sortOutComputeParamsOp": {"oneLoopMaxElements": SORT_OUT_ENTRIES},
            "srcToDstComputeParamsOp": vendor_fields(tiling.places),
            "srcToDstCapacityComputeParamsOp": vendor_fields(tiling.unread),
            "gatherOutComputeParamsOp": vendor_fields(tiling.moves),
        }
    runs = tiling.tiling_key != KEY_V3_EMPTY
    unused = vendor_fields(NO_TILING.places)
    del unused["activateRows"], unused["scatterMode"]
    return {
        **fields,
        **dict.fromkeys(V3_ZEROS, 0),
        **dict.fromkeys(("expertEnd", "actualExpertNum", "expertNum"), EXPERTS),
        "quantMode": -1,
        "expertTokensNumType": 1,
        "expertTokensNumFlag": 1,
        "activeNum": tiling.tokens * tiling.top_k,
        "sortOutComputeParamsOp": {"oneLoopMaxElements": V3_SORT_OUT_ENTRIES if runs else 0},
        "expertTokensCountTilingDataOp": vendor_fields(tiling.counts),
        "gatherOutComputeParamsOp": {
            **vendor_fields(tiling.copies),
            "useCompactGatherOutDropPad": 0,
        },
        "srcToDstDropPadParamsOp": unused,
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw inputs of either kernel: those of V3 are int8."""
    is_int8 = inputs["tokens_dtype"] == "int8"
    outputs = (
        ("expanded_tokens", "expanded_row_idx")
        if is_int8
        else ("permuted_tokens", "sorted_indices")
    )
    tokens, indices, permuted, places = (
        tuple(inputs[f"{name}_shape"]) for name in ("tokens", "indices", *outputs)
    )
    ranks = (2,) if is_int8 else (1, 2)
    if len(tokens) != 2 or len(indices) not in ranks or indices[0] != tokens[0]:
        return None
    entries = prod(indices)
    kept = entries if is_int8 else kept_rows(inputs["num_out_tokens"], entries)
    if len(permuted) != 2 or permuted[1] != tokens[1] or len(places) != 1:
        return None
    if not is_int8 and (permuted[0] != kept or places != (entries,) or inputs["padded_mode"]):
        return None
    dtype = TOKEN_DTYPES.index(inputs["tokens_dtype"])
    top_k = indices[1] if len(indices) == 2 else 1
    ids = INDEX_DTYPES.index(inputs["indices_dtype"])
    return Problem(tokens[0], top_k, tokens[1], dtype, kept, ids)


KERNELS = dict.fromkeys((V2, V3), raw_planner(problem_of, tile, vendor_structure))


Buffers = namedtuple("Buffers", ("sort", "counts", "move"))
"""Bytes in the Unified Buffer of a core by stage; the stages run one after the other."""


def stage_buffers(problem: Problem, tiling: Tiling) -> Buffers:
    """Return the bytes of every stage (page, "Unified Buffer")."""
    entries, size = problem.num_tokens * problem.num_topk, bytes_of_token(problem)
    is_one = tiling.tiling_key in (KEY_ONE_CORE, KEY_V3_ONE_CORE)
    if tiling.tiling_key == KEY_V3_EMPTY:
        return Buffers(0, 0, 0)
    if size == 1:
        copies = tiling.copies
        piece = max(SORT_PIECE_ENTRIES // 2, align(tiling.sort.core.piece, SORT_ENTRIES))
        sort = 32 * (align(entries, SORT_ENTRIES) if is_one else piece)
        count = align(FP32_BYTES * tiling.counts.core.piece, BLOCK_BYTES) + COUNT_BYTES
        row = align(copies.piece, BLOCK_BYTES)
        ids = 2 * align(FP32_BYTES * copies.core_piece, BLOCK_BYTES)
        return Buffers(sort, count, ids + copies.core_piece * (copies.buffers * row + 64))
    wide = problem.indices_dtype != INT32
    sort = (36 if wide else 32) * align(entries, SORT_ENTRIES)
    if not is_one:
        sort = (28 if wide else 24) * SORT_PIECE_ENTRIES
    moves = tiling.moves
    ids = 2 * align(FP32_BYTES * moves.core_at_once, BLOCK_BYTES)
    if moves.scatters:
        return Buffers(sort, 0, ids + 2 * align(moves.piece * problem.hidden * size, BLOCK_BYTES))
    row = align(min(moves.piece, problem.hidden) * size, BLOCK_BYTES)
    return Buffers(sort, 0, ids + (4 if moves.piece > problem.hidden else 2) * row)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core: the largest stage."""
    most: int = max(stage_buffers(row, tiling))
    return most
