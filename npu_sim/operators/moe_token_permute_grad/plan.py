"""The plan of MoeTokenPermuteGrad: entries and warnings; the rest is in ``token_sums``.

Source: specification page ``moe_token_permute_grad``.
"""

from collections.abc import Iterator
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
    return token_sums.describe(case, entries, tuple(_caveats(case)))


def _caveats(case: Case) -> Iterator[Caveat]:
    row, documented = case.row, case.rules.num_topk_at_most
    yield from dropped_rows(case)
    if 0 <= documented < row.num_topk:
        message = Text(
            "numTopk {num_topk} exceeds the documented {documented}; the Unified Buffer holds it",
            num_topk=row.num_topk,
            documented=documented,
        )
        yield Caveat(code="topk_beyond_documented", argument="num_topk", message=message)
    yield from rows_beyond_int32(case)


def dropped_rows(case: Case) -> Iterator[Caveat]:
    """Yield the warning that some tokens were dropped."""
    row = case.row
    dropped = row.entries - row.grad_rows
    if dropped:
        message = Text(
            "permutedOutputGrad has {grad_rows} rows for {entries} indices: {dropped} were "
            "dropped and contribute nothing",
            grad_rows=row.grad_rows,
            entries=row.entries,
            dropped=dropped,
        )
        yield Caveat(code="dropped_rows", argument="permuted_output_grad", message=message)


def rows_beyond_int32(case: Case) -> Iterator[Caveat]:
    """Yield the warning that indices do not reach every row."""
    if case.row.grad_rows > INT32_MAX + 1:
        message = Text(
            "int32 indices reach row {int32_max} at most, permutedOutputGrad has {grad_rows} rows",
            int32_max=INT32_MAX,
            grad_rows=case.row.grad_rows,
        )
        yield Caveat(code="rows_beyond_int32", argument="sorted_indices", message=message)
