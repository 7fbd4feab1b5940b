"""MoeTokenUnpermuteGrad: computation, formula and the warnings that depend on data.

Source: specification page ``moe_token_unpermute_grad``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Array,
    Arrays,
    Caveat,
    Dtype,
    Order,
    Run,
    Text,
    caveat,
    core_ranges,
)
from npu_sim.kernels.moe_token_unpermute_grad import Cut, Inputs, Summation, weigh_and_multiply
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.kernels.shared.row_copies import gather_rows
from npu_sim.operators.shared.routed_tokens.compute import check_indices, draw
from npu_sim.tiling import moe_token_unpermute_grad as tiler

NO_ENTRY = -1
"""Marks a row that no entry writes."""


@dataclass(frozen=True)
class LastWriters:
    """For each row of permuted_tokens_grad, the entry whose write survives.

    Attributes
    ----------
    entries : int32 (rows,)
        Entry whose write arrives last; `NO_ENTRY` if no entry writes the row.
    order_dependent_rows : bool (rows,)
        Rows written by more than one core: their values depend on the order of arrival.
    unwritten : int (at most rows,)
        Rows that no entry writes.
    repeated
        Number of rows written more than once.
    """

    entries: Array
    order_dependent_rows: Array
    unwritten: Array
    repeated: int


def find_last_writers(
    indices: Array, rows: int, find_stops: Callable[[], Sequence[int]], order: Order
) -> LastWriters:
    """Return the entry that writes each row last, for one order of arrival.

    Entries of one core arrive in order; the order between cores is not fixed.

    Parameters
    ----------
    indices : int32 (tokens * top_k,)
        Indices of rows; those out of range are dropped.
    rows
        Number of rows.
    find_stops
        Returns for every core the entry behind its last one.
    order
        Order of arrival. Only the entries at `LastWriters.order_dependent_rows` depend on it;
        these rows themselves do not.
    """
    # Without repeated indices, each row has at most one writer, whatever the order.
    (kept,) = np.nonzero(indices.view(np.uint32) < rows)  # negative indices are larger
    entries = np.full(rows, NO_ENTRY, np.int32)
    entries[indices[kept]] = kept  # of several entries, the last in order
    order_dependent_rows = np.zeros(rows, np.bool_)
    (unwritten,) = np.nonzero(entries == NO_ENTRY)
    if rows - unwritten.size == kept.size:
        return LastWriters(entries, order_dependent_rows, unwritten, 0)
    # Rows written more than once: the last entry of the core that arrives last.
    stops = find_stops()
    times_written = np.bincount(indices[kept], minlength=rows)
    of_repeated = kept[times_written[indices[kept]] > 1]
    for row, places in _by_row(indices[of_repeated], of_repeated):
        cores = np.searchsorted(stops, places, side="right")
        order_dependent_rows[row] = cores[0] != cores[-1]
        entries[row] = places[cores == _last_core(cores, row, order)][-1]
    repeated = int(np.count_nonzero(times_written > 1))
    return LastWriters(entries, order_dependent_rows, unwritten, repeated)


def _by_row(rows: Array, places: Array) -> list[tuple[int, Array]]:
    """Return rows and their entries in order."""
    by_row = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[by_row], prepend=-1))  # rows are >= 0: the first starts
    return list(
        zip(rows[by_row][starts].tolist(), np.split(places[by_row], starts[1:]), strict=True)
    )


def _last_core(cores: Array, row: int, order: Order) -> int:
    """Return the core whose write to a row arrives last; ``cores`` are sorted, one per entry."""
    if order.core_order == "reverse":
        return int(cores[0])
    if order.core_order == "round_robin":
        # All cores' first writes, then all second ones, and so on: the core with most
        # writes is last; of several, the highest core.
        counts = np.bincount(cores)
        return int(np.flatnonzero(counts == counts.max())[-1])
    if order.core_order == "random":
        return int(np.random.default_rng([order.seed, row]).choice(np.unique(cores)))
    return int(cores[-1])


def compute(run: Run) -> None:
    """Compute both gradients; unwritten rows are +0 (on a device they keep old memory)."""
    tiling, indices = run.case.tiling, run.tensors["sorted_indices"]

    def find_stops() -> list[int]:
        return [stop * tiling.top_k for _, stop in core_ranges(tiler.token_range, tiling)]

    with run.watch.stage("check"):
        check_indices(indices, "permuted_tokens")
        writers = find_last_writers(indices, tiling.rows, find_stops, run.order)
    sums = write_gradients(run, writers, tiling.piece_columns)
    (dropped,) = np.nonzero(indices >= tiling.rows)
    run.caveats = (
        *dropped_indices(dropped, tiling.rows),
        *lost_rows(writers),
        *_sums_of_dropped(dropped, sums),
    )


def write_gradients(
    run: Run,
    writers: LastWriters,
    piece_columns: int,
    folds_once: bool = False,
    cut: tuple[int, int] = (0, 0),
) -> Array:
    """Write both gradients, and return that of probs before its rounding; empty without probs.

    ``piece_columns``, ``folds_once`` and ``cut`` are those of
    :class:`npu_sim.kernels.moe_token_unpermute_grad.Summation`.
    """
    case, sums = run.case, np.empty(0, np.float32)
    with run.watch.stage("compute"):
        g, out = run.stored("unpermuted_tokens_grad"), run.written("permuted_tokens_grad")
        if case.row.has_probs:
            inputs = Inputs(
                run.stored("permuted_tokens").reshape(-1),
                g.reshape(-1),
                case.row.hidden,
                run.stored("sorted_indices"),
                widen_array(run.stored("probs")).reshape(-1),
                writers.entries,
                Summation(piece_columns, folds_once, Cut(*cut)),
            )
            sums = np.empty(inputs.indices.size, np.float32)
            weigh_and_multiply(inputs, out, sums)
            out[writers.unwritten] = 0
            probs_grad = run.outputs["probs_grad"]
            narrow_array(sums.reshape(probs_grad.shape), probs_grad.dtype, out=probs_grad)
        else:
            gather_rows(g, writers.entries, out)
    run.masks["permuted_tokens_grad"] = writers.order_dependent_rows
    return sums


def dropped_indices(dropped: Array, rows: int) -> Iterator[Caveat]:
    """Yield the warning that the indices of some entries are beyond the rows."""
    if dropped.size:
        yield caveat(
            "tokens_dropped",
            "sorted_indices",
            "{count} indices are at or beyond {rows}: they were dropped",
            count=dropped.size,
            rows=rows,
        )


def lost_rows(writers: LastWriters) -> Iterator[Caveat]:
    """Yield the warnings about rows that are named by no index, or by several."""
    if writers.unwritten.size:
        yield caveat(
            "rows_not_written",
            "permuted_tokens_grad",
            "{unwritten} rows are named by no index: +0 here, on the device they keep what "
            "memory held",
            unwritten=writers.unwritten.size,
        )
    if writers.repeated:
        yield caveat(
            "duplicate_indices",
            "sorted_indices",
            "{repeated} rows are named more than once, {across}",
            repeated=writers.repeated,
            across=Text(
                "{count} of them by two cores: the last one to write wins",
                count=int(np.count_nonzero(writers.order_dependent_rows)),
            ),
        )


def _sums_of_dropped(dropped: Array, sums: Array) -> Iterator[Caveat]:
    """Yield the warning that gradients of dropped entries are nan."""
    if sums.size and dropped.size and (count := int(np.count_nonzero(np.isnan(sums[dropped])))):
        yield caveat(
            "dropped_prob_grad_not_zero",
            "unpermuted_tokens_grad",
            "probs_grad of {count} dropped entries would be 0, but is nan because 0 * inf and "
            "0 * nan are nan",
            count=count,
        )


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the gradients in ``precision``; of several indices of a row the last wins."""
    g = tensors["unpermuted_tokens_grad"].astype(precision)
    probs, rows = tensors.get("probs"), tensors.get("permuted_tokens")
    indices = tensors["sorted_indices"].reshape(g.shape[0], -1)
    count = indices.size if rows is None else rows.shape[0]
    tokens_grad = np.zeros((count, g.shape[1]), precision)
    if probs is None or rows is None:  # top_k is 1: every entry copies the row of its token
        kept = np.flatnonzero((indices[:, 0] >= 0) & (indices[:, 0] < count))
        tokens_grad[indices[kept, 0]] = g[kept]
        return {"permuted_tokens_grad": tokens_grad}
    probs_grad = np.zeros(probs.shape, precision)
    for token, named in enumerate(indices):
        kept = np.flatnonzero((named >= 0) & (named < count))
        tokens_grad[named[kept]] = g[token] * probs[token, kept, None].astype(precision)
        probs_grad[token, kept] = rows[named[kept]].astype(precision) @ g[token]
    return {"permuted_tokens_grad": tokens_grad, "probs_grad": probs_grad}


data = draw
