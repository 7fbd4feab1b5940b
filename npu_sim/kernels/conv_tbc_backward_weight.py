"""ConvTbcBackward: gradWeight.

What each core sums, and in which order that is added to memory, is in ``conv_tbc_backward_folds``. Threads own blocks of the output:
which block a thread takes changes no bit.

Neighbouring samples lie side by side in a row of time, so operands are packed for a group of visits at a time (a visit: one sample, on
one core's share of the time axis): a read touches whole rows, and every element is rounded once. Memory beyond inputs and output: the
packed group (8 MiB, or one visit when that is more; all of it in the random order), one fp32 sum for each weight (two where cores
share tiles, three where tiles have slots), and in the random order 16 MiB a thread for the sums of the cores.
"""

from functools import lru_cache
from math import prod

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward_blocks import block_sizes, blocking, cut_output
from npu_sim.kernels.conv_tbc_backward_folds import START, STOP, Integers, Shares, TailTiles, arrival, tail_mask
from npu_sim.kernels.conv_tbc_backward_operands import Stored, clear, pack_tiles
from npu_sim.kernels.conv_tbc_backward_partial import Block, Taps, add_sample, add_tile, place_in_block
from npu_sim.kernels.conv_tbc_backward_queue import take
from npu_sim.kernels.conv_tbc_backward_tile import TILE_COLUMNS, TILE_ROWS, TILE_STRIDE, Floats
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.kernels.engine.compile import device_function, long_kernel
from npu_sim.kernels.engine.scratch import aligned, thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.random_order import RANDOM, draw_arrival, seed_words
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

Flags = NDArray[np.bool_]

GROUP_BYTES = 1 << 23
"""Packed operands held at a time, when one visit is not larger by itself."""

PLAIN, MIXED, SLOTS = 0, 1, 2
"""Whether what a block sums goes to memory, to both, or only to what runs beside it (slots, the accumulators of a core)."""


@device_function
def _block(blocks: Integers, number: int) -> Block:
    line = blocks[number]
    return Block(line[0], line[1], line[2], line[3], line[4], line[5])


@long_kernel
def _multiply(
    thread: int,
    x: Floats,
    x_rows: int,
    grad: Floats,
    grad_rows: int,
    visits: Integers,
    blocks: Integers,
    starts: Integers,
    kinds: Integers,
    taps: Taps,
    anew: bool,
    ends: Integers,
    sums: Floats,
    running: Floats,
    finished: Floats,
    queue: Integers,
    all_parts: Floats,
) -> None:
    """Add the visits, in the order given, to every block.

    With ``anew`` the sum of a visit is added to ``sums``, and to ``running`` where the block has slots; else ``running`` is the
    accumulator. After a visit that ends (a slot, a core), ``running`` is added to ``finished`` and starts at 0 again.
    """
    parts, none = all_parts[thread], sums[:0]
    number = take(queue)
    while number < len(blocks):
        block, start, stop = _block(blocks, number), starts[number], starts[number + 1]
        plain = none if kinds[number] == SLOTS else sums[start:stop]
        beside = none if kinds[number] == PLAIN else running[start:stop]
        accumulators, slots = (parts, beside) if anew else (beside, none)
        for at in range(len(visits)):
            first, last = visits[at, START], visits[at, STOP]
            add_sample(x[at], x_rows, grad[at], grad_rows, first, last, block, taps, accumulators, 0, anew, plain, slots)
            if beside.size > 0 and ends[at] != 0:
                add_tile(finished[start:stop], beside)
                clear(beside)
        number = take(queue)


@long_kernel
def _multiply_random(
    thread: int,
    x: Floats,
    x_rows: int,
    grad: Floats,
    grad_rows: int,
    visits: Integers,
    ends: Integers,
    blocks: Integers,
    starts: Integers,
    counts: Integers,
    taps: Taps,
    in_channels: int,
    seed: tuple[int, int],
    sums: Floats,
    queue: Integers,
    all_left: Integers,
    all_drawn: Integers,
    all_parts: Floats,
) -> None:
    """Keep the accumulators of every core, then add them row by row in an order drawn for each row."""
    parts, none = all_parts[thread], sums[:0]
    left, drawn = all_left[thread], all_drawn[thread, : counts.size]
    number = take(queue)
    while number < len(blocks):
        block, start = _block(blocks, number), starts[number]
        size, core = starts[number + 1] - start, 0
        clear(parts[: counts.size * size])
        for at in range(len(visits)):
            first, last = visits[at, START], visits[at, STOP]
            add_sample(x[at], x_rows, grad[at], grad_rows, first, last, block, taps, parts, core * size, False, none, none)
            core += ends[at]
        for tap in range(block.first_tap, block.stop_tap):
            for in_channel in range(block.first_in, block.stop_in):
                draw_arrival(counts, seed, tap * in_channels + in_channel, left, drawn)
                for first in range(block.first_out, block.stop_out, TILE_COLUMNS):
                    place = place_in_block(block, tap, in_channel, first)
                    target = sums[start + place : start + place + TILE_COLUMNS]
                    for step in range(drawn.size):
                        part = drawn[step] * size + place
                        add_tile(target, parts[part : part + TILE_COLUMNS])
        number = take(queue)


def _store(blocks: Integers, starts: Integers, sums: Floats, slotted: Floats, tail: Flags, out: Stored) -> None:
    """Round the sums to the dtype of the output, block by block; elements in ``tail`` take what their slots gave."""
    for line, start, stop in zip(blocks.tolist(), starts[:-1], starts[1:], strict=True):
        block = Block(*line)
        in_channels, out_channels = slice(block.first_in, block.stop_in), slice(block.first_out, block.stop_out)
        values = _in_order(sums[start:stop], block)
        if tail.size:
            values = np.where(tail[in_channels, out_channels], _in_order(slotted[start:stop], block), values)
        narrow_array(values, FORMAT_OF_STORAGE[out.dtype], out=out[block.first_tap : block.stop_tap, in_channels, out_channels])


def _in_order(sums: Floats, block: Block) -> Floats:
    """Return the sums of a block, which lie tile by tile, as (taps, input channels, output channels)."""
    row_tiles = -(-(block.stop_in - block.first_in) // TILE_ROWS)
    tiles = sums.reshape(block.stop_tap - block.first_tap, -1, row_tiles, TILE_ROWS, TILE_COLUMNS)
    rows = tiles.transpose(0, 2, 3, 1, 4).reshape(len(tiles), row_tiles * TILE_ROWS, -1)
    return rows[:, : block.stop_in - block.first_in, : block.stop_out - block.first_out]


def _kinds(blocks: Integers, tail: Flags, anew: bool) -> Integers:
    """Return for each block where its sums go."""
    kinds = np.full(len(blocks), PLAIN if anew else SLOTS, np.int64)
    if tail.size:
        for number, (_, _, first_in, stop_in, first_out, stop_out) in enumerate(blocks):
            part = tail[first_in:stop_in, first_out:stop_out]
            kinds[number] = SLOTS if part.all() else MIXED if part.any() else PLAIN
    return kinds


@lru_cache(maxsize=64)
def _cut(shape: tuple[int, int, int], kept: int, threads: int) -> tuple[Integers, Integers, int]:
    """Return the blocks of the output, where the sums of each begin, and how many the largest has; not to be changed."""
    blocks = cut_output(shape, blocking(kept), threads)
    sizes = block_sizes(blocks)
    return blocks, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), int(sizes.max())


def _zeros(size: int) -> Floats:
    sums = aligned(size)
    sums[:] = 0
    return sums


def grad_weight(
    x: Stored,
    grad: Stored,
    pad: int,
    tap_stride: int,
    rounding: int,
    out: Stored,
    shares: Shares,
    tail: TailTiles,
    core_order: int,
    seed: int,
) -> None:
    """Compute gradWeight[k, i, o] = sum over b and t of x[t + k * tap_stride - pad, b, i] * grad[t, b, o].

    Parameters
    ----------
    x : (T, B, Cin)
        Input, C-contiguous, in storage form; no axis is empty.
    grad : (To, B, Cout)
        Gradient of the output, C-contiguous.
    pad, tap_stride : int
        Zeros at both ends of the time axis; distance of two taps in input.
    rounding : int
        How operands are rounded to the compute dtype (codes of ``conv_tbc_backward_operands``).
    out : (K, Cin, Cout)
        Result, C-contiguous.
    shares : Shares
        How the reduction is shared by cores.
    tail : TailTiles
        Tiles summed through private slots; needs ``shares`` whose accumulator starts anew.
    core_order, seed : int
        Order in which the sums of different cores arrive.
    """
    arrived, ends = arrival(shares, core_order)
    cores = int(ends.sum())
    drawn = core_order == RANDOM and cores > 1
    threads = get_num_threads() if drawn else threads_for(operations=grad.size * out.shape[0] * out.shape[1])
    blocks, starts, largest = _cut(out.shape, cores if drawn else 0, threads)
    mask = tail_mask(tail, out.shape[1], out.shape[2])
    kinds, has_slots = _kinds(blocks, mask, shares.anew == 1), bool(mask.size and mask.any())
    sums, running, finished = (_zeros(starts[-1] if wanted else 0) for wanted in (True, has_slots or cores > 1, has_slots))
    if tail.slot_samples:
        ends = np.zeros(len(arrived), np.int64)
        ends[tail.slot_samples - 1 :: tail.slot_samples] = 1
        ends[-1] = 1
    elif cores == 1 and not shares.anew:
        # The one accumulator is what is added to the zeroed output.
        running, ends = sums, np.zeros_like(ends)
    steps, halo = min(shares.piece_steps, shares.steps), (out.shape[0] - 1) * tap_stride
    x_shape = (-(-out.shape[1] // TILE_ROWS), steps + halo, TILE_STRIDE)
    grad_shape = (-(-out.shape[2] // TILE_COLUMNS), steps, TILE_COLUMNS)
    group = len(arrived) if drawn else min(max(GROUP_BYTES // (4 * (prod(x_shape) + prod(grad_shape))), 1), len(arrived))
    packed_x, packed_grad = aligned(group, *x_shape), aligned(group, *grad_shape)
    operands = packed_x.reshape(group, -1), x_shape[1], packed_grad.reshape(group, -1), grad_shape[1]
    parts = thread_scratch(threads, largest * (cores if drawn else shares.anew))
    taps = Taps(pad, tap_stride, x.shape[0])
    for first in range(0, len(arrived), group):
        part, queue = slice(first, first + group), np.zeros(1, np.int64)
        pack_tiles(x, arrived[part], halo, pad, TILE_ROWS, rounding, packed_x)
        pack_tiles(grad, arrived[part], 0, 0, TILE_COLUMNS, rounding, packed_grad)
        visits, end = arrived[part], ends[part]
        if drawn:
            counts, own = np.ones(cores, np.int64), seed_words(seed)
            left, order = (thread_scratch(threads, cores, dtype=np.int64) for _ in range(2))
            _multiply_random.over(
                threads, *operands, visits, end, blocks, starts, counts, taps, out.shape[1], own, sums, queue, left, order, parts
            )
        else:
            anew, target = shares.anew == 1, finished if has_slots else sums
            _multiply.over(threads, *operands, visits, blocks, starts, kinds, taps, anew, end, sums, running, target, queue, parts)
    _store(blocks, starts, sums, finished, mask, out)
