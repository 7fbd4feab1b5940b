"""Tiling of MoeTokenUnpermute on Atlas A2 and A3: pure integer functions.

Source: specification page ``moe_token_unpermute``, section "Tiling". The planner itself is
:mod:`npu_sim.tiling.token_sums`.
"""

from typing import Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP16,
    FP32,
    FP32_BYTES,
    align,
    element_bytes,
)
from npu_sim.tiling.fields import Raw, Structure, raw_planner
from npu_sim.tiling.token_sums import (
    INDEX_BYTES,
    MOST_TOPK,
    RUNS,
    Problem,
    Tiling,
    key_of,
    tile,
    tile_executable,
)

NO_PROBS = -1
"""Dtype code of probs for a call without probs."""
KEY_PROBS = 1
"""Added to the key with probs."""
KEY_BF16_PROBS, KEY_FP16_PROBS, KEY_FP32_PROBS = 8, 16, 24
"""Added to the key if the dtype of probs differs from that of the tokens."""


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
    key = key_of(dtype)
    if probs == NO_PROBS:
        return key
    key += KEY_PROBS
    if probs == dtype:
        return key
    if probs == FP32:
        return key + KEY_FP32_PROBS
    return key + (KEY_FP16_PROBS if probs == FP16 else KEY_BF16_PROBS)


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


class EntryBuffers(NamedTuple):
    """Unified Buffer bytes of the entries of a batch; 0 for buffers not in use."""

    indices: int
    probs: int
    probs_fp32: int


def entry_buffers(tiling: Tiling, probs: int) -> EntryBuffers:
    """Return the Unified Buffer bytes of the entries of a batch, each buffer in whole blocks."""
    count = tiling.batch_tokens * tiling.top_k
    indices = align(INDEX_BYTES * count, BLOCK_BYTES)
    if probs == NO_PROBS:
        return EntryBuffers(indices, 0, 0)
    widened = 0 if probs == FP32 else align(FP32_BYTES * count, BLOCK_BYTES)
    return EntryBuffers(indices, align(element_bytes(probs) * count, BLOCK_BYTES), widened)


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
STRUCTURES = (Structure("MoeTokenUnpermute", "8.3", RUNS),)
