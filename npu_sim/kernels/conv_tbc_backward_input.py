"""ConvTbcBackward: gradInput.

Rows of self are (t, b) pairs, t * B + b; output row r takes row r + (pad - k) * B of self for tap k, so every tap is a
matrix product of a shifted range of rows with weight[k], and no shifted copy of self is made.

Order of one sum: output channels in chunks of CHUNK, a whole number of cube-layout blocks of C0; for each chunk all taps
in ascending order; for each tap its channels in ascending order: the slices of C0 channels with all taps that the plan keeps
in L1, a run of them at a time. One accumulator, never split. Terms outside self are left out, not multiplied by zero.
"""

import numpy as np

from npu_sim.kernels.conv_tbc_backward_folds import Integers
from npu_sim.kernels.conv_tbc_backward_operands import Stored, clear, pack_tiles, round_row
from npu_sim.kernels.conv_tbc_backward_queue import take
from npu_sim.kernels.conv_tbc_backward_tile import (
    CHUNK,
    CHUNK_STRIDE,
    PANELS,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    Floats,
    multiply_row,
    multiply_rows,
)
from npu_sim.kernels.engine.compile import device_function, long_kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.numbers.scalars import narrow

ROW_TILES = 16
"""Tiles on top of each other in one block."""


@device_function
def _multiply_block(
    rows: Floats,
    begin: int,
    valid_start: int,
    valid_stop: int,
    stop: int,
    packed: Floats,
    panel_stride: int,
    panels: int,
    length: int,
    sums: Floats,
) -> None:
    """Add one chunk of one tap to the sums of output rows begin..stop; only rows valid_start..valid_stop have a term."""
    row_tiles = (stop - begin + TILE_ROWS - 1) // TILE_ROWS
    for panel in range(panels):
        for row_tile in range(row_tiles):
            first, last = begin + row_tile * TILE_ROWS, min(begin + (row_tile + 1) * TILE_ROWS, stop)
            place = (panel * row_tiles + row_tile) * TILE_SIZE
            if first >= valid_start and last <= valid_stop:
                # Rows beyond ``stop`` hold anything; their sums are not stored.
                multiply_rows(rows, (first - begin) * CHUNK_STRIDE, packed, panel * panel_stride, sums, place, length)
            else:
                for row in range(max(first, valid_start), min(last, valid_stop)):
                    target = place + (row - first) * TILE_COLUMNS
                    multiply_row(rows, (row - begin) * CHUNK_STRIDE, packed, panel * panel_stride, sums, target, length)


@device_function
def _store_block(
    sums: Floats, begin: int, stop: int, first_column: int, panels: int, result_rounding: int, row: Floats, out: Stored
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


@long_kernel
def _grad_input(
    thread: int,
    grad: Stored,
    packed: Floats,
    out: Stored,
    batch: int,
    pad: int,
    taps: int,
    rounding: int,
    result_rounding: int,
    queue: Integers,
    sources: Floats,
    all_sums: Floats,
) -> None:
    """Take blocks of the output off the queue; ``sources`` and ``all_sums`` have a row of scratch for every thread."""
    rows, channels = grad.shape
    panels = (out.shape[1] + TILE_COLUMNS - 1) // TILE_COLUMNS
    column_blocks = (panels + PANELS - 1) // PANELS
    block_rows = ROW_TILES * TILE_ROWS
    blocks = (len(out) + block_rows - 1) // block_rows * column_blocks
    source, sums = sources[thread, TILE_COLUMNS:], all_sums[thread]
    row = sources[thread, :TILE_COLUMNS]
    block = take(queue)
    while block < blocks:
        begin, first_panel = block // column_blocks * block_rows, block % column_blocks * PANELS
        stop, block_panels = min(begin + block_rows, len(out)), min(PANELS, panels - first_panel)
        clear(sums)
        for start in range(0, channels, CHUNK):
            length = min(CHUNK, channels - start)
            for tap in range(taps):
                shift = (pad - tap) * batch
                valid_start, valid_stop = max(begin, -shift), min(stop, rows - shift)
                if valid_start >= valid_stop:
                    continue
                for place in range(valid_start, valid_stop):
                    target = (place - begin) * CHUNK_STRIDE
                    round_row(grad[place + shift, start : start + length], source[target : target + length], rounding)
                first = ((tap * panels + first_panel) * channels + start) * TILE_COLUMNS
                _multiply_block(
                    source, begin, valid_start, valid_stop, stop, packed[first:], channels * TILE_COLUMNS, block_panels, length, sums
                )
        _store_block(sums, begin, stop, first_panel * TILE_COLUMNS, block_panels, result_rounding, row, out)
        block = take(queue)


def grad_input(grad: Stored, weight: Stored, out: Stored, pad: int, rounding: int, result_rounding: int) -> None:
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
    panels = -(-in_channels // TILE_COLUMNS)
    packed = np.empty((taps, panels, out_channels, TILE_COLUMNS), np.float32)
    # Weight as (Cout, K, Cin): its output channels take the place of time, its taps that of samples.
    by_channel = np.ascontiguousarray(weight.transpose(2, 0, 1))
    every_tap = np.array([(tap, 0, out_channels) for tap in range(taps)], np.int64)
    pack_tiles(by_channel, every_tap, 0, 0, TILE_COLUMNS, rounding, packed)
    rows, batch = grad.shape[0] * grad.shape[1], grad.shape[1]
    threads, source_size = threads_for(operations=grad.size * taps * in_channels), TILE_COLUMNS + ROW_TILES * TILE_ROWS * CHUNK_STRIDE
    sources = thread_scratch(threads, source_size)
    sources[:] = 0  # what lies between rows is multiplied too, if only into sums that nobody stores
    _grad_input.over(
        threads,
        grad.reshape(rows, out_channels),
        packed.reshape(-1),
        out.reshape(-1, in_channels),
        batch,
        pad,
        taps,
        rounding,
        result_rounding,
        np.zeros(1, np.int64),
        sources,
        thread_scratch(threads, ROW_TILES * PANELS * TILE_SIZE),
    )
