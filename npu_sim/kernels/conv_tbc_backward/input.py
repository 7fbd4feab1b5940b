"""ConvTbcBackward: gradInput.

gradInput[t, b, i] = sum over k and o of grad[t + pad - k, b, o] * weight[k, i, o], where grad is
the product's argument ``self``.

Rows of grad are (t, b) pairs, numbered t * B + b. Output row r reads row r + (pad - k) * B of grad
for tap k, so every tap is a matrix product of a shifted range of rows with weight[k]; no shifted
copy of grad is made.

Order of accumulation of one element: blocks of C0 output channels. Within a block, the taps from
``K - 1`` down to 0, which is grad in ascending time. The products of one tap and one block are
summed first and added to the accumulator once (`register_tile`). There is one accumulator, never
split. Terms outside grad are omitted, not multiplied by zero.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Source: specification page ``conv_tbc_backward``, "Execution".
"""

from typing import NamedTuple

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import channel_block, round_row, take
from npu_sim.kernels.conv_tbc_backward.register_tile import (
    PACKED_STEPS,
    PANELS,
    ROW_CHANNELS,
    ROW_STRIDE,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    Walk,
    multiply_row,
    multiply_rows,
)
from npu_sim.kernels.engine.compile import (
    device_function,
    kernel,
    long_kernel,
    thread_scratch,
    threads_for,
)
from npu_sim.kernels.vectors.lanes import Floats, Integers, Stored
from npu_sim.kernels.vectors.row_sums import clear
from npu_sim.numbers.arrays import aligned
from npu_sim.numbers.scalars import narrow

ROW_TILES = 224 // TILE_ROWS
"""Tiles per block of output rows."""
BLOCK_ROWS = ROW_TILES * TILE_ROWS


class Window(NamedTuple):
    """Part of the reduction for some output rows, and the layout of the packed rows of grad.

    It covers the channels ``first_channel``..``stop_channel`` in blocks of ``block``, with the taps
    ``high_tap`` down to ``low_tap``. For output row ``begin``, tap ``high_tap`` reads the first
    packed row, and each following tap the row ``distance`` further.
    """

    begin: int
    first_channel: int
    stop_channel: int
    high_tap: int
    low_tap: int
    block: int
    distance: int


class Reach(NamedTuple):
    """Rows of grad that an output row reads: r + (pad - k) * batch for tap k in 0..taps - 1."""

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
    """Pack the existing rows of ``first_row`` + first..stop of grad, rounded to compute dtype."""
    for position in range(max(first, -first_row), min(stop, len(grad) - first_row)):
        row = grad[first_row + position, window.first_channel : window.stop_channel]
        round_row(row, packed[position * ROW_STRIDE : (position + 1) * ROW_STRIDE], rounding)


@device_function
def _pack_window(
    grad: Stored, reach: Reach, window: Window, stop: int, rounding: int, packed: Floats
) -> None:
    """Pack the rows of grad for the output rows up to ``stop``."""
    first_row = window.begin + (reach.pad - window.high_tap) * reach.batch
    rows = stop - window.begin
    # Taps overlap in the packed rows unless a time step has more rows than the output block.
    if window.distance == reach.batch:
        all_rows = (window.high_tap - window.low_tap) * reach.batch + rows
        _pack_rows(grad, first_row, 0, all_rows, window, rounding, packed)
        return
    for tap in range(window.high_tap, window.low_tap - 1, -1):
        first = (window.high_tap - tap) * window.distance
        row = first_row + (window.high_tap - tap) * (reach.batch - window.distance)
        _pack_rows(grad, row, first, first + rows, window, rounding, packed)


@device_function
def _highest(reach: Reach, window: Window, row: int) -> int:
    """Return the highest tap of a window with a term for an output row."""
    return min(window.high_tap, reach.pad + row // reach.batch)


@device_function
def _lowest(reach: Reach, window: Window, row: int) -> int:
    """Return the lowest tap of a window with a term for an output row."""
    return max(window.low_tap, reach.pad - (reach.rows - 1 - row) // reach.batch)


@device_function
def _walk(reach: Reach, window: Window, blocks: int, taps: int, length: int) -> Walk:
    b_outer = window.block * reach.taps * TILE_COLUMNS
    return Walk(blocks, window.block, b_outer, taps, window.distance * ROW_STRIDE, length)


class Packed(NamedTuple):
    """Packed operands, and the sums of one block of output rows."""

    rows: Floats
    """Rows of grad, ROW_STRIDE apart; see `Window`."""
    weight: Floats
    """Panels of weight in the order of the reduction, flat."""
    sums: Floats


@device_function
def _multiply_tile(
    packed: Packed, window: Window, reach: Reach, first: int, last: int, panel: int, place: int
) -> None:
    """Add a window to the tile of output rows first..last and one panel of columns.

    ``panel`` is the start of the panel in the packed weight, ``place`` that of the tile in the
    sums. Terms outside grad are omitted.
    """
    high, low = _highest(reach, window, first), _lowest(reach, window, first)
    same_high = high == _highest(reach, window, last - 1)
    same_taps = same_high and low == _lowest(reach, window, last - 1)
    whole_blocks = (window.stop_channel - window.first_channel) // window.block
    channel = window.first_channel
    while channel < window.stop_channel:
        # All whole blocks at once, then the remaining channels.
        blocks, length = 1, window.stop_channel - channel
        if channel == window.first_channel and whole_blocks > 0:
            blocks, length = whole_blocks, window.block
        start = channel - window.first_channel
        panel_start = panel + channel * reach.taps * TILE_COLUMNS
        if same_taps:
            # Rows beyond ``last`` hold arbitrary values; their sums are not stored.
            left_row = (window.high_tap - high) * window.distance + first - window.begin
            right = panel_start + (reach.taps - 1 - high) * length * TILE_COLUMNS
            walk = _walk(reach, window, blocks, high - low + 1, length)
            left = start + left_row * ROW_STRIDE
            multiply_rows(packed.rows, left, packed.weight, right, packed.sums, place, walk)
        else:
            for row in range(first, last):
                high, low = _highest(reach, window, row), _lowest(reach, window, row)
                left_row = (window.high_tap - high) * window.distance + row - window.begin
                right = panel_start + (reach.taps - 1 - high) * length * TILE_COLUMNS
                target = place + (row - first) * TILE_COLUMNS
                walk = _walk(reach, window, blocks, high - low + 1, length)
                left = start + left_row * ROW_STRIDE
                multiply_row(packed.rows, left, packed.weight, right, packed.sums, target, walk)
        channel += blocks * length


class OutputBlock(NamedTuple):
    """A block of the output: rows begin..stop, and ``panels`` panels from ``first_panel`` on."""

    begin: int
    stop: int
    first_panel: int
    panels: int


@device_function
def _store_block(
    sums: Floats, block: OutputBlock, result_rounding: int, row: Floats, out: Stored
) -> None:
    """Round the sums to the compute dtype, then to the dtype of the output."""
    begin, rows = block.begin, block.stop - block.begin
    row_tiles = (rows + TILE_ROWS - 1) // TILE_ROWS
    for position in range(rows):
        for panel in range(block.panels):
            start = (block.first_panel + panel) * TILE_COLUMNS
            columns = min(TILE_COLUMNS, out.shape[1] - start)
            first = (panel * row_tiles * TILE_ROWS + position) * TILE_COLUMNS
            round_row(sums[first : first + columns], row[:columns], result_rounding)
            target = out[begin + position, start : start + columns]
            for column in range(columns):
                target[column] = narrow(row[column], target)


class Steps(NamedTuple):
    """Part of the reduction that is packed at a time: channels in blocks of ``block``, and taps."""

    block: int
    channels: int
    taps: int


def steps_at_a_time(taps: int, block: int) -> Steps:
    """Return about PACKED_STEPS steps: blocks with all taps, or one block with some taps."""
    channels = max(min(PACKED_STEPS // taps, ROW_CHANNELS) // block, 1) * block
    return Steps(block, channels, min(taps, PACKED_STEPS // channels))


@long_kernel
def _grad_input(
    thread: int,
    grad: Stored,
    weight: Floats,
    out: Stored,
    settings: tuple[Reach, Steps, tuple[int, int]],
    queue: Integers,
    scratch: tuple[Floats, Floats],
) -> None:
    """Take blocks of the output from the queue.

    ``settings`` end with the codes of the roundings of operands and of results; see `operands`.

    ``scratch`` has a row for every thread: packed rows of grad, after a row of the result, and
    sums.
    """
    reach, steps, (rounding, result_rounding) = settings
    channels = grad.shape[1]
    all_panels = (out.shape[1] + TILE_COLUMNS - 1) // TILE_COLUMNS
    column_blocks = (all_panels + PANELS - 1) // PANELS
    blocks = (len(out) + BLOCK_ROWS - 1) // BLOCK_ROWS * column_blocks
    row, rows = scratch[0][thread, :TILE_COLUMNS], scratch[0][thread, TILE_COLUMNS:]
    packed = Packed(rows, weight, scratch[1][thread])
    distance = min(reach.batch, BLOCK_ROWS)
    number = take(queue)
    while number < blocks:
        begin, first_panel = number // column_blocks * BLOCK_ROWS, number % column_blocks * PANELS
        stop, panels = min(begin + BLOCK_ROWS, len(out)), min(PANELS, all_panels - first_panel)
        row_tiles = (stop - begin + TILE_ROWS - 1) // TILE_ROWS
        clear(packed.sums)
        for channel in range(0, channels, steps.channels):
            stop_channel = min(channel + steps.channels, channels)
            for high_tap in range(reach.taps - 1, -1, -steps.taps):
                low_tap = max(high_tap - steps.taps + 1, 0)
                window = Window(
                    begin, channel, stop_channel, high_tap, low_tap, steps.block, distance
                )
                _pack_window(grad, reach, window, stop, rounding, packed.rows)
                for panel in range(panels):
                    panel_start = (first_panel + panel) * channels * reach.taps * TILE_COLUMNS
                    for row_tile in range(row_tiles):
                        first = begin + row_tile * TILE_ROWS
                        last = min(first + TILE_ROWS, stop)
                        place = (panel * row_tiles + row_tile) * TILE_SIZE
                        _multiply_tile(packed, window, reach, first, last, panel_start, place)
        block = OutputBlock(begin, stop, first_panel, panels)
        _store_block(packed.sums, block, result_rounding, row, out)
        number = take(queue)


@kernel
def _pack_weight(panel: int, weight: Stored, block: int, rounding: int, packed: Floats) -> None:
    """Pack a panel of input channels of weight (K, Cin, Cout) in the order of the reduction."""
    taps, in_channels, out_channels = weight.shape
    first = panel * TILE_COLUMNS
    stop, step = min(first + TILE_COLUMNS, in_channels), 0
    for begin in range(0, out_channels, block):
        for tap in range(taps - 1, -1, -1):
            for channel in range(begin, min(begin + block, out_channels)):
                round_row(weight[tap, first:stop, channel], packed[panel, step], rounding)
                clear(packed[panel, step, stop - first :])
                step += 1


def grad_input(
    grad: Stored, weight: Stored, out: Stored, pad: int, rounding: int, result_rounding: int
) -> None:
    """Compute gradInput.

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
        Codes of the rounding of operands and of finished sums to the compute dtype; see `operands`.
    """
    taps, in_channels, out_channels = weight.shape
    block, panels = channel_block(grad, rounding), -(-in_channels // TILE_COLUMNS)
    packed = aligned((panels, out_channels * taps, TILE_COLUMNS))
    _pack_weight.over(panels, weight, block, rounding, packed)
    rows, batch = grad.shape[0] * grad.shape[1], grad.shape[1]
    steps = steps_at_a_time(taps, block)
    threads = threads_for(operations=grad.size * taps * in_channels)
    # The last tile reads rows beyond the block.
    packed_rows = (steps.taps - 1) * min(batch, BLOCK_ROWS) + BLOCK_ROWS + TILE_ROWS
    window = thread_scratch(threads, TILE_COLUMNS + packed_rows * ROW_STRIDE)
    # Values between packed rows are multiplied too, but only into sums that are not stored.
    window[:] = 0
    _grad_input.over(
        threads,
        grad.reshape(rows, out_channels),
        packed.reshape(-1),
        out.reshape(-1, in_channels),
        (Reach(rows, batch, pad, taps), steps, (rounding, result_rounding)),
        np.zeros(1, np.int64),
        (window, thread_scratch(threads, ROW_TILES * PANELS * TILE_SIZE)),
    )
