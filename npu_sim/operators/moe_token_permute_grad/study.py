"""Studies of MoeTokenPermuteGrad: the tree of a token's sum; every order is fixed."""

from functools import partial

from npu_sim.operators.shared.routed_tokens.study import PERMUTE, Sums, grown, places, unfused_sums
from npu_sim.operators.shared.study import (
    Changes,
    InDumps,
    StudyCall,
    Values,
    WrappedCall,
    rows_of_last_axis,
)
from npu_sim.operators.shared.unfused import Formulas, is_16_bit

SUMS = Sums("permuted_output_grad", "input_grad", "grad")
CHANGES = Changes(grown=grown, places=places)


claims, terms = SUMS.claims, SUMS.terms


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the sums of frameworks, which round products, or every addition, to 16 bits."""
    rows = call.tensors[SUMS.source]
    if is_16_bit(rows):
        yield from unfused_sums(call, SUMS)


def _in_dump(wrapped: WrappedCall) -> tuple[Values, Values]:
    indices = wrapped.tensor("indices")
    arguments = {
        "permuted_output_grad": wrapped.output_gradient(),
        "sorted_indices": wrapped.output(1),
        "num_topk": 1 if len(indices.shape) == 1 else indices.shape[-1],
    }
    results = {"input_grad": wrapped.gradients.get("tokens")}
    return arguments | wrapped.pick(padded_mode=False), results


IN_DUMPS = InDumps((PERMUTE,), _in_dump, index_ranges=partial(rows_of_last_axis, "sorted_indices"))
