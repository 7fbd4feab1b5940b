"""Tiling of MoeTokenUnpermute (Atlas A2, A3): pure integer functions.

Source: specification page ``moe_token_unpermute``, section "Tiling". What it shares with other sums over the rows of a token is in
:mod:`npu_sim.tiling.token_sums`.
"""

from typing import Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import align
from npu_sim.tiling.fields import REFUSED, raw_result, vendor_fields
from npu_sim.tiling.token_sums import (
    FP16,
    FP32,
    INDEX_BYTES,
    MOST_TOPK,
    NO_TILING,
    SumProblem,
    Tiling,
    bytes_of_dtype,
    key_of,
    tile_sums,
)

NO_PROBS = -1
"""Code of the dtype of probs where there are none."""
KEY_PROBS = 1
"""What probs add to the key."""
KEY_BF16_PROBS, KEY_FP16_PROBS, KEY_FP32_PROBS = 8, 16, 24
"""What probs of another dtype than the tokens add besides."""
FP32_PROB_BYTES = 4
"""Bytes of a factor as the kernel multiplies with it."""
BLOCK_BYTES = 32
"""Buffers are rounded up to it."""
DTYPE_CODES = {"float32": FP32, "float16": FP16, "bfloat16": 2}


def bytes_of_entry(probs: int) -> int:
    """Bytes of an index and its factor in the Unified Buffer; 16-bit factors lie there widened as well.

    ``probs`` is the code of their dtype, or `NO_PROBS`.
    """
    if probs == NO_PROBS:
        return INDEX_BYTES
    widened = 0 if probs == FP32 else FP32_PROB_BYTES
    return INDEX_BYTES + bytes_of_dtype(probs) + widened


def key_with_probs(dtype: int, probs: int) -> int:
    """Tiling key of tokens and probs, whose dtypes have these codes."""
    if probs == NO_PROBS:
        return key_of(dtype)
    if probs == dtype:
        return key_of(dtype) + KEY_PROBS
    return (
        key_of(dtype)
        + KEY_PROBS
        + (KEY_FP32_PROBS if probs == FP32 else KEY_FP16_PROBS if probs == FP16 else KEY_BF16_PROBS)
    )


def tile_call(
    tokens: int,
    rows: int,
    hidden: int,
    top_k: int,
    dtype: int,
    probs: int,
    device: Device,
    rules: Any,
) -> Tiling:
    """Plan one call; ``dtype`` and ``probs`` are codes of dtypes, ``rules`` says what the release decides."""
    workspace_bytes = device.system_workspace_bytes if rules.asks_for_workspace != 0 else 0
    key, entry_bytes = key_with_probs(dtype, probs), bytes_of_entry(probs)
    return tile_sums(
        SumProblem(
            tokens, rows, hidden, top_k, bytes_of_dtype(dtype), key, entry_bytes, workspace_bytes
        ),
        device,
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given in whole numbers.

    Without room for the entries of one token the product plans on and cannot work: the contract refuses, there is no tiling.
    """
    probs = row.probs_dtype if row.has_probs != 0 else NO_PROBS
    tiling = tile_call(row.tokens, row.rows, row.hidden, row.top_k, row.dtype, probs, device, rules)
    return tiling if tiling.batch_tokens > 0 else NO_TILING


class EntryBuffers(NamedTuple):
    """Bytes of the entries of a batch in the Unified Buffer; 0 for what a call does not have."""

    indices: int
    probs: int
    probs_fp32: int


def entry_buffers(tiling: Tiling, probs: int) -> EntryBuffers:
    """Return the bytes of the entries of a batch, every buffer rounded up; ``probs`` is the code of their dtype, or `NO_PROBS`."""
    count = tiling.batch_tokens * tiling.top_k
    indices = align(INDEX_BYTES * count, BLOCK_BYTES)
    if probs == NO_PROBS:
        return EntryBuffers(indices, 0, 0)
    widened = 0 if probs == FP32 else align(FP32_PROB_BYTES * count, BLOCK_BYTES)
    return EntryBuffers(indices, align(bytes_of_dtype(probs) * count, BLOCK_BYTES), widened)


def plan_kernel(
    kernel: str, inputs: dict[str, Any], device: Device, deterministic: bool, rules: Any
) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    tokens, indices, probs = (
        inputs["permuted_tokens_shape"],
        inputs["sorted_indices_shape"],
        inputs["probs_shape"],
    )
    if len(tokens) != 2 or len(indices) != 1 or (probs is not None and len(probs) != 2):
        return REFUSED  # at 8.3, where the planner does not look, what follows is not defined
    count, top_k = (indices[0], 1) if probs is None else probs
    if rules.checks_shapes and (count * top_k != indices[0] or top_k > MOST_TOPK):
        return REFUSED
    rows, hidden = tokens
    factors = NO_PROBS if probs is None else DTYPE_CODES[inputs["probs_dtype"]]
    tiling = tile_call(
        count,
        rows,
        hidden,
        top_k,
        DTYPE_CODES[inputs["permuted_tokens_dtype"]],
        factors,
        device,
        rules,
    )
    return raw_result(tiling, vendor_fields(tiling))
