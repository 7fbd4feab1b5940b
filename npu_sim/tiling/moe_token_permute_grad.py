"""Tiling of MoeTokenPermuteGrad on Atlas A2 and A3: pure integer functions.

Source: specification page ``moe_token_permute_grad``, section "Tiling". The planner itself is
:mod:`npu_sim.tiling.token_sums`.
"""

from typing import Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import element_bytes
from npu_sim.tiling.fields import Raw, Structure, raw_result, vendor_fields
from npu_sim.tiling.token_sums import (
    INDEX_BYTES,
    KEYS,
    NO_TILING,
    RUNS,
    SumProblem,
    Tiling,
    key_of,
    tile_sums,
)


class Problem(NamedTuple):
    """One call.

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


def tile(problem: Problem, device: Device) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) if numTopk or the hidden size is not positive, without
    cores, or if no piece of a row fits the Unified Buffer. A numTopk whose indices do not fit is a
    success with ``batch_tokens`` 0, as in the product.
    """
    top_k = 1 if problem.top_k == -1 else problem.top_k
    if top_k <= 0 or problem.hidden <= 0:
        return NO_TILING
    tokens = problem.tokens_out // top_k
    sums = SumProblem(
        tokens,
        problem.grad_rows,
        problem.hidden,
        top_k,
        problem.element_bytes,
        problem.tiling_key,
        INDEX_BYTES,
        device.system_workspace_bytes,
    )
    return tile_sums(sums, device)


def problem_of(row: Any) -> Problem:
    """Return the problem of a call given as integers."""
    return Problem(
        row.entries,
        row.grad_rows,
        row.hidden,
        row.num_topk,
        element_bytes(row.dtype),
        key_of(row.dtype),
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers.

    If the indices of one token do not fit, the product has a plan that cannot run; the contract
    refuses the call, so there is no tiling.
    """
    tiling = tile(problem_of(row), device)
    return tiling if tiling.batch_tokens > 0 else NO_TILING


def plan_kernel(kernel: str, inputs: Raw, device: Device, deterministic: bool, rules: Any) -> Raw:
    """Run the raw planner of the kernel; see :func:`npu_sim.tiling.plan_kernel`."""
    grad_rows, hidden = inputs["permuted_output_grad_shape"]
    (tokens_out,) = inputs["sorted_indices_shape"]
    dtype = inputs["permuted_output_grad_dtype"]
    problem = Problem(
        tokens_out,
        grad_rows,
        hidden,
        inputs["num_topk"],
        4 if dtype == "float32" else 2,
        KEYS[dtype],
    )
    tiling = tile(problem, device)
    return raw_result(tiling, vendor_fields(tiling))


STRUCTURES = (Structure("MoeTokenPermuteGrad", "8.3", RUNS),)
