"""Studies of MoeTokenPermuteGrad: the tree of a token's sum; every order is fixed."""

from functools import partial

from npu_sim.operators.shared.routed_tokens.study import PERMUTE, Sums, grown, places
from npu_sim.operators.shared.study import (
    Changes,
    FoundCall,
    InDumps,
    WrappedCall,
    rows_of_last_axis,
)

SUMS = Sums("permuted_output_grad", "input_grad", "grad")
CHANGES = Changes(grown=grown, places=places)


claims, terms, unfused = SUMS.claims, SUMS.terms, SUMS.unfused


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    indices = wrapped.tensor("indices")
    arguments = {
        "permuted_output_grad": wrapped.output_gradient(),
        "sorted_indices": wrapped.output(1),
        "num_topk": 1 if len(indices.shape) == 1 else indices.shape[-1],
    }
    results = {"input_grad": wrapped.gradients.get("tokens")}
    return arguments | wrapped.pick(padded_mode=False), results


IN_DUMPS = InDumps((PERMUTE,), _in_dump, index_ranges=partial(rows_of_last_axis, "sorted_indices"))
