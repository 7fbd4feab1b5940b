"""RmsNormGrad: the arithmetic of one row, in the order of the product's instructions.

A row is read twice, once for its sum and once for dx; between the two it stays in the second-level cache.

Source: specification page ``rms_norm_grad``, section "Kernels and accumulation order".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count, threads_for
from npu_sim.kernels.random_order import SEQUENTIAL, arrivals
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    end_streams,
    is_streamed,
    load,
    prefetch,
    prefetch_lines,
    splat,
    store,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, keep, load_ordered
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import add_to, clear, front_of, halve, keep_lanes
from npu_sim.numbers.scalars import narrow, widen

LOOKAHEAD_BYTES = 8192
"""How far ahead dy and x are asked for, across the ends of rows: up to a tenth faster."""
_ZERO = np.float32(0)
Floats = NDArray[np.float32]


@device_function
def _products(dy, x, gamma, scale: np.float32, dgamma: Floats, column: int, later: bool) -> Any:
    """Add dy*xh of some columns to dgamma; return (dy*gamma)*xh, or (dy*xh)*gamma where gamma comes ``later``: key 2."""
    xh, gradient, weight = (
        load_ordered(x, column) * scale,
        load_ordered(dy, column),
        load_ordered(gamma, column),
    )
    share = gradient * xh
    keep(dgamma, column, load_ordered(dgamma, column) + share)
    return share * weight if later else (gradient * weight) * xh


@device_function
def _product(
    dy, x, gamma, scale: np.float32, dgamma: Floats, column: int, later: bool
) -> np.float32:
    """The same for one column."""
    xh, gradient, weight = widen(x[column]) * scale, widen(dy[column]), widen(gamma[column])
    share = gradient * xh
    dgamma[column] = dgamma[column] + share
    return share * weight if later else (gradient * weight) * xh


@device_function
def lane_sum(dy, x, gamma, scale: np.float32, dgamma: Floats, accumulators: Floats) -> np.float32:
    """Key 1: add dy*xh to dgamma, and sum (dy*gamma)*xh over 64 lane accumulators.

    64 products at a time are added lane by lane, then the lanes as a tree. ``accumulators`` (64,) is scratch.
    """
    first = splat(_ZERO, dgamma)
    second, third, fourth = first, first, first
    whole = dgamma.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        prefetch_lines(dy, column + LOOKAHEAD_BYTES // dy.itemsize, LANE_COUNT)
        prefetch_lines(x, column + LOOKAHEAD_BYTES // x.itemsize, LANE_COUNT)
        first = first + _products(dy, x, gamma, scale, dgamma, column, False)
        second = second + _products(dy, x, gamma, scale, dgamma, column + ORDERED_LANES, False)
        third = third + _products(dy, x, gamma, scale, dgamma, column + 2 * ORDERED_LANES, False)
        fourth = fourth + _products(dy, x, gamma, scale, dgamma, column + 3 * ORDERED_LANES, False)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, dgamma.size):
        accumulators[column - whole] = accumulators[column - whole] + _product(
            dy, x, gamma, scale, dgamma, column, False
        )
    return add_lanes(accumulators)


@device_function
def _put_products(
    dy, x, gamma, scale: np.float32, dgamma: Floats, products: Floats, adds: bool, later: bool
) -> None:
    """Add dy*xh to dgamma, and write the products of a row, or add them to what is there; ``products`` may be longer."""
    whole = dgamma.size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        prefetch(dy, column + LOOKAHEAD_BYTES // dy.itemsize)
        prefetch(x, column + LOOKAHEAD_BYTES // x.itemsize)
        lanes = _products(dy, x, gamma, scale, dgamma, column, later)
        keep(products, column, load_ordered(products, column) + lanes if adds else lanes)
    for column in range(whole, dgamma.size):
        product = _product(dy, x, gamma, scale, dgamma, column, later)
        products[column] = products[column] + product if adds else product


@device_function
def halved_sum(
    dy, x, gamma, scale: np.float32, dgamma: Floats, products: Floats, later: bool
) -> np.float32:
    """Sum a row's products by ``halving``: the part beyond a power of two is added to the front, until 64 lanes are left.

    The first halving happens while the products are made: those of the front are stored, the others added to them.
    """
    front = front_of(dgamma.size)
    _put_products(
        dy[:front], x[:front], gamma[:front], scale, dgamma[:front], products, False, later
    )
    _put_products(
        dy[front:], x[front:], gamma[front:], scale, dgamma[front:], products, True, later
    )
    if front < LANE_COUNT:
        clear(products[front:LANE_COUNT])
    return halve(products, max(front, LANE_COUNT))


@device_function
def _gradient(dy: Any, x: Any, gamma: Any, scale: np.float32, mean: np.float32) -> Any:
    """Return (dy*gamma - xh*mean)*rstd of numbers or of lanes."""
    return (dy * gamma - (x * scale) * mean) * scale


@device_function
def gradient_row(dy, x, gamma, scale: np.float32, mean: np.float32, dx, streams: bool) -> None:
    """Second pass over a row: dx = (dy*gamma - xh*mean)*rstd, rounded once; ``streams`` stores it past the cache."""
    line = LINE_BYTES // dx.itemsize
    if dx.size < line:
        for column in range(dx.size):
            dx[column] = narrow(
                _gradient(widen(dy[column]), widen(x[column]), widen(gamma[column]), scale, mean),
                dx,
            )
        return
    if not streams:
        for begin in range(0, dx.size, line):
            column = min(
                begin, dx.size - line
            )  # the last line may overlap the one before: what is written twice is the same
            store(
                dx,
                column,
                _gradient(
                    load(dy, column), load(x, column), load_like(gamma, column, x), scale, mean
                ),
            )
        return
    first = to_next_line(dx, 0)
    end = first + (dx.size - first) // line * line
    for column in range(first, end, line):
        stream(
            dx,
            column,
            _gradient(load(dy, column), load(x, column), load_like(gamma, column, x), scale, mean),
        )
    # What remains of the lines at both ends, which belong to the neighbouring rows as well.
    for side in range(2):
        column, begin, stop = (
            (first - line, line - first, line) if side == 0 else (end, 0, dx.size - end)
        )
        if begin < stop:
            dys, xs = load_some(dy, column, begin, stop, x), load_some(x, column, begin, stop, x)
            gammas = load_some(gamma, column, begin, stop, x)
            store_some(dx, column, _gradient(dys, xs, gammas, scale, mean), begin, stop)


# --- All rows, on all threads ---
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
    scratch = thread_scratch(threads, columns)
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


# --- Contributions for order studies ---
def contributions(
    dy: NDArray[Any], x: NDArray[Any], rstd: NDArray[np.float32], gamma: NDArray[Any], split: Split
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the core of every contribution, cores ascending, and the contributions (contributions, columns).

    Arguments as for :func:`npu_sim.kernels.rms_norm_grad.rms_norm_grad`.
    """
    rows, columns = x.shape
    counts = split.contributions(rows)
    cores = np.arange(counts.size, dtype=np.int64)
    parts, dx = np.empty((int(counts.sum()), columns), np.float32), np.empty_like(x)
    compute_rows(
        dy, x, rstd, gamma, split, cores, np.concatenate(([0], np.cumsum(counts))), dx, parts
    )
    return np.repeat(cores, counts), parts
