"""RmsNormGrad on Ascend 950: dx and dgamma of rows normalised by their root mean square.

    xh = x * rstd;  dgamma = sum over rows of dy * xh;  dx = (dy * gamma - xh * mean) * rstd,
    where mean is the mean over the columns of (dy * gamma) * xh; from release 9.2 on the product
    xh * mean is not rounded.

Order of accumulation, in fp32: the products of a row are folded and added register by register
(rows of at most 6144 columns), or in pieces of 4096 columns and the 4096 that lie ``body`` columns
further on. Rows of dgamma are folded to a power of two and added as a binary tree. The kernels of
the product reach it in different ways, all of which are a tree of neighbours over some order of the
rows: see `Trees`.

A chunk of work is a subtree: it adds its rows to vectors, one for every level of the tree, like a
binary counter. Each row is read twice (sum, then dx); the second read hits the cache.

The orders as trees, verified by probes: ``npu_sim/operators/rms_norm_grad/ascend_950/study.py``.

Source: specification page ``rms_norm_grad_950``, "Kernels and order".
"""

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
from npu_sim.kernels.rms_norm_grad import Row, Target, product, put_products, row_of, write_dx
from npu_sim.kernels.rms_norm_grad import Rows as Rows
from npu_sim.kernels.vectors.lanes import (
    AHEAD_BYTES,
    Floats,
    Integers,
    end_streams,
    is_streamed,
    load,
    multiply_add,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, write_row
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    SLOTS,
    add_slot,
    add_to,
    clear,
    cols_sum,
    copy_to,
    level,
    paired,
)

PIECE_COLUMNS = 4096
PADDED_COLUMNS = 128
"""A row or a piece is filled with zeros up to a multiple of this."""
LIST_SLOTS = 3 * SLOTS
BLOCK_ROWS = 64
MOST_CHUNKS = 16
"""Subtrees that rows are split into when no core order does."""
LEAST_LEAVES = 64
"""Leaves of a subtree, unless fewer are needed to give every thread one."""
MERGED_COLUMNS = 16384
"""Columns of dgamma that are merged at a time: 64 KiB."""


class Trees(NamedTuple):
    """Rows that are added to dgamma, as subtrees.

    Leaves are the first rows of a tree, block by block in some order; a leaf first receives the
    row as many rows further on as the tree has leaves, if there is one.
    """

    firsts: Integers
    """(chunks,): first row of the tree of a chunk."""
    counts: Integers
    """(chunks,): rows of this tree."""
    leaves: Integers
    """(chunks,): leaves of this tree, a power of two."""
    starts: Integers
    """(chunks,): first leaf of the chunk."""
    sizes: Integers
    """(chunks,): number of its leaves, a power of two."""
    orders: Integers
    """(chunks, block): order of the leaves of a block."""
    blocks: Integers
    """(chunks,): length of the blocks."""
    merge: Integers
    """Order in which the sums of the chunks are added as a tree. It has a power of two of chunks;
    the others are first added to the front."""


@device_function
def _whole_sum(row: Row, target: Target, products: Floats) -> np.float32:
    """Return the sum of the products of a row of at most 6144 columns."""
    columns = row.gamma.size
    padded = (columns + PADDED_COLUMNS - 1) // PADDED_COLUMNS * PADDED_COLUMNS
    put_products(row, target, 0, columns, products, False, False)
    clear(products[columns:padded])
    return cols_sum(products, padded)


@device_function
def _pieces_sum(
    row: Row, target: Target, body: int, products: Floats, levels: Floats, kept: Floats
) -> np.float32:
    """Return the sum of the products of a longer row.

    A column beyond ``2 * body`` is in no piece: the product leaves it out of the mean.
    """
    columns = row.gamma.size
    sums, lanes = kept[:LANE_COUNT], kept[LANE_COUNT : 2 * LANE_COUNT]
    clear(levels)
    for begin in range(0, body, PIECE_COLUMNS):
        first, last = min(body + begin, columns), min(body + begin + PIECE_COLUMNS, columns)
        end = begin + PIECE_COLUMNS
        put_products(row, target, begin, end, products, False, False)
        put_products(row, target, first, last, products[PIECE_COLUMNS:], False, False)
        count = PIECE_COLUMNS + last - first
        padded = (count + PADDED_COLUMNS - 1) // PADDED_COLUMNS * PADDED_COLUMNS
        clear(products[count:padded])
        power = PIECE_COLUMNS if padded < 2 * PIECE_COLUMNS else 2 * PIECE_COLUMNS
        slot = paired(products, padded, power, sums, lanes)
        add_slot(levels, begin // PIECE_COLUMNS, slot, lanes, 1)
    total = level(levels, body // PIECE_COLUMNS, lanes)
    for column in range(min(2 * body, columns), columns):
        product(row, target, column, False)
    return total


class Scratch(NamedTuple):
    """Scratch of the threads: (threads, ...)."""

    products: Floats
    """Products of a row or of two pieces."""
    levels: Floats
    """Lists of sums."""
    kept: Floats
    """Registers."""
    vectors: Floats
    """(threads, levels + 1, columns): sums of dgamma by level of the tree; the last one holds a row
    that waits for its partner."""


@device_function
def _fused_line_of(inputs: tuple[Row, np.float32], column: int) -> Any:
    """Return a cache line of dx."""
    row, mean = inputs
    dy, x, gamma = load(row.dy, column), load(row.x, column), load_like(row.gamma, column, row.x)
    return multiply_add(x * row.rstd, mean, dy * gamma) * row.rstd


@device_function
def _fused_part_of(inputs: tuple[Row, np.float32], column: int, begin: int, stop: int) -> Any:
    """Return the elements begin..stop of a cache line of dx."""
    row, mean = inputs
    dy = load_some(row.dy, column, begin, stop, row.x)
    x = load_some(row.x, column, begin, stop, row.x)
    gamma = load_some(row.gamma, column, begin, stop, row.x)
    return multiply_add(x * row.rstd, mean, dy * gamma) * row.rstd


@device_function
def _write_fused_dx(row: Row, mean: np.float32, dx: NDArray[Any], streams: bool) -> None:
    """Compute dx = fma(xh, -mean, dy*gamma)*rstd for one row, given -mean."""
    write_row((row, mean), dx, streams, _fused_line_of, _fused_part_of)


class Constants(NamedTuple):
    """Constants of a call."""

    average: np.float32
    body: int
    streams: bool
    fused: bool
    """Whether dx is `_write_fused_dx`."""


@device_function
def _compute_row(
    rows: Rows, number: int, target: Target, constants: Constants, scratch: Scratch, thread: int
) -> None:
    """Compute dx of a row, and write dy*xh to its target."""
    row, products = row_of(rows, number), scratch.products[thread]
    if constants.body == 0:
        total = _whole_sum(row, target, products)
    else:
        levels, kept = scratch.levels[thread, :LIST_SLOTS], scratch.kept[thread]
        total = _pieces_sum(row, target, constants.body, products, levels, kept)
    mean = total * constants.average
    if constants.fused:
        _write_fused_dx(row, -mean, rows.dx[number], constants.streams)
    else:
        write_dx(row, mean, rows.dx[number], constants.streams)


@device_function
def _add(target: Floats, first: Floats, second: Floats) -> None:
    """Write the sums of values of two slices of the same size."""
    for position in range(target.size):
        target[position] = first[position] + second[position]


@device_function
def _place_of(trees: Trees, chunk: int, leaf: int) -> int:
    """Return the row of a leaf of a chunk, counted from the first row of its tree."""
    place, block = trees.starts[chunk] + leaf, trees.blocks[chunk]
    return place // block * block + trees.orders[chunk, place % block]


@device_function
def _ahead(rows: Rows, distance: int) -> int:
    """Return the prefetch distance in elements, given that to the next row in rows.

    Long rows are prefetched a few lines ahead, short ones the whole row before.
    """
    columns, lines = rows.gamma.size, AHEAD_BYTES // rows.x.itemsize
    return lines if columns > lines else distance * columns


@device_function
def _add_leaf(
    rows: Rows,
    trees: Trees,
    chunk: int,
    leaf: int,
    constants: Constants,
    scratch: Scratch,
    thread: int,
) -> None:
    """Compute the row of a leaf and its partner, and add them to the vectors of the tree."""
    vectors, columns = scratch.vectors[thread], rows.gamma.size
    place = _place_of(trees, chunk, leaf)
    number, partner = trees.firsts[chunk] + place, place + trees.leaves[chunk]
    next_number = trees.firsts[chunk] + _place_of(trees, chunk, leaf + 1)
    first, waiting = vectors[0, :columns], vectors[len(vectors) - 1, :columns]
    depth = 0  # how many vectors the leaf completes
    while (leaf >> depth) & 1:
        depth += 1
    target = vectors[depth if depth < 2 else 0, :columns]
    vector, other_vector, adds = target, first, depth > 0
    has_partner = partner < trees.counts[chunk]
    if has_partner:
        alone = Target(waiting, waiting, False, _ahead(rows, trees.leaves[chunk]))
        _compute_row(rows, number, alone, constants, scratch, thread)
        number = trees.firsts[chunk] + partner
        vector, other_vector, adds = waiting if depth > 0 else target, waiting, True
    last = Target(vector, other_vector, adds, _ahead(rows, next_number - number))
    _compute_row(rows, number, last, constants, scratch, thread)
    if has_partner and depth > 0:
        _add(target, first, waiting)
    for other in range(1, depth):
        target = vectors[depth if other == depth - 1 else 0, :columns]
        _add(target, first, vectors[other, :columns])


@kernel
def _subtrees(
    thread: int,
    rows: Rows,
    trees: Trees,
    constants: Constants,
    scratch: Scratch,
    contributions: Floats,
) -> None:
    """Compute the rows of subtrees: threads take turns at them."""
    for chunk in range(thread, trees.firsts.size, len(scratch.products)):
        for leaf in range(trees.sizes[chunk]):
            _add_leaf(rows, trees, chunk, leaf, constants, scratch, thread)
        depth = 0
        while 1 << depth < trees.sizes[chunk]:
            depth += 1
        copy_to(contributions[chunk], scratch.vectors[thread, depth, : rows.gamma.size])
    end_streams()


@kernel
def _merge(chunk: int, width: int, contributions: Floats, order: Integers, dgamma: Floats) -> None:
    """Add the contributions to a block of columns of dgamma as a tree; overwrites them."""
    begin = chunk * width
    end = min(begin + width, dgamma.size)
    power = order.size
    for position in range(len(contributions) - power):
        add_to(contributions[position, begin:end], contributions[power + position, begin:end])
    step = 1
    while step < power:
        for position in range(0, power, 2 * step):
            other = contributions[order[position + step], begin:end]
            add_to(contributions[order[position], begin:end], other)
        step *= 2
    copy_to(dgamma[begin:end], contributions[order[0], begin:end])


def halved_order(count: int) -> Integers:
    """Return the order of a power of two of rows in which `halve` is a tree of neighbours."""
    order = np.zeros(1, np.int64)
    while order.size < count:
        order = np.concatenate((2 * order, 2 * order + 1))
    return order


def rows_order(count: int, width: int) -> Integers:
    """Return the same for ``rows_sum``, whose order depends on a padded ``width``."""
    group = 16
    if not 32 < width <= 64 or count <= group:
        return halved_order(count)
    groups = rows_order(count // group, width) * group
    return (groups[:, np.newaxis] + halved_order(group)).reshape(-1)


def column_trees(rows: int) -> Trees:
    """Return the subtrees of keys 7000 and 7001: all rows are one tree of neighbours."""
    power = 1 << (rows.bit_length() - 1)
    chunks = 1
    while 2 * chunks <= min(power, MOST_CHUNKS) and (
        chunks < thread_count() or power // (2 * chunks) >= LEAST_LEAVES
    ):
        chunks *= 2
    same = np.ones(chunks, np.int64)
    starts = np.arange(chunks, dtype=np.int64) * (power // chunks)
    numbers = np.arange(chunks, dtype=np.int64)
    sizes = power // chunks * same
    orders = np.zeros((chunks, 1), np.int64)
    return Trees(0 * same, rows * same, power * same, starts, sizes, orders, same, numbers)


def core_trees(rows: int, cores: int, width: int, merge_width: int) -> Trees:
    """Return the trees of key 9000: one for every core, in blocks of 64 rows.

    ``width`` and ``merge_width`` are the padded columns that select the orders.
    """
    rows_per_core, longer = divmod(rows, cores)
    counts = rows_per_core + (np.arange(cores) < longer).astype(np.int64)
    firsts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    leaves = np.array([_folded_rows(int(count)) for count in counts], np.int64)
    starts, blocks = np.zeros(cores, np.int64), np.minimum(leaves, BLOCK_ROWS)
    orders = np.zeros((cores, BLOCK_ROWS), np.int64)
    for core, block in enumerate(blocks):
        orders[core, :block] = rows_order(int(block), width)
    merge = rows_order(1 << (cores.bit_length() - 1), merge_width)
    return Trees(firsts, counts, leaves, starts, leaves, orders, blocks, merge)


def _folded_rows(count: int) -> int:
    """Return the rows that the fold of a core leaves."""
    power = 1 << (count.bit_length() - 1)
    # Above 64 rows whole blocks are folded, strictly fewer than there are.
    return power // 2 if power == count and count > BLOCK_ROWS else power


def rms_norm_grad(rows: Rows, trees: Trees, body: int, dgamma: Floats, *, fused: bool) -> None:
    """Compute dx and dgamma.

    Parameters
    ----------
    rows
        Inputs, of at least one row, and dx, which is written.
    trees
        The order of the rows in dgamma.
    body
        Columns that later ones are added to in the sum of a row; 0 for whole rows.
    dgamma : float32 (columns,)
    fused
        Whether dx takes one fused multiply-add, whose product is not rounded.
    """
    columns = dgamma.size
    threads = min(threads_for(3 * rows.x.nbytes), trees.firsts.size)
    depth = int(trees.sizes.max()).bit_length()
    row_products = columns + PADDED_COLUMNS if body == 0 else 2 * PIECE_COLUMNS
    scratch = Scratch(
        thread_scratch(threads, max(row_products, PADDED_COLUMNS)),
        thread_scratch(threads, LIST_SLOTS),
        thread_scratch(threads, 2 * LANE_COUNT),
        thread_scratch(threads, depth + 1, columns),
    )
    constants = Constants(np.float32(1) / np.float32(columns), body, is_streamed(rows.dx), fused)
    contributions = np.empty((trees.firsts.size, columns), np.float32)
    _subtrees.over(threads, rows, trees, constants, scratch, contributions)
    blocks = (columns + MERGED_COLUMNS - 1) // MERGED_COLUMNS
    _merge.over(blocks, MERGED_COLUMNS, contributions, trees.merge, dgamma)
