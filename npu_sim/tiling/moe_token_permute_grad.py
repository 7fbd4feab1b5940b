"""Tiling of MoeTokenPermuteGrad on Atlas A2 and A3: pure integer functions.

Source: specification page ``moe_token_permute_grad``, section "Tiling". The planner itself is
:mod:`npu_sim.tiling.moe_token_unpermute`.
"""

from typing import Any

from npu_sim.cores import Device
from npu_sim.tiling.common import DTYPE_CODES, Raw, Structure, element_bytes, fields_of, raw_planner
from npu_sim.tiling.moe_token_unpermute import (
    INDEX_BYTES,
    KEYS,
    NO_TILING,
    Problem,
    Tiling,
    tile,
    tile_executable,
)


def sum_problem(entries: int, rows: int, hidden: int, top_k: int, dtype: int) -> Problem:
    """Return a call as the planner of sums takes it; ``entries`` is the length of sortedIndices."""
    size = element_bytes(dtype)
    return Problem(entries // top_k, rows, hidden, top_k, size, KEYS[dtype], INDEX_BYTES, 1)


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers."""
    if row.num_topk <= 0 or row.hidden <= 0:
        return NO_TILING
    problem = sum_problem(row.entries, row.grad_rows, row.hidden, row.num_topk, row.dtype)
    return tile_executable(problem, device, rules)


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs; numTopk -1 means 1."""
    (entries,) = inputs["sorted_indices_shape"]
    rows, hidden = inputs["permuted_output_grad_shape"]
    top_k = 1 if inputs["num_topk"] == -1 else inputs["num_topk"]
    if top_k <= 0 or hidden <= 0:
        return None
    dtype = DTYPE_CODES[inputs["permuted_output_grad_dtype"]]
    return sum_problem(entries, rows, hidden, top_k, dtype)


KERNELS = {"moe_token_permute_grad": raw_planner(problem_of, tile)}
STRUCTURES = (Structure("MoeTokenPermuteGrad", "8.3", (fields_of(Tiling),)),)
