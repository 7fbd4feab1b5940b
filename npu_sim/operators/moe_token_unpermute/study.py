"""Studies of MoeTokenUnpermute: the tree of a token's sum; every order is fixed."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.numbers.formats import canonical_dtype, numpy_dtype
from npu_sim.operators.shared.study import Changes, StudyCall
from npu_sim.operators.shared.unpermuted_tokens import experts, grown, places
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim, count_units, probe_terms

CHANGES = Changes(grown=grown, places=places)


def live_entries(call: StudyCall, token: int) -> list[int]:
    """Return the entries of a token that are neither dropped nor weighted by 0, in k order."""
    return (token * experts(call) + np.flatnonzero(_live(call)[token])).tolist()


def _live(call: StudyCall) -> np.ndarray:
    """Return the mask (tokens, experts) of entries that add a row."""
    indices = call.tensors["sorted_indices"].reshape(-1, experts(call))
    live: np.ndarray = indices < call.tensors["permuted_tokens"].shape[0]
    return live & (call.tensors["probs"] != 0) if "probs" in call.tensors else live


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of live entries."""
    hidden, counts = call.tensors["permuted_tokens"].shape[1], _live(call).sum(axis=1)
    for count in np.unique(counts[counts > 0]).tolist():
        tokens = np.flatnonzero(counts == count)
        entries = live_entries(call, int(tokens[0]))
        tree = trees.left_fold(range(count))
        assert tree is not None
        yield Claim(
            output="unpermuted_tokens",
            element=(int(tokens[0]), 0),
            elements=int(tokens.size) * hidden,
            terms=tuple(name for name, _ in _terms(call, entries, 0)),
            tree=tree,
            outside=partial(_outside, call, int(tokens[0]), entries),
        )


def _outside(call: StudyCall, token: int, entries: list[int], codes: np.ndarray) -> np.ndarray:
    """Return the number of units that survive in the kernel, for one probe per column."""
    shape = call.tensors["permuted_tokens"].shape
    rows = call.tensors["sorted_indices"][entries]
    dtype = canonical_dtype(call.tensors["permuted_tokens"].dtype)
    counts = np.empty(codes.shape[0], np.int64)
    probs = call.tensors.get("probs")
    ones = {} if probs is None else {"probs": (probs != 0).astype(probs.dtype)}
    for begin in range(0, codes.shape[0], shape[1]):
        piece = codes[begin : begin + shape[1]]
        tokens = np.zeros(shape, numpy_dtype(dtype))
        tokens[rows, : piece.shape[0]] = probe_terms(piece, dtype).T
        sums = call.outputs(permuted_tokens=tokens, **ones)["unpermuted_tokens"]
        counts[begin : begin + shape[1]] = count_units(sums[token, : piece.shape[0]], dtype)
    return counts


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    token, column = index
    return _terms(call, live_entries(call, token), column)


def _terms(call: StudyCall, entries: list[int], column: int) -> list[tuple[str, float]]:
    tokens, rows = call.tensors["permuted_tokens"], call.tensors["sorted_indices"][entries].tolist()
    if "probs" not in call.tensors:
        return [(f"tokens[{row}, {column}]", float(tokens[row, column])) for row in rows]
    probs = call.tensors["probs"].reshape(-1)[entries].astype(np.float64).tolist()
    top_k = experts(call)
    return [
        (
            f"tokens[{row}, {column}] * probs[{entry // top_k}, {entry % top_k}]",
            float(tokens[row, column]) * prob,
        )
        for entry, row, prob in zip(entries, rows, probs, strict=True)
    ]
