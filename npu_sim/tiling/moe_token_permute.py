"""Tiling of MoeTokenPermute on Atlas A2 and A3: pure integer functions.

The kernel has two stages. It sorts the ids, then sorts the resulting positions with the same split
(:class:`Sort`), and copies the rows of tokens to their places (:class:`Copies`).

Source: specification page ``moe_token_permute``, sections "Tiling" and "Kernel". Where the product
divides by 0, the result is 0.
"""

from collections import namedtuple
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    SUCCESS,
    BlockDim,
    Field,
    FieldRun,
    Part,
    Range,
    Raw,
    ScheduleMode,
    Structure,
    align,
    align_down,
    ceil_div,
    element_bytes,
    even_range,
    fields_of,
    nothing,
    raw_planner,
    split_longest_first,
    vendor_fields,
)

MOST_ENTRIES = 16777214
"""Most entries that the product sorts: fp32 represents every position and one more number (page,
"Contract" 5)."""
SORT_ENTRIES = 32
"""Entries that one instruction sorts; pieces are padded to a multiple of it."""
SORT_STEP_BYTES = 1024
"""Unified Buffer to sort ``SORT_ENTRIES`` entries."""
SORTER_BYTES = 32
"""Unified Buffer reserved for every core that may sort."""
ONE_SORTER_ENTRIES = 32
"""Most entries planned for a single core."""
MERGE_WAYS = 4
"""Lists merged at a time."""
MERGE_PIECE_ENTRIES = 1024
"""Entries of one list loaded at a time by a merge."""
MERGE_ENTRIES = MERGE_WAYS * MERGE_PIECE_ENTRIES
"""Entries in each buffer of a merge."""
ENTRY_BYTES = 8
"""A score and its position; also an id, whatever its dtype."""
POSITION_BYTES = 4
MERGE_UB_BYTES = 4 * MERGE_ENTRIES * ENTRY_BYTES
"""Unified Buffer of a merge: four buffers (page, "What-if SoC")."""

_ENTRIES = str(MOST_ENTRIES)

TOKEN_POSITION_BYTES = 8
"""Unified Buffer counted per position of a token, in addition to its rows."""
ROW_BUFFERS = 2
SPLIT_POSITIONS_BYTES = 2048
"""Unified Buffer for positions when rows are split; whole rows leave at least as much."""
SPLIT_POSITIONS = SPLIT_POSITIONS_BYTES // POSITION_BYTES
MOST_ROWS = 4095
"""Most rows of one copy; only rows without columns reach it."""
PIECE_STEP_BYTES = 512
"""Pieces of a row are a multiple of this."""
LEAST_SPLIT_BYTES = SPLIT_POSITIONS_BYTES + ROW_BUFFERS * PIECE_STEP_BYTES
"""Least Unified Buffer for split rows."""

MOST_TOPK = 512
"""Most experts of a token (page, "Contract" 5)."""
KEY_ONE_CORE, KEY_SEVERAL_CORES = 1, 2
KEY_SPLIT_ROWS, KEY_DROPPED = 2, 4
"""Added to the tiling key for split rows and for dropped rows."""
SORT_WORKSPACE_BYTES = 24
"""Workspace per sorted entry."""
SYNC_WORKSPACE_BYTES = 64
"""Workspace per core that may sort; no kernel uses it."""

ELSEWHERE = Part(vendor="")
"""Parts whose vendor fields are in another structure."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads.

    Attributes
    ----------
    num_tokens, num_topk
        Axes of indices; ``num_topk`` is 1 when they have one axis.
    hidden
        Product of the other axes of tokens.
    dtype
        Dtype code of tokens.
    kept_rows
        Rows of permutedTokens; fewer than ``num_tokens * num_topk`` when rows are dropped.
    indices_dtype
        Dtype code of indices, which only Ascend 950 reads.
    """

    num_tokens: int
    num_topk: int
    hidden: int
    dtype: int
    kept_rows: int
    indices_dtype: int = 0


class Pieces(NamedTuple):
    """Pieces in which a core takes its entries."""

    entries: Annotated[int, Field("entries", _ENTRIES, "Elements")]
    loops: Annotated[int, Field("pieces", _ENTRIES, "Loops")]
    piece: Annotated[int, Field("entries of a piece", _ENTRIES, "PerLoopElements")]
    last_piece: Annotated[int, Field("entries of the last piece", _ENTRIES, "LastLoopElements")]


class Sort(NamedTuple):
    """Split of a sort: the pieces of the last core, and those of every other."""

    cores: Annotated[int, Field("cores that sort", "vector_cores", "needCoreNum")]
    core: Annotated[Pieces, Part("perCore{}", " of a core")]
    last: Annotated[Pieces, Part("lastCore{}", " of the last core")]
    most_entries: Annotated[
        int, Field("entries that fit a core at a time", "ub_bytes", "oneLoopMaxElements")
    ]
    last_half: Annotated[
        int,
        Field(
            "1 when the last core's list ends in the other half of the workspace",
            "1",
            "lastCoreWSindex",
        ),
    ]


def sorters(entries: int, cores: int) -> int:
    """Return the number of cores that may sort."""
    return 1 if entries <= ONE_SORTER_ENTRIES else cores


def most_entries(entries: int, device: Device) -> int:
    """Return the entries that a core sorts at a time; not above 0 when none fit."""
    free_bytes = device.ub_bytes - SORTER_BYTES * sorters(entries, device.vector_cores)
    return free_bytes // SORT_STEP_BYTES * SORT_ENTRIES


def merge_rounds(lists: int) -> int:
    """Return the rounds of four-way merges until one list is left; a single list takes one."""
    rounds = 1
    lists = ceil_div(lists, MERGE_WAYS)
    while lists > 1:
        lists = ceil_div(lists, MERGE_WAYS)
        rounds += 1
    return rounds


def sort_cores(entries: int, most: int, cores: int) -> tuple[int, int]:
    """Return the cores that sort more than ``most`` entries, and the entries of all but the last.

    Cores are a power of four, as far as there are so many; ``most`` entries fit a core at a time.
    """
    need = MERGE_WAYS
    while need < ceil_div(entries, most):
        need *= MERGE_WAYS
    need = min(need, cores)
    entries_per_core = align_down(entries // need, SORT_ENTRIES)
    if entries - (need - 1) * entries_per_core > entries_per_core + SORT_ENTRIES:
        entries_per_core += SORT_ENTRIES
        need = ceil_div(entries, entries_per_core)
    return need, entries_per_core


def pieces_of(entries: int, most: int) -> Pieces:
    """Return pieces of ``most`` entries and a last one; fewer entries are one piece."""
    loops, piece = max(ceil_div(entries, most), 1), min(entries, most)
    return Pieces(entries, loops, piece, entries - (loops - 1) * piece)


def split_sort(entries: int, device: Device) -> Sort:
    """Split a sort of tokens * experts ids over cores; :func:`most_entries` is above 0."""
    most = most_entries(entries, device)
    if entries <= most:
        return Sort(1, pieces_of(entries, most), pieces_of(entries, most), most, 0)
    cores, entries_per_core = sort_cores(entries, most, device.vector_cores)
    core = pieces_of(entries_per_core, most)
    last = pieces_of(entries - (cores - 1) * entries_per_core, most)
    last_half = abs(merge_rounds(last.loops) % 2 - merge_rounds(core.loops) % 2)
    return Sort(cores, core, last, most, last_half)


def sorts_at_once(sort: Sort) -> bool:
    """Return whether one core sorts everything in one piece: keys 1, 3, 5 and 7."""
    return sort.cores == 1 and sort.core.loops == 1


def sort_range(sort: Sort, core: int) -> Range:
    """Return the half-open range of entries that a core sorts."""
    start = core * sort.core.entries
    return start, start + (sort.last if core == sort.cores - 1 else sort.core).entries


def merging_cores(cores: int) -> int:
    """Return how many of the sorting cores merge four lists each; 0 when the last merges all."""
    return ceil_div(cores, MERGE_WAYS) if cores > MERGE_WAYS else 0


SortBuffers = namedtuple("SortBuffers", ("ids", "positions", "result", "sorted"))
"""Bytes in the Unified Buffer of a core that sorts."""


def sort_buffers(sort: Sort) -> SortBuffers:
    """Return the most bytes in the Unified Buffer of a core that sorts."""
    if sorts_at_once(sort):
        count = align(sort.core.entries, SORT_ENTRIES)
        entries, positions = ENTRY_BYTES * count, POSITION_BYTES * count
    else:
        longest = max(MERGE_ENTRIES, sort.core.piece, sort.last.piece)
        entries = positions = ENTRY_BYTES * align(longest, SORT_ENTRIES)
    return SortBuffers(entries, positions, entries, entries)


class CoreLoops(NamedTuple):
    """Loops of a core: groups of tokens whose positions are loaded together, copies in a group."""

    groups: Annotated[int, Field("groups of tokens", "num_tokens", "CoreLoop")]
    last_tokens: Annotated[
        int, Field("tokens of the last group", "max(num_tokens, ub_bytes)", "CoreLastTokenNums")
    ]
    last_copies: Annotated[
        int,
        Field(
            "copies in the last group", "max(num_tokens, ub_bytes)", "LastonceIndicesTokenMoveTimes"
        ),
    ]
    last_rows: Annotated[
        int, Field("rows of the last copy", "max(num_tokens, ub_bytes)", "LastIndicesLastTokenNums")
    ]


class Copies(NamedTuple):
    """Split of the copies of rows; front cores take one token more than tail cores."""

    cores: Annotated[int, Field("cores that move rows", "vector_cores", "needCoreNum")]
    front_cores: Annotated[int, Field("cores with more tokens", "vector_cores", "frontCoreNum")]
    tail_cores: Annotated[int, Field("cores with fewer tokens", "vector_cores", "tailCoreNum")]
    front_tokens: Annotated[int, Field("tokens of a front core", "num_tokens", "coreCalcNum")]
    tail_tokens: Annotated[int, Field("tokens of a tail core", "num_tokens", "coreCalcTail")]
    row_bytes: Annotated[int, Field("bytes of a row", vendor="oneTokenBtypeSize")]
    group_copies: Annotated[
        int, Field("copies of rows in a group", "ub_bytes", "onceIndicesTokenMoveTimes")
    ]
    copy_rows: Annotated[int, Field("rows of one copy", str(MOST_ROWS), "onceUbTokenNums")]
    group_tokens: Annotated[
        int, Field("tokens whose positions are loaded together", "ub_bytes", "onceIndicesTokenNums")
    ]
    group_positions: Annotated[int, Field("their positions", "ub_bytes", "onceIndices")]
    last_piece: Annotated[
        int,
        Field("elements of a row's last piece; 1 for whole rows", "ub_bytes", "oneTokenlastMove"),
    ]
    piece: Annotated[
        int, Field("elements of a piece of a row; 1 for whole rows", "ub_bytes", "oneTokenOnceMove")
    ]
    pieces: Annotated[int, Field("pieces of a row", "hidden", "oneTokenMoveTimes")]
    front: Annotated[CoreLoops, Part("front{}", " of a front core")]
    tail: Annotated[CoreLoops, Part("tail{}", " of a tail core")]
    kept_rows: Annotated[
        int, Field("rows of permuted_tokens", "num_tokens * num_topk", "numOutTokens")
    ]
    row_buffer_bytes: Annotated[
        int, Field("bytes of one of the two row buffers", "ub_bytes", "tokenUB")
    ]
    position_buffer_bytes: Annotated[
        int, Field("bytes of the buffer of positions", "ub_bytes", "indicesUB")
    ]


def quotient(a: int, b: int) -> int:
    """Return a // b, or 0 if b is 0."""
    return a // b if b else 0


def quotient_up(a: int, b: int) -> int:
    """Return a / b rounded up, or 0 if b is 0."""
    return ceil_div(a, b) if b else 0


def aligned_row_bytes(row_bytes: int) -> int:
    """Return the bytes of a row in the Unified Buffer."""
    return align(row_bytes, BLOCK_BYTES)


def moves_whole_rows(row_bytes: int, ub_bytes: int) -> bool:
    """Return whether two rows fit beside the fewest positions; else rows are split."""
    return ROW_BUFFERS * aligned_row_bytes(row_bytes) <= ub_bytes - SPLIT_POSITIONS_BYTES


def most_topk(row_bytes: int, ub_bytes: int) -> int:
    """Return the positions of a token that fit beside two of its rows, for whole rows."""
    return (ub_bytes - ROW_BUFFERS * aligned_row_bytes(row_bytes)) // TOKEN_POSITION_BYTES


def split_core(tokens: int, group_tokens: int, copy_rows: int) -> CoreLoops:
    """Split the tokens of a core."""
    groups = quotient_up(tokens, group_tokens)
    last_tokens = tokens - (groups - 1) * group_tokens
    last_copies = quotient_up(last_tokens, copy_rows)
    return CoreLoops(groups, last_tokens, last_copies, last_tokens - (last_copies - 1) * copy_rows)


def split_copies(problem: Problem, device: Device, position_bytes: int) -> Copies:
    """Split the copies of rows over cores, groups of tokens and pieces of rows.

    ``position_bytes`` are those of a position in the buffer of whole rows: 1 or 4 by release (page,
    "Releases").
    """
    tokens, top_k, size = problem.num_tokens, problem.num_topk, element_bytes(problem.dtype)
    cores, ub_bytes = device.vector_cores, device.ub_bytes
    row_bytes = problem.hidden * size
    aligned = aligned_row_bytes(row_bytes)
    if moves_whole_rows(row_bytes, ub_bytes):
        copy_rows = min(
            quotient(ub_bytes, ROW_BUFFERS * aligned + TOKEN_POSITION_BYTES * top_k), MOST_ROWS
        )
        group_copies = quotient(
            ub_bytes - ROW_BUFFERS * copy_rows * aligned, POSITION_BYTES * copy_rows * top_k
        )
        group_tokens = copy_rows * group_copies
        row_buffer_bytes = copy_rows * aligned
        position_buffer_bytes = align(position_bytes * group_tokens * top_k, BLOCK_BYTES)
        piece, pieces, last_piece = 1, 1, 1
    else:
        copy_rows, group_copies, group_tokens = 1, 1, quotient(SPLIT_POSITIONS, top_k)
        piece = (
            align_down((ub_bytes - SPLIT_POSITIONS_BYTES) // ROW_BUFFERS, PIECE_STEP_BYTES) // size
        )
        pieces = quotient_up(problem.hidden, piece)
        last_piece = problem.hidden - (pieces - 1) * piece
        row_buffer_bytes, position_buffer_bytes = piece * size, SPLIT_POSITIONS_BYTES
    front_cores, tail_cores, front_tokens, tail_tokens = split_longest_first(tokens, cores)
    return Copies(
        cores=front_cores + tail_cores,
        front_cores=front_cores,
        tail_cores=tail_cores,
        front_tokens=front_tokens,
        tail_tokens=tail_tokens,
        row_bytes=row_bytes,
        group_copies=group_copies,
        copy_rows=copy_rows,
        group_tokens=group_tokens,
        group_positions=group_tokens * top_k,
        last_piece=last_piece,
        piece=piece,
        pieces=pieces,
        front=split_core(front_tokens, group_tokens, copy_rows),
        tail=split_core(tail_tokens, group_tokens, copy_rows),
        kept_rows=problem.kept_rows,
        row_buffer_bytes=row_buffer_bytes,
        position_buffer_bytes=position_buffer_bytes,
    )


def token_range(copies: Copies, core: int) -> Range:
    """Return the half-open range of tokens that a core moves."""
    longer = copies.front_cores * (copies.front_tokens - copies.tail_tokens)
    return even_range(core, copies.tail_tokens, longer)


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 1 or 2 for a sort on one core or several,"
            " 2 more for split rows, 4 more for dropped ones",
            "8",
        ),
    ]
    block_dim: BlockDim
    schedule_mode: ScheduleMode
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel", "system_workspace_bytes + 24 * 16777214 + 64 * vector_cores"
        ),
    ]
    sorters: Annotated[int, Field("cores that may sort", "vector_cores", "coreNum")]
    tokens: Annotated[int, Field("tokens", vendor="n")]
    columns: Annotated[int, Field("columns", vendor="cols")]
    columns_aligned: Annotated[
        int, Field("columns of a row in whole blocks", "hidden + 15", "colsAlign")
    ]
    top_k: Annotated[int, Field("experts of a token", vendor="topK")]
    sort: Annotated[Sort, ELSEWHERE]
    merging_cores: Annotated[
        int, Field("cores that merge before the last one does", "vector_cores")
    ]
    copies: Annotated[Copies, ELSEWHERE]


NO_TILING = nothing(Tiling)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call as the raw planner does.

    Switches of the release in use are ``schedule_mode``, and ``position_bytes`` of
    :func:`split_copies`. ``status`` is 1 (the product's 561002) without cores, or if the Unified
    Buffer is too small to sort anything. Rows that leave no space for their positions are a success
    with ``copies.copy_rows`` 0, as in the product.
    """
    entries = problem.num_tokens * problem.num_topk
    if device.vector_cores <= 0 or most_entries(entries, device) <= 0:
        return NO_TILING
    sort = split_sort(entries, device)
    copies = split_copies(problem, device, rules.position_bytes)
    key = KEY_ONE_CORE if sorts_at_once(sort) else KEY_SEVERAL_CORES
    if not moves_whole_rows(copies.row_bytes, device.ub_bytes):
        key += KEY_SPLIT_ROWS
    if problem.kept_rows != entries:
        key += KEY_DROPPED
    may_sort = sorters(entries, device.vector_cores)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=max(may_sort, copies.cores),
        schedule_mode=rules.schedule_mode,
        workspace_bytes=SORT_WORKSPACE_BYTES * entries
        + SYNC_WORKSPACE_BYTES * may_sort
        + device.system_workspace_bytes,
        sorters=may_sort,
        tokens=problem.num_tokens,
        columns=problem.hidden,
        columns_aligned=align(copies.row_bytes, BLOCK_BYTES) // element_bytes(problem.dtype),
        top_k=problem.num_topk,
        sort=sort,
        merging_cores=merging_cores(sort.cores),
        copies=copies,
    )


def leaves_room(tiling: Tiling) -> bool:
    """Return whether the positions of a token fit beside its rows; the product does not check."""
    return tiling.copies.copy_rows > 0


def copy_bytes(tiling: Tiling) -> int:
    """Return the bytes in the Unified Buffer of a core that copies rows."""
    if tiling.copies.piece <= 0:
        return LEAST_SPLIT_BYTES
    return ROW_BUFFERS * tiling.copies.row_buffer_bytes + tiling.copies.position_buffer_bytes


def sort_bytes(tiling: Tiling) -> int:
    """Return the bytes in the Unified Buffer of a core that sorts, and merges if several sort."""
    sorting: int = sum(sort_buffers(tiling.sort))
    return sorting if sorts_at_once(tiling.sort) else max(sorting, MERGE_UB_BYTES)


def stage_bytes(tiling: Tiling) -> int:
    """Return the bytes of the larger stage; a user-defined SoC may have fewer."""
    return max(sort_bytes(tiling), copy_bytes(tiling))


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers; a plan that the kernel cannot execute is not a tiling."""
    tiling = tile(row, device, rules)
    if tiling.status != SUCCESS or not leaves_room(tiling) or stage_bytes(tiling) > device.ub_bytes:
        return NO_TILING
    return tiling


def kept_rows(num_out_tokens: int, entries: int) -> int:
    """Return the rows of permutedTokens: numOutTokens, or counted from the end if not positive."""
    wanted = num_out_tokens + entries if num_out_tokens <= 0 else num_out_tokens
    return max(0, min(wanted, entries))


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names."""
    return {
        **vendor_fields(tiling),
        "vbsComputeParamsOp": vendor_fields(tiling.sort),
        "vmsMiddleComputeParamsOp": {"needCoreNum": tiling.merging_cores},
        "sortOutComputeParamsOp": {"oneLoopMaxElements": MERGE_PIECE_ENTRIES},
        "indexCopyComputeParamsOp": vendor_fields(tiling.copies),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    tokens, indices, permuted, sorted_indices = (
        inputs[f"{name}_shape"]
        for name in ("tokens", "indices", "permuted_tokens", "sorted_indices")
    )
    entries = prod(indices)
    rows = kept_rows(inputs["num_out_tokens"], entries)
    # Here tokens may have rank 1.
    if not tokens or not permuted or len(indices) not in (1, 2) or indices[0] != tokens[0]:
        return None
    same_rows = permuted[0] == rows and prod(permuted[1:]) == prod(tokens[1:])
    if inputs["padded_mode"] or not same_rows or tuple(sorted_indices) != (entries,):
        return None
    top_k = indices[1] if len(indices) == 2 else 1
    if top_k > MOST_TOPK or entries > MOST_ENTRIES:
        return None
    return Problem(tokens[0], top_k, prod(tokens[1:]), DTYPE_CODES[inputs["tokens_dtype"]], rows)


KERNELS = {"moe_token_permute": raw_planner(problem_of, tile, vendor_structure)}
FIELD_RUNS = (
    fields_of(Tiling),
    fields_of(Sort, "vbsComputeParamsOp"),
    FieldRun("int64_t", "needCoreNum", "vmsMiddleComputeParamsOp"),
    FieldRun("int64_t", "oneLoopMaxElements", "sortOutComputeParamsOp"),
    FieldRun(
        "int64_t",
        "needCoreNum frontCoreNum tailCoreNum coreCalcNum coreCalcTail "
        "oneTokenBtypeSize onceIndicesTokenMoveTimes onceUbTokenNums "
        "onceIndicesTokenNums onceIndices oneTokenlastMove oneTokenOnceMove "
        "oneTokenMoveTimes frontCoreLoop frontCoreLastTokenNums tailCoreLoop "
        "tailCoreLastTokenNums tailLastonceIndicesTokenMoveTimes "
        "tailLastIndicesLastTokenNums frontLastonceIndicesTokenMoveTimes "
        "frontLastIndicesLastTokenNums numOutTokens tokenUB indicesUB",
        "indexCopyComputeParamsOp",
    ),
)
"""Tiling structure of the kernel as bytes (page ``tiling_bytes``)."""
STRUCTURES = (Structure("MoeTokenPermute", "8.3", FIELD_RUNS),)
