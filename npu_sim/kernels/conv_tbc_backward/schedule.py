"""ConvTbcBackward: how gradWeight is cut into blocks that threads own. The cut changes no bit of the result."""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward.order import Integers, Shares, arrival
from npu_sim.kernels.conv_tbc_backward.tile import (
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    TILE_STRIDE,
    Floats,
)
from npu_sim.kernels.engine.scratch import aligned, thread_scratch
from npu_sim.kernels.vectors.lane_type import I64, element_address

MOST_TAPS = 16
MOST_ROW_TILES = 8
MOST_COLUMN_TILES = 8
BLOCK_SUMS = 1 << 18
"""Most sums of one block, 1 MiB: they stay in the second-level cache from visit to visit."""
KEPT_SUMS = 1 << 22
"""Most sums a thread keeps in the random order, 16 MiB, unless a register tile for each core needs
more."""


class Blocking(NamedTuple):
    """Taps and tiles of one block, at most."""

    taps: int
    row_tiles: int
    column_tiles: int


def blocking(kept: int) -> Blocking:
    """Return the largest block whose sums, kept once for each of ``kept`` cores, fit their scratch."""
    room = min(BLOCK_SUMS, KEPT_SUMS // max(kept, 1)) // TILE_SIZE
    columns = max(min(MOST_COLUMN_TILES, room), 1)
    rows = max(min(MOST_ROW_TILES, room // columns), 1)
    return Blocking(max(min(MOST_TAPS, room // (columns * rows)), 1), rows, columns)


def even_ranges(size: int, unit: int, pieces: int) -> list[tuple[int, int]]:
    """Cut 0..size into pieces of whole units, as even as possible."""
    units = -(-size // unit)
    bounds = [units * piece // pieces * unit for piece in range(pieces + 1)]
    return [(start, min(stop, size)) for start, stop in pairwise(bounds) if start < stop]


def cut_output(shape: tuple[int, int, int], most: Blocking, threads: int) -> NDArray[np.int64]:
    """Cut gradWeight (K, Cin, Cout) into blocks, one a line, such that the busiest thread has as little as possible.

    Smaller blocks load operands more often, which the cost below counts as a fraction of a product.
    """
    taps, in_channels, out_channels = shape
    in_tiles, out_tiles = -(-in_channels // TILE_ROWS), -(-out_channels // TILE_COLUMNS)
    fewest = (
        -(-taps // most.taps),
        -(-in_tiles // most.row_tiles),
        -(-out_tiles // most.column_tiles),
    )
    candidates = []
    for in_pieces in range(fewest[1], min(2 * fewest[1] + threads, in_tiles) + 1):
        for out_pieces in range(fewest[2], min(2 * fewest[2] + threads, out_tiles) + 1):
            for tap_pieces in {fewest[0], min(2 * fewest[0], taps), taps}:
                rounds = -(-in_pieces * out_pieces * tap_pieces // threads)
                size = (
                    -(-taps // tap_pieces),
                    -(-in_tiles // in_pieces),
                    -(-out_tiles // out_pieces),
                )
                cost = rounds * (16 * size[0] * size[1] * size[2] + size[1] + size[2])
                candidates.append((cost, tap_pieces, in_pieces, out_pieces))
    _, tap_pieces, in_pieces, out_pieces = min(candidates)
    lines = [
        (*tap_range, *in_range, *out_range)
        for tap_range in even_ranges(taps, 1, tap_pieces)
        for in_range in even_ranges(in_channels, TILE_ROWS, in_pieces)
        for out_range in even_ranges(out_channels, TILE_COLUMNS, out_pieces)
    ]
    return np.array(lines, np.int64)


def block_sizes(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many sums every block of :func:`cut_output` has, in whole tiles."""
    taps, inputs, outputs = (blocks[:, column + 1] - blocks[:, column] for column in (0, 2, 4))
    sizes: NDArray[np.int64] = (
        taps * -(-inputs // TILE_ROWS) * -(-outputs // TILE_COLUMNS) * TILE_SIZE
    )
    return sizes


# --- Schedule of gradWeight ---
Flags = NDArray[np.bool_]

GROUP_BYTES = 1 << 23
"""Packed operands held at a time, when one visit is not larger by itself."""

PLAIN, MIXED, SLOTS = 0, 1, 2
"""Whether what a block sums goes to memory, to both, or only to what runs beside it (slots, the
accumulators of a core)."""


class Schedule(NamedTuple):
    """In which order visits are added to which blocks. Arrays are kept from call to call, and not to be changed.

    ``visits`` with ``ends``, 1 where a slot or a core ends; ``blocks`` of the output, whose sums,
    ``size`` together, begin at ``starts`` and go where ``kinds`` says when no tile has slots;
    ``group`` visits are packed at a time, each in ``x_shape`` and ``grad_shape``; ``part_size``
    sums are kept by every thread.
    """

    visits: Integers
    ends: Integers
    blocks: Integers
    starts: Integers
    kinds: Integers
    size: int
    group: int
    x_shape: tuple[int, int, int]
    grad_shape: tuple[int, int, int]
    part_size: int


@lru_cache(maxsize=64)
def schedule(
    shape: tuple[int, int, int],
    tap_stride: int,
    shares: Shares,
    slot_samples: int,
    core_order: int,
    threads: int,
    drawn: bool,
) -> Schedule:
    """Return the schedule of gradWeight (K, Cin, Cout); arguments as for :func:`npu_sim.kernels.conv_tbc_backward.weight.grad_weight`.

    ``drawn`` says whether the order of cores is drawn for every row, which needs all their sums.
    """
    visits, ends = arrival(shares, core_order)
    blocks = cut_output(shape, blocking(shares.cores if drawn else 0), threads)
    sizes = block_sizes(blocks)
    if slot_samples:
        ends = np.zeros(len(visits), np.int64)
        ends[slot_samples - 1 :: slot_samples] = 1
        ends[-1] = 1
    elif shares.cores == 1 and not shares.anew:
        ends = np.zeros_like(ends)  # the one accumulator is what is added to the zeroed output
    steps, halo = min(shares.piece_steps, shares.steps), (shape[0] - 1) * tap_stride
    x_shape = (-(-shape[1] // TILE_ROWS), steps + halo, TILE_STRIDE)
    grad_shape = (-(-shape[2] // TILE_COLUMNS), steps, TILE_COLUMNS)
    group = (
        len(visits)
        if drawn
        else min(max(GROUP_BYTES // (4 * (prod(x_shape) + prod(grad_shape))), 1), len(visits))
    )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    kinds = np.full(len(blocks), PLAIN if shares.anew else SLOTS, np.int64)
    part_size = int(sizes.max()) * (shares.cores if drawn else shares.anew)
    return Schedule(
        visits, ends, blocks, starts, kinds, int(sizes.sum()), group, x_shape, grad_shape, part_size
    )


def slotted_kinds(blocks: Integers, tail: Flags) -> Integers:
    """Return for each block where its sums go when the pairs of channels in ``tail`` have slots."""
    parts = [
        tail[first_in:stop_in, first_out:stop_out]
        for _, _, first_in, stop_in, first_out, stop_out in blocks
    ]
    return np.array(
        [SLOTS if part.all() else MIXED if part.any() else PLAIN for part in parts], np.int64
    )


class Scratch(NamedTuple):
    """Memory that gradWeight works in: packed operands of a group, sums, what runs beside them, what is finished, parts of threads."""

    packed_x: Floats
    packed_grad: Floats
    sums: Floats
    running: Floats
    finished: Floats
    parts: Floats


def scratch_of(plan: Schedule, threads: int, running: int, finished: int) -> Scratch:
    """Return the memory for a call, with all sums at 0; ``running`` and ``finished`` of them run beside those of the output."""
    scratch = Scratch(
        aligned(plan.group, *plan.x_shape),
        aligned(plan.group, *plan.grad_shape),
        aligned(plan.size),
        aligned(running),
        aligned(finished),
        thread_scratch(threads, plan.part_size),
    )
    for cleared in (scratch.sums, scratch.running, scratch.finished):
        cleared.fill(0)
    return scratch


# --- Work queue ---
def take(queue: Integers) -> int:
    """Return the number of the next piece and advance ``queue[0]``; safe from any thread."""
    queue[0] += 1
    return int(queue[0]) - 1


@intrinsic
def _take(typing_context: Any, queue: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        first = element_address(context, builder, queue, 1, arguments[0], I64(0))
        return builder.atomic_rmw("add", first, I64(1), "monotonic")

    return types.int64(queue), generate


@overload(take)
def _choose_take(queue):
    return lambda queue: _take(queue)
