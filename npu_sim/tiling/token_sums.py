"""How operators that sum the rows of every token are tiled (Atlas A2, A3): pure integer functions.

Source: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``, sections
"Tiling": one planner, with probs and without. Lengths along the hidden axis are elements, names say
bytes where a number counts bytes. An *entry* is an index, and its factor where there are probs.
"""

from typing import Annotated, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import align
from npu_sim.tiling.fields import SUCCESS, Field, nothing

INDEX_BYTES = 4
"""Size of one entry of sortedIndices, int32."""
HIDDEN_ALIGNMENT = 512
"""Rows lie in the Unified Buffer as if their length were the next multiple of this."""
MOST_BUFFERS = 4
"""Input rows kept in the Unified Buffer at a time, when they fit."""
FEWEST_BUFFERS = 2
"""Input rows kept at least: one is added while the next one is copied."""
RESERVED_TOPK = 512
"""Entries of one token the planner leaves room for; where the documented numTopk <= 512 comes
from."""
RESERVED_ENTRY_BYTES = 10
"""Bytes the planner leaves free for each of them."""
RESERVED_BYTES = RESERVED_TOPK * RESERVED_ENTRY_BYTES
MARGIN_BYTES = 256
"""Bytes left free beside rows and entries; with 16-bit rows the first fp32 row is that much
longer."""
ACCUMULATOR_BYTES = 8
"""Two fp32 rows, for 16-bit rows: the sum, and the row being added."""

MOST_TOPK = RESERVED_TOPK
"""The planner of sums with probs refuses more experts of a token, whatever fits; its gradient keeps
arrays of so many."""

KEYS = {"bfloat16": 0, "float16": 2, "float32": 4}
"""Tiling key of every dtype of the rows."""
KEY_BF16, KEY_FP16, KEY_FP32 = KEYS["bfloat16"], KEYS["float16"], KEYS["float32"]
FP32, FP16 = 0, 1
"""Codes of an axis of dtypes; bf16 is 2."""


class SumProblem(NamedTuple):
    """What the kernel sees.

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
        2 or 4.
    tiling_key
        Its tiling key.
    entry_bytes
        Bytes of an entry in the Unified Buffer.
    workspace_bytes
        Workspace that the planner asks for.
    """

    tokens: int
    rows: int
    hidden: int
    top_k: int
    element_bytes: int
    tiling_key: int
    entry_bytes: int
    workspace_bytes: int


class Tiling(NamedTuple):
    """Result of the planner.

    A row is taken in ``hidden_pieces`` pieces, then what remains. The batches follow
    ``core_tokens``, also on cores with one token more. ``batch_tokens`` is 0 when not even the
    entries of one token fit: the kernel cannot work then.
    """

    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    tiling_key: Annotated[
        int, Field("tiling key: bf16 0, fp16 2, fp32 4, and what probs add", "27")
    ]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", "system_workspace_bytes")]
    hidden: Annotated[int, Field("columns", vendor="hidden_size")]
    top_k: Annotated[int, Field("entries of a token", vendor="top_k")]
    rows: Annotated[
        int, Field("rows that are summed", "tokens * num_topk", vendor="num_out_tokens")
    ]
    hidden_length: Annotated[
        int, Field("columns taken at a time", "hidden", vendor="hidden_splited_length")
    ]
    hidden_pieces: Annotated[
        int, Field("whole pieces of a row", "hidden", vendor="hidden_splited_num")
    ]
    hidden_remainder: Annotated[
        int, Field("columns of the last piece", "hidden", vendor="hidden_splited_remain")
    ]
    core_tokens: Annotated[int, Field("tokens of a core", "tokens", vendor="tokens_core_length")]
    core_remainder: Annotated[
        int,
        Field("how many cores take one token more", "vector_cores", vendor="tokens_core_remain"),
    ]
    batch_tokens: Annotated[
        int,
        Field(
            "tokens whose entries are copied at a time", "tokens", vendor="tokens_splited_length"
        ),
    ]
    batches: Annotated[int, Field("batches of a core", "tokens", vendor="tokens_splited_num")]
    batch_remainder: Annotated[
        int, Field("tokens of the last batch", "tokens", vendor="tokens_splited_remain")
    ]
    buffers: Annotated[
        int, Field("rows in the Unified Buffer at a time", f"{MOST_BUFFERS}", vendor="buffer_num")
    ]


NO_TILING: Tiling = nothing(Tiling)


def bytes_of_dtype(dtype: int) -> int:
    """Bytes of an element whose dtype has this code."""
    return 4 if dtype == FP32 else 2


def key_of(dtype: int) -> int:
    """Tiling key of rows whose dtype has this code."""
    return KEY_FP32 if dtype == FP32 else KEY_FP16 if dtype == FP16 else KEY_BF16


def bytes_per_column(buffers: int, element_bytes: int) -> int:
    """Unified Buffer bytes of one hidden element: input rows, the result row, and the fp32 rows of 16-bit rows."""
    fp32_rows = 0 if element_bytes == 4 else ACCUMULATOR_BYTES
    return element_bytes * (2 + buffers - 1) + fp32_rows


def max_hidden(ub_bytes: int, buffers: int, element_bytes: int) -> int:
    """Longest piece of a row that fits with so many input buffers, a multiple of 512; not above 0 when none does."""
    usable = ub_bytes - RESERVED_BYTES
    if usable <= 0:
        return 0
    return align(
        usable // bytes_per_column(buffers, element_bytes) - HIDDEN_ALIGNMENT, HIDDEN_ALIGNMENT
    )


def piece_length(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Columns taken at a time: the whole row when it fits with the fewest buffers; not above 0 when nothing fits."""
    longest = max_hidden(ub_bytes, FEWEST_BUFFERS, element_bytes)
    return hidden if align(hidden, HIDDEN_ALIGNMENT) <= longest else longest


def buffers_of(ub_bytes: int, length: int, element_bytes: int) -> int:
    """Input rows that fit at a time, 2 to 4, for pieces of this length."""
    buffers = MOST_BUFFERS
    while buffers > FEWEST_BUFFERS and length > max_hidden(ub_bytes, buffers, element_bytes):
        buffers -= 1
    return buffers


def bytes_for_entries(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Unified Buffer bytes left for entries beside the rows; below 0 when the rows do not fit."""
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
    """Largest numTopk that really fits: the entries of one token lie in what rows of this length leave; 0 when none fits."""
    left = bytes_for_entries(ub_bytes, hidden, element_bytes)
    return left // entry_bytes if left > 0 else 0


def largest_topk_of_every_hidden(
    ub_bytes: int, element_bytes: int, entry_bytes: int = INDEX_BYTES
) -> int:
    """Largest numTopk that fits whatever the hidden size is; 0 when none fits."""
    longest = max_hidden(ub_bytes, FEWEST_BUFFERS, element_bytes)
    if longest <= 0:
        return 0
    smallest = largest_topk(ub_bytes, longest, element_bytes, entry_bytes)
    hidden = HIDDEN_ALIGNMENT
    while hidden < longest:
        smallest = min(smallest, largest_topk(ub_bytes, hidden, element_bytes, entry_bytes))
        hidden += HIDDEN_ALIGNMENT
    return smallest


def tile_sums(problem: SumProblem, device: Device) -> Tiling:
    """Plan one call.

    Parameters
    ----------
    problem
        What the kernel sees; nothing is below 0. Without tokens, columns or entries there is a
        tiling too, as in the product.
    device
        The SoC.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) without a core, and for a Unified Buffer too small
        for any piece of a row. Entries of a token that do not fit are a success with
        ``batch_tokens`` 0, as in the product.
    """
    size, tokens = problem.element_bytes, problem.tokens
    length = piece_length(device.ub_bytes, problem.hidden, size)
    if length <= 0 < problem.hidden or device.vector_cores <= 0:
        return NO_TILING
    block_dim = min(tokens, device.vector_cores)
    core_tokens = tokens // block_dim if block_dim > 0 else 0
    core_remainder = tokens % block_dim if block_dim > 0 else 0
    left = bytes_for_entries(device.ub_bytes, problem.hidden, size)
    batch_tokens, batches, batch_remainder = core_tokens, 1, 0
    token_bytes = problem.top_k * problem.entry_bytes
    if core_tokens * token_bytes > left:
        batch_tokens = left // token_bytes if token_bytes > 0 else 0
        batches = core_tokens // batch_tokens if batch_tokens > 0 else 0
        batch_remainder = core_tokens % batch_tokens if batch_tokens > 0 else 0
    pieces = problem.hidden // length if length > 0 else 1
    remainder = problem.hidden % length if length > 0 else 0
    return Tiling(
        status=SUCCESS,
        block_dim=block_dim,
        tiling_key=problem.tiling_key,
        workspace_bytes=problem.workspace_bytes,
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


def token_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of tokens that a core takes."""
    start = tiling.core_tokens * core + min(core, tiling.core_remainder)
    return start, start + tiling.core_tokens + (1 if core < tiling.core_remainder else 0)
