"""EmbeddingDenseBackward: the declared summation tree of an output row, straight from the specification page.

Written from the page's words (``embedding_dense_backward``, "Kernels and accumulation order") and the plan's row split, without the
kernel's own chunk marks, so that the probe of the kernel is an independent check.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.target import Order
from npu_sim.kernels.order_study import arrival_of
from npu_sim.kernels.random_order import seed_words
from npu_sim.operators.embedding_dense_backward.outcome import GRAD
from npu_sim.orders.trees import Tree, left_fold
from npu_sim.tiling import embedding_dense_backward as v2

STAGE_CHUNK_SLOTS = 11


class Run(NamedTuple):
    """The rows of grad with index ``word``: ``rows`` ascending, at the slots ``first..first + len(rows)`` of the sorted list."""

    word: int
    first: int
    rows: Sequence[int]


def _chunks(items: Sequence[Tree | None], size: int) -> list[Tree | None]:
    return [left_fold(items[begin : begin + size]) for begin in range(0, len(items), size)]


def _by_core(run: Run, core_of: Callable[[int], int], by_slot: bool) -> list[tuple[int, list[int]]]:
    """Return the rows of a run by core, as (core, terms): terms are numbered by their place in the run."""
    places = [
        (core_of(run.first + term if by_slot else row), term) for term, row in enumerate(run.rows)
    ]
    return [
        (core, [term for _, term in group])
        for core, group in groupby(places, key=lambda pair: pair[0])
    ]


def _merged(contributions: list[tuple[int, Tree | None]], order: Order, index: int) -> Tree | None:
    """Fold contributions (core, tree) in their order of arrival."""
    cores = np.array([core for core, _ in contributions], np.int64)
    values = np.zeros((cores.size, 1), np.float32)
    arrived = arrival_of(order.code, seed_words(order.seed), index, cores, values, 0, 1)
    return left_fold([contributions[place][1] for place in arrived])


def tree_of_row(
    case: Case, run: Run, order: Order, core_ends: Sequence[tuple[int, int]]
) -> Tree | None:
    """Return the summation tree of a run; terms are numbered in row order.

    Parameters
    ----------
    case
        The call.
    run
        The rows of one index, at least one.
    order
        Order of arrival of atomic additions.
    core_ends
        For native 16-bit: the first and the last index of every core's slice.
    """
    outcome = case.tiling
    if outcome.kernel == GRAD:
        if outcome.older.splits_weights:
            return left_fold(range(len(run.rows)))
        grouped = _by_core(run, lambda row: row // outcome.older.share, by_slot=False)
        return _merged([(core, term) for core, terms in grouped for term in terms], order, run.word)
    tiling = outcome.tiling
    ranges = [v2.row_range(tiling, core) for core in range(tiling.block_dim)]
    starts = np.array([start for start, _ in ranges])

    def core_of(place: int) -> int:
        return int(np.searchsorted(starts, place, side="right")) - 1

    if tiling.tiling_key >= 100:
        return _small_dim(run, order, core_of, ranges, tiling.small_dim.max_row_in_ub)
    grouped = _by_core(run, core_of, by_slot=True)
    if tiling.tiling_key >= 10:
        return _deterministic(grouped, case.rules.rows_per_deterministic_flush)
    if outcome.native_16_bit:
        return _staged(run, grouped, core_ends, case.rules.rows_per_flush)
    contributions = [
        (core, chunk)
        for core, terms in grouped
        for chunk in _chunks(terms, case.rules.rows_per_flush)
    ]
    return _merged(contributions, order, run.word)


def _small_dim(
    run: Run,
    order: Order,
    core_of: Callable[[int], int],
    ranges: Sequence[tuple[int, int]],
    most_rows: int,
) -> Tree | None:
    contributions: list[tuple[int, Tree | None]] = []
    for core, terms in _by_core(run, core_of, by_slot=False):
        start, stop = ranges[core]
        copied = min(most_rows, stop - start)
        batches = groupby(terms, key=lambda term: (run.rows[term] - start) // copied)
        contributions += [(core, left_fold(list(batch))) for _, batch in batches]
    return _merged(contributions, order, run.word)


def _deterministic(grouped: Sequence[tuple[int, list[int]]], most: int) -> Tree | None:
    """The core where the run starts walks its own share backwards, then the rest forwards."""
    backwards = grouped[0][1][::-1]
    forwards = [term for _, terms in grouped[1:] for term in terms]
    return left_fold([*_chunks(backwards, most), *_chunks(forwards, most)])


def _staged(
    run: Run,
    grouped: Sequence[tuple[int, list[int]]],
    core_ends: Sequence[tuple[int, int]],
    most: int,
) -> Tree | None:
    sums = {core: left_fold(_chunks(terms, most)) for core, terms in grouped}
    core = grouped[0][0]
    if len(grouped) == 1 and run.word not in core_ends[core]:
        return sums[core]
    slots: list[Tree | None] = []
    for core, (first, last) in enumerate(core_ends):
        if first == last == run.word:
            slots += [sums[core], None]
        elif run.word in (first, last):
            slots.append(sums[core])
    return left_fold(_chunks(slots, STAGE_CHUNK_SLOTS))
