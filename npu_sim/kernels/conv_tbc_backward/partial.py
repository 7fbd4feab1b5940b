"""ConvTbcBackward: what one sample adds to a block of gradWeight, tap by tap, in register tiles."""

from typing import NamedTuple

from npu_sim.kernels.conv_tbc_backward.operands import clear
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
from npu_sim.kernels.engine.compile import device_function


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
