"""MoeTokenUnpermuteGrad with probs: gradients of the experts' rows and of the weights.

For every entry (token, expert): weight gradient = sum over columns of row * g, where row is the
expert's row and g the token's gradient; row gradient = g * weight.

Order of accumulation: the products of a row, or of a piece of it, are *folded* to a power of two (a
fold adds the products behind the middle to those before it), then summed as a binary tree of
neighbours, all in fp32. Pieces are added from the left. If every half consists of whole cache
lines, a line of products is folded in registers and only the first step of the tree is written;
otherwise the products are held in scratch.

Ascend 950: n products are folded once, to the largest power of two q <= n, the products from q on
being added to the first ones. Then each register of 64 is summed as a tree, and these sums as a
tree; more than 64 of them are first halved register by register. Longer rows are cut into blocks,
each summed in this way: a main block, or half a main block and as many columns of the part of the
row behind the main blocks. The sums of the blocks go to lists of 256.

One thread computes all of a token. It widens the row of g once. Between the cache lines of a row
that it reads, it writes lines of the row gradient and prefetches the next row, which overlaps
computation, reads and writes.

Slow reference with the order of additions: ``tests/reference/moe_token_unpermute.py``.

Sources: specification pages ``moe_token_unpermute_grad``, "Kernels and order" (``reduce``), and
``moe_token_unpermute_grad_950``, "Order" (``qsum``, ``cross``).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import (
    device_function,
    inlined_function,
    kernel,
    thread_scratch,
    threads_for,
)
from npu_sim.kernels.vectors.lane_blocks import store_numbers, stream_numbers
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    NOTHING_YET,
    ORDERED_LANES,
    ZERO,
    Floats,
    Lanes,
    Stored,
    add_neighbours,
    end_streams,
    is_streamed,
    load,
    load_lanes,
    load_ordered,
    prefetch,
    prefetch_to_write,
    splat,
    store,
    store_lanes,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, write_ends
from npu_sim.kernels.vectors.row_sums import (
    LANE_COUNT,
    SLOTS,
    add_lanes,
    add_slot,
    add_to,
    clear,
    copy_to,
    halve_registers,
    largest_power,
    one_list,
)
from npu_sim.numbers.scalars import narrow, widen

WIDEST_TREE = LANE_COUNT * LANE_COUNT
"""Up to so many folded products, register sums need no halving: the sum is a tree of neighbours."""
OTHER_HALF = 2
"""A register of a list is added to the one in the other half of the list."""
CUT_SCRATCH = 2 * SLOTS + LANE_COUNT
"""Scratch of `cut_sum` besides one main block: two lists of sums, and a register."""


class Cut(NamedTuple):
    """Blocks of a row: columns of a main block, and how many; 0 for rows that are not cut."""

    columns: int
    blocks: int


@device_function
def power_sum(values: Floats, count: int) -> np.float32:
    """Return the sum of ``count`` folded products, a power of two and at least 64.

    Overwrites them.
    """
    registers = count // LANE_COUNT
    for number in range(registers):
        begin = number * LANE_COUNT
        values[number] = add_lanes(values[begin : begin + LANE_COUNT])
    if registers > LANE_COUNT:
        halve_registers(values, registers // LANE_COUNT)
    else:
        clear(values[registers:LANE_COUNT])
    return add_lanes(values[:LANE_COUNT])


@device_function
def _block_sum(values: Floats, count: int) -> np.float32:
    """Return the sum ``qsum`` of products; overwrites them. ``values`` has at least 64 elements."""
    if count < LANE_COUNT:
        clear(values[count:LANE_COUNT])
        return add_lanes(values[:LANE_COUNT])
    folded = largest_power(count)
    add_to(values[: count - folded], values[folded:count])
    return power_sum(values, folded)


@device_function
def cut_sum(products: Floats, cut: Cut, scratch: Floats) -> np.float32:
    """Return the sum of a row of products that is cut into blocks.

    ``scratch`` has as many elements as a main block and `CUT_SCRATCH`.
    """
    main, half, hidden = cut.columns, cut.columns // 2, products.size
    behind = main * cut.blocks
    block, lists = scratch[:main], scratch[main : main + 2 * SLOTS]
    lanes = scratch[main + 2 * SLOTS : main + CUT_SCRATCH]
    clear(lists)
    number = 0
    begin, other = 0, behind
    while other < hidden:
        count = min(half, hidden - other)
        copy_to(block[:half], products[begin : begin + half])
        copy_to(block[half : half + count], products[other : other + count])
        add_slot(lists, number, _block_sum(block, half + count), lanes, OTHER_HALF)
        number, begin, other = number + 1, begin + half, other + half
    if begin % main:
        copy_to(block[:half], products[begin : begin + half])
        add_slot(lists, number, _block_sum(block, half), lanes, OTHER_HALF)
        number, begin = number + 1, begin + half
    while begin < behind:
        copy_to(block, products[begin : begin + main])
        add_slot(lists, number, _block_sum(block, main), lanes, OTHER_HALF)
        number, begin = number + 1, begin + main
    rest = one_list(lists[:SLOTS], lanes, OTHER_HALF)
    return rest + one_list(lists[SLOTS:], lanes, OTHER_HALF) if number >= SLOTS else rest


FOLD_STEP = 8
"""A fold keeps half of the products, rounded up to a multiple of this, and adds the others to
them."""


class Summation(NamedTuple):
    """Order in which the products of a row are added.

    Attributes
    ----------
    piece_columns
        Columns of a piece.
    folds_once
        Ascend 950: products are folded once, to the largest power of two.
    cut
        Ascend 950: blocks of a long row.
    """

    piece_columns: int
    folds_once: bool = False
    cut: Cut = Cut(0, 0)


@device_function
def folded_width(count: int, folds_once: bool) -> int:
    """Return the number of products after all folds; 0 for fewer than 64, which are not folded."""
    if folds_once:
        return largest_power(count) if count >= 64 else 0
    if count >= 4096:
        return 4096
    if count >= 512:
        return 512
    return 64 if count >= 64 else 0


@device_function
def _fold_of(count: int, width: int) -> int:
    """Return the number of products after one fold; at most ``width`` products are not folded."""
    half = ((count + 1) // 2 + FOLD_STEP - 1) // FOLD_STEP * FOLD_STEP
    return half if count > 2 * width else min(count, width)


@device_function
def folds_lines(count: int, line: int, folds_once: bool) -> bool:
    """Return whether at most three folds of whole cache lines lead to a tree of neighbours."""
    width = folded_width(count, folds_once)
    first = _fold_of(count, width)
    second = _fold_of(first, width)
    third = _fold_of(second, width)
    is_tree = 0 < width <= WIDEST_TREE and third == width
    return is_tree and (count | first | second | third) % line == 0


@device_function
def widen_row(stored: Stored, start: int, by_line: bool, wide: Floats) -> None:
    """Widen a row: in the lane order of `load` with ``by_line``, otherwise in element order."""
    line = LINE_BYTES // stored.itemsize
    whole = wide.size // ORDERED_LANES * ORDERED_LANES
    if by_line:
        for column in range(0, wide.size, line):
            store_lanes(wide, column, load(stored, start + column))
        return
    for column in range(0, whole, ORDERED_LANES):
        store_lanes(wide, column, load_ordered(stored, start + column))
    for column in range(whole, wide.size):
        wide[column] = widen(stored[start + column])


@device_function
def fold_line(
    row: Stored, start: int, wide: Floats, column: int, width: int, following: int, scratch: Floats
) -> None:
    """Write one cache line of folded products, with adjacent ones already added.

    Parameters
    ----------
    row, start
        Multiplied by ``wide``: as many elements from ``start`` on as ``wide`` has. All folds must
        be of whole lines (`folds_lines`).
    wide
        From `widen_row`, by line.
    column
        First column of the line, less than ``width``.
    width
        Number of products after all folds (`folded_width`).
    following
        Element of ``row`` where the next piece starts, to be prefetched.
    scratch
        As many elements as ``wide``, at least 64; ``width // 2`` of them are written.
    """
    first = _fold_of(wide.size, width)
    second = _fold_of(first, width)
    lanes = _fold_twice(row, start, wide, first, second, column, following)
    if column + width < second:
        lanes = lanes + _fold_twice(row, start, wide, first, second, column + width, following)
    store_lanes(scratch, column // 2, add_neighbours(lanes, row))


@device_function
def _multiply(row: Stored, start: int, wide: Floats, column: int, following: int) -> Lanes:
    """Return a cache line of products."""
    prefetch(row, following + column)
    return load(row, start + column) * load_lanes(wide, column, row)


@device_function
def _fold_once(
    row: Stored, start: int, wide: Floats, first: int, column: int, following: int
) -> Lanes:
    """Return a cache line of products after the first fold."""
    lanes = _multiply(row, start, wide, column, following)
    if column + first < wide.size:
        lanes = lanes + _multiply(row, start, wide, column + first, following)
    return lanes


@device_function
def _fold_twice(
    row: Stored, start: int, wide: Floats, first: int, second: int, column: int, following: int
) -> Lanes:
    """Return a cache line of products after the second fold."""
    lanes = _fold_once(row, start, wide, first, column, following)
    if column + second < first:
        lanes = lanes + _fold_once(row, start, wide, first, column + second, following)
    return lanes


@device_function
def sum_of_products(
    row: Stored, start: int, wide: Floats, folds_once: bool, products: Floats
) -> np.float32:
    """Return the sum of the products of a row and ``wide`` (element order), using scratch."""
    width = folded_width(wide.size, folds_once)
    if width == 0:
        clear(products[wide.size : LANE_COUNT])
        _multiply_and_fold(row, start, wide, wide.size, products)
        return add_lanes(products[:LANE_COUNT])
    count = _fold_of(wide.size, width)
    _multiply_and_fold(row, start, wide, count, products)
    while count > width:
        left = _fold_of(count, width)
        add_to(products[: count - left], products[left:count])
        count = left
    return power_sum(products, width) if folds_once else _tree(products, width)


@device_function
def _multiply_and_fold(row: Stored, start: int, wide: Floats, front: int, products: Floats) -> None:
    """Write the first ``front`` products of a row and ``wide``, with the others added to them."""
    back = wide.size - front
    both, whole = back // ORDERED_LANES * ORDERED_LANES, front // ORDERED_LANES * ORDERED_LANES
    for column in range(0, both, ORDERED_LANES):
        first = load_ordered(row, start + column) * load_ordered(wide, column)
        second = load_ordered(row, start + front + column) * load_ordered(wide, front + column)
        store_lanes(products, column, first + second)
    for column in range(both, whole, ORDERED_LANES):
        store_lanes(
            products, column, load_ordered(row, start + column) * load_ordered(wide, column)
        )
    for column in range(whole, front):
        products[column] = widen(row[start + column]) * wide[column]
    for column in range(both, back):
        product = widen(row[start + front + column]) * wide[front + column]
        products[column] = products[column] + product


@device_function
def _tree(values: Floats, width: int) -> np.float32:
    """Return the sum of ``width`` values, a power of two, as a binary tree of neighbours.

    Overwrites ``values``, which has at least 64 elements. The last 64 are padded with -0, which
    changes no value.
    """
    while width > LANE_COUNT:
        for block in range(0, width, LANE_COUNT):
            values[block // LANE_COUNT] = add_lanes(values[block : block + LANE_COUNT])
        width //= LANE_COUNT
    for position in range(width, LANE_COUNT):
        values[position] = NOTHING_YET
    return add_lanes(values[:LANE_COUNT])


# --- Both gradients, on all threads ---
Integers = NDArray[np.int32]


@device_function
def _sum_of_zeros(wide: Floats, scratch: Floats) -> np.float32:
    """Return the sum for a row of zeros: +0, or nan if g contains inf or nan."""
    total, lanes = ZERO, splat(ZERO, wide)
    whole = wide.size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        lanes = lanes + load_ordered(wide, column) * ZERO
    store_lanes(scratch, 0, lanes)
    for lane in range(ORDERED_LANES):
        total = total + scratch[lane]
    for column in range(whole, wide.size):
        total = total + wide[column] * ZERO
    return total


class TokenGradient(NamedTuple):
    """The row of g of one token."""

    g: Stored
    """All rows, flat."""
    start: int
    wide: Floats
    """The row, widened by `widen_row`."""
    by_line: bool
    """Whether ``wide`` is in the lane order of `load`."""


class Entry(NamedTuple):
    """One (token, expert) pair."""

    start: int
    """First element of the expert's row."""
    following: int
    """First element of the row of the next entry."""
    factor: np.float32
    """The weight."""
    no_nan: bool
    """Whether the row gradient is free of nan."""
    is_owner: bool
    """Whether this entry writes the row gradient."""


@inlined_function
def _write_lines(
    token: TokenGradient,
    entry: Entry,
    from_wide: bool,
    out: Stored,
    streams: bool,
    first: int,
    stop: int,
) -> None:
    """Write the whole cache lines first..stop of the row gradient."""
    for column in range(first, stop, LINE_BYTES // out.itemsize):
        wide = token.wide
        lanes = load_lanes(wide, column, out) if from_wide else load(token.g, token.start + column)
        weighted = lanes * entry.factor
        if not entry.no_nan:
            store(out, entry.start + column, weighted)
        elif streams:
            stream_numbers(out, entry.start + column, weighted)
        else:
            store_numbers(out, entry.start + column, weighted)


@device_function
def _part_of(inputs: tuple[Stored, int, np.float32], column: int, begin: int, stop: int) -> Lanes:
    """Return the elements begin..stop of a cache line of the row gradient."""
    g, start, factor = inputs
    return load_some(g, start + column, begin, stop, g) * factor


@device_function
def _sum_and_write(
    rows: Stored,
    entry: Entry,
    token: TokenGradient,
    summation: Summation,
    scratch: Floats,
    out: Stored,
    streams: bool,
) -> np.float32:
    """Return the weight gradient of an entry; write its row gradient meanwhile."""
    wide, by_line = token.wide, token.by_line
    line, hidden, total = LINE_BYTES // out.itemsize, wide.size, ZERO
    piece_columns, folds_once = summation.piece_columns, summation.folds_once
    if hidden < line:
        for column in range(hidden if entry.is_owner else 0):
            out[entry.start + column] = narrow(wide[column] * entry.factor, out)
        return total + sum_of_products(rows, entry.start, wide, folds_once, scratch[1])
    first = to_next_line(out, entry.start)
    end = first + (hidden - first) // line * line if entry.is_owner else first
    if entry.is_owner:
        row = out[entry.start : entry.start + hidden]
        write_ends((token.g, token.start, entry.factor), row, first, end, _part_of)
    written, from_wide = first, by_line and first == 0
    if summation.cut.blocks:
        _write_lines(token, entry, False, out, streams, first, end)
        _multiply_and_fold(rows, entry.start, wide, hidden, scratch[1])
        return cut_sum(scratch[1, :hidden], summation.cut, scratch[2])
    products = scratch[1]
    for begin in range(0, hidden, piece_columns):
        piece = wide[begin : min(begin + piece_columns, hidden)]
        start, following = entry.start + begin, entry.following + begin
        width = folded_width(piece.size, folds_once) if by_line else 0
        written_at_once = -(-piece.size // width) * line if by_line else 0
        # A line of products, then some of the row gradient; after the last line all that is left.
        for column in range(0, width + 1, line):
            if column < width:
                fold_line(rows, start, piece, column, width, following, products)
                stop = min(written + written_at_once, end)
            else:
                stop = end if begin + piece.size == hidden else written
            _write_lines(token, entry, from_wide, out, streams, written, stop)
            written = stop
        piece_sum = (
            _tree(products, width // 2)  # neighbours are added already
            if by_line
            else sum_of_products(rows, start, piece, folds_once, products)
        )
        # Ascend 950 adds nothing to the sum of WIDEST_TREE products and more, which may be -0.
        keeps_sign = folds_once and hidden >= WIDEST_TREE
        total = piece_sum if keeps_sign else total + piece_sum
    return total


class Inputs(NamedTuple):
    """Inputs of a call, flat."""

    tokens: Stored
    """stored (rows * hidden,): rows of the experts."""
    g: Stored
    """stored (count * hidden,): gradient of the tokens; at least one."""
    hidden: int
    """Columns of a row."""
    indices: Integers
    """int32 (count * top_k,): row of every entry; negative, or at or beyond ``rows``, for a dropped
    one."""
    factors: Floats
    """float32 (count * top_k,): the weights, widened."""
    owners: Integers
    """int32 (rows,): the entry that writes each row of the gradient; negative for a row that is not
    written."""
    summation: Summation
    """Order in which the products of a row are added."""


@kernel
def _chunk_of_tokens(
    chunk: int, inputs: Inputs, streams: bool, tokens_grad: Stored, sums: Floats, scratch: Floats
) -> None:
    """Compute the entries of a chunk of the tokens.

    ``scratch`` is (chunks, 2, hidden or more, at least 64), for rows that are cut
    (chunks, 3, hidden + `CUT_SCRATCH`).
    """
    chunks, indices, hidden = len(scratch), inputs.indices, inputs.hidden
    count, summation = inputs.g.size // hidden, inputs.summation
    piece_columns, folds_once = summation.piece_columns, summation.folds_once
    top_k = indices.size // count
    wide, products = scratch[chunk, 0, :hidden], scratch[chunk, 1]
    line = LINE_BYTES // inputs.g.itemsize
    last_piece = (hidden - 1) % piece_columns + 1
    by_line = folds_lines(last_piece, line, folds_once) and (
        last_piece == hidden or folds_lines(piece_columns, line, folds_once)
    )
    for number in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        token = TokenGradient(inputs.g, number * hidden, wide, by_line)
        widen_row(inputs.g, token.start, by_line, wide)
        of_zeros = _sum_of_zeros(wide, products)
        for position in range(number * top_k, (number + 1) * top_k):
            row = np.int64(indices[position])
            if not 0 <= row < inputs.owners.size:
                sums[position] = ZERO if folds_once else of_zeros
                continue
            next_row = np.int64(indices[position + 1]) if position + 1 < indices.size else row
            following = next_row * hidden
            # Partial lines are stored without streaming; fetched late, they would delay the stores
            # behind them.
            if to_next_line(tokens_grad, following) > 0:
                prefetch_to_write(tokens_grad, following)
                prefetch_to_write(tokens_grad, following + hidden - 1)
            factor = inputs.factors[position]
            no_nan, is_owner = of_zeros + factor * ZERO == ZERO, inputs.owners[row] == position
            entry = Entry(row * hidden, following, factor, no_nan, is_owner)
            sums[position] = _sum_and_write(
                inputs.tokens, entry, token, summation, scratch[chunk], tokens_grad, streams
            )
    end_streams()


def weigh_and_multiply(inputs: Inputs, tokens_grad: Stored, sums: Floats) -> None:
    """Compute both gradients.

    Parameters
    ----------
    tokens_grad : stored (rows, hidden)
        Gradient of the rows of the experts.
    sums : float32 (count * top_k,)
        Gradient of the weights, not yet rounded to their dtype.
    """
    chunks = threads_for(inputs.tokens.nbytes + inputs.g.nbytes + tokens_grad.nbytes)
    scratch = (
        thread_scratch(chunks, 3, inputs.hidden + CUT_SCRATCH)
        if inputs.summation.cut.blocks
        else thread_scratch(chunks, 2, max(inputs.hidden, LANE_COUNT))
    )
    streams = is_streamed(tokens_grad)
    _chunk_of_tokens.over(chunks, inputs, streams, tokens_grad.reshape(-1), sums, scratch)
