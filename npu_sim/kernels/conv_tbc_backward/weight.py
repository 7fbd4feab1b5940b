"""ConvTbcBackward: gradWeight.

What each core sums, and in which order that is added to memory, is in ``conv_tbc_backward_folds``. Threads own blocks of the output:
which block a thread takes changes no bit.

Neighbouring samples lie side by side in a row of time, so operands are packed for a group of visits at a time (a visit: one sample, on
one core's share of the time axis): a read touches whole rows, and every element is rounded once. Memory beyond inputs and output: the
packed group (8 MiB, or one visit when that is more; all of it in the random order), one fp32 sum for each weight (two where cores
share tiles, three where tiles have slots), and in the random order 16 MiB a thread for the sums of the cores.
"""

import numpy as np

from npu_sim.kernels.conv_tbc_backward.folds import (
    NO_MASK,
    START,
    STOP,
    Integers,
    Shares,
    TailTiles,
    tail_mask,
)
from npu_sim.kernels.conv_tbc_backward.operands import Stored, clear, pack_tiles
from npu_sim.kernels.conv_tbc_backward.partial import (
    Block,
    Taps,
    add_sample,
    add_tile,
    place_in_block,
)
from npu_sim.kernels.conv_tbc_backward.queue import take
from npu_sim.kernels.conv_tbc_backward.schedule import (
    PLAIN,
    SLOTS,
    Flags,
    schedule,
    scratch_of,
    slotted_kinds,
)
from npu_sim.kernels.conv_tbc_backward.tile import TILE_COLUMNS, TILE_ROWS, Floats
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.kernels.engine.compile import device_function, long_kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count, threads_for
from npu_sim.kernels.random_order import RANDOM, draw_arrival, seed_words
from npu_sim.numbers.storage import FORMAT_OF_STORAGE


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
            add_sample(
                x[at],
                x_rows,
                grad[at],
                grad_rows,
                first,
                last,
                block,
                taps,
                accumulators,
                0,
                anew,
                plain,
                slots,
            )
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
            add_sample(
                x[at],
                x_rows,
                grad[at],
                grad_rows,
                first,
                last,
                block,
                taps,
                parts,
                core * size,
                False,
                none,
                none,
            )
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


def _store(
    blocks: Integers, starts: Integers, sums: Floats, slotted: Floats, tail: Flags, out: Stored
) -> None:
    """Round the sums to the dtype of the output, block by block; elements in ``tail`` take what their slots gave."""
    for line, start, stop in zip(blocks.tolist(), starts[:-1], starts[1:], strict=True):
        block = Block(*line)
        in_channels, out_channels = (
            slice(block.first_in, block.stop_in),
            slice(block.first_out, block.stop_out),
        )
        values = _in_order(sums[start:stop], block)
        if tail.size:
            values = np.where(
                tail[in_channels, out_channels], _in_order(slotted[start:stop], block), values
            )
        narrow_array(
            values,
            FORMAT_OF_STORAGE[out.dtype],
            out=out[block.first_tap : block.stop_tap, in_channels, out_channels],
        )


def _in_order(sums: Floats, block: Block) -> Floats:
    """Return the sums of a block, which lie tile by tile, as (taps, input channels, output channels)."""
    row_tiles = -(-(block.stop_in - block.first_in) // TILE_ROWS)
    tiles = sums.reshape(block.stop_tap - block.first_tap, -1, row_tiles, TILE_ROWS, TILE_COLUMNS)
    rows = tiles.transpose(0, 2, 3, 1, 4).reshape(len(tiles), row_tiles * TILE_ROWS, -1)
    return rows[:, : block.stop_in - block.first_in, : block.stop_out - block.first_out]


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
    taps, in_channels, out_channels = out.shape
    drawn = core_order == RANDOM and shares.cores > 1
    threads = thread_count() if drawn else threads_for(operations=grad.size * taps * in_channels)
    plan = schedule(out.shape, tap_stride, shares, tail.slot_samples, core_order, threads, drawn)
    mask = tail_mask(tail, in_channels, out_channels) if tail.slot_samples else NO_MASK
    kinds = slotted_kinds(plan.blocks, mask) if mask.size else plan.kinds
    has_slots, size = bool(mask.any()), plan.size
    scratch = scratch_of(
        plan, threads, size if has_slots or shares.cores > 1 else 0, size if has_slots else 0
    )
    operands = (
        _flat(scratch.packed_x),
        plan.x_shape[1],
        _flat(scratch.packed_grad),
        plan.grad_shape[1],
    )
    walk, halo = Taps(pad, tap_stride, x.shape[0]), (taps - 1) * tap_stride
    for first in range(0, len(plan.visits), plan.group):
        part, queue = slice(first, first + plan.group), np.zeros(1, np.int64)
        visits, ends = plan.visits[part], plan.ends[part]
        pack_tiles(x, visits, halo, pad, TILE_ROWS, rounding, scratch.packed_x)
        pack_tiles(grad, visits, 0, 0, TILE_COLUMNS, rounding, scratch.packed_grad)
        if drawn:
            counts, own = np.ones(shares.cores, np.int64), seed_words(seed)
            left, order = (thread_scratch(threads, shares.cores, dtype=np.int64) for _ in range(2))
            common = (
                *operands,
                visits,
                ends,
                plan.blocks,
                plan.starts,
                counts,
                walk,
                in_channels,
                own,
                scratch.sums,
            )
            _multiply_random.over(threads, *common, queue, left, order, scratch.parts)
        else:
            anew = shares.anew == 1
            running = scratch.running if anew or scratch.running.size else scratch.sums
            target = scratch.finished if has_slots else scratch.sums
            work = (
                *operands,
                visits,
                plan.blocks,
                plan.starts,
                kinds,
                walk,
                anew,
                ends,
                scratch.sums,
            )
            _multiply.over(threads, *work, running, target, queue, scratch.parts)
    _store(plan.blocks, plan.starts, scratch.sums, scratch.finished, mask, out)


def _flat(packed: Floats) -> Floats:
    return packed.reshape(len(packed), -1)
