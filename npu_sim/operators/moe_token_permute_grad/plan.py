"""The plan of MoeTokenPermuteGrad: entries and warnings; the rest is in ``token_sums``.

Source: specification page ``moe_token_permute_grad``.
"""

from typing import Any

from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.operators.shared import token_sums
from npu_sim.plans.model import Caveat
from npu_sim.tiling.token_sums import INDEX_BYTES

INT32_MAX = 2147483647


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which has a tiling."""
    index_bytes = case.tiling.batch_tokens * case.tiling.top_k * INDEX_BYTES
    entries = token_sums.Entries("indices", INDEX_BYTES, {"indices": index_bytes}, "grad")
    return token_sums.describe(case, entries, _caveats(case))


def _caveats(case: Case) -> tuple[Caveat, ...]:
    caveats, row, documented = [], case.row, case.rules.num_topk_at_most
    dropped = row.entries - row.grad_rows
    if dropped:
        message = Text(
            "permutedOutputGrad has {grad_rows} rows for {entries} indices: {dropped} were "
            "dropped and contribute nothing",
            grad_rows=row.grad_rows,
            entries=row.entries,
            dropped=dropped,
        )
        caveats.append(
            Caveat(code="dropped_rows", argument="permuted_output_grad", message=message)
        )
    if 0 <= documented < row.num_topk:
        message = Text(
            "numTopk {num_topk} exceeds the documented {documented}; the Unified Buffer holds it",
            num_topk=row.num_topk,
            documented=documented,
        )
        caveats.append(Caveat(code="topk_beyond_documented", argument="num_topk", message=message))
    if row.grad_rows > INT32_MAX + 1:
        message = Text(
            "int32 indices reach row {int32_max} at most, permutedOutputGrad has {grad_rows} rows",
            int32_max=INT32_MAX,
            grad_rows=row.grad_rows,
        )
        caveats.append(Caveat(code="rows_beyond_int32", argument="sorted_indices", message=message))
    return tuple(caveats)
