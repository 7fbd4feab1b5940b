"""ConvTbcBackward: what one sample adds to a block of gradWeight, tap by tap, in register tiles."""

from typing import NamedTuple

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import Stored, clear, pack_tiles
from npu_sim.kernels.conv_tbc_backward.order import (
    NO_MASK,
    START,
    STOP,
    Integers,
    Shares,
    TailTiles,
    tail_mask,
)
from npu_sim.kernels.conv_tbc_backward.schedule import (
    PLAIN,
    SLOTS,
    Flags,
    schedule,
    scratch_of,
    slotted_kinds,
    take,
)
from npu_sim.kernels.conv_tbc_backward.tile import (
    CHUNK,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    TILE_STRIDE,
    TIME_BLOCK,
    Floats,
    Walk,
    multiply_channels,
)
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.kernels.engine.compile import device_function, long_kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count, threads_for
from npu_sim.kernels.random_order import RANDOM, draw_arrival, seed_words
from npu_sim.numbers.storage import FORMAT_OF_STORAGE


class Block(NamedTuple):
    """Half-open ranges of taps, input channels and output channels of the weight; channels start at whole tiles."""

    first_tap: int
    stop_tap: int
    first_in: int
    stop_in: int
    first_out: int
    stop_out: int


class Taps(NamedTuple):
    """Output time t of tap k reads input time t + k * stride - pad, one of 0..``time``."""

    pad: int
    stride: int
    time: int


@device_function
def row_tiles(block: Block) -> int:
    """Tiles along the input channels."""
    return (block.stop_in - block.first_in + TILE_ROWS - 1) // TILE_ROWS


@device_function
def column_tiles(block: Block) -> int:
    """Tiles along the output channels."""
    return (block.stop_out - block.first_out + TILE_COLUMNS - 1) // TILE_COLUMNS


@device_function
def place_in_block(block: Block, tap: int, in_channel: int, out_channel: int) -> int:
    """Position of an element in the sums of its block."""
    row, column = in_channel - block.first_in, out_channel - block.first_out
    tile = ((tap - block.first_tap) * column_tiles(block) + column // TILE_COLUMNS) * row_tiles(
        block
    ) + row // TILE_ROWS
    return (tile * TILE_ROWS + row % TILE_ROWS) * TILE_COLUMNS + column % TILE_COLUMNS


@device_function
def add_tile(target: Floats, tile: Floats) -> None:
    """Add one tile to another."""
    for place in range(target.size):
        target[place] = target[place] + tile[place]


@device_function
def _multiply_time(
    x: Floats,
    left: int,
    grad: Floats,
    right: int,
    parts: Floats,
    place: int,
    before: int,
    steps: int,
) -> None:
    """Add the products of some time steps to a tile, in blocks that are counted from ``before`` steps earlier on."""
    done = 0
    while done < steps:
        # The rest of a block that began earlier, whole blocks, and the beginning of one.
        length, blocks = min(TIME_BLOCK - (before + done) % TIME_BLOCK, steps - done), 1
        if length == TIME_BLOCK:
            blocks = (steps - done) // TIME_BLOCK
        walk = Walk(1, 0, 0, blocks, TIME_BLOCK * TILE_STRIDE, length)
        multiply_channels(
            x, left + done * TILE_STRIDE, grad, right + done * TILE_COLUMNS, parts, place, walk
        )
        done += blocks * length


@device_function
def add_sample(
    x: Floats,
    x_rows: int,
    grad: Floats,
    grad_rows: int,
    start: int,
    stop: int,
    block: Block,
    taps: Taps,
    parts: Floats,
    first_part: int,
    anew: bool,
    sums: Floats,
    slots: Floats,
) -> None:
    """Add the products of one sample over output time start..stop to the accumulators of a block.

    Time runs in chunks that fit the cache.

    Parameters
    ----------
    x : (tiles, x_rows, TILE_STRIDE), flat
        Packed input of the sample; row 0 is what tap 0 reads at ``start``.
    grad : (panels, grad_rows, TILE_COLUMNS), flat
        Packed self; row 0 is output time ``start``.
    start, stop, block, taps
        What to sum, for which part of gradWeight.
    parts, first_part
        Accumulators, from ``first_part`` on.
    anew
        Whether accumulators start at 0 and are added to ``sums`` and ``slots`` in the end; else
        they go on from where they are.
    sums, slots
        Where finished accumulators are added; empty where they are not wanted.
    """
    whole = start + CHUNK >= stop
    first_row = start - taps.pad
    for begin in range(start, stop, CHUNK):
        end = min(begin + CHUNK, stop)
        number = 0
        for tap in range(block.first_tap, block.stop_tap):
            shift = tap * taps.stride - taps.pad
            valid_start, valid_stop = max(begin, -shift), min(end, taps.time - shift)
            for panel in range(column_tiles(block)):
                right = (block.first_out // TILE_COLUMNS + panel) * grad_rows + valid_start - start
                for row_tile in range(row_tiles(block)):
                    # A tile that is added at once needs no place of its own: the first one stays in
                    # the cache.
                    place = first_part + (0 if whole and anew else number * TILE_SIZE)
                    tile = parts[place : place + TILE_SIZE]
                    if anew and begin == start:
                        clear(tile)
                    if valid_start < valid_stop:
                        left = (
                            (block.first_in // TILE_ROWS + row_tile) * x_rows
                            + valid_start
                            + shift
                            - first_row
                        )
                        steps = valid_stop - valid_start
                        _multiply_time(
                            x,
                            left * TILE_STRIDE,
                            grad,
                            right * TILE_COLUMNS,
                            parts,
                            place,
                            valid_start - start,
                            steps,
                        )
                    if anew and end == stop:
                        if sums.size > 0:
                            add_tile(sums[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                        if slots.size > 0:
                            add_tile(slots[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                    number += 1


# --- All samples, on all threads ---
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
