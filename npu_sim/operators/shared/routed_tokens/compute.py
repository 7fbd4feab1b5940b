"""Sums of the rows of every token: checks of indices, computation, formula and generated data.

Sources: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Array,
    Arrays,
    Caveat,
    Dtype,
    Run,
    TensorSpec,
    Text,
    caveat,
    numpy_dtype,
    runtime_failure,
)
from npu_sim.kernels.shared.elementwise import widen_array
from npu_sim.kernels.shared.token_sums import Entries, sum_tokens
from npu_sim.numbers.values import normal


def check_indices(indices: Array, rows: str) -> None:
    """Check that no index is negative; ``rows`` names the tensor of the rows, for the hint.

    Raises
    ------
    AclnnError
        361001 for a negative index; the message gives the position and value of the first one.
    """
    if indices.size and np.minimum.reduce(indices) < 0:
        position = int(np.argmax(indices < 0))
        raise runtime_failure(
            "sorted_indices",
            Text(
                "sorted_indices[{position}] = {indices} is negative",
                position=position,
                indices=indices[position],
            ),
            Text(
                "index >= 0, at or beyond the rows of {rows} for a dropped token; nothing was "
                "written",
                rows=rows,
            ),
        )


def negative_indices(indices: Array) -> Iterator[Caveat]:
    """Yield the warning about negative indices, which A2 and A3 refuse and Ascend 950 drops."""
    found = int(np.count_nonzero(indices < 0))
    if found:
        yield caveat(
            "negative_indices",
            "sorted_indices",
            "{found} negative indices count as dropped rows, the first one at "
            "sorted_indices[{position}]; A2 and A3 refuse them with 361001",
            found=found,
            position=int(np.argmax(indices < 0)),
        )


ROWS = "permuted_tokens", "permuted_output_grad"
"""Tensors whose rows the indices name."""


def draw(arguments: Any, seed: int) -> Arrays:
    """Return normal rows and gradients, random indices, and weights with sum 1 for every token."""
    random, entries = np.random.default_rng(seed), arguments.sorted_indices.numel
    drawn = {
        name: normal(random, spec)
        for name, spec in arguments.items()
        if isinstance(spec, TensorSpec) and name in (*ROWS, "unpermuted_tokens_grad")
    }
    drawn["sorted_indices"] = random.permutation(np.arange(entries, dtype=np.int32))
    probs = arguments.get("probs")
    if probs is not None:
        chances = np.exp(random.standard_normal(probs.shape, np.float32))
        weights = chances / chances.sum(axis=1, keepdims=True)
        drawn["probs"] = weights.astype(numpy_dtype(probs.dtype))
    return drawn


def sum_rows(run: Run, source: str, result: str, top_k: int, **order: Any) -> None:
    """Write the sums of the rows of every token, each weighted by its entry of probs if given.

    ``source``, ``result``: names of the tensor that has the rows, and of the sums. ``order``: as in
    :class:`npu_sim.kernels.shared.token_sums.Entries`.
    """
    with run.watch.stage("compute"):
        rows, indices = run.stored(source).reshape(-1), run.stored("sorted_indices")
        entries = Entries(rows, run.case.row.hidden, indices, top_k, **order)
        if run.tensors.get("probs") is not None:
            entries = entries._replace(factors=widen_array(run.stored("probs")).reshape(-1))
        sum_tokens(entries, run.written(result).reshape(-1))


def summed(rows: Array, indices: Array, precision: Dtype, probs: Array | None = None) -> Array:
    """Return the sums (tokens, hidden) of rows (rows, hidden) that indices (tokens, top_k) name.

    Rows are weighted by ``probs`` (tokens, top_k) if given; dropped ones count as 0.
    """
    out = np.zeros((indices.shape[0], rows.shape[1]), precision)
    for position, named in enumerate(indices.T):
        live = np.flatnonzero((named >= 0) & (named < rows.shape[0]))
        values = rows[named[live]].astype(precision)
        if probs is not None:
            values = values * probs[live, position, None].astype(precision)
        out[live] += values
    return out
