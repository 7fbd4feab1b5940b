"""Tiling of MoeTokenUnpermuteGrad on Atlas A2 and A3: pure integer functions.

Source: specification page ``moe_token_unpermute_grad``, section "Tiling". Sizes are elements
unless the name contains bytes. ``probs`` is the dtype code of probs, or `NO_PROBS`, and ``size``
the bytes of an element of the rows.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    SUCCESS,
    Field,
    Range,
    Raw,
    Structure,
    align,
    align_down,
    ceil_div,
    element_bytes,
    even_range,
    fields_of,
    nothing,
    raw_planner,
)
from npu_sim.tiling.moe_token_unpermute import INDEX_BYTES, MOST_TOPK, NO_PROBS

KEY_COPIES, KEY_PROBS = 0, 1
INDEX_GROUP = 8
"""Without probs, indices are loaded in multiples of this."""
PROBS_GROUP = 256
"""With probs: most entries loaded at a time, rounded down to whole tokens but at least one token.

An entry is a (token, expert) pair: an index and its factor."""
ROW_BYTES = 512
"""With probs, rows are padded to a multiple of this."""
RESERVED_BYTES = 256
"""Bytes of the Unified Buffer that the planner leaves free."""
BUFFERS_PER_QUEUE = 2
"""Queues are double buffers."""
FP32_ROWS = 3
"""fp32 rows: g, the row of the experts, and their product."""
FP32_SUMS = 3
"""fp32 numbers per entry: the factor, the dot product so far, and that of one piece."""


class Problem(NamedTuple):
    """One call.

    Attributes
    ----------
    tokens
        Rows of unpermutedTokensGrad.
    top_k
        Columns of probs; 1 without probs.
    hidden
        Columns of unpermutedTokensGrad.
    rows
        numOutTokens: an index at or beyond it is dropped.
    element_bytes
        2 or 4.
    probs
        Code of the dtype of probs.
    """

    tokens: int
    top_k: int
    hidden: int
    rows: int
    element_bytes: int
    probs: int


class Tiling(NamedTuple):
    """Result of the planner.

    The first ``former_cores`` cores take ``core_tokens``, the others ``tail_tokens``, possibly 0.
    If all cores take the same number of tokens, ``former_cores`` is 0.
    """

    status: int
    block_dim: Annotated[int, Field("cores that are started", "vector_cores")]
    tiling_key: Annotated[int, Field("tiling key: 1 with probs", "1")]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", "system_workspace_bytes")]
    tokens: Annotated[int, Field("tokens", vendor="tokensNum")]
    top_k: Annotated[int, Field("entries of a token", vendor="topK")]
    hidden: Annotated[int, Field("columns", vendor="hiddenSize")]
    rows: Annotated[int, Field("indices from this number on are dropped", vendor="numOutTokens")]
    former_cores: Annotated[
        int, Field("cores that take one token more", "vector_cores", "formerCoreNum")
    ]
    tail_cores: Annotated[int, Field("the other cores", "vector_cores", "tailCoreNum")]
    core_tokens: Annotated[int, Field("tokens of the first cores", "tokens", "tokenNumEachCore")]
    tail_tokens: Annotated[int, Field("tokens of the other cores", "tokens", "tokenNumTailCore")]
    core_entries: Annotated[
        int, Field("entries of the first cores", "tokens * num_topk", "rowIdMapEachCore")
    ]
    tail_entries: Annotated[
        int, Field("entries of the other cores", "tokens * num_topk", "rowIdMapTailCore")
    ]
    piece_columns: Annotated[
        int,
        Field("columns taken at a time, padded", "max(hidden + 256, ub_bytes)", "hiddenSizeAlign"),
    ]
    pieces: Annotated[int, Field("pieces of a row", "hidden", "hiddenSizeLoopTimes")]
    last_columns: Annotated[int, Field("columns of the last piece", "hidden", "hiddenSizeTail")]
    input_rows: Annotated[
        int, Field("rows of the experts taken at a time", "ub_bytes", "inputReserveNum")
    ]
    group_entries: Annotated[
        int, Field("entries taken at a time", "max(ub_bytes, num_topk)", "indicesReserveNum")
    ]
    group_entries_aligned: Annotated[
        int, Field("the same, padded", "max(ub_bytes, num_topk + 16)", "indicesReserveNumAlign")
    ]
    ub_bytes: Annotated[int, Field("usable Unified Buffer", vendor="totalUbSize")]


NO_TILING = nothing(Tiling)


class Split(NamedTuple):
    """Pieces of rows and entries buffered at a time; ``piece_columns`` is 0 if nothing fits."""

    piece_columns: int
    input_rows: int
    group_entries: int
    group_entries_aligned: int


def split_copies(problem: Problem, device: Device) -> Split:
    """Return the split without probs: two buffers for rows of g, two for indices."""
    size = problem.element_bytes
    columns = align(problem.hidden, BLOCK_BYTES // size)
    group = align_down(
        device.ub_bytes // (BUFFERS_PER_QUEUE * (columns * size + INDEX_BYTES)), INDEX_GROUP
    )
    group = max(group, INDEX_GROUP)
    return Split(min(columns, longest_copied(group, size, device)), group, group, group)


def entries_fixed_bytes(entries: int, probs: int) -> int:
    """Return the bytes of factors, their gradients and their fp32 numbers, for padded entries."""
    return (
        2 * BUFFERS_PER_QUEUE * element_bytes(probs) + FP32_SUMS * FP32_BYTES
    ) * entries + RESERVED_BYTES


def longest_summed(entries: int, probs: int, size: int, device: Device) -> int:
    """Return the longest piece that fits with one row of the experts; not above 0 if none does."""
    column_bytes = 3 * BUFFERS_PER_QUEUE * size + FP32_ROWS * FP32_BYTES
    return align_down(
        (device.ub_bytes - entries_fixed_bytes(entries, probs)) // column_bytes, ROW_BYTES // size
    )


def rows_beside(columns: int, entries: int, probs: int, size: int, device: Device) -> int:
    """Return the rows of the experts that fit, with two buffers each, beside all other buffers."""
    column_bytes = 2 * BUFFERS_PER_QUEUE * size + FP32_ROWS * FP32_BYTES
    left = device.ub_bytes - entries_fixed_bytes(entries, probs) - column_bytes * columns
    return left // (BUFFERS_PER_QUEUE * size * columns)


def longest_copied(group: int, size: int, device: Device) -> int:
    """Return the longest piece, in columns, of which ``group`` double-buffered rows fit."""
    longest = (device.ub_bytes - BUFFERS_PER_QUEUE * INDEX_BYTES * group) // (
        BUFFERS_PER_QUEUE * size * group
    )
    return align_down(longest, BLOCK_BYTES // size)


def greatest_divisor(number: int, most: int) -> int:
    """Return the greatest divisor of a number that is at most ``most``, which is at least 1."""
    divisor = min(most, number)
    while number % divisor != 0:
        divisor -= 1
    return divisor


def split_sums(problem: Problem, core_tokens: int, device: Device) -> Split:
    """Return the split with probs: a row of g, rows of the experts, and the fp32 rows.

    The rows of the experts are as many as fit and divide the entries of a token.
    """
    size, top_k = problem.element_bytes, problem.top_k
    columns = align(problem.hidden, ROW_BYTES // size)
    group = (
        min(core_tokens * top_k, PROBS_GROUP // top_k * top_k) if top_k <= PROBS_GROUP else top_k
    )
    padded = align(group, BLOCK_BYTES // element_bytes(problem.probs))
    longest = longest_summed(padded, problem.probs, size, device)
    if columns > longest:
        return Split(longest, 1, group, padded)
    return Split(
        columns,
        greatest_divisor(top_k, rows_beside(columns, padded, problem.probs, size, device)),
        group,
        padded,
    )


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) if a size is 0, for more than ``MOST_TOPK`` experts, and
    if no piece of a row fits the Unified Buffer. There the product's planner continues with zeros
    and the kernel cannot run; no published SoC has so small a buffer.
    """
    cores = device.vector_cores
    if (
        min(problem.tokens, problem.top_k, problem.hidden, problem.rows, cores) <= 0
        or problem.top_k > MOST_TOPK
    ):
        return NO_TILING
    former, tail_tokens = problem.tokens % cores, problem.tokens // cores
    core_tokens = tail_tokens + 1 if former > 0 else tail_tokens
    split = (
        split_copies(problem, device)
        if problem.probs == NO_PROBS
        else split_sums(problem, core_tokens, device)
    )
    if split.piece_columns <= 0:
        return NO_TILING
    key = KEY_COPIES if problem.probs == NO_PROBS else KEY_PROBS
    pieces = ceil_div(problem.hidden, split.piece_columns)
    return Tiling(
        status=SUCCESS,
        block_dim=cores,
        tiling_key=key,
        workspace_bytes=device.system_workspace_bytes,
        tokens=problem.tokens,
        top_k=problem.top_k,
        hidden=problem.hidden,
        rows=problem.rows,
        former_cores=former,
        tail_cores=cores - former,
        core_tokens=core_tokens,
        tail_tokens=tail_tokens,
        core_entries=core_tokens * problem.top_k,
        tail_entries=tail_tokens * problem.top_k,
        piece_columns=split.piece_columns,
        pieces=pieces,
        last_columns=problem.hidden - (pieces - 1) * split.piece_columns,
        input_rows=split.input_rows,
        group_entries=split.group_entries,
        group_entries_aligned=split.group_entries_aligned,
        ub_bytes=device.ub_bytes,
    )


def dropped_from(rows: int, entries: int, rules: Any) -> int:
    """Return the first dropped index: the rows of permutedTokens, or the indices, by release."""
    return rows if rules.counts_rows != 0 else entries


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers."""
    probs = row.probs_dtype if row.has_probs != 0 else NO_PROBS
    rows = dropped_from(row.rows, row.entries, rules)
    size = element_bytes(row.dtype)
    return tile(Problem(row.tokens, row.top_k, row.hidden, rows, size, probs), device, rules)


def token_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of tokens that a core takes."""
    return even_range(core, tiling.tail_tokens, tiling.former_cores)


def buffers(tiling: Tiling, size: int, probs: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core by name."""
    row = BUFFERS_PER_QUEUE * tiling.piece_columns * size
    fp32_row = FP32_BYTES * tiling.piece_columns
    if probs == NO_PROBS:
        indices = BUFFERS_PER_QUEUE * INDEX_BYTES * tiling.group_entries
        return {"indices": indices, "g rows": tiling.input_rows * row}
    entries, numbers = tiling.group_entries_aligned, FP32_BYTES * tiling.group_entries_aligned
    factors = BUFFERS_PER_QUEUE * entries * element_bytes(probs)
    return {
        "g rows": row,
        "token rows": tiling.input_rows * row,
        "probs": factors,
        "probs gradients": factors,
        "result rows": row,
        "token row in fp32": fp32_row,
        "reserved": RESERVED_BYTES,
        "g in fp32": fp32_row,
        "sums": numbers,
        "probs in fp32": numbers,
        "piece sums": numbers,
        "row products": fp32_row,
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    rows, probs = inputs["permuted_tokens_shape"], inputs["probs_shape"]
    tokens, hidden = inputs["unpermuted_tokens_grad_shape"]
    (entries,) = inputs["sorted_indices_shape"]
    if rows is None and rules.counts_rows:
        return None
    dropped = dropped_from(0 if rows is None else rows[0], entries, rules)
    factors = NO_PROBS if probs is None else DTYPE_CODES[inputs["probs_dtype"]]
    top_k = 1 if probs is None else probs[1]
    size = element_bytes(DTYPE_CODES[inputs["dtype"]])
    return Problem(tokens, top_k, hidden, dropped, size, factors)


KERNELS = {"moe_token_unpermute_grad": raw_planner(problem_of, tile)}
STRUCTURES = (Structure("MoeTokenUnpermuteGrad", "8.3", (fields_of(Tiling),)),)
