"""MoeTokenUnpermute: computation, formula and the warnings that depend on data.

Source: specification page ``moe_token_unpermute``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import SCAN_ELEMENTS, Arrays, Caveat, Dtype, Run, caveat
from npu_sim.kernels.shared.row_copies import gather_rows
from npu_sim.operators.shared.routed_tokens.compute import check_indices, draw, sum_rows, summed


def compute(run: Run) -> None:
    """Weight and sum the rows of every token; the order in which cores finish has no effect."""
    with run.watch.stage("check"):
        check_indices(run.tensors["sorted_indices"], "permuted_tokens")
    if run.case.row.has_probs:
        sum_rows(run, "permuted_tokens", "unpermuted_tokens", run.case.row.top_k)
    else:
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
    probs = run.tensors.get("probs")
    if probs is None or np.count_nonzero(probs) == probs.size:
        return 0
    indices, tokens = run.tensors["sorted_indices"], run.tensors["permuted_tokens"]
    in_range = (indices >= 0) & (indices < run.case.row.rows)
    rows = np.unique(indices[(probs.reshape(-1) == 0) & in_range])
    step = max(1, SCAN_ELEMENTS // run.case.row.hidden)
    blocks = (
        tokens[rows[start : start + step]].astype(np.float32) for start in range(0, rows.size, step)
    )
    return sum(int(np.count_nonzero(~np.isfinite(block).all(axis=1))) for block in blocks)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the weighted sum of the rows of every token; dropped rows count as 0."""
    rows, probs = tensors["permuted_tokens"], tensors.get("probs")
    indices = tensors["sorted_indices"].reshape(-1, 1 if probs is None else probs.shape[1])
    return {"unpermuted_tokens": summed(rows, indices, precision, probs)}


data = draw
