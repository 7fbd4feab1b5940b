"""Tiling of MoeTokenPermuteGrad (Atlas A2, A3): pure integer functions.

Source: specification page ``moe_token_permute_grad``, section "Tiling". Lengths along the hidden axis are elements, names say bytes
where a number counts bytes.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.fields import SUCCESS, Field, nothing, raw_result, vendor_fields
from npu_sim.tiling.integers import align

INDEX_BYTES = 4
"""Size of one entry of sortedIndices, int32."""
HIDDEN_ALIGNMENT = 512
"""Rows lie in the Unified Buffer as if their length were the next multiple of this."""
MOST_BUFFERS = 4
"""Input rows kept in the Unified Buffer at a time, when they fit."""
FEWEST_BUFFERS = 2
"""Input rows kept at least: one is added while the next one is copied."""
RESERVED_TOPK = 512
"""Indices of one token the planner leaves room for; where the documented numTopk <= 512 comes from."""
RESERVED_ENTRY_BYTES = 10
"""Bytes the planner leaves free for each of them."""
RESERVED_BYTES = RESERVED_TOPK * RESERVED_ENTRY_BYTES
MARGIN_BYTES = 256
"""Bytes left free beside rows and indices; with 16-bit rows the first fp32 row is that much longer."""
ACCUMULATOR_BYTES = 8
"""Two fp32 rows, for 16-bit gradients: the sum, and the row being added."""

KEY_BF16, KEY_FP16, KEY_FP32 = 0, 2, 4
KEYS = {"bfloat16": KEY_BF16, "float16": KEY_FP16, "float32": KEY_FP32}
"""Tiling key of every dtype."""
AXIS_FP32, AXIS_FP16 = 0, 1
"""Codes of the axis ``dtype``; bf16 is 2."""


class Problem(NamedTuple):
    """What the kernel sees.

    Attributes
    ----------
    tokens_out
        Length of sortedIndices: tokens * top_k.
    grad_rows
        Rows of permutedOutputGrad, fewer than ``tokens_out`` when tokens were dropped.
    hidden
        Columns.
    top_k
        numTopk; -1 means 1.
    element_bytes
        2 or 4.
    tiling_key
        One of ``KEYS``.
    """

    tokens_out: int
    grad_rows: int
    hidden: int
    top_k: int
    element_bytes: int
    tiling_key: int


class Tiling(NamedTuple):
    """Result of the planner.

    A row is taken in ``hidden_pieces`` pieces, then what remains. The batches follow ``core_tokens``, also on cores with one token
    more. ``batch_tokens`` is 0 when not even the indices of one token fit: the kernel cannot work then.
    """

    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    tiling_key: Annotated[int, Field("tiling key: bf16 0, fp16 2, fp32 4", "4")]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", "system_workspace_bytes")]
    hidden: Annotated[int, Field("columns", vendor="hidden_size")]
    top_k: Annotated[int, Field("experts chosen for a token", vendor="top_k")]
    grad_rows: Annotated[int, Field("rows of permuted_output_grad", "tokens * num_topk", vendor="num_out_tokens")]
    hidden_length: Annotated[int, Field("columns taken at a time", "hidden", vendor="hidden_splited_length")]
    hidden_pieces: Annotated[int, Field("whole pieces of a row", "hidden", vendor="hidden_splited_num")]
    hidden_remainder: Annotated[int, Field("columns of the last piece", "hidden", vendor="hidden_splited_remain")]
    core_tokens: Annotated[int, Field("tokens of a core", "tokens", vendor="tokens_core_length")]
    core_remainder: Annotated[int, Field("how many cores take one token more", "vector_cores", vendor="tokens_core_remain")]
    batch_tokens: Annotated[int, Field("tokens whose indices are copied at a time", "tokens", vendor="tokens_splited_length")]
    batches: Annotated[int, Field("batches of a core", "tokens", vendor="tokens_splited_num")]
    batch_remainder: Annotated[int, Field("tokens of the last batch", "tokens", vendor="tokens_splited_remain")]
    buffers: Annotated[int, Field("rows in the Unified Buffer at a time", f"{MOST_BUFFERS}", vendor="buffer_num")]


NO_TILING: Tiling = nothing(Tiling)


def bytes_per_column(buffers: int, element_bytes: int) -> int:
    """Unified Buffer bytes of one hidden element: input rows, the result row, and the fp32 rows of 16-bit gradients."""
    fp32_rows = 0 if element_bytes == 4 else ACCUMULATOR_BYTES
    return element_bytes * (2 + buffers - 1) + fp32_rows


def max_hidden(ub_bytes: int, buffers: int, element_bytes: int) -> int:
    """Longest piece of a row that fits with so many input buffers, a multiple of 512; not above 0 when none does."""
    usable = ub_bytes - RESERVED_BYTES
    if usable <= 0:
        return 0
    return align(usable // bytes_per_column(buffers, element_bytes) - HIDDEN_ALIGNMENT, HIDDEN_ALIGNMENT)


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


def bytes_for_indices(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Unified Buffer bytes left for indices beside the rows; below 0 when the rows do not fit."""
    length = piece_length(ub_bytes, hidden, element_bytes)
    if length <= 0:
        return -1
    buffers = buffers_of(ub_bytes, length, element_bytes)
    return ub_bytes - align(length, HIDDEN_ALIGNMENT) * bytes_per_column(buffers, element_bytes) - MARGIN_BYTES


def largest_topk(ub_bytes: int, hidden: int, element_bytes: int) -> int:
    """Largest numTopk that really fits: the indices of one token lie in what rows of this length leave; 0 when none fits."""
    left = bytes_for_indices(ub_bytes, hidden, element_bytes)
    return left // INDEX_BYTES if left > 0 else 0


def largest_topk_of_every_hidden(ub_bytes: int, element_bytes: int) -> int:
    """Largest numTopk that fits whatever the hidden size is; 0 when none fits."""
    longest = max_hidden(ub_bytes, FEWEST_BUFFERS, element_bytes)
    smallest = largest_topk(ub_bytes, longest, element_bytes)
    hidden = HIDDEN_ALIGNMENT
    while hidden < longest:
        smallest = min(smallest, largest_topk(ub_bytes, hidden, element_bytes))
        hidden += HIDDEN_ALIGNMENT
    return smallest


def tile(problem: Problem, device: Device) -> Tiling:
    """Plan one call.

    Parameters
    ----------
    problem
        What the kernel sees.
    device
        The SoC.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) for a numTopk or hidden size that is not positive, no core, or a Unified Buffer too
        small for any piece of a row. A numTopk whose indices do not fit is a success with ``batch_tokens`` 0, as in the product.
    """
    top_k = 1 if problem.top_k == -1 else problem.top_k
    length = piece_length(device.ub_bytes, problem.hidden, problem.element_bytes)
    if top_k <= 0 or problem.hidden <= 0 or length <= 0 or device.vector_cores <= 0:
        return NO_TILING
    tokens = problem.tokens_out // top_k
    block_dim = min(tokens, device.vector_cores)
    core_tokens = tokens // block_dim if block_dim > 0 else 0
    core_remainder = tokens % block_dim if block_dim > 0 else 0
    left = bytes_for_indices(device.ub_bytes, problem.hidden, problem.element_bytes)
    batch_tokens, batches, batch_remainder = core_tokens, 1, 0
    if core_tokens * top_k * INDEX_BYTES > left:
        batch_tokens = left // (top_k * INDEX_BYTES)
        batches = core_tokens // batch_tokens if batch_tokens > 0 else 0
        batch_remainder = core_tokens % batch_tokens if batch_tokens > 0 else 0
    return Tiling(
        status=SUCCESS,
        block_dim=block_dim,
        tiling_key=problem.tiling_key,
        workspace_bytes=device.system_workspace_bytes,
        hidden=problem.hidden,
        top_k=top_k,
        grad_rows=problem.grad_rows,
        hidden_length=length,
        hidden_pieces=problem.hidden // length,
        hidden_remainder=problem.hidden % length,
        core_tokens=core_tokens,
        core_remainder=core_remainder,
        batch_tokens=batch_tokens,
        batches=batches,
        batch_remainder=batch_remainder,
        buffers=buffers_of(device.ub_bytes, length, problem.element_bytes),
    )


def problem_of(row: Any) -> Problem:
    """Return what the kernel sees of a call in whole numbers."""
    tiling_key = KEY_FP32 if row.dtype == AXIS_FP32 else KEY_FP16 if row.dtype == AXIS_FP16 else KEY_BF16
    return Problem(row.entries, row.grad_rows, row.hidden, row.num_topk, 4 if row.dtype == AXIS_FP32 else 2, tiling_key)


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given in whole numbers.

    Without room for the indices of one token the product plans on and cannot work: the contract refuses, there is no tiling.
    """
    tiling = tile(problem_of(row), device)
    return tiling if tiling.batch_tokens > 0 else NO_TILING


def token_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of tokens that a core takes."""
    start = tiling.core_tokens * core + min(core, tiling.core_remainder)
    return start, start + tiling.core_tokens + (1 if core < tiling.core_remainder else 0)


def plan_kernel(kernel: str, inputs: dict[str, Any], device: Device, deterministic: bool, rules: Any) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    grad_rows, hidden = inputs["permuted_output_grad_shape"]
    (tokens_out,) = inputs["sorted_indices_shape"]
    dtype = inputs["permuted_output_grad_dtype"]
    problem = Problem(tokens_out, grad_rows, hidden, inputs["num_topk"], 4 if dtype == "float32" else 2, KEYS[dtype])
    tiling = tile(problem, device)
    return raw_result(tiling, vendor_fields(tiling))
