"""Which entry writes which row of the gradient of permuted_tokens.

Source: specification page ``moe_token_unpermute_grad``: of several entries that name a row the last one wins; in a core they come in
their order, between cores the order is open.
"""

from dataclasses import dataclass

import numpy as np

from npu_sim.framework.target import Order
from npu_sim.tiling import moe_token_unpermute_grad as tiler

NOBODY = -1


@dataclass(frozen=True)
class Owners:
    """Who writes the rows.

    Attributes
    ----------
    entries : int32 (rows,)
        The entry whose product a row holds, `NOBODY` where no live index names it.
    open_rows : bool (rows,)
        Rows that entries of two cores name.
    repeated
        How many rows are named more than once.
    """

    entries: np.ndarray
    open_rows: np.ndarray
    repeated: int


def find_owners(indices: np.ndarray, tiling: tiler.Tiling, order: Order) -> Owners:
    """Return who writes the rows when the writes of the cores arrive in an order.

    Parameters
    ----------
    indices : int32 (tokens * top_k,)
        None negative.
    tiling
        Whose tokens are whose, and from where on indices are dropped.
    order
        Order of arrival: only rows of `Owners.open_rows` depend on it.
    """
    live = np.flatnonzero(indices < tiling.rows).astype(np.int32)
    entries = np.full(tiling.rows, NOBODY, np.int32)
    entries[indices[live]] = live  # the last one stays
    open_rows = np.zeros(tiling.rows, np.bool_)
    if np.count_nonzero(entries != NOBODY) == live.size:
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
    """Group entries by their row, in their order."""
    by_row = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[by_row], prepend=NOBODY))
    return list(
        zip(rows[by_row][starts].tolist(), np.split(places[by_row], starts[1:]), strict=True)
    )


def _last_core(cores: np.ndarray, row: int, order: Order) -> int:
    """Return the core whose last write to a row arrives last; ``cores`` are those of its entries, in order."""
    if order.core_order == "reverse":
        return int(cores[0])
    if (
        order.core_order == "round_robin"
    ):  # the first write of every core, then the second: the one with most of them is last
        counts = np.bincount(cores)
        return int(np.flatnonzero(counts == counts.max())[-1])
    if order.core_order == "random":
        return int(np.random.default_rng([order.seed, row]).choice(np.unique(cores)))
    return int(cores[-1])
