"""RmsNormGrad: dx and dgamma of rows normalised by their root mean square.

    xh = x * rstd;  dgamma = sum over rows of dy * xh;  dx = (dy * gamma - xh * mean) * rstd,
    where mean is the mean over the columns of (dy * gamma) * xh.

Order of accumulation, all in fp32: the products of a row are summed in 64 lane accumulators or by
halving (key 1), or in pieces of columns, each by halving (key 2). Every simulated core sums dy * xh
of its rows in *contributions*: one for all its rows (key 1), or one per group of 32 rows (key 2).
Contributions are then added to dgamma column by column, in their order of arrival or core by core.

One thread computes all rows of a simulated core. Each row is read twice (sum, then dx); the second
read hits the L2 cache.

Slow reference with the order of additions: ``tests/reference/rms_norm_grad.py``.

Source: specification page ``rms_norm_grad``, section "Kernels and accumulation order".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import (
    device_function,
    kernel,
    thread_count,
    thread_scratch,
    threads_for,
)
from npu_sim.kernels.shared.arrival_orders import IN_CORE_ORDER, ArrivalOrder, arrivals
from npu_sim.kernels.vectors.lanes import (
    AHEAD_BYTES,
    ORDERED_LANES,
    ZERO,
    Floats,
    Integers,
    end_streams,
    is_streamed,
    load,
    load_ordered,
    prefetch,
    prefetch_ahead,
    splat,
    store_lanes,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, write_row
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    add_lanes,
    add_to,
    clear,
    front_of,
    halve,
    keep_lanes,
)
from npu_sim.numbers.scalars import widen


class Row(NamedTuple):
    """Inputs of one row, or of some of its columns."""

    dy: NDArray[Any]
    x: NDArray[Any]
    gamma: NDArray[Any]
    rstd: np.float32


class Target(NamedTuple):
    """Where dy * xh of a row goes: to ``vector``, added to ``other`` with ``adds``.

    ``ahead`` is the prefetch distance in elements.
    """

    vector: Floats
    other: Floats
    adds: bool
    ahead: int


@device_function
def _columns_of(row: Row, begin: int, end: int) -> Row:
    """Return the columns begin..end of a row."""
    return Row(row.dy[begin:end], row.x[begin:end], row.gamma[begin:end], row.rstd)


@device_function
def _products(row: Row, target: Target, column: int, gamma_last: bool) -> Any:
    """Write dy*xh of a vector of columns to the target; return the products to be summed.

    These are (dy*gamma)*xh, or (dy*xh)*gamma with ``gamma_last`` (key 2).
    """
    xh = load_ordered(row.x, column) * row.rstd
    dy, gamma = load_ordered(row.dy, column), load_ordered(row.gamma, column)
    product = dy * xh
    total = load_ordered(target.other, column) + product if target.adds else product
    store_lanes(target.vector, column, total)
    return product * gamma if gamma_last else (dy * gamma) * xh


@device_function
def product(row: Row, target: Target, column: int, gamma_last: bool) -> np.float32:
    """Like `_products`, for one column."""
    xh, dy, gamma = widen(row.x[column]) * row.rstd, widen(row.dy[column]), widen(row.gamma[column])
    product = dy * xh
    target.vector[column] = target.other[column] + product if target.adds else product
    return product * gamma if gamma_last else (dy * gamma) * xh


@device_function
def _lane_sum(row: Row, dgamma: Floats, scratch: Floats) -> np.float32:
    """Key 1: add dy*xh to dgamma; return the sum of (dy*gamma)*xh over 64 lane accumulators.

    64 products at a time are added lane by lane, then the lanes as a tree.
    """
    accumulators, target = scratch[:LANE_COUNT], Target(dgamma, dgamma, True, 0)
    first = splat(ZERO, dgamma)
    second, third, fourth = first, first, first
    whole = dgamma.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        prefetch_ahead(row.dy, column, LANE_COUNT)
        prefetch_ahead(row.x, column, LANE_COUNT)
        first = first + _products(row, target, column, False)
        second = second + _products(row, target, column + ORDERED_LANES, False)
        third = third + _products(row, target, column + 2 * ORDERED_LANES, False)
        fourth = fourth + _products(row, target, column + 3 * ORDERED_LANES, False)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, dgamma.size):
        term = product(row, target, column, False)
        accumulators[column - whole] = accumulators[column - whole] + term
    return add_lanes(accumulators)


@device_function
def put_products(
    whole_row: Row,
    whole_target: Target,
    begin: int,
    end: int,
    products: Floats,
    accumulate: bool,
    gamma_last: bool,
) -> None:
    """Write dy*xh of the columns begin..end of a row to the target, and their products.

    With ``accumulate`` the products are added to ``products``, which may be longer.
    """
    row, size = _columns_of(whole_row, begin, end), end - begin
    vector, other, adds, ahead = whole_target
    target = Target(vector[begin:end], other[begin:end], adds, ahead)
    whole = size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        prefetch(row.dy, column + ahead)
        prefetch(row.x, column + ahead)
        lanes = _products(row, target, column, gamma_last)
        store_lanes(
            products, column, load_ordered(products, column) + lanes if accumulate else lanes
        )
    for column in range(whole, size):
        term = product(row, target, column, gamma_last)
        products[column] = products[column] + term if accumulate else term


@device_function
def _halved_sum(row: Row, dgamma: Floats, products: Floats, gamma_last: bool) -> np.float32:
    """Add dy*xh to dgamma; return the sum of a row's products by ``halving``.

    Halving adds the part beyond a power of two to the front, until 64 lanes are left. Its first
    step is fused with the multiplication: products of the front are stored, others are added.
    """
    columns, front = dgamma.size, front_of(dgamma.size)
    target = Target(dgamma, dgamma, True, AHEAD_BYTES // row.x.itemsize)
    put_products(row, target, 0, front, products, False, gamma_last)
    put_products(row, target, front, columns, products, True, gamma_last)
    if front < LANE_COUNT:
        clear(products[front:LANE_COUNT])
    return halve(products, max(front, LANE_COUNT))


@device_function
def _whole_sum(row: Row, dgamma: Floats, products: Floats) -> np.float32:
    """Key 1: like `_halved_sum`."""
    return _halved_sum(row, dgamma, products, False)


@device_function
def _pieces_sum(row: Row, dgamma: Floats, products: Floats) -> np.float32:
    """Key 2: like `_halved_sum`, in pieces."""
    total = ZERO
    for begin in range(0, dgamma.size, PIECE_COLUMNS):
        end = min(dgamma.size, begin + PIECE_COLUMNS)
        piece = _columns_of(row, begin, end)
        total = total + _halved_sum(piece, dgamma[begin:end], products, True)
    return total


@device_function
def _line_of(inputs: tuple[Row, np.float32], column: int) -> Any:
    """Return a cache line of dx."""
    row, mean = inputs
    dy, x, gamma = load(row.dy, column), load(row.x, column), load_like(row.gamma, column, row.x)
    return (dy * gamma - (x * row.rstd) * mean) * row.rstd


@device_function
def _part_of(inputs: tuple[Row, np.float32], column: int, begin: int, stop: int) -> Any:
    """Return the elements begin..stop of a cache line of dx."""
    row, mean = inputs
    dy = load_some(row.dy, column, begin, stop, row.x)
    x = load_some(row.x, column, begin, stop, row.x)
    gamma = load_some(row.gamma, column, begin, stop, row.x)
    return (dy * gamma - (x * row.rstd) * mean) * row.rstd


@device_function
def write_dx(row: Row, mean: np.float32, dx: NDArray[Any], streams: bool) -> None:
    """Compute dx = (dy*gamma - xh*mean)*rstd for one row, rounding once."""
    write_row((row, mean), dx, streams, _line_of, _part_of)


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
"""Columns of dgamma that are summed at a time: 64 KiB."""

SCRATCH_FRACTION = 0.08
"""Maximum size of the contributions relative to the inputs and dx; beyond it, cores are computed in
batches."""
SMALL_SCRATCH_BYTES = 1 << 22
"""Contributions of this size are never split into batches: each further batch starts two more
parallel loops, and its cores do not fill the threads."""


class Split(NamedTuple):
    """Split of the rows over cores: the path, the cores used, and the rows of each but the last."""

    path: int
    block_dim: int
    block_factor: int

    def cores(self, numbers: Integers, counts: Integers) -> "Cores":
        """Return cores that are computed together, given the contributions of every core."""
        starts = np.concatenate(([0], np.cumsum(counts[numbers])))
        group_rows = GROUP_ROWS if self.path == PIECES else self.block_factor
        return Cores(numbers, starts, self.block_factor, group_rows)

    def contributions(self, rows: int) -> Integers:
        """Return the number of contributions of every core."""
        if self.path != PIECES:
            return np.ones(self.block_dim, np.int64)
        starts = np.arange(self.block_dim, dtype=np.int64) * self.block_factor
        rows_of_core = np.minimum(starts + self.block_factor, rows) - starts
        return (rows_of_core + GROUP_ROWS - 1) // GROUP_ROWS


class Rows(NamedTuple):
    """Inputs of all rows, and dx."""

    dy: NDArray[Any]
    """(rows, columns); like ``x`` and ``dx`` a storage array of one dtype."""
    x: NDArray[Any]
    rstd: Floats
    """float32 (rows,)"""
    gamma: NDArray[Any]
    """(columns,): storage array of the same dtype or float32."""
    dx: NDArray[Any]


class Cores(NamedTuple):
    """Simulated cores that are computed together."""

    numbers: Integers
    starts: Integers
    """(cores + 1,): the first contribution of each core."""
    block_factor: int
    """Rows of every core of the call but the last."""
    group_rows: int
    """Rows of a contribution."""


@device_function
def row_of(rows: Rows, row: int) -> Row:
    """Return the inputs of a row."""
    return Row(rows.dy[row], rows.x[row], rows.gamma, rows.rstd[row])


class Constants(NamedTuple):
    """Constants of a call."""

    average: np.float32
    """1 / columns."""
    streams: bool
    """Whether dx is written with non-temporal stores."""


@device_function
def _compute_cores(
    thread: int,
    rows: Rows,
    cores: Cores,
    constants: Constants,
    contributions: Floats,
    scratch: Floats,
    sum_row: Any,
) -> None:
    """Compute dx of the rows of some cores, and their contributions; threads take turns at cores.

    ``sum_row(row, dgamma, scratch)``, a constant of a kernel, adds dy*xh to dgamma.
    """
    for position in range(thread, cores.numbers.size, len(scratch)):
        first, start = cores.numbers[position] * cores.block_factor, cores.starts[position]
        last = min(len(rows.x), first + cores.block_factor)
        for group in range(start, cores.starts[position + 1]):
            dgamma = contributions[group]
            clear(dgamma)
            group_first = first + cores.group_rows * (group - start)
            for number in range(group_first, min(last, group_first + cores.group_rows)):
                row = row_of(rows, number)
                mean = sum_row(row, dgamma, scratch[thread]) * constants.average
                write_dx(row, mean, rows.dx[number], constants.streams)
    end_streams()


@kernel
def _narrow_rows(
    thread: int,
    rows: Rows,
    cores: Cores,
    constants: Constants,
    contributions: Floats,
    scratch: Floats,
) -> None:
    """Key 1, lane accumulators."""
    _compute_cores(thread, rows, cores, constants, contributions, scratch, _lane_sum)


@kernel
def _whole_rows(
    thread: int,
    rows: Rows,
    cores: Cores,
    constants: Constants,
    contributions: Floats,
    scratch: Floats,
) -> None:
    """Key 1, halving."""
    _compute_cores(thread, rows, cores, constants, contributions, scratch, _whole_sum)


@kernel
def _rows_in_pieces(
    thread: int,
    rows: Rows,
    cores: Cores,
    constants: Constants,
    contributions: Floats,
    scratch: Floats,
) -> None:
    """Key 2."""
    _compute_cores(thread, rows, cores, constants, contributions, scratch, _pieces_sum)


def _compute_rows(rows: Rows, split: Split, cores: Cores, contributions: Floats) -> None:
    """Compute dx of the rows of some cores, and their contributions (contributions, columns)."""
    columns = rows.x.shape[1]
    constants = Constants(np.float32(1) / np.float32(columns), is_streamed(rows.dx))
    threads = threads_for(rows.dy.nbytes + rows.x.nbytes + rows.dx.nbytes)
    kernel, scratch_columns = {
        LANES: (_narrow_rows, LANE_COUNT),
        HALVING: (_whole_rows, max(columns, LANE_COUNT)),
        PIECES: (_rows_in_pieces, PIECE_COLUMNS),
    }[split.path]
    scratch = thread_scratch(threads, scratch_columns)
    kernel.over(threads, rows, cores, constants, contributions, scratch)


class _Arrival(NamedTuple):
    """Order in which the contributions of a batch are added to dgamma."""

    orders: Integers
    """(1 or pieces, contributions): one order, or one for every piece of 4096 columns."""
    stops: Integers
    """Ends of the groups of contributions that are summed by themselves before they are added."""


@kernel
def _fold_columns(
    chunk: int,
    chunks: int,
    width: int,
    contributions: Floats,
    arrival: _Arrival,
    sums: Floats,
    dgamma: Floats,
) -> None:
    """Add the contributions to every ``chunks``-th block of ``width`` columns of dgamma.

    ``sums`` (chunks, width) holds the sum of the contributions between two stops.
    """
    for block in range(chunk, (dgamma.size + width - 1) // width, chunks):
        begin = block * width
        end = min(begin + width, dgamma.size)
        order = arrival.orders[min(block, len(arrival.orders) - 1)]
        total, first = dgamma[begin:end], 0
        for number in range(arrival.stops.size):
            stop = arrival.stops[number]
            if stop == first + 1:
                # A single contribution is added directly. Adding it to 0 first would only change
                # -0, which no contribution contains.
                add_to(total, contributions[order[first], begin:end])
            else:
                vector = sums[chunk, : end - begin]
                clear(vector)
                for position in range(first, stop):
                    add_to(vector, contributions[order[position], begin:end])
                add_to(total, vector)
            first = stop


def _fold(contributions: Floats, arrival: _Arrival, dgamma: Floats) -> None:
    """Add contributions to dgamma. Those between two stops are summed first, from 0."""
    width = PIECE_COLUMNS if arrival.orders.shape[0] > 1 else FOLD_COLUMNS
    chunks = min(threads_for(contributions.nbytes), (dgamma.size + width - 1) // width)
    sums = np.empty((chunks, min(width, dgamma.size)), np.float32)
    _fold_columns.over(chunks, chunks, width, contributions, arrival, sums, dgamma)


def _batches(
    counts: Integers, orders: Integers, rows: int, columns: int, element_bytes: int
) -> Iterator[tuple[Integers, Integers]]:
    """Yield batches of cores with small contributions, and the orders of those contributions.

    With few rows the contributions would be as large as the inputs. Adding the cores in batches, in
    their order of arrival, gives the same result. It requires one contribution per core and one
    order for all columns; other calls are one batch.
    """
    contributions = orders.shape[1]
    allowed = max(
        int(SCRATCH_FRACTION * 3 * rows * element_bytes / 4),
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
    rows: Rows, split: Split, deterministic: bool, order: ArrivalOrder, dgamma: Floats
) -> None:
    """Compute dx and dgamma.

    Parameters
    ----------
    rows
        Inputs, and dx, which is written.
    split
        Path, and split of the rows over cores.
    deterministic
        Whether every core sums its contributions, and these sums are added in core order.
    order
        Order in which contributions arrive otherwise.
    dgamma : float32 (columns,)
    """
    dgamma.fill(0)
    schedule = _schedule if split.path == PIECES else _cached_schedule
    batches = schedule(split, len(rows.x), dgamma.size, rows.x.itemsize, deterministic, order)
    contributions = np.empty((batches[0][1].orders.shape[1], dgamma.size), np.float32)
    for cores, arrival in batches:
        drawn = contributions[: arrival.orders.shape[1]]
        _compute_rows(rows, split, cores, drawn)
        _fold(drawn, arrival, dgamma)


def _schedule(
    split: Split,
    rows: int,
    columns: int,
    element_bytes: int,
    deterministic: bool,
    order: ArrivalOrder,
) -> tuple[tuple[Cores, _Arrival], ...]:
    """Return cores that are computed together, and the order of their contributions."""
    counts = split.contributions(rows)
    draws = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS if split.path == PIECES else 1
    batches = []
    arrived = arrivals(counts, IN_CORE_ORDER if deterministic else order, draws)
    for numbers, orders in _batches(counts, arrived, rows, columns, element_bytes):
        cores = split.cores(numbers, counts)
        stops = cores.starts[1:] if deterministic else np.arange(1, orders.shape[1] + 1)
        batches.append((cores, _Arrival(orders, stops)))
    return tuple(batches)


_cached_schedule = lru_cache(maxsize=64)(_schedule)
"""`_schedule` for paths with one contribution per core, where it would take longer than computing
a small call."""


# --- Contributions for order studies ---
def contributions(
    dy: NDArray[Any], x: NDArray[Any], rstd: NDArray[np.float32], gamma: NDArray[Any], split: Split
) -> tuple[Integers, Floats]:
    """Return the core of every contribution, cores ascending, and the contributions.

    Arguments are those of :class:`Rows`; contributions are (contributions, columns).
    """
    rows, columns = x.shape
    counts = split.contributions(rows)
    numbers = np.arange(counts.size, dtype=np.int64)
    values = np.empty((int(counts.sum()), columns), np.float32)
    rows_of_call = Rows(dy, x, rstd, gamma, np.empty_like(x))
    _compute_rows(rows_of_call, split, split.cores(numbers, counts), values)
    return np.repeat(numbers, counts), values
