"""MoeTokenUnpermuteGrad: computation and formula.

Source: specification page ``moe_token_unpermute_grad``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.target import Order
from npu_sim.language import Text
from npu_sim.operators.shared.token_sums import check_indices
from npu_sim.plans.model import Caveat
from npu_sim.tiling import moe_token_unpermute_grad as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


NO_ENTRY = -1
"""Marks a row that no entry writes."""


@dataclass(frozen=True)
class Owners:
    """The entries that write the rows of permuted_tokens_grad.

    Attributes
    ----------
    entries : int32 (rows,)
        Last entry to write each row; `NO_ENTRY` when no live index refers to it.
    open_rows : bool (rows,)
        Rows written by more than one core.
    repeated
        Number of rows written more than once.
    """

    entries: np.ndarray
    open_rows: np.ndarray
    repeated: int


def find_owners(indices: np.ndarray, tiling: tiler.Tiling, order: Order) -> Owners:
    """Return the entries that write the rows, for one order of arrival.

    The last of several entries wins. Entries of one core arrive in order; the order between cores
    is open.

    Parameters
    ----------
    indices : int32 (tokens * top_k,)
        Non-negative indices of rows.
    tiling
        Gives the tokens of every core, and the number of rows from which indices are dropped.
    order
        Order of arrival; only `Owners.open_rows` depend on it.
    """
    live = np.flatnonzero(indices < tiling.rows).astype(np.int32)
    entries = np.full(tiling.rows, NO_ENTRY, np.int32)
    entries[indices[live]] = live  # the last assignment wins
    open_rows = np.zeros(tiling.rows, np.bool_)
    if np.count_nonzero(entries != NO_ENTRY) == live.size:
        return Owners(entries, open_rows, 0)
    named = np.bincount(indices[live], minlength=tiling.rows)
    stops = np.array(
        [tiler.token_range(tiling, core)[1] * tiling.top_k for core in range(tiling.block_dim)]
    )
    of_repeated = live[named[indices[live]] > 1]
    for row, places in _by_row(indices[of_repeated], of_repeated):
        cores = np.searchsorted(stops, places, side="right")
        open_rows[row] = cores[0] != cores[-1]
        entries[row] = places[cores == _last_core(cores, row, order)][-1]
    return Owners(entries, open_rows, int(np.count_nonzero(named > 1)))


def _by_row(rows: np.ndarray, places: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return rows and their entries in order."""
    by_row = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[by_row], prepend=NO_ENTRY))
    return list(
        zip(rows[by_row][starts].tolist(), np.split(places[by_row], starts[1:]), strict=True)
    )


def _last_core(cores: np.ndarray, row: int, order: Order) -> int:
    """Return the core whose write to a row arrives last; ``cores`` are sorted, one per entry."""
    if order.core_order == "reverse":
        return int(cores[0])
    if order.core_order == "round_robin":
        # All cores' first writes, then all second ones: the core with most writes is last.
        counts = np.bincount(cores)
        return int(np.flatnonzero(counts == counts.max())[-1])
    if order.core_order == "random":
        return int(np.random.default_rng([order.seed, row]).choice(np.unique(cores)))
    return int(cores[-1])


def compute(run: "Run") -> None:
    """Compute both gradients; unwritten rows are +0 (on a device they keep old memory)."""
    case, indices = run.case, run.tensors["sorted_indices"]
    with run.watch.stage("check"):
        check_indices(indices, "permuted_tokens")
        owners = find_owners(indices, case.tiling, run.order)
    with run.watch.stage("load"):
        from npu_sim.kernels.elementwise import narrow_array, widen_array
        from npu_sim.kernels.gathered_rows import gather_rows
        from npu_sim.kernels.moe_token_unpermute_grad import weigh_and_multiply
    with run.watch.stage("compute"):
        g, out = run.stored("unpermuted_tokens_grad"), run.written("permuted_tokens_grad")
        sums = np.empty(0, np.float32)
        if case.row.has_probs:
            probs = widen_array(run.stored("probs")).reshape(-1)
            sums = np.empty(indices.size, np.float32)
            rows, stored = run.stored("permuted_tokens"), run.stored("sorted_indices")
            weigh_and_multiply(
                rows, g, stored, probs, owners.entries, case.tiling.piece_columns, out, sums
            )
            out[owners.entries < 0] = 0
            run.outputs["probs_grad"][...] = narrow_array(sums, case.specs["probs"].dtype).reshape(
                case.specs["probs"].shape
            )
        else:
            gather_rows(g, owners.entries, out)
    run.masks["permuted_tokens_grad"] = owners.open_rows
    run.caveats = _run_time_caveats(indices, owners, sums)


def _run_time_caveats(indices: np.ndarray, owners: Owners, sums: np.ndarray) -> tuple[Caveat, ...]:
    """Return the warnings that depend on data (page, "Warnings a plan or run gives")."""
    rows = owners.entries.size
    caveats: list[Caveat] = []

    def warn(code: str, argument: str, message: str) -> None:
        caveats.append(Caveat(code=code, argument=argument, message=message))

    dropped = indices >= rows
    if dropped.any():
        warn(
            "tokens_dropped",
            "sorted_indices",
            Text(
                "{count} indices are at or beyond {rows}: they were dropped",
                count=np.count_nonzero(dropped),
                rows=rows,
            ),
        )
    if unwritten := int(np.count_nonzero(owners.entries < 0)):
        message = Text(
            "{unwritten} rows are named by no index: +0 here, on the device they keep what "
            "memory held",
            unwritten=unwritten,
        )
        warn("rows_not_written", "permuted_tokens_grad", message)
    if owners.repeated:
        across = Text(
            "{count} of them by two cores: the last one to write wins",
            count=np.count_nonzero(owners.open_rows),
        )
        warn(
            "duplicate_indices",
            "sorted_indices",
            Text(
                "{repeated} rows are named more than once, {across}",
                repeated=owners.repeated,
                across=across,
            ),
        )
    if sums.size and np.isnan(sums[dropped]).any():
        count = int(np.count_nonzero(np.isnan(sums[dropped])))
        warn(
            "dropped_prob_grad_not_zero",
            "unpermuted_tokens_grad",
            Text(
                "probs_grad of {count} dropped entries is nan: their g holds inf or nan",
                count=count,
            ),
        )
    return tuple(caveats)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the gradients by their formulas; of several indices of a row the last wins."""
    g = tensors["unpermuted_tokens_grad"]
    probs, rows = tensors.get("probs"), tensors.get("permuted_tokens")
    indices = tensors["sorted_indices"].reshape(g.shape[0], -1)
    count = indices.size if rows is None else rows.shape[0]
    tokens_grad = np.zeros((count, g.shape[1]), precision)
    if probs is None or rows is None:
        live = np.flatnonzero(indices[:, 0] < count)
        tokens_grad[indices[live, 0]] = g[live]
        return {"permuted_tokens_grad": tokens_grad}
    probs_grad, wide = np.zeros(probs.shape, precision), g.astype(precision)
    for token, own in enumerate(indices):
        live = np.flatnonzero(own < count)
        tokens_grad[own[live]] = wide[token] * probs[token, live, None].astype(precision)
        probs_grad[token, live] = rows[own[live]].astype(precision) @ wide[token]
    return {"permuted_tokens_grad": tokens_grad, "probs_grad": probs_grad}
