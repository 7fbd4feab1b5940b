"""ConvTbcBackward: gradWeight.

gradWeight[k, i, o] = sum over b and t of x[t + k*stride - pad, b, i] * grad[t, b, o].

Order of accumulation: see `order` for samples and cores, and `tile` for the time steps of a sample.
Threads take blocks of the output from a queue; which thread takes a block changes no bit.

Neighbouring samples are adjacent within a row of time, so operands are packed for a group of visits
at a time: a read touches whole rows, and every element is rounded once. Memory beyond inputs and
output: the packed group (8 MiB, or one visit if that is more; all visits in the random order), one
fp32 sum per weight (two if several cores reduce a tile, three if tiles have slots), and in the
random order 16 MiB per thread for the sums of the cores.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Source: specification page ``conv_tbc_backward``, "Execution".
"""

from typing import NamedTuple

import numpy as np

from npu_sim.kernels.arrival_orders import RANDOM, arrival, seed_words
from npu_sim.kernels.conv_tbc_backward.operands import Packing, Stored, clear, pack_tiles
from npu_sim.kernels.conv_tbc_backward.schedule import (
    IN_MEMORY,
    NO_MASK,
    RUNNING,
    START,
    STOP,
    Flags,
    Integers,
    ReductionSplit,
    TailTiles,
    places_with_slots,
    schedule,
    scratch_of,
    tail_mask,
    take,
)
from npu_sim.kernels.conv_tbc_backward.tile import (
    PACKED_STEPS,
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
from npu_sim.kernels.engine.threads import thread_count, thread_scratch, threads_for
from npu_sim.numbers.storage import FORMAT_OF_STORAGE


class Block(NamedTuple):
    """Half-open ranges of taps and channels of gradWeight; channels start at whole tiles."""

    first_tap: int
    stop_tap: int
    first_in: int
    stop_in: int
    first_out: int
    stop_out: int


class Taps(NamedTuple):
    """Taps: output time t of tap k reads input time t + k * stride - pad, if in 0..time."""

    pad: int
    stride: int
    time: int


@device_function
def row_tiles(block: Block) -> int:
    """Return the number of tiles along the input channels."""
    return (block.stop_in - block.first_in + TILE_ROWS - 1) // TILE_ROWS


@device_function
def column_tiles(block: Block) -> int:
    """Return the number of tiles along the output channels."""
    return (block.stop_out - block.first_out + TILE_COLUMNS - 1) // TILE_COLUMNS


@device_function
def place_in_block(block: Block, tap: int, in_channel: int, out_channel: int) -> int:
    """Return the position of an element in the sums of its block."""
    row, column = in_channel - block.first_in, out_channel - block.first_out
    panel = (tap - block.first_tap) * column_tiles(block) + column // TILE_COLUMNS
    tile = panel * row_tiles(block) + row // TILE_ROWS
    return (tile * TILE_ROWS + row % TILE_ROWS) * TILE_COLUMNS + column % TILE_COLUMNS


@device_function
def add_tile(target: Floats, tile: Floats) -> None:
    """Add one tile to another."""
    for position in range(target.size):
        target[position] = target[position] + tile[position]


class Sample(NamedTuple):
    """Packed operands of one visit."""

    x: Floats
    """(tiles, x_rows, TILE_STRIDE), flat: row 0 is the input that tap 0 reads at ``start``."""
    x_rows: int
    grad: Floats
    """(panels, grad_rows, TILE_COLUMNS), flat: row 0 is grad at output time ``start``."""
    grad_rows: int
    start: int
    stop: int
    """Output time."""


class Accumulators(NamedTuple):
    """Sums of one block to which a sample is added."""

    values: Floats
    first: int
    """Position of the block in ``values``."""
    restarts: bool
    """Whether they start at 0 with every sample; otherwise they continue."""


@device_function
def _multiply_time(
    sample: Sample, left: int, right: int, values: Floats, place: int, before: int, steps: int
) -> None:
    """Add the products of some time steps to the tile at ``place``.

    The steps are grouped in blocks of TIME_BLOCK, counted from ``before`` steps earlier.
    """
    done = 0
    while done < steps:
        # The rest of a block that began earlier, then whole blocks, then the start of the last one.
        length, blocks = min(TIME_BLOCK - (before + done) % TIME_BLOCK, steps - done), 1
        if length == TIME_BLOCK:
            blocks = (steps - done) // TIME_BLOCK
        walk = Walk(1, 0, 0, blocks, TIME_BLOCK * TILE_STRIDE, length)
        a, b = left + done * TILE_STRIDE, right + done * TILE_COLUMNS
        multiply_channels(sample.x, a, sample.grad, b, values, place, walk)
        done += blocks * length


@device_function
def _add_sample(
    sample: Sample,
    block: Block,
    taps: Taps,
    accumulators: Accumulators,
    sums: Floats,
    running: Floats,
) -> None:
    """Add the products of one sample to the accumulators of a block.

    Time is processed in pieces that fit the cache. Accumulators that restart are added to ``sums``
    and ``running`` in the end; either may be empty.
    """
    start, stop, restarts = sample.start, sample.stop, accumulators.restarts
    is_one_piece = start + PACKED_STEPS >= stop
    first_row = start - taps.pad
    for begin in range(start, stop, PACKED_STEPS):
        end = min(begin + PACKED_STEPS, stop)
        number = 0
        for tap in range(block.first_tap, block.stop_tap):
            shift = tap * taps.stride - taps.pad
            valid_start, valid_stop = max(begin, -shift), min(end, taps.time - shift)
            for panel in range(column_tiles(block)):
                right_panel = block.first_out // TILE_COLUMNS + panel
                right = right_panel * sample.grad_rows + valid_start - start
                for row_tile in range(row_tiles(block)):
                    # A tile that is complete at once can use the first position, which stays in
                    # the cache.
                    offset = 0 if is_one_piece and restarts else number * TILE_SIZE
                    place = accumulators.first + offset
                    tile = accumulators.values[place : place + TILE_SIZE]
                    if restarts and begin == start:
                        clear(tile)
                    if valid_start < valid_stop:
                        left_tile = block.first_in // TILE_ROWS + row_tile
                        left = left_tile * sample.x_rows + valid_start + shift - first_row
                        _multiply_time(
                            sample,
                            left * TILE_STRIDE,
                            right * TILE_COLUMNS,
                            accumulators.values,
                            place,
                            valid_start - start,
                            valid_stop - valid_start,
                        )
                    if restarts and end == stop:
                        if sums.size > 0:
                            add_tile(sums[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                        if running.size > 0:
                            add_tile(running[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                    number += 1


# --- All samples, on all threads ---


class Operands(NamedTuple):
    """Packed operands of a group of visits, in the order in which they are added."""

    x: Floats
    """(visits, elements): see `Sample`."""
    x_rows: int
    grad: Floats
    grad_rows: int
    visits: Integers
    ends: Integers
    """1 for a visit with which a slot or a core ends."""
    taps: Taps


class Blocks(NamedTuple):
    """Blocks of the output; see `Schedule`."""

    ranges: Integers
    starts: Integers
    places: Integers


class Sums(NamedTuple):
    """Sums of all blocks; see `Scratch`."""

    sums: Floats
    running: Floats
    finished: Floats


class RandomOrder(NamedTuple):
    """Seed of the random order, and scratch for drawing it."""

    seed: tuple[int, int]
    in_channels: int
    cores: Integers
    """(cores,): each has one contribution."""
    values: Floats
    """Empty: the order does not depend on values."""
    lines: Integers
    """(threads, 2, cores or more)"""
    drawn: Integers
    """(threads, cores or more)"""


@device_function
def _block(blocks: Blocks, number: int) -> Block:
    line = blocks.ranges[number]
    return Block(line[0], line[1], line[2], line[3], line[4], line[5])


@device_function
def _sample(operands: Operands, number: int) -> Sample:
    first, last = operands.visits[number, START], operands.visits[number, STOP]
    x, grad = operands.x[number], operands.grad[number]
    return Sample(x, operands.x_rows, grad, operands.grad_rows, first, last)


@long_kernel
def _multiply(
    thread: int,
    operands: Operands,
    blocks: Blocks,
    restarts: bool,
    sums: Sums,
    queue: Integers,
    all_parts: Floats,
) -> None:
    """Add the visits, in the given order, to every block.

    With ``restarts`` the sum of a visit is added to ``sums.sums``, and to ``sums.running`` if the
    block has slots. Otherwise ``sums.running`` is the accumulator. When a slot or core ends,
    ``sums.running`` is added to ``sums.finished`` and set to 0.
    """
    parts, none = all_parts[thread], sums.sums[:0]
    number = take(queue)
    while number < len(blocks.ranges):
        block, place = _block(blocks, number), blocks.places[number]
        start, stop = blocks.starts[number], blocks.starts[number + 1]
        in_memory = none if place == RUNNING else sums.sums[start:stop]
        running = none if place == IN_MEMORY else sums.running[start:stop]
        accumulators = Accumulators(parts if restarts else running, 0, restarts)
        slots = running if restarts else none
        for visit in range(len(operands.visits)):
            sample = _sample(operands, visit)
            _add_sample(sample, block, operands.taps, accumulators, in_memory, slots)
            if running.size > 0 and operands.ends[visit] != 0:
                add_tile(sums.finished[start:stop], running)
                clear(running)
        number = take(queue)


@long_kernel
def _multiply_random(
    thread: int,
    operands: Operands,
    blocks: Blocks,
    order: RandomOrder,
    sums: Floats,
    queue: Integers,
    all_parts: Floats,
) -> None:
    """Compute the accumulators of every core, then add them row by row in a random order."""
    parts, none, cores = all_parts[thread], sums[:0], order.cores
    lines, drawn = order.lines[thread], order.drawn[thread, : cores.size]
    number = take(queue)
    while number < len(blocks.ranges):
        block, start = _block(blocks, number), blocks.starts[number]
        size, core = blocks.starts[number + 1] - start, 0
        clear(parts[: cores.size * size])
        for visit in range(len(operands.visits)):
            accumulators = Accumulators(parts, core * size, False)
            _add_sample(_sample(operands, visit), block, operands.taps, accumulators, none, none)
            core += operands.ends[visit]
        for tap in range(block.first_tap, block.stop_tap):
            for in_channel in range(block.first_in, block.stop_in):
                row = tap * order.in_channels + in_channel
                arrival(RANDOM, order.seed, row, cores, order.values, lines, drawn)
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
    """Round the sums to the dtype of the output; elements in ``tail`` take the sums of slots."""
    for line, start, stop in zip(blocks.tolist(), starts[:-1], starts[1:], strict=True):
        block = Block(*line)
        in_channels = slice(block.first_in, block.stop_in)
        out_channels = slice(block.first_out, block.stop_out)
        values = _in_order(sums[start:stop], block)
        if tail.size:
            slots = _in_order(slotted[start:stop], block)
            values = np.where(tail[in_channels, out_channels], slots, values)
        target = out[block.first_tap : block.stop_tap, in_channels, out_channels]
        narrow_array(values, FORMAT_OF_STORAGE[out.dtype], out=target)


def _in_order(sums: Floats, block: Block) -> Floats:
    """Return a block's sums, stored tile by tile, as (taps, input channels, output channels)."""
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
    split: ReductionSplit,
    tail: TailTiles,
    core_order: int,
    seed: int,
) -> None:
    """Compute gradWeight; ``tap_stride`` is the stride of the formula in the module docstring.

    Parameters
    ----------
    x : (T, B, Cin)
        Input, C-contiguous, in storage form; no axis is empty.
    grad : (To, B, Cout)
        Gradient of the output, C-contiguous.
    pad, tap_stride : int
        Zeros at both ends of the time axis; distance of adjacent taps in the input.
    rounding : int
        Code of the rounding of operands to the compute dtype; see `operands`.
    out : (K, Cin, Cout)
        Result, C-contiguous.
    split : ReductionSplit
        Division of the reduction among cores.
    tail : TailTiles
        Tiles summed through private slots; requires a ``split`` that restarts.
    core_order, seed : int
        Code and seed of the order in which the sums of different cores arrive.
    """
    taps, in_channels, out_channels = out.shape
    is_random = core_order == RANDOM and split.cores > 1
    operations = grad.size * taps * in_channels
    threads = thread_count() if is_random else threads_for(operations=operations)
    plan = schedule(out.shape, tap_stride, split, tail.slot_samples, core_order, threads, is_random)
    mask = tail_mask(tail, in_channels, out_channels) if tail.slot_samples else NO_MASK
    places = places_with_slots(plan.blocks, mask) if mask.size else plan.places
    has_slots, size = bool(mask.any()), plan.size
    running_size = size if has_slots or split.cores > 1 else 0
    scratch = scratch_of(plan, threads, running_size, size if has_slots else 0)
    restarts, blocks = split.restarts == 1, Blocks(plan.blocks, plan.starts, places)
    # Without slots, finished sums are the output; a single accumulator is the output itself.
    sums = Sums(
        scratch.sums,
        scratch.running if restarts or scratch.running.size else scratch.sums,
        scratch.finished if has_slots else scratch.sums,
    )
    for first in range(0, len(plan.visits), plan.group):
        group, queue = slice(first, first + plan.group), np.zeros(1, np.int64)
        visits = plan.visits[group]
        halo = (taps - 1) * tap_stride
        pack_tiles(x, visits, Packing(halo, pad, TILE_ROWS, rounding), scratch.packed_x)
        pack_tiles(grad, visits, Packing(0, 0, TILE_COLUMNS, rounding), scratch.packed_grad)
        operands = Operands(
            scratch.packed_x.reshape(plan.group, -1),
            plan.x_shape[1],
            scratch.packed_grad.reshape(plan.group, -1),
            plan.grad_shape[1],
            visits,
            plan.ends[group],
            Taps(pad, tap_stride, x.shape[0]),
        )
        if is_random:
            order = RandomOrder(
                seed_words(seed),
                in_channels,
                np.arange(split.cores),
                np.empty((split.cores, 0), np.float32),
                thread_scratch(threads, 2, split.cores, dtype=np.int64),
                thread_scratch(threads, split.cores, dtype=np.int64),
            )
            _multiply_random.over(
                threads, operands, blocks, order, scratch.sums, queue, scratch.parts
            )
        else:
            _multiply.over(threads, operands, blocks, restarts, sums, queue, scratch.parts)
    _store(plan.blocks, plan.starts, scratch.sums, scratch.finished, mask, out)
