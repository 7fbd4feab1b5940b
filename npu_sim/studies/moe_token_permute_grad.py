"""MoeTokenPermuteGrad in the laboratory: the tree of a token's row. No order is open."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.formats import canonical_dtype, numpy_dtype
from npu_sim.ops import run
from npu_sim.ops.base import Limits, Result
from npu_sim.ops.moe_token_permute_grad import Arguments
from npu_sim.studies import trees
from npu_sim.studies.certificate import Claim
from npu_sim.studies.parts import Parts
from npu_sim.studies.probes import count_units, probe_terms

FLOATING_TENSORS = ("permuted_output_grad",)
"""Tensors that have the operator's dtype."""
SAMPLE_AXES = {"sorted_indices": 0, "input_grad": 0}
"""Axis along which samples lie, for inputs and outputs that have one."""


def order_dependent_parts(
    arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, limits: Limits, first: Result, output: str
) -> Iterator[Parts]:
    """Yield nothing: tokens belong to one core each."""
    return iter(())


def claims(arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, options: Mapping[str, Any]) -> Iterator[Claim]:
    """Declare the tree of a token's row, one claim for all tokens with as many rows that were not dropped."""
    grad_rows, hidden = tensors["permuted_output_grad"].shape
    indices = tensors["sorted_indices"].reshape(-1, arguments.num_topk)
    live = (indices < grad_rows).sum(axis=1)
    for count in np.unique(live[live > 0]).tolist():
        tokens = np.flatnonzero(live == count)
        rows = [row for row in indices[tokens[0]].tolist() if row < grad_rows]
        tree = trees.left_fold(range(count))
        assert tree is not None
        yield Claim(
            output="input_grad",
            element=(int(tokens[0]), 0),
            elements=int(tokens.size) * hidden,
            terms=tuple(f"grad[{row}, 0]" for row in rows),
            tree=tree,
            outside=partial(_outside, arguments, tensors, profile, options, int(tokens[0]), rows),
        )


def _outside(
    arguments: Arguments,
    tensors: Mapping[str, np.ndarray],
    profile: Profile,
    options: Mapping[str, Any],
    token: int,
    rows: list[int],
    codes: np.ndarray,
) -> np.ndarray:
    """Run the kernel on probes, a column each; return how many units survive."""
    shape = tensors["permuted_output_grad"].shape
    dtype, counts = canonical_dtype(tensors["permuted_output_grad"].dtype), np.empty(codes.shape[0], np.int64)
    for begin in range(0, codes.shape[0], shape[1]):
        piece = codes[begin : begin + shape[1]]
        grad = np.zeros(shape, numpy_dtype(dtype))
        grad[rows, : piece.shape[0]] = probe_terms(piece, dtype).T
        call: dict[str, Any] = {"sorted_indices": tensors["sorted_indices"], "num_topk": arguments.num_topk, "profile": profile}
        result = run("moe_token_permute_grad", permuted_output_grad=grad, **call, **options).outputs["input_grad"]
        counts[begin : begin + shape[1]] = count_units(result[token, : piece.shape[0]], dtype)
    return counts


def terms(arguments: Any, tensors: Mapping[str, np.ndarray], output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    grad = tensors["permuted_output_grad"]
    rows = tensors["sorted_indices"].reshape(-1, arguments.num_topk)[index[0]]
    return [(f"grad[{row}, {index[1]}]", float(grad[row, index[1]])) for row in rows.tolist() if row < grad.shape[0]]
