"""Plan of MoeTokenPermuteGrad.

Source: specification page ``moe_token_permute_grad``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Case, Caveat, Description, caveat
from npu_sim.operators.shared.routed_tokens.plan import Entries, describe_sums
from npu_sim.tiling import moe_token_unpermute as moe

INT32_MAX = 2147483647


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    index_bytes = case.tiling.batch_tokens * case.tiling.top_k * moe.INDEX_BYTES
    entries = Entries("indices", moe.INDEX_BYTES, {"indices": index_bytes}, "grad")
    return describe_sums(case, entries, _caveats(case))


def _caveats(case: Case) -> Iterator[Caveat]:
    row, documented = case.row, case.rules.num_topk_at_most
    yield from dropped_rows(case)
    if 0 <= documented < row.num_topk:
        yield caveat(
            "topk_beyond_documented",
            "num_topk",
            "numTopk {num_topk} exceeds the documented {documented}; the Unified Buffer holds it",
            num_topk=row.num_topk,
            documented=documented,
        )
    yield from rows_beyond_int32(case)


def dropped_rows(case: Case) -> Iterator[Caveat]:
    """Yield the warning that some tokens were dropped."""
    row = case.row
    if row.grad_rows < row.entries:
        yield caveat(
            "dropped_rows",
            "permuted_output_grad",
            "permutedOutputGrad has {grad_rows} rows for {entries} indices: {dropped} were "
            "dropped and contribute nothing",
            grad_rows=row.grad_rows,
            entries=row.entries,
            dropped=row.entries - row.grad_rows,
        )


def rows_beyond_int32(case: Case) -> Iterator[Caveat]:
    """Yield the warning that indices do not reach every row."""
    if case.row.grad_rows > INT32_MAX + 1:
        yield caveat(
            "rows_beyond_int32",
            "sorted_indices",
            "int32 indices reach row {int32_max} at most, permutedOutputGrad has {grad_rows} rows",
            int32_max=INT32_MAX,
            grad_rows=case.row.grad_rows,
        )
