"""ConvTbcBackward: gradInput.

Rows of self are (t, b) pairs, t * B + b; output row r takes row r + (pad - k) * B of self for tap k, so every tap is a
matrix product of a shifted range of rows with weight[k], and no shifted copy of self is made.

Order of one sum: blocks of C0 output channels; inside a block the taps from K - 1 down to 0, that is self in ascending time. The
products of one tap and one block are summed first and added to the accumulator once (``conv_tbc_backward_tile``). One accumulator,
never split. Terms outside self are left out, not multiplied by zero.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import (
    Stored,
    channel_block,
    clear,
    pack_tiles,
    round_row,
)
from npu_sim.kernels.conv_tbc_backward.order import Integers
from npu_sim.kernels.conv_tbc_backward.schedule import take
from npu_sim.kernels.conv_tbc_backward.tile import (
    CHUNK,
    PANELS,
    ROW_CHANNELS,
    ROW_STRIDE,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    Floats,
    Walk,
    multiply_row,
    multiply_rows,
)
from npu_sim.kernels.engine.compile import device_function, long_kernel
from npu_sim.kernels.engine.scratch import aligned, thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.numbers.scalars import narrow

ROW_TILES = 16
"""Tiles on top of each other in one block."""
BLOCK_ROWS = ROW_TILES * TILE_ROWS


class Window(NamedTuple):
    """A part of the reduction of some output rows, and how self lies packed for it.

    Channels ``first_channel``..``stop_channel`` with taps ``high_tap`` down to ``low_tap``, in blocks of ``block`` channels. Output row
    ``begin`` finds what tap ``high_tap`` reads in the first packed row, and what the next tap reads ``distance`` rows on.
    """

    begin: int
    first_channel: int
    stop_channel: int
    high_tap: int
    low_tap: int
    block: int
    distance: int


class Reach(NamedTuple):
    """Self has ``rows`` rows, ``batch`` a time step; output row r takes row r + (pad - k) * batch for tap k, one of 0..``taps`` - 1."""

    rows: int
    batch: int
    pad: int
    taps: int


@device_function
def _pack_rows(
    grad: Stored,
    first_row: int,
    first: int,
    stop: int,
    window: Window,
    rounding: int,
    packed: Floats,
) -> None:
    """Pack rows ``first_row + place`` of self, those of first..stop that exist, rounded to the compute dtype."""
    for place in range(max(first, -first_row), min(stop, len(grad) - first_row)):
        row = grad[first_row + place, window.first_channel : window.stop_channel]
        round_row(row, packed[place * ROW_STRIDE : (place + 1) * ROW_STRIDE], rounding)


@device_function
def _pack_window(
    grad: Stored, reach: Reach, window: Window, stop: int, rounding: int, packed: Floats
) -> None:
    """Pack what output rows up to ``stop`` need: taps share rows unless a time step has more rows than the output block."""
    first_row, rows = (
        window.begin + (reach.pad - window.high_tap) * reach.batch,
        stop - window.begin,
    )
    if window.distance == reach.batch:
        _pack_rows(
            grad,
            first_row,
            0,
            (window.high_tap - window.low_tap) * reach.batch + rows,
            window,
            rounding,
            packed,
        )
        return
    for tap in range(window.high_tap, window.low_tap - 1, -1):
        first = (window.high_tap - tap) * window.distance
        row = first_row + (window.high_tap - tap) * (reach.batch - window.distance)
        _pack_rows(grad, row, first, first + rows, window, rounding, packed)


@device_function
def _highest(reach: Reach, window: Window, row: int) -> int:
    """Return the highest tap of a window for which an output row has a term."""
    return min(window.high_tap, reach.pad + row // reach.batch)


@device_function
def _lowest(reach: Reach, window: Window, row: int) -> int:
    """Return the lowest tap of a window for which an output row has a term."""
    return max(window.low_tap, reach.pad - (reach.rows - 1 - row) // reach.batch)


@device_function
def _walk(reach: Reach, window: Window, blocks: int, taps: int, length: int) -> Walk:
    return Walk(
        blocks,
        window.block,
        window.block * reach.taps * TILE_COLUMNS,
        taps,
        window.distance * ROW_STRIDE,
        length,
    )


@device_function
def _multiply_tile(
    packed: Floats,
    window: Window,
    reach: Reach,
    first: int,
    last: int,
    weight: Floats,
    panel: int,
    sums: Floats,
    place: int,
) -> None:
    """Add a window to the tile of output rows first..last and one panel of columns; terms outside self are left out."""
    high, low = _highest(reach, window, first), _lowest(reach, window, first)
    together = high == _highest(reach, window, last - 1) and low == _lowest(reach, window, last - 1)
    whole = (window.stop_channel - window.first_channel) // window.block
    channel = window.first_channel
    while channel < window.stop_channel:
        # All whole blocks at once, then the rest of the channels.
        blocks, length = (
            (whole, window.block)
            if channel == window.first_channel and whole > 0
            else (1, window.stop_channel - channel)
        )
        start, panel_start = (
            channel - window.first_channel,
            panel + channel * reach.taps * TILE_COLUMNS,
        )
        if together:
            # Rows beyond ``last`` hold anything; their sums are not stored.
            left = (
                start
                + ((window.high_tap - high) * window.distance + first - window.begin) * ROW_STRIDE
            )
            right = panel_start + (reach.taps - 1 - high) * length * TILE_COLUMNS
            multiply_rows(
                packed,
                left,
                weight,
                right,
                sums,
                place,
                _walk(reach, window, blocks, high - low + 1, length),
            )
        else:
            for row in range(first, last):
                high, low = _highest(reach, window, row), _lowest(reach, window, row)
                left = (
                    start
                    + ((window.high_tap - high) * window.distance + row - window.begin) * ROW_STRIDE
                )
                right, target = (
                    panel_start + (reach.taps - 1 - high) * length * TILE_COLUMNS,
                    place + (row - first) * TILE_COLUMNS,
                )
                multiply_row(
                    packed,
                    left,
                    weight,
                    right,
                    sums,
                    target,
                    _walk(reach, window, blocks, high - low + 1, length),
                )
        channel += blocks * length


@device_function
def _store_block(
    sums: Floats,
    begin: int,
    stop: int,
    first_column: int,
    panels: int,
    result_rounding: int,
    row: Floats,
    out: Stored,
) -> None:
    """Round the sums to the compute dtype, then to the dtype of the output."""
    row_tiles = (stop - begin + TILE_ROWS - 1) // TILE_ROWS
    for panel in range(panels):
        start = first_column + panel * TILE_COLUMNS
        columns = min(TILE_COLUMNS, out.shape[1] - start)
        for place in range(stop - begin):
            first = (panel * row_tiles * TILE_ROWS + place) * TILE_COLUMNS
            round_row(sums[first : first + columns], row[:columns], result_rounding)
            target = out[begin + place, start : start + columns]
            for column in range(columns):
                target[column] = narrow(row[column], target)


class Steps(NamedTuple):
    """How much of the reduction lies packed at a time: channels, in blocks of ``block``, and taps."""

    block: int
    channels: int
    taps: int


def steps_at_a_time(taps: int, block: int) -> Steps:
    """Return some CHUNK steps of the reduction: blocks of channels with all taps, or one block with some of its taps."""
    channels = max(min(CHUNK // taps, ROW_CHANNELS) // block, 1) * block
    return Steps(block, channels, min(taps, CHUNK // channels))


@long_kernel
def _grad_input(
    thread: int,
    grad: Stored,
    weight: Floats,
    out: Stored,
    reach: Reach,
    steps: Steps,
    rounding: int,
    result_rounding: int,
    queue: Integers,
    all_packed: Floats,
    all_sums: Floats,
) -> None:
    """Take blocks of the output off the queue; ``all_packed`` and ``all_sums`` have a row of scratch for every thread."""
    channels = grad.shape[1]
    panels = (out.shape[1] + TILE_COLUMNS - 1) // TILE_COLUMNS
    column_blocks = (panels + PANELS - 1) // PANELS
    blocks = (len(out) + BLOCK_ROWS - 1) // BLOCK_ROWS * column_blocks
    row, packed, sums = (
        all_packed[thread, :TILE_COLUMNS],
        all_packed[thread, TILE_COLUMNS:],
        all_sums[thread],
    )
    distance = min(reach.batch, BLOCK_ROWS)
    number = take(queue)
    while number < blocks:
        begin, first_panel = number // column_blocks * BLOCK_ROWS, number % column_blocks * PANELS
        stop, block_panels = min(begin + BLOCK_ROWS, len(out)), min(PANELS, panels - first_panel)
        row_tiles = (stop - begin + TILE_ROWS - 1) // TILE_ROWS
        clear(sums)
        for channel in range(0, channels, steps.channels):
            for high_tap in range(reach.taps - 1, -1, -steps.taps):
                stop_channel, low_tap = (
                    min(channel + steps.channels, channels),
                    max(high_tap - steps.taps + 1, 0),
                )
                window = Window(
                    begin, channel, stop_channel, high_tap, low_tap, steps.block, distance
                )
                _pack_window(grad, reach, window, stop, rounding, packed)
                for panel in range(block_panels):
                    panel_start = (first_panel + panel) * channels * reach.taps * TILE_COLUMNS
                    for row_tile in range(row_tiles):
                        first, place = (
                            begin + row_tile * TILE_ROWS,
                            (panel * row_tiles + row_tile) * TILE_SIZE,
                        )
                        last = min(first + TILE_ROWS, stop)
                        _multiply_tile(
                            packed, window, reach, first, last, weight, panel_start, sums, place
                        )
        _store_block(
            sums, begin, stop, first_panel * TILE_COLUMNS, block_panels, result_rounding, row, out
        )
        number = take(queue)


def _weight_rows(weight: Stored, block: int) -> Stored:
    """Return weight (K, Cin, Cout) as (Cout * K, 1, Cin): its rows in the order of the reduction."""
    taps, in_channels, out_channels = weight.shape
    descending, whole = weight[::-1], out_channels // block * block
    blocks = descending[:, :, :whole].reshape(taps, in_channels, -1, block).transpose(2, 0, 3, 1)
    if whole == out_channels:
        return blocks.reshape(-1, 1, in_channels)
    rest = descending[:, :, whole:].transpose(0, 2, 1)
    return np.concatenate([one.reshape(-1, in_channels) for one in (blocks, rest)])[:, np.newaxis]


def grad_input(
    grad: Stored, weight: Stored, out: Stored, pad: int, rounding: int, result_rounding: int
) -> None:
    """Compute gradInput[t, b, i] = sum over k and o of grad[t + pad - k, b, o] * weight[k, i, o].

    Parameters
    ----------
    grad : (To, B, Cout)
        Gradient of the output, C-contiguous, in storage form; no axis is empty.
    weight : (K, Cin, Cout)
        Weight, C-contiguous.
    out : (T, B, Cin)
        Result, C-contiguous.
    pad : int
        Zeros at both ends of the time axis.
    rounding, result_rounding : int
        Codes of ``conv_tbc_backward_operands``: how operands, and the finished sums, are rounded to the compute dtype.
    """
    taps, in_channels, out_channels = weight.shape
    block, panels = channel_block(grad, rounding), -(-in_channels // TILE_COLUMNS)
    shape = 1, panels, out_channels * taps, TILE_COLUMNS
    packed = aligned(*shape)
    # Rows of weight take the place of time.
    pack_tiles(
        _weight_rows(weight, block),
        _whole(out_channels * taps),
        0,
        0,
        TILE_COLUMNS,
        rounding,
        packed,
    )
    rows, batch = grad.shape[0] * grad.shape[1], grad.shape[1]
    steps = steps_at_a_time(taps, block)
    threads = threads_for(operations=grad.size * taps * in_channels)
    # The last tile reads rows beyond the block.
    packed_rows = (steps.taps - 1) * min(batch, BLOCK_ROWS) + BLOCK_ROWS + TILE_ROWS
    _grad_input.over(
        threads,
        grad.reshape(rows, out_channels),
        packed.reshape(-1),
        out.reshape(-1, in_channels),
        Reach(rows, batch, pad, taps),
        steps,
        rounding,
        result_rounding,
        np.zeros(1, np.int64),
        *_scratch(threads, TILE_COLUMNS + packed_rows * ROW_STRIDE),
    )


@lru_cache(maxsize=64)
def _whole(rows: int) -> Integers:
    """Return the one visit of all rows of a sample."""
    return np.array([(0, 0, rows)], np.int64)


def _scratch(threads: int, window_size: int) -> tuple[Floats, Floats]:
    """Return what threads work in: the rows of a window and sums."""
    window = thread_scratch(threads, window_size)
    window[:] = 0  # what lies between rows is multiplied too, if only into sums that nobody stores
    return window, thread_scratch(threads, ROW_TILES * PANELS * TILE_SIZE)
