"""MoeTokenUnpermute: weighted sum of the expert outputs of every token.

Source: product document aclnnMoeTokenUnpermute; specification page ``moe_token_unpermute``.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    SCAN_ELEMENTS,
    TILING_FAILURE,
    Case,
    Caveat,
    Derived,
    Description,
    Evidence,
    Inspection,
    Operator,
    Output,
    Plan,
    Run,
    Text,
    caveat,
    checks,
)
from npu_sim.operators.shared import token_sums
from npu_sim.tiling import moe_token_unpermute as tiler

if TYPE_CHECKING:
    from npu_sim.timelines.program import Program


def _topk_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint for num_topk beyond the limit (page, "Where 512 comes from")."""
    size, hidden = call.specs["permuted_tokens"].itemsize, call.size("hidden")
    ub_bytes, entry = call.device.ub_bytes, tiler.bytes_of_entry(probs_code(call))
    message, hint = token_sums.topk_message(call)
    return (
        message,
        Text(
            "{hint}; capacity of the buffers on {title}: {largest} at hidden {hidden}, "
            "{largest_everywhere} at every hidden size",
            hint=hint,
            title=call.profile.title,
            largest=tiler.largest_topk(ub_bytes, hidden, size, entry),
            hidden=hidden,
            largest_everywhere=tiler.largest_topk_of_every_hidden(ub_bytes, size, entry),
        ),
    )


def _rows_message(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    return Text(
        "permuted_tokens has {rows} rows, sorted_indices only {entries} elements",
        rows=rows,
        entries=entries,
    ), Text(
        "at most {entries} rows: one for every index, fewer when tokens were dropped",
        entries=entries,
    )


def _buffer_message(case: Case) -> tuple[str, str, str]:
    return token_sums.buffer_message(
        case, entry_name(case), tiler.bytes_of_entry(probs_code(case)), case.row.top_k, "probs"
    )


OPERATOR = Operator(
    name="moe_token_unpermute",
    title="MoeTokenUnpermute",
    summary="Gather the rows that experts returned, weight them with probs "
    "and sum them for every token, as the product does.",
    arguments=(
        token_sums.permuted_tokens(
            "rows of the experts, (tokens * num_topk, hidden), or fewer when tokens were dropped"
        ),
        token_sums.SORTED_INDICES,
        token_sums.PROBS,
        *token_sums.ATTRIBUTES,
        Output(
            "out",
            "tokens hidden",
            "sum of every token",
            "dtype",
            samples=0,
            result="unpermuted_tokens",
        ),
    ),
    axes=token_sums.axes("permuted_tokens"),
    derived=(*token_sums.DERIVED, Derived("rows", "entries")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_tokens", checks.product_dtypes),
        checks.SameDtype("out", "permuted_tokens"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs", FLOAT_DTYPES),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode restore_shape"),
        token_sums.check_padding,
        checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        checks.Holds(f"top_k <= {tiler.MOST_TOPK}", "probs", _topk_message),
        checks.Holds("top_k >= 1 or tokens == 0", "probs"),
        checks.Holds("hidden >= 1", "permuted_tokens"),
        checks.Holds("rows <= entries", "permuted_tokens", _rows_message),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0"),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    data=token_sums.data,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_message=_buffer_message,
    families=(ASCEND_950,),
    package=__package__,
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    probs = probs_code(case)
    entries = token_sums.Entries(
        name=entry_name(case),
        bytes=tiler.bytes_of_entry(probs),
        buffers=tiler.entry_buffers(case.tiling, probs),
        rows="permuted_tokens",
        most=tiler.MOST_TOPK if case.row.has_probs else 1,
    )
    beyond = -token_sums.memory(case, entries).free_bytes
    return token_sums.describe(case, entries, _caveats(case, beyond))


def probs_code(call: Any) -> int:
    """Return the dtype code of probs, or ``NO_PROBS``."""
    return call.row.probs_dtype if call.row.has_probs else tiler.NO_PROBS


def entry_name(case: Case) -> str:
    """Return the name of the entries of a token."""
    return "indices and probs" if case.row.has_probs else "indices"


def _caveats(case: Case, beyond: int) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan or run gives")."""
    if beyond > 0:
        yield caveat(
            "buffers_beyond_usable_ub",
            "probs",
            "every buffer rounded up to 32 bytes, they exceed the usable Unified Buffer by "
            "{beyond} bytes, which the planner does not count; whether anything else lies there "
            "is not published: the simulator computes as if not",
            beyond=beyond,
            not_modelled="*",
        )
    yield from token_sums.dropped_tokens(case.row)


def compute(run: Run) -> None:
    """Weight and sum the rows of every token; the order in which cores finish has no effect."""
    with run.watch.stage("check"):
        token_sums.check_indices(run.tensors["sorted_indices"], "permuted_tokens")
    if run.case.row.has_probs:
        token_sums.sum_rows(run, "permuted_tokens", "unpermuted_tokens", run.case.row.top_k)
    else:
        with run.watch.stage("load"):
            from npu_sim.kernels.moe_token_permute import gather_rows
        with run.watch.stage("compute"):
            out = run.written("unpermuted_tokens")
            gather_rows(run.stored("permuted_tokens"), run.stored("sorted_indices"), out)
    run.caveats = (*indices_beyond_rows(run), *_hidden_by_probs(run))


def indices_beyond_rows(run: Run) -> Iterator[Caveat]:
    """Yield the warning that indices are beyond the rows (page, "Warnings a plan or run gives")."""
    row, indices = run.case.row, run.tensors["sorted_indices"]
    dropped = int(np.count_nonzero(indices >= row.rows))
    if dropped and row.rows < row.entries:
        yield caveat(
            "tokens_dropped",
            "sorted_indices",
            "{dropped} indices are at or beyond the {rows} rows of permuted_tokens: they were "
            "dropped and contribute nothing",
            dropped=dropped,
            rows=row.rows,
        )
    elif dropped:
        yield caveat(
            "indices_at_or_beyond_rows",
            "sorted_indices",
            "{dropped} indices are beyond the documented range [0, {last_entry}]: they are "
            "treated as dropped",
            dropped=dropped,
            last_entry=row.entries - 1,
        )


def _hidden_by_probs(run: Run) -> Iterator[Caveat]:
    """Yield the warning that rows with inf or nan are not read."""
    hidden = nonfinite_rows_of_zero_probs(run)
    if hidden:
        yield caveat(
            "zero_prob_hides_nonfinite",
            "probs",
            "{hidden} rows with inf or nan are not read, as their probs are 0: "
            "the formula gives nan there",
            hidden=hidden,
        )


def nonfinite_rows_of_zero_probs(run: Run) -> int:
    """Return the number of rows with inf or nan whose probs are 0."""
    if not run.case.row.has_probs:
        return 0
    indices, tokens = run.tensors["sorted_indices"], run.tensors["permuted_tokens"]
    in_range = (indices >= 0) & (indices < run.case.row.rows)
    rows = np.unique(indices[(run.tensors["probs"].reshape(-1) == 0) & in_range])
    step = max(1, SCAN_ELEMENTS // run.case.row.hidden)
    blocks = (
        tokens[rows[start : start + step]].astype(np.float32) for start in range(0, rows.size, step)
    )
    return sum(int(np.count_nonzero(~np.isfinite(block).all(axis=1))) for block in blocks)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the weighted sum of the rows of every token; dropped rows count as 0."""
    rows, probs = tensors["permuted_tokens"], tensors.get("probs")
    indices = tensors["sorted_indices"].reshape(-1, 1 if probs is None else probs.shape[1])
    return {"unpermuted_tokens": token_sums.summed(rows, indices, precision, probs)}


def program(plan: Plan) -> "Program":
    """Return the work of every core (page, "Instructions and copies of a tile")."""
    from npu_sim.operators.shared.timelines import WeightedSums

    return WeightedSums(plan, "permuted_tokens", "unpermuted_tokens").program()
