"""Tiling of MoeTokenUnpermute on Ascend 950: pure integer functions.

The call runs the kernel MoeFinalizeRoutingV2 there, whose planner has nothing in common with that
of Atlas A2 and A3.

Source: specification page ``moe_token_unpermute_950``, section "Tiling".
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    BlockDim,
    Field,
    Range,
    Raw,
    WorkspaceBytes,
    align,
    align_down,
    ceil_div,
    chunk_range,
    element_bytes,
    equal_parts,
    nothing,
    raw_planner,
    vendor_fields,
)
from npu_sim.tiling.moe_token_unpermute import INDEX_BYTES, NO_PROBS

SOME_ROWS, SPLIT_COLUMNS, ALL_TOKENS, ALL_ROWS = 10000, 20000, 30000, 40000
"""Tiling keys without their last two digits: some rows of a token are in the Unified Buffer at a
time; pieces of one row; the rows of all tokens; all rows of a token."""
KEY_BASE, KEYS_OF_PROBS = 20, (0, 1, 2)
"""Added to every key, and by dtype code of probs."""

FEW_ROWS = 4
"""Most rows of a token for which rows of several tokens are in the buffer (page, key 40000)."""
MOST_BUFFERED_TOKENS = 16
"""Most tokens of 2 to 4 rows each in the buffer at a time (page, "Unified Buffer", 4002x)."""


class Tiling(NamedTuple):
    """Result of the planner; with `SPLIT_COLUMNS` the fields about rows of a token are 0."""

    status: int
    tiling_key: Annotated[
        int,
        Field("tiling key: 30000 all tokens, 40000 all rows, 10000 some, 20000 columns", "40022"),
    ]
    block_dim: BlockDim
    workspace_bytes: WorkspaceBytes
    tokens: Annotated[int, Field("tokens", "", "row")]
    hidden: Annotated[int, Field("columns", "", "h")]
    padded_hidden: Annotated[int, Field("columns in whole blocks", "hidden + 15", "hAligned")]
    top_k: Annotated[int, Field("rows of a token", "", "k")]
    core_tokens: Annotated[int, Field("tokens of a core", "tokens", "rowOfFormerBlock")]
    last_core_tokens: Annotated[int, Field("tokens of the last core", "tokens", "rowOfTailBlock")]
    batches: Annotated[int, Field("batches of a core", "tokens", "rowLoopOfFormerBlock")]
    last_core_batches: Annotated[
        int, Field("batches of the last core", "tokens", "rowLoopOfTailBlock")
    ]
    batch_tokens: Annotated[int, Field("tokens of a batch", "tokens", "rowFactor")]
    last_batch_tokens: Annotated[
        int, Field("tokens of the last batch", "tokens", "tailRowFactorOfFormerBlock")
    ]
    last_core_last_batch_tokens: Annotated[
        int,
        Field("tokens of the last batch of the last core", "tokens", "tailRowFactorOfTailBlock"),
    ]
    column_pieces: Annotated[int, Field("pieces of a row", "hidden", "hLoop")]
    piece_columns: Annotated[int, Field("columns of a piece", "hidden", "hFactor")]
    last_piece_columns: Annotated[int, Field("columns of the last piece", "hidden", "tailHFactor")]
    row_groups: Annotated[int, Field("groups of rows of a token", "num_topk", "kLoop")]
    group_rows: Annotated[int, Field("rows of a group", "num_topk", "kFactor")]
    last_group_rows: Annotated[int, Field("rows of the last group", "num_topk", "tailKFactor")]
    rows: Annotated[int, Field("rows of permutedTokens", "", "activeNum")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""

UNUSED_FIELDS = {
    "e": 0,
    "c": 0,
    "constExpertRangeFactor": 0,
    "constExpertRangeNum": 0,
    "zeroExpertStart": -1,
    "zeroExpertEnd": -1,
    "copyExpertStart": -1,
    "copyExpertEnd": -1,
    "constantExpertStart": -1,
    "constantExpertEnd": -1,
}
"""Fields of the vendor's structure for arguments that this call does not have."""


class Problem(NamedTuple):
    """One call; ``dtype`` and ``probs`` are dtype codes of tokens and probs, or `NO_PROBS`."""

    tokens: int
    rows: int
    hidden: int
    top_k: int
    dtype: int
    probs: int


def probs_bytes(probs: int) -> int:
    """Return the bytes of an element of probs; 0 without them (page, "p")."""
    return 0 if probs == NO_PROBS else element_bytes(probs)


def row_bytes(problem: Problem) -> int:
    """Return the bytes of one row in the Unified Buffer (page, "hb")."""
    return align(problem.hidden * element_bytes(problem.dtype), BLOCK_BYTES)


def sum_bytes(problem: Problem) -> int:
    """Return the bytes of one row of fp32 sums (page, "h4")."""
    return align(FP32_BYTES * problem.hidden, BLOCK_BYTES)


def holds_all_tokens(problem: Problem, device: Device) -> bool:
    """Return whether the rows of all tokens fit: key 30000."""
    probs = align(problem.top_k * probs_bytes(problem.probs), BLOCK_BYTES)
    left = align_down(device.ub_bytes - 2 * (probs + sum_bytes(problem)), BLOCK_BYTES)
    # The product of all sizes can exceed 64 bits.
    most_rows = left // (problem.hidden * element_bytes(problem.dtype))
    return problem.tokens * problem.top_k <= most_rows


def holds_all_rows(problem: Problem, device: Device) -> bool:
    """Return whether the rows of a token fit half of the Unified Buffer: key 40000."""
    indices = BLOCK_BYTES if problem.top_k == 1 else 0
    probs = align(problem.top_k * probs_bytes(problem.probs), BLOCK_BYTES)
    left = device.ub_bytes // 2 - probs - indices - sum_bytes(problem)
    return problem.top_k <= left // row_bytes(problem)


def holds_one_row(problem: Problem, device: Device) -> bool:
    """Return whether a row fits half of the Unified Buffer: key 10000."""
    probs = 0 if problem.probs == NO_PROBS else BLOCK_BYTES
    return row_bytes(problem) + probs + sum_bytes(problem) <= device.ub_bytes // 2


def key_of(problem: Problem, device: Device) -> int:
    """Return the tiling key without its last two digits."""
    if holds_all_tokens(problem, device):
        return ALL_TOKENS
    if holds_all_rows(problem, device):
        return ALL_ROWS
    return SOME_ROWS if holds_one_row(problem, device) else SPLIT_COLUMNS


def rows_at_once(problem: Problem, room: int) -> int:
    """Return how many rows of a token fit beside its sums (page, "f" of key 10000), at least 1."""
    row, size = row_bytes(problem), element_bytes(problem.dtype)
    left = room - sum_bytes(problem)
    rows = left // (row + size)
    while rows > 1 and rows * row + align(rows * size, BLOCK_BYTES) > left:
        rows -= 1
    return max(rows, 1)


def batch_bytes(problem: Problem, key: int, tokens: int) -> int:
    """Return the bytes that grow with the tokens of a batch (page, "r")."""
    used = align(FP32_BYTES * tokens * problem.hidden, BLOCK_BYTES)
    if key == SOME_ROWS:
        return used
    used += align(tokens * problem.top_k * probs_bytes(problem.probs), BLOCK_BYTES)
    if key == ALL_TOKENS or problem.top_k > FEW_ROWS:
        return used
    rows = tokens * problem.top_k
    return used + rows * row_bytes(problem) + 2 * align(INDEX_BYTES * rows, BLOCK_BYTES)


def largest_batch(problem: Problem, key: int, room: int) -> int:
    """Return how many tokens fit (page, "r"), at least 1."""
    per_token = FP32_BYTES * problem.hidden
    if key != SOME_ROWS:
        per_token += problem.top_k * probs_bytes(problem.probs)
    if key == ALL_ROWS and problem.top_k <= FEW_ROWS:
        per_token += problem.top_k * (row_bytes(problem) + 2 * INDEX_BYTES)
    # Without padding more would fit than with it, by few tokens.
    tokens = room // per_token
    while tokens > 1 and batch_bytes(problem, key, tokens) > room:
        tokens -= 1
    return max(tokens, 1)


class RowGroups(NamedTuple):
    """Groups of the rows of a token that are added together."""

    number: int
    rows: int
    last_rows: int


def groups_of(problem: Problem, key: int, device: Device) -> RowGroups:
    """Return the groups of the rows of a token; none where columns are split."""
    top_k = problem.top_k
    if key == SPLIT_COLUMNS:
        return RowGroups(0, 0, 0)
    if key != SOME_ROWS:
        return RowGroups(top_k, 1, 1)
    number = ceil_div(top_k, rows_at_once(problem, device.ub_bytes // 2))
    rows = ceil_div(top_k, number)
    return RowGroups(number, rows, top_k - (number - 1) * rows)


def batch_room(problem: Problem, key: int, group_rows: int, device: Device) -> int:
    """Return the bytes that are left for what grows with the tokens of a batch."""
    half, row, size = device.ub_bytes // 2, row_bytes(problem), element_bytes(problem.dtype)
    if key == ALL_TOKENS:
        elements = problem.tokens * problem.top_k * problem.hidden
        return (device.ub_bytes - align(elements * size, BLOCK_BYTES)) // 2
    if key == ALL_ROWS and problem.top_k > FEW_ROWS:
        return half - problem.top_k * row
    if key == SOME_ROWS:
        return half - group_rows * row - align(group_rows * size, BLOCK_BYTES)
    return half


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without tokens, rows of a token, columns or cores.
    """
    hidden, top_k = problem.hidden, problem.top_k
    if min(problem.tokens, top_k, hidden, device.vector_cores) <= 0:
        return NO_TILING
    size = element_bytes(problem.dtype)
    block_dim, core_tokens, last_core_tokens = equal_parts(problem.tokens, device.vector_cores)
    key = key_of(problem, device)
    groups = groups_of(problem, key, device)
    column_pieces, piece_columns = 1, hidden
    key_of_probs = 0 if problem.probs == NO_PROBS else KEYS_OF_PROBS[problem.probs]
    if key == SPLIT_COLUMNS:
        longest = device.ub_bytes // 2 // size // (2 if size == FP32_BYTES else 3)
        if longest <= 0:
            return NO_TILING
        column_pieces = ceil_div(hidden, longest)
        piece_columns = ceil_div(hidden, column_pieces)
        batches, batch_tokens, last_batch_tokens = core_tokens, 1, core_tokens
        last_core_batches = last_core_last_batch_tokens = last_core_tokens
    else:
        room = batch_room(problem, key, groups.rows, device)
        batches = ceil_div(core_tokens, largest_batch(problem, key, room))
        batch_tokens = ceil_div(core_tokens, batches)
        last_batch_tokens = core_tokens - (batches - 1) * batch_tokens
        last_core_batches = ceil_div(last_core_tokens, batch_tokens)
        last_core_last_batch_tokens = last_core_tokens - (last_core_batches - 1) * batch_tokens
    return Tiling(
        status=SUCCESS,
        tiling_key=key + KEY_BASE + key_of_probs,
        block_dim=block_dim,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        tokens=problem.tokens,
        hidden=hidden,
        padded_hidden=row_bytes(problem) // size,
        top_k=top_k,
        core_tokens=core_tokens,
        last_core_tokens=last_core_tokens,
        batches=batches,
        last_core_batches=last_core_batches,
        batch_tokens=batch_tokens,
        last_batch_tokens=last_batch_tokens,
        last_core_last_batch_tokens=last_core_last_batch_tokens,
        column_pieces=column_pieces,
        piece_columns=piece_columns,
        last_piece_columns=hidden - (column_pieces - 1) * piece_columns,
        row_groups=groups.number,
        group_rows=groups.rows,
        last_group_rows=groups.last_rows,
        rows=problem.rows,
    )


def problem_of_row(row: Any) -> Problem:
    """Return the problem of a call given as integers."""
    probs = row.probs_dtype if row.has_probs != 0 else NO_PROBS
    return Problem(row.tokens, row.rows, row.hidden, row.top_k, row.dtype, probs)


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers."""
    return tile(problem_of_row(row), device, rules)


def path_key(planned: Any) -> int:
    """Return the tiling key of a tiling or a plan without its last two digits."""
    key: int = planned.tiling_key
    return key // 10000 * 10000


def core_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of tokens that a core takes."""
    return chunk_range(core, tiling.core_tokens, tiling.tokens)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names."""
    return {**vendor_fields(tiling), **UNUSED_FIELDS}


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    tokens, indices = inputs["permuted_tokens_shape"], inputs["sorted_indices_shape"]
    probs, out = inputs["probs_shape"], inputs["out_shape"]
    if inputs["sorted_indices_dtype"] != "int32" or len(tokens) != 2 or len(indices) != 1:
        return None
    if probs is not None and len(probs) != 2:
        return None
    count, top_k = (indices[0], 1) if probs is None else probs
    rows, hidden = tokens
    if count * top_k != indices[0] or tuple(out) != (count, hidden):
        return None
    factors = NO_PROBS if probs is None else DTYPE_CODES[inputs["probs_dtype"]]
    return Problem(
        count, rows, hidden, top_k, DTYPE_CODES[inputs["permuted_tokens_dtype"]], factors
    )


KERNELS = {"moe_finalize_routing_v2": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple("Buffers", ("rows", "probs", "indices", "sums"))
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, dtype: int, probs: int) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer").

    ``dtype`` and ``probs`` are dtype codes of tokens and probs, or `NO_PROBS`.
    """
    size, key = element_bytes(dtype), path_key(tiling)
    row = tiling.padded_hidden * size
    if key == SPLIT_COLUMNS:
        columns = tiling.piece_columns
        sums = 2 * align(FP32_BYTES * columns, BLOCK_BYTES)
        return Buffers(2 * align(columns * size, BLOCK_BYTES), 0, 0, sums)
    sums = 2 * align(FP32_BYTES * tiling.batch_tokens * tiling.hidden, BLOCK_BYTES)
    entries = tiling.batch_tokens * tiling.top_k
    indices = 0
    if key == ALL_TOKENS:
        rows = align(tiling.tokens * tiling.top_k * tiling.hidden * size, BLOCK_BYTES)
    elif key == ALL_ROWS:
        tokens = 1
        if tiling.top_k == 1:
            tokens = tiling.batch_tokens
            indices = 2 * align(INDEX_BYTES * tokens, BLOCK_BYTES)
        elif tiling.top_k <= FEW_ROWS and tiling.batch_tokens >= MOST_BUFFERED_TOKENS:
            tokens = MOST_BUFFERED_TOKENS
        rows = 2 * tokens * tiling.top_k * row
    else:
        entries = tiling.group_rows
        rows = 2 * entries * row
    factors = 2 * align(entries, BLOCK_BYTES // size) * probs_bytes(probs)
    return Buffers(rows, factors, indices, sums)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core."""
    return sum(buffers(tiling, row.dtype, problem_of_row(row).probs))
