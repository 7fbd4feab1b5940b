"""Studies of MoeTokenPermuteGrad: the tree of a token's sum; every order is fixed."""

from collections.abc import Iterator
from functools import partial

from npu_sim.operators.moe_token_permute.study import FUNCTION
from npu_sim.operators.shared.dumped import InDumps, Values, WrappedCall, rows_of_last_axis
from npu_sim.operators.shared.study import Changes, StudyCall
from npu_sim.operators.shared.token_sums import Sums, grown, places
from npu_sim.orders import Claim

SUMS = Sums("permuted_output_grad", "input_grad", "grad")
CHANGES = Changes(grown=grown, places=places)


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped."""
    return SUMS.claims(call, SUMS.in_range(call))


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    return SUMS.terms(call, SUMS.in_range(call), index)


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
