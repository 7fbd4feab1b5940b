"""Studies of MoeTokenPermuteGrad: the tree of a token's sum; every order is fixed."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.operators.moe_token_permute.study import FUNCTION
from npu_sim.operators.shared.dumped import InDumps, Values, WrappedCall, rows_of_last_axis
from npu_sim.operators.shared.study import Changes, StudyCall, surviving_units
from npu_sim.operators.shared.token_sums import with_tokens_appended
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim


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
        outside=partial(
            surviving_units, call, ("permuted_output_grad", rows), ("input_grad", int(tokens[0]))
        ),
    )


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    token, column = index
    grad = call.tensors["permuted_output_grad"]
    return [(f"grad[{row}, {column}]", float(grad[row, column])) for row in live_rows(call, token)]


def _experts(call: StudyCall) -> int:
    """Return the number of indices of a token."""
    return int(call.attributes["num_topk"])


def _grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Return the call with tokens appended; None when rows were dropped."""
    sizes = {"permuted_output_grad": extra * _experts(call)}
    return with_tokens_appended(call, "permuted_output_grad", sizes, fill)


CHANGES = Changes(grown=_grown, places=lambda call: {"sorted_indices": _experts(call)})


def _in_dump(wrapped: WrappedCall) -> tuple[Values, Values]:
    indices = wrapped.tensor("indices")
    arguments = {
        "permuted_output_grad": wrapped.output_gradient(),
        "sorted_indices": wrapped.output(1),
        "num_topk": 1 if len(indices.shape) == 1 else indices.shape[-1],
    }
    results = {"input_grad": wrapped.gradients.get("tokens")}
    return arguments | wrapped.pick(padded_mode=False), results


IN_DUMPS = InDumps((FUNCTION,), _in_dump, index_ranges=partial(rows_of_last_axis, "sorted_indices"))
