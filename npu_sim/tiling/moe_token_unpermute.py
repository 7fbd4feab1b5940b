"""Tiling of MoeTokenUnpermute and MoeTokenPermuteGrad on Atlas A2 and A3: pure integer functions.

Both kernels sum the rows of every token, with probs and without; one planner serves both.

Source: specification pages ``moe_token_unpermute`` and ``moe_token_permute_grad``, sections
"Tiling". Sizes are elements unless the name contains bytes. An *entry* is an index, with its factor
if there are probs.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32,
    FP32_BYTES,
    SUCCESS,
    BlockDim,
    Field,
    Range,
    Raw,
    Structure,
    align,
    element_bytes,
    even_range,
    fields_of,
    nothing,
    raw_planner,
)

INDEX_BYTES = 4
"""Size of one entry of sortedIndices, int32."""
HIDDEN_ALIGNMENT = 512
"""Rows are padded to a multiple of this in the Unified Buffer."""
MOST_BUFFERS = 4
"""Most input rows in the Unified Buffer at a time."""
FEWEST_BUFFERS = 2
"""Fewest input rows: one is added while the next one is copied."""
RESERVED_TOPK = 512
"""Entries of one token for which the planner reserves space; the origin of the documented
numTopk <= 512."""
RESERVED_ENTRY_BYTES = 10
"""Bytes reserved for each of them."""
RESERVED_BYTES = RESERVED_TOPK * RESERVED_ENTRY_BYTES
MARGIN_BYTES = 256
"""Bytes left free beside rows and entries; with 16-bit rows the first fp32 row is this much
longer."""
ACCUMULATOR_BYTES = 8
"""Bytes per column of two fp32 rows, for 16-bit rows: the sum, and the row being added."""

MOST_TOPK = RESERVED_TOPK
"""Most experts of a token for the planner of sums with probs, even if more would fit; the
kernel of the gradient has arrays of this length."""

KEYS = (4, 2, 0)
"""Tiling keys by dtype code of the rows."""


class Problem(NamedTuple):
    """One call.

    Attributes
    ----------
    tokens
        Tokens; sortedIndices has ``tokens * top_k`` elements.
    rows
        Rows that are summed, fewer than indices when tokens were dropped.
    hidden
        Columns.
    top_k
        Entries of a token.
    element_bytes
        Bytes of an element of the rows: 2 or 4.
    tiling_key
        Tiling key for the dtype of the rows and probs.
    entry_bytes
        Bytes of an entry in the Unified Buffer.
    asks_for_workspace
        1 where the planner requests the system workspace, else 0.
    """

    tokens: int
    rows: int
    hidden: int
    top_k: int
    element_bytes: int
    tiling_key: int
    entry_bytes: int
    asks_for_workspace: int


class Tiling(NamedTuple):
    """Result of the planner.

    A row is processed in ``hidden_pieces`` pieces and a remainder. Batches are sized for
    ``core_tokens``, also on cores with one token more. ``batch_tokens`` is 0 if the entries of one
    token do not fit; the kernel cannot run then.
    """

    status: int
    block_dim: BlockDim
    tiling_key: Annotated[
        int, Field("tiling key: bf16 0, fp16 2, fp32 4, and what probs add", "27")
    ]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", "system_workspace_bytes")]
    hidden: Annotated[int, Field("columns", vendor="hidden_size")]
    top_k: Annotated[int, Field("entries of a token", vendor="top_k")]
    rows: Annotated[int, Field("rows that are summed", "tokens * num_topk", "num_out_tokens")]
    hidden_length: Annotated[
        int, Field("columns taken at a time", "hidden", "hidden_splited_length")
    ]
    hidden_pieces: Annotated[int, Field("whole pieces of a row", "hidden", "hidden_splited_num")]
    hidden_remainder: Annotated[
        int, Field("columns of the last piece", "hidden", "hidden_splited_remain")
    ]
    core_tokens: Annotated[int, Field("tokens of a core", "tokens", "tokens_core_length")]
    core_remainder: Annotated[
        int, Field("how many cores take one token more", "vector_cores", "tokens_core_remain")
    ]
    batch_tokens: Annotated[
        int, Field("tokens whose entries are copied at a time", "tokens", "tokens_splited_length")
    ]
    batches: Annotated[int, Field("batches of a core", "tokens", "tokens_splited_num")]
    batch_remainder: Annotated[
        int, Field("tokens of the last batch", "tokens", "tokens_splited_remain")
    ]
    buffers: Annotated[
        int, Field("rows in the Unified Buffer at a time", f"{MOST_BUFFERS}", "buffer_num")
    ]


NO_TILING = nothing(Tiling)


def bytes_per_column(buffers: int, element_bytes: int) -> int:
    """Return the bytes of one column: input rows, result row, and the fp32 rows of 16-bit ones."""
    fp32_rows = 0 if element_bytes == 4 else ACCUMULATOR_BYTES
    return element_bytes * (buffers + 1) + fp32_rows


def max_hidden(ub_bytes: int, buffers: int, element_bytes: int) -> int:
    """Return the longest piece for so many input buffers, a multiple of 512; <= 0 if none fits."""
    usable = ub_bytes - RESERVED_BYTES
    if usable <= 0:
        return 0
    return align(
        usable // bytes_per_column(buffers, element_bytes) - HIDDEN_ALIGNMENT, HIDDEN_ALIGNMENT
    )


def piece_length(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Return the columns of a piece: the whole row if it fits, <= 0 if nothing fits."""
    longest = max_hidden(ub_bytes, FEWEST_BUFFERS, element_bytes)
    return hidden if align(hidden, HIDDEN_ALIGNMENT) <= longest else longest


def buffers_of(ub_bytes: int, length: int, element_bytes: int) -> int:
    """Return the input rows that fit at a time, 2 to 4, for pieces of this length."""
    buffers = MOST_BUFFERS
    while buffers > FEWEST_BUFFERS and length > max_hidden(ub_bytes, buffers, element_bytes):
        buffers -= 1
    return buffers


def bytes_for_entries(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Return the bytes left for entries beside the rows; below 0 if the rows do not fit."""
    length = piece_length(ub_bytes, hidden, element_bytes)
    if length <= 0 < hidden:
        return -1
    buffers = buffers_of(ub_bytes, length, element_bytes)
    return (
        ub_bytes
        - align(length, HIDDEN_ALIGNMENT) * bytes_per_column(buffers, element_bytes)
        - MARGIN_BYTES
    )


def largest_topk(
    ub_bytes: int, hidden: int, element_bytes: int, entry_bytes: int = INDEX_BYTES
) -> int:
    """Return the largest numTopk whose entries fit beside rows of this length, or 0."""
    left = bytes_for_entries(ub_bytes, hidden, element_bytes)
    return left // entry_bytes if left > 0 else 0


def largest_topk_of_every_hidden(
    ub_bytes: int, element_bytes: int, entry_bytes: int = INDEX_BYTES
) -> int:
    """Return the largest numTopk that fits with every hidden size, or 0."""
    longest = max_hidden(ub_bytes, FEWEST_BUFFERS, element_bytes)
    if longest <= 0:
        return 0
    widths = (*range(HIDDEN_ALIGNMENT, longest, HIDDEN_ALIGNMENT), longest)
    return min(largest_topk(ub_bytes, hidden, element_bytes, entry_bytes) for hidden in widths)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call, whose sizes are not negative, and may be 0 as in the product.

    ``status`` is 1 (the product's 561002) without cores, and if no piece of a row fits the Unified
    Buffer. If the entries of a token do not fit, the result is a success with ``batch_tokens`` 0,
    as in the product.
    """
    size, tokens = problem.element_bytes, problem.tokens
    length = piece_length(device.ub_bytes, problem.hidden, size)
    if length <= 0 < problem.hidden or device.vector_cores <= 0:
        return NO_TILING
    block_dim = min(tokens, device.vector_cores)
    core_tokens, core_remainder = tokens // max(block_dim, 1), tokens % max(block_dim, 1)
    left = bytes_for_entries(device.ub_bytes, problem.hidden, size)
    batch_tokens, batches, batch_remainder = core_tokens, 1, 0
    token_bytes = problem.top_k * problem.entry_bytes
    if core_tokens * token_bytes > left:
        batch_tokens = left // token_bytes if token_bytes > 0 else 0
        batches = core_tokens // batch_tokens if batch_tokens > 0 else 0
        batch_remainder = core_tokens % batch_tokens if batch_tokens > 0 else 0
    pieces = problem.hidden // length if length > 0 else 1
    remainder = problem.hidden % length if length > 0 else 0
    workspace_bytes = device.system_workspace_bytes if problem.asks_for_workspace != 0 else 0
    return Tiling(
        status=SUCCESS,
        block_dim=block_dim,
        tiling_key=problem.tiling_key,
        workspace_bytes=workspace_bytes,
        hidden=problem.hidden,
        top_k=problem.top_k,
        rows=problem.rows,
        hidden_length=length,
        hidden_pieces=pieces,
        hidden_remainder=remainder,
        core_tokens=core_tokens,
        core_remainder=core_remainder,
        batch_tokens=batch_tokens,
        batches=batches,
        batch_remainder=batch_remainder,
        buffers=buffers_of(device.ub_bytes, length, size),
    )


def tile_executable(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call that the contract accepts.

    If the entries of one token do not fit, the product has a plan that cannot run; the contract
    refuses the call, so there is no tiling.
    """
    tiling = tile(problem, device, rules)
    return tiling if tiling.batch_tokens > 0 else NO_TILING


def token_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of tokens that a core takes."""
    return even_range(core, tiling.core_tokens, tiling.core_remainder)


NO_PROBS = -1
"""Dtype code of probs for a call without probs."""
KEY_PROBS = 1
"""Added to the key with probs."""
KEYS_OF_PROBS = (24, 16, 8)
"""Added to the key, by dtype code of probs, if it differs from that of the tokens."""


def bytes_of_entry(probs: int) -> int:
    """Return the bytes of an index, its factor, and the fp32 copy of a 16-bit factor.

    ``probs`` is the dtype code of probs, or `NO_PROBS`.
    """
    if probs == NO_PROBS:
        return INDEX_BYTES
    widened = 0 if probs == FP32 else FP32_BYTES
    return INDEX_BYTES + element_bytes(probs) + widened


def key_with_probs(dtype: int, probs: int) -> int:
    """Return the tiling key for the dtype codes of tokens and probs."""
    if probs == NO_PROBS:
        return KEYS[dtype]
    return KEYS[dtype] + KEY_PROBS + (0 if probs == dtype else KEYS_OF_PROBS[probs])


def sum_problem(
    tokens: int, rows: int, hidden: int, top_k: int, dtype: int, probs: int, rules: Any
) -> Problem:
    """Return a call as the planner of sums takes it.

    ``dtype`` and ``probs`` are dtype codes of tokens and probs, or `NO_PROBS`.
    """
    return Problem(
        tokens=tokens,
        rows=rows,
        hidden=hidden,
        top_k=top_k,
        element_bytes=element_bytes(dtype),
        tiling_key=key_with_probs(dtype, probs),
        entry_bytes=bytes_of_entry(probs),
        asks_for_workspace=rules.asks_for_workspace,
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers."""
    probs = row.probs_dtype if row.has_probs != 0 else NO_PROBS
    problem = sum_problem(row.tokens, row.rows, row.hidden, row.top_k, row.dtype, probs, rules)
    return tile_executable(problem, device, rules)


def entry_buffers(tiling: Tiling, probs: int) -> dict[str, int]:
    """Return the Unified Buffer bytes of the entries of a batch by name, each in whole blocks."""
    count = tiling.batch_tokens * tiling.top_k
    sizes = {"indices": INDEX_BYTES}
    if probs != NO_PROBS:
        sizes["probs"] = element_bytes(probs)
        if probs != FP32:
            sizes["probs in fp32"] = FP32_BYTES
    return {name: align(size * count, BLOCK_BYTES) for name, size in sizes.items()}


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    tokens, indices = inputs["permuted_tokens_shape"], inputs["sorted_indices_shape"]
    probs = inputs["probs_shape"]
    if len(tokens) != 2 or len(indices) != 1 or (probs is not None and len(probs) != 2):
        return None  # the planner of 8.3 does not check, and is undefined from here on
    count, top_k = (indices[0], 1) if probs is None else probs
    if rules.checks_shapes and (count * top_k != indices[0] or top_k > MOST_TOPK):
        return None
    factors = NO_PROBS if probs is None else DTYPE_CODES[inputs["probs_dtype"]]
    dtype = DTYPE_CODES[inputs["permuted_tokens_dtype"]]
    rows, hidden = tokens
    return sum_problem(count, rows, hidden, top_k, dtype, factors, rules)


KERNELS = {"moe_token_unpermute": raw_planner(problem_of, tile)}
STRUCTURES = (Structure("MoeTokenUnpermute", "8.3", (fields_of(Tiling),)),)
