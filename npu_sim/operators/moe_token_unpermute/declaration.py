"""MoeTokenUnpermute: the rows that experts returned, weighted and summed for every token.

Source: public product document aclnnMoeTokenUnpermute; specification page ``moe_token_unpermute``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.arguments import Output
from npu_sim.framework.axes import Derived
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.checks import Attributes, Given, Holds, NothingToDo, Supported
from npu_sim.framework.codes import FLOAT_DTYPES
from npu_sim.framework.inputs import SCAN_ELEMENTS
from npu_sim.framework.operator import Operator
from npu_sim.framework.tensor_checks import ND, Dtypes, Formats, Ranks, SameDtype, Shapes
from npu_sim.operators.moe_token_unpermute.plan import describe, entry_name, probs_code
from npu_sim.operators.shared import unpermuted_tokens
from npu_sim.operators.shared.token_sums import buffer_words, check_indices, check_padding
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling import moe_token_unpermute as tiler
from npu_sim.tiling import token_sums

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def _topk_words(call: Inspection) -> tuple[str, str]:
    """The bound of the planner, and where the buffers really end (page, "Where 512 comes from")."""
    tokens, ub_bytes, hidden = (
        call.specs["permuted_tokens"],
        call.device.ub_bytes,
        call.size("hidden"),
    )
    entry = tiler.bytes_of_entry(probs_code(call))
    own = token_sums.largest_topk(ub_bytes, hidden, tokens.itemsize, entry)
    always = token_sums.largest_topk_of_every_hidden(ub_bytes, tokens.itemsize, entry)
    message, hint = unpermuted_tokens.topk_words(call)
    return (
        message,
        f"{hint}; what the buffers hold on {call.profile.title}: {own} at hidden {hidden}, {always} at every hidden size",
    )


def _rows_words(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    message = f"permuted_tokens has {rows} rows, sorted_indices only {entries} elements"
    return message, f"at most {entries} rows: one for every index, fewer when tokens were dropped"


def _buffer_words(case: Case) -> tuple[str, str, str]:
    return buffer_words(
        case, entry_name(case), tiler.bytes_of_entry(probs_code(case)), case.row.top_k, "probs"
    )


def compute(run: "Run") -> None:
    """Weight and sum the rows of every token; nothing depends on the order of arrival."""
    case = run.case
    with run.watch.stage("check"):
        check_indices(run.tensors["sorted_indices"], "permuted_tokens")
    with run.watch.stage("load"):
        from npu_sim.kernels.elementwise import widen_array
        from npu_sim.kernels.gathered_rows import gather_rows
        from npu_sim.kernels.token_sums import sum_tokens
    with run.watch.stage("compute"):
        tokens, indices, out = (
            run.stored("permuted_tokens"),
            run.stored("sorted_indices"),
            run.written("unpermuted_tokens"),
        )
        if case.row.has_probs:
            probs = widen_array(run.stored("probs")).reshape(-1)
            sum_tokens(
                tokens.reshape(-1), indices, out.reshape(-1), case.row.top_k, case.row.hidden, probs
            )
        else:
            gather_rows(tokens, indices, out)
    run.caveats = _run_time_caveats(run)


def _run_time_caveats(run: "Run") -> tuple[Caveat, ...]:
    """Warn of what only the data tells (page, "Warnings a plan or run gives")."""
    row, indices, found = run.case.row, run.tensors["sorted_indices"], []
    dropped = int(np.count_nonzero(indices >= row.rows))
    if dropped and row.rows < row.entries:
        message = f"{dropped} indices are at or beyond the {row.rows} rows of permuted_tokens: they were dropped and contribute nothing"
        found.append(Caveat(code="tokens_dropped", argument="sorted_indices", message=message))
    elif dropped:
        message = f"{dropped} indices are beyond the documented range [0, {row.entries - 1}]: they are treated as dropped"
        found.append(
            Caveat(code="indices_at_or_beyond_rows", argument="sorted_indices", message=message)
        )
    if row.has_probs:
        hidden = _hidden_rows(run)
        if hidden:
            message = f"{hidden} rows with inf or nan are not read, as their probs are 0: the formula gives nan there"
            found.append(
                Caveat(code="zero_prob_hides_nonfinite", argument="probs", message=message)
            )
    return tuple(found)


def _hidden_rows(run: "Run") -> int:
    """Return how many rows with inf or nan probs of 0 hide."""
    indices, tokens = run.tensors["sorted_indices"], run.tensors["permuted_tokens"]
    rows = np.unique(
        indices[(run.tensors["probs"].reshape(-1) == 0) & (indices < run.case.row.rows)]
    )
    step = max(1, SCAN_ELEMENTS // run.case.row.hidden)
    blocks = (
        tokens[rows[start : start + step]].astype(np.float32) for start in range(0, rows.size, step)
    )
    return sum(int(np.count_nonzero(~np.isfinite(block).all(axis=1))) for block in blocks)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Weight and sum the rows a token was sent to; dropped rows count nothing."""
    tokens, probs = tensors["permuted_tokens"], tensors.get("probs")
    indices = tensors["sorted_indices"].reshape(-1, 1 if probs is None else probs.shape[1])
    out = np.zeros((indices.shape[0], tokens.shape[1]), precision)
    for place, rows in enumerate(indices.T):
        live = np.flatnonzero(rows < tokens.shape[0])
        values = tokens[rows[live]].astype(precision)
        out[live] += (
            values if probs is None else values * probs[live, place, None].astype(precision)
        )
    return {"unpermuted_tokens": out}


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute import timeline, timeline_steps

    return {"program": timeline.program, "steps": timeline_steps.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute import study

    return {"claims": study.claims, "terms": study.terms, "changes": study.CHANGES}


OPERATOR = Operator(
    name="moe_token_unpermute",
    title="MoeTokenUnpermute",
    summary="Gather the rows that experts returned, weight them with probs and sum them for every token, as the product does.",
    arguments=(
        unpermuted_tokens.permuted_tokens(
            "rows of the experts, (tokens * num_topk, hidden), or fewer when tokens were dropped"
        ),
        unpermuted_tokens.SORTED_INDICES,
        unpermuted_tokens.PROBS,
        *unpermuted_tokens.ATTRIBUTES,
        Output(
            "out",
            "tokens hidden",
            "sum of every token",
            "dtype",
            samples=0,
            result="unpermuted_tokens",
        ),
    ),
    axes=unpermuted_tokens.axes("permuted_tokens"),
    derived=(*unpermuted_tokens.DERIVED, Derived("rows", "entries")),
    checks=(
        Given(),
        Supported(),
        Dtypes("permuted_tokens", lambda profile: profile.product.dtypes),
        SameDtype("out", "permuted_tokens"),
        Dtypes("sorted_indices", ("int32",)),
        Dtypes("probs", FLOAT_DTYPES),
        Formats(ND),
        Attributes("padded_mode restore_shape"),
        check_padding,
        Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        Ranks("probs", 2, 2, TILING_FAILURE),
        Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        Holds(f"top_k <= {token_sums.MOST_TOPK}", "probs", _topk_words),
        Holds("top_k >= 1 or tokens == 0", "probs"),
        Holds("hidden >= 1", "permuted_tokens"),
        Holds("rows <= entries", "permuted_tokens", _rows_words),
        Shapes("out", TILING_FAILURE),
        NothingToDo("tokens == 0"),
    ),
    tiling=token_sums.Tiling,
    tile=tiler.tile_row,
    describe=describe,
    compute=compute,
    formula=formula,
    data=unpermuted_tokens.data,
    evidence=Evidence.EXACT,
    empty="empty: no tokens, nothing runs",
    planner_words=_buffer_words,
    timeline_hooks=_timeline_hooks,
    study_hooks=_study_hooks,
)
