"""Studies of MoeTokenPermuteGrad: the tree of a token's sum; every order is fixed."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.numbers.formats import canonical_dtype, numpy_dtype
from npu_sim.operators.shared.study import Changes, StudyCall
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim, count_units, probe_terms


def live_entries(call: StudyCall) -> np.ndarray:
    """Return which indices (tokens, num_topk) are in range; the other rows were dropped."""
    indices = call.tensors["sorted_indices"].reshape(-1, _experts(call))
    live: np.ndarray = (indices >= 0) & (indices < call.tensors["permuted_output_grad"].shape[0])
    return live


def live_rows(call: StudyCall, token: int) -> list[int]:
    """Return the rows of a token in k order, without dropped ones."""
    indices = call.tensors["sorted_indices"].reshape(-1, _experts(call))[token]
    rows: list[int] = indices[live_entries(call)[token]].tolist()
    return rows


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped."""
    live = live_entries(call).sum(axis=1)
    for count in np.unique(live[live > 0]).tolist():
        tree = trees.left_fold(range(count))
        assert tree is not None
        yield sum_claim(call, np.flatnonzero(live == count), tree)


def sum_claim(call: StudyCall, tokens: np.ndarray, tree: trees.Tree) -> Claim:
    """Return the claim that the live rows of some tokens are added as a tree."""
    rows = live_rows(call, int(tokens[0]))
    return Claim(
        output="input_grad",
        element=(int(tokens[0]), 0),
        elements=int(tokens.size) * call.tensors["permuted_output_grad"].shape[1],
        terms=tuple(f"grad[{row}, 0]" for row in rows),
        tree=tree,
        outside=partial(_outside, call, int(tokens[0]), rows),
    )


def _outside(call: StudyCall, token: int, rows: list[int], codes: np.ndarray) -> np.ndarray:
    """Return the number of units that survive in the kernel, for one probe per column."""
    shape = call.tensors["permuted_output_grad"].shape
    dtype = canonical_dtype(call.tensors["permuted_output_grad"].dtype)
    counts = np.empty(codes.shape[0], np.int64)
    for begin in range(0, codes.shape[0], shape[1]):
        piece = codes[begin : begin + shape[1]]
        grad = np.zeros(shape, numpy_dtype(dtype))
        grad[rows, : piece.shape[0]] = probe_terms(piece, dtype).T
        sums = call.outputs(permuted_output_grad=grad)["input_grad"]
        counts[begin : begin + shape[1]] = count_units(sums[token, : piece.shape[0]], dtype)
    return counts


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    token, column = index
    grad = call.tensors["permuted_output_grad"]
    return [(f"grad[{row}, {column}]", float(grad[row, column])) for row in live_rows(call, token)]


def _experts(call: StudyCall) -> int:
    """Return the number of indices of a token."""
    return int(call.attributes["num_topk"])


def _grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Return the call with tokens appended; None when rows were dropped.

    New rows would then be assigned to dropped indices.
    """
    grad, indices = call.tensors["permuted_output_grad"], call.tensors["sorted_indices"]
    rows, more = grad.shape[0], extra * _experts(call)
    if indices.max(initial=-1) >= rows:
        return None
    values = (
        np.resize(grad, (more, grad.shape[1]))
        if fill == "copy"
        else np.zeros((more, grad.shape[1]), grad.dtype)
    )
    return call.with_tensors(
        permuted_output_grad=np.concatenate([grad, values]),
        sorted_indices=np.concatenate([indices, np.arange(rows, rows + more, dtype=indices.dtype)]),
    )


CHANGES = Changes(grown=_grown, places=lambda call: {"sorted_indices": _experts(call)})
