"""RmsNormGrad in the product's arithmetic and accumulation order.

Every simulated core is computed by one thread: it writes its rows of dx and its own contributions
to dgamma, which are then added column by column in the order of arrival.

Source: specification page ``rms_norm_grad``, section "Kernels and accumulation order".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.engine.scratch import kept, thread_scratch
from npu_sim.kernels.engine.threads import thread_count, threads_for
from npu_sim.kernels.random_order import SEQUENTIAL, arrivals
from npu_sim.kernels.rms_norm_grad_rows import gradient_row, halved_sum, lane_sum
from npu_sim.kernels.vectors.lanes import end_streams, is_streamed
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT
from npu_sim.kernels.vectors.row_sums import add_to, clear

LANES = 0
"""Whole rows, summed in 64 lane accumulators: key 1, narrow rows on A2 and A3."""
HALVING = 1
"""Whole rows, summed by halving: key 1."""
PIECES = 2
"""Rows in pieces of 4096 columns, dgamma in groups of 32 rows: key 2."""

PIECE_COLUMNS = 4096
GROUP_ROWS = 32
FOLD_COLUMNS = 16384
"""Columns of dgamma that are added up at a time: 64 KiB."""

SCRATCH_SHARE = 0.08
"""Part of the inputs' and dx's size that contributions may take before cores are computed in
batches."""
SMALL_SCRATCH_BYTES = 1 << 20
"""Contributions of this size are never split into batches."""

_ZERO = np.float32(0)
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Split(NamedTuple):
    """How rows are split: the path, the cores that work, and the rows of each but the last."""

    path: int
    block_dim: int
    block_factor: int

    def contributions(self, rows: int) -> Integers:
        """Return how many times every core adds to dgamma."""
        if self.path != PIECES:
            return np.ones(self.block_dim, np.int64)
        starts = np.arange(self.block_dim, dtype=np.int64) * self.block_factor
        own = np.minimum(starts + self.block_factor, rows) - starts
        return (own + GROUP_ROWS - 1) // GROUP_ROWS


@kernel
def _narrow_rows(
    share, dy, x, rstd, gamma, average, block_factor, cores, streams, dx, parts, scratch
):
    """Key 1, lane accumulators: ``parts`` (cores, columns) receives the dgamma of each of the given cores."""
    rows = len(x)
    for place in range(share, cores.size, len(scratch)):
        dgamma = parts[place]
        clear(dgamma)
        first = cores[place] * block_factor
        for row in range(first, min(rows, first + block_factor)):
            scale = rstd[row]
            mean = (
                lane_sum(dy[row], x[row], gamma, scale, dgamma, scratch[share, :LANE_COUNT])
                * average
            )
            gradient_row(dy[row], x[row], gamma, scale, mean, dx[row], streams)
    end_streams()


@kernel
def _whole_rows(
    share, dy, x, rstd, gamma, average, block_factor, cores, streams, dx, parts, scratch
):
    """Key 1, halving: ``parts`` (cores, columns) receives the dgamma of each of the given cores."""
    rows, products = len(x), scratch[share]
    for place in range(share, cores.size, len(scratch)):
        dgamma = parts[place]
        clear(dgamma)
        first = cores[place] * block_factor
        for row in range(first, min(rows, first + block_factor)):
            scale = rstd[row]
            mean = halved_sum(dy[row], x[row], gamma, scale, dgamma, products, False) * average
            gradient_row(dy[row], x[row], gamma, scale, mean, dx[row], streams)
    end_streams()


@kernel
def _rows_in_pieces(
    share, dy, x, rstd, gamma, average, block_factor, cores, streams, starts, dx, parts, scratch
):
    """Key 2: ``parts`` (contributions, columns) receives every group's dgamma, from ``starts`` of its core on."""
    rows, columns = x.shape
    products = scratch[share]
    for place in range(share, cores.size, len(scratch)):
        first = cores[place] * block_factor
        last = min(rows, first + block_factor)
        for group in range(starts[place], starts[place + 1]):
            dgamma = parts[group]
            clear(dgamma)
            group_first = first + GROUP_ROWS * (group - starts[place])
            for row in range(group_first, min(last, group_first + GROUP_ROWS)):
                scale = rstd[row]
                total = _ZERO
                for begin in range(0, columns, PIECE_COLUMNS):
                    end = min(columns, begin + PIECE_COLUMNS)
                    total = total + halved_sum(
                        dy[row, begin:end],
                        x[row, begin:end],
                        gamma[begin:end],
                        scale,
                        dgamma[begin:end],
                        products,
                        True,
                    )
                gradient_row(dy[row], x[row], gamma, scale, total * average, dx[row], streams)
    end_streams()


_kept_scratch = kept(thread_scratch)


def compute_rows(
    dy: NDArray[Any],
    x: NDArray[Any],
    rstd: Floats,
    gamma: NDArray[Any],
    split: Split,
    cores: Integers,
    starts: Integers,
    dx: NDArray[Any],
    parts: Floats,
) -> None:
    """Compute the rows of some cores: their dx, and what each of them adds to dgamma.

    Parameters
    ----------
    dy, x, rstd, gamma, split, dx
        As for :func:`rms_norm_grad`.
    cores
        The simulated cores.
    starts : (cores + 1,)
        Where the contributions of each begin in ``parts``.
    parts : float32 (contributions, columns)
        Receives the contributions.
    """
    average, threads = (
        np.float32(1) / np.float32(x.shape[1]),
        threads_for(dy.nbytes + x.nbytes + dx.nbytes),
    )
    columns = {LANES: LANE_COUNT, HALVING: max(x.shape[1], LANE_COUNT), PIECES: PIECE_COLUMNS}[
        split.path
    ]
    scratch = (thread_scratch if split.path == HALVING else _kept_scratch)(threads, columns)
    arguments = dy, x, rstd, gamma, average, split.block_factor, cores, is_streamed(dx)
    if split.path == LANES:
        _narrow_rows.over(threads, *arguments, dx, parts, scratch)
    elif split.path == HALVING:
        _whole_rows.over(threads, *arguments, dx, parts, scratch)
    else:
        _rows_in_pieces.over(threads, *arguments, starts, dx, parts, scratch)


@kernel
def _fold_columns(share, shares, width, parts, orders, stops, sums, has_vectors, dgamma):
    """Add the contributions between two stops to blocks of ``width`` columns of dgamma."""
    for block in range(share, (dgamma.size + width - 1) // width, shares):
        begin = block * width
        end = min(begin + width, dgamma.size)
        total, order, first = dgamma[begin:end], orders[min(block, len(orders) - 1)], 0
        for number in range(stops.size):
            stop = stops[number]
            if stop == first + 1 and not has_vectors:
                # A single contribution is added as it is: none is -0, so adding it to 0 first would
                # change nothing.
                add_to(total, parts[order[first], begin:end])
            else:
                own = sums[number if has_vectors else share, : end - begin]
                clear(own)
                for place in range(first, stop):
                    add_to(own, parts[order[place], begin:end])
                add_to(total, own)
            first = stop


def _fold(
    parts: Floats, orders: Integers, stops: Integers, dgamma: Floats, vectors: Floats | None = None
) -> None:
    """Add contributions to dgamma: those between two stops are added up by themselves first, from 0.

    ``orders`` has one order of arrival, or one for every piece of 4096 columns. ``vectors`` (stops,
    columns or a chunk of them) receives what lies between two stops before it is added, one chunk
    after the other.
    """
    if vectors is not None:
        _fold_columns.over(1, 1, vectors.shape[1], parts, orders, stops, vectors, True, dgamma)
        return
    width = PIECE_COLUMNS if orders.shape[0] > 1 else FOLD_COLUMNS
    shares = min(threads_for(parts.nbytes), (dgamma.size + width - 1) // width)
    sums = np.empty((shares, min(width, dgamma.size)), np.float32)
    _fold_columns.over(shares, shares, width, parts, orders, stops, sums, False, dgamma)


def _batches(
    counts: Integers, orders: Integers, rows: int, columns: int, element_bytes: int
) -> Iterator[tuple[Integers, Integers]]:
    """Split cores into batches whose contributions stay small; yield the cores and the orders of their contributions.

    With few rows the contributions would be as large as the inputs. Cores in order of arrival are
    added one batch after the other with the same result, which needs one contribution a core and
    one order for all columns.
    """
    contributions = orders.shape[1]
    allowed = max(
        int(SCRATCH_SHARE * 3 * rows * element_bytes / 4),
        SMALL_SCRATCH_BYTES // (4 * columns),
        thread_count(),
    )
    if contributions <= allowed or orders.shape[0] > 1 or contributions != counts.size:
        yield np.arange(counts.size, dtype=np.int64), orders
        return
    for start in range(0, contributions, allowed):
        cores = orders[0, start : start + allowed]
        yield cores, np.arange(cores.size, dtype=np.int64)[np.newaxis]


def rms_norm_grad(
    dy: NDArray[Any],
    x: NDArray[Any],
    rstd: Floats,
    gamma: NDArray[Any],
    split: Split,
    deterministic: bool,
    core_order: int,
    seed: int,
    dx: NDArray[Any],
    dgamma: Floats,
    vectors: Floats | None = None,
) -> None:
    """Compute dx and dgamma.

    Parameters
    ----------
    dy, x, dx : (rows, columns)
        Storage arrays of one dtype.
    rstd : float32 (rows,)
    gamma : (columns,)
        Storage array of the same dtype or float32.
    split
        Path and split of the rows over cores.
    deterministic
        Whether cores keep their vectors apart and add them in core order.
    core_order, seed
        Code of the order in which atomic additions arrive otherwise; see
        :mod:`npu_sim.kernels.random_order`.
    dgamma : float32 (columns,)
    vectors : float32 (cores, columns or more, or a chunk of columns), or None
        Where a deterministic call keeps the dgamma of every core: workspace of the product.
    """
    rows, columns = x.shape
    dgamma.fill(0)
    schedule = _schedule if split.path == PIECES else _kept_schedule
    batches = schedule(split, rows, columns, x.itemsize, deterministic, core_order, seed)
    contributions = np.empty((batches[0].orders.shape[1], columns), np.float32)
    for cores, orders, starts, stops in batches:
        parts = contributions[: orders.shape[1]]
        compute_rows(dy, x, rstd, gamma, split, cores, starts, dx, parts)
        # In a deterministic call the cores of a batch follow one another.
        own = None if vectors is None else vectors[cores[0] : cores[-1] + 1]
        _fold(parts, orders, stops, dgamma, own)


class _Batch(NamedTuple):
    """Cores that are computed together."""

    cores: Integers
    orders: Integers
    """Orders in which their contributions arrive."""
    starts: Integers
    """Where the contributions of each core begin."""
    stops: Integers
    """Up to where contributions are added up by themselves."""


def _schedule(
    split: Split,
    rows: int,
    columns: int,
    element_bytes: int,
    deterministic: bool,
    core_order: int,
    seed: int,
) -> tuple[_Batch, ...]:
    counts = split.contributions(rows)
    draws = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS if split.path == PIECES else 1
    batches = []
    arrived = arrivals(counts, SEQUENTIAL if deterministic else core_order, seed, draws)
    for cores, orders in _batches(counts, arrived, rows, columns, element_bytes):
        starts = np.concatenate(([0], np.cumsum(counts[cores])))
        batches.append(
            _Batch(
                cores,
                orders,
                starts,
                starts[1:] if deterministic else np.arange(1, orders.shape[1] + 1),
            )
        )
    return tuple(batches)


_kept_schedule = lru_cache(maxsize=64)(_schedule)
"""The same of calls whose cores contribute once: it takes longer than computing a small one."""
