"""Tiling of MoeTokenUnpermute on Atlas A2 and A3: pure integer functions.

Source: specification page ``moe_token_unpermute``, section "Tiling". The planner itself is
:mod:`npu_sim.tiling.token_sums`.
"""

from typing import Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import BLOCK_BYTES, DTYPE_CODES, FP16, FP32, align, element_bytes
from npu_sim.tiling.fields import REFUSED, Raw, Structure, raw_result, vendor_fields
from npu_sim.tiling.token_sums import (
    INDEX_BYTES,
    MOST_TOPK,
    NO_TILING,
    RUNS,
    SumProblem,
    Tiling,
    key_of,
    tile_sums,
)

NO_PROBS = -1
"""Dtype code of probs for a call without probs."""
KEY_PROBS = 1
"""Added to the key with probs."""
KEY_BF16_PROBS, KEY_FP16_PROBS, KEY_FP32_PROBS = 8, 16, 24
"""Added to the key if the dtype of probs differs from that of the tokens."""
FP32_PROB_BYTES = 4
"""Bytes of a factor in the multiplication."""


def bytes_of_entry(probs: int) -> int:
    """Return the bytes of an index, its factor, and the fp32 copy of a 16-bit factor.

    ``probs`` is the dtype code of probs, or `NO_PROBS`.
    """
    if probs == NO_PROBS:
        return INDEX_BYTES
    widened = 0 if probs == FP32 else FP32_PROB_BYTES
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


class Problem(NamedTuple):
    """One call; ``dtype`` and ``probs`` are dtype codes of tokens and probs, or `NO_PROBS`."""

    tokens: int
    rows: int
    hidden: int
    top_k: int
    dtype: int
    probs: int


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call."""
    sums = SumProblem(
        tokens=problem.tokens,
        rows=problem.rows,
        hidden=problem.hidden,
        top_k=problem.top_k,
        element_bytes=element_bytes(problem.dtype),
        tiling_key=key_with_probs(problem.dtype, problem.probs),
        entry_bytes=bytes_of_entry(problem.probs),
        workspace_bytes=device.system_workspace_bytes if rules.asks_for_workspace != 0 else 0,
    )
    return tile_sums(sums, device)


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers.

    If the entries of one token do not fit, the product has a plan that cannot run; the contract
    refuses the call, so there is no tiling.
    """
    probs = row.probs_dtype if row.has_probs != 0 else NO_PROBS
    problem = Problem(row.tokens, row.rows, row.hidden, row.top_k, row.dtype, probs)
    tiling = tile(problem, device, rules)
    return tiling if tiling.batch_tokens > 0 else NO_TILING


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
    widened = 0 if probs == FP32 else align(FP32_PROB_BYTES * count, BLOCK_BYTES)
    return EntryBuffers(indices, align(element_bytes(probs) * count, BLOCK_BYTES), widened)


def plan_kernel(kernel: str, inputs: Raw, device: Device, deterministic: bool, rules: Any) -> Raw:
    """Run the raw planner of the kernel; see :func:`npu_sim.tiling.plan_kernel`."""
    tokens = inputs["permuted_tokens_shape"]
    indices = inputs["sorted_indices_shape"]
    probs = inputs["probs_shape"]
    if len(tokens) != 2 or len(indices) != 1 or (probs is not None and len(probs) != 2):
        return REFUSED  # the planner of 8.3 does not check, and is undefined from here on
    count, top_k = (indices[0], 1) if probs is None else probs
    if rules.checks_shapes and (count * top_k != indices[0] or top_k > MOST_TOPK):
        return REFUSED
    rows, hidden = tokens
    factors = NO_PROBS if probs is None else DTYPE_CODES[inputs["probs_dtype"]]
    dtype = DTYPE_CODES[inputs["permuted_tokens_dtype"]]
    tiling = tile(Problem(count, rows, hidden, top_k, dtype, factors), device, rules)
    return raw_result(tiling, vendor_fields(tiling))


STRUCTURES = (Structure("MoeTokenUnpermute", "8.3", RUNS),)
