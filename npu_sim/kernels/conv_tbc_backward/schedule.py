"""ConvTbcBackward: the order in which partial sums of gradWeight are added; work of threads.

Default mode: each core has one accumulator per output element. It starts at 0 and takes the core's
samples in order, each over the core's range of the time axis, ascending. If several cores reduce
the same output, their sums arrive in any order. Deterministic mode on A2 and A3: one core computes
a tile, its accumulator restarts with every sample, and the sums are added to memory sample by
sample. A *visit* is one sample on one core's range of the time axis.

On the host, a thread takes one block of the output after the other from a queue and adds all visits
to it. Neither the division into blocks nor the thread that takes a block changes a bit of the
result. Everything here follows from the sizes of a call alone.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Sources: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``, "Atomic addition
to global memory".
"""

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

from npu_sim.kernels.arrival_orders import RANDOM, SEQUENTIAL, arrivals
from npu_sim.kernels.conv_tbc_backward.tile import (
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    TILE_STRIDE,
    Floats,
)
from npu_sim.kernels.engine.threads import aligned, thread_scratch
from npu_sim.kernels.vectors.lane_type import I64, element_address

Integers = NDArray[np.int64]

SAMPLE, START, STOP = 0, 1, 2
"""Columns of a list of visits: sample, and half-open range of output time."""


class ReductionSplit(NamedTuple):
    """Division of the reduction of every output tile among cores, as integers from the plan.

    Each core takes a group of ``group_samples`` of the ``samples``, and a piece of ``piece_steps``
    of the ``steps`` of output time.
    """

    samples: int
    group_samples: int
    steps: int
    piece_steps: int
    restarts: int = 0
    """1 if the accumulator restarts with every sample; there is one core then."""

    @property
    def cores(self) -> int:
        """Number of cores that reduce a tile."""
        return -(-self.samples // self.group_samples) * -(-self.steps // self.piece_steps)


class TailTiles(NamedTuple):
    """Output tiles, from ``first`` on, whose samples are split over cores with private slots.

    This is "stream-K". Tiles are ``m_edge`` output channels x ``n_edge`` input channels with all
    taps; there are ``m_tiles`` x ``n_tiles``, M running fastest if ``m_fastest``. ``slot_samples``
    consecutive samples are summed in one slot; 0 if no tile is split.
    """

    slot_samples: int
    first: int
    m_edge: int
    n_edge: int
    m_tiles: int
    n_tiles: int
    m_fastest: int


NO_TAIL = TailTiles(0, 0, 1, 1, 1, 1, 1)
NO_MASK = np.zeros((0, 0), np.bool_)


def tail_mask(tiles: TailTiles, in_channels: int, out_channels: int) -> NDArray[np.bool_]:
    """Return the mask (input channels, output channels) of the tiles with slots."""
    n = np.arange(in_channels)[:, None] // tiles.n_edge
    m = np.arange(out_channels)[None, :] // tiles.m_edge
    number = n * tiles.m_tiles + m if tiles.m_fastest else m * tiles.n_tiles + n
    mask: NDArray[np.bool_] = number >= tiles.first
    return mask


def visits_by_core(split: ReductionSplit) -> list[list[tuple[int, int, int]]]:
    """Return the visits (sample, start, stop) of each core of a tile, in its program order."""
    cores = []
    for first in range(0, split.samples, split.group_samples):
        for start in range(0, split.steps, split.piece_steps):
            samples = range(first, min(first + split.group_samples, split.samples))
            stop = min(start + split.piece_steps, split.steps)
            cores.append([(sample, start, stop) for sample in samples])
    return cores


def arrival(split: ReductionSplit, order: int) -> tuple[Integers, Integers]:
    """Return all visits in the order of the cores' arrival, and a flag: last visit of its core.

    For ``RANDOM``, cores are in ascending order, because the order is drawn for every output row.
    """
    cores = visits_by_core(split)
    fixed = SEQUENTIAL if order == RANDOM else order
    arrived = [cores[number] for number in arrivals(np.ones(len(cores), np.int64), fixed, 0, 1)[0]]
    last = [
        int(visit == visits_of_part[-1]) for visits_of_part in arrived for visit in visits_of_part
    ]
    visits = [visit for visits_of_part in arrived for visit in visits_of_part]
    return np.array(visits, np.int64), np.array(last, np.int64)


MOST_TAPS = 16
MOST_ROW_TILES = 8
MOST_COLUMN_TILES = 8
BLOCK_SUMS = 1 << 18
"""Maximum sums of one block, 1 MiB: they stay in the L2 cache from visit to visit."""
CORE_SUMS = 1 << 22
"""Maximum sums of all cores that a thread holds in the random order, 16 MiB, unless one register
tile per core needs more."""


class Blocking(NamedTuple):
    """Maximum taps and tiles of one block."""

    taps: int
    row_tiles: int
    column_tiles: int


def blocking(cores: int) -> Blocking:
    """Return the largest block whose sums, held separately for each core, fit their scratch."""
    tiles = min(BLOCK_SUMS, CORE_SUMS // max(cores, 1)) // TILE_SIZE
    columns = max(min(MOST_COLUMN_TILES, tiles), 1)
    rows = max(min(MOST_ROW_TILES, tiles // columns), 1)
    return Blocking(max(min(MOST_TAPS, tiles // (columns * rows)), 1), rows, columns)


def even_ranges(size: int, unit: int, pieces: int) -> list[tuple[int, int]]:
    """Divide 0..size into pieces of whole units, as evenly as possible."""
    units = -(-size // unit)
    bounds = [units * piece // pieces * unit for piece in range(pieces + 1)]
    return [(start, min(stop, size)) for start, stop in pairwise(bounds) if start < stop]


def cut_output(shape: tuple[int, int, int], most: Blocking, threads: int) -> NDArray[np.int64]:
    """Divide gradWeight (K, Cin, Cout) into blocks so that the busiest thread has the least work.

    Smaller blocks load operands more often; the cost below counts a load as a fraction of a
    product. Return a row per block: half-open ranges of taps, input and output channels.
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
    """Return the number of sums of every block of :func:`cut_output`, in whole tiles."""
    taps, inputs, outputs = (blocks[:, column + 1] - blocks[:, column] for column in (0, 2, 4))
    tiles = -(-inputs // TILE_ROWS) * -(-outputs // TILE_COLUMNS)
    sizes: NDArray[np.int64] = taps * tiles * TILE_SIZE
    return sizes


# --- Schedule of gradWeight ---

Flags = NDArray[np.bool_]

GROUP_BYTES = 1 << 23
"""Packed operands held at a time, unless a single visit is larger."""

IN_MEMORY, IN_BOTH, RUNNING = 0, 1, 2
"""Where the sums of a block are added: in memory visit by visit, in running sums (of a slot, or the
accumulators of a core), or both."""


class Schedule(NamedTuple):
    """Visits and blocks of gradWeight. Cached between calls, so arrays must not be modified."""

    visits: Integers
    ends: Integers
    """1 for a visit with which a slot or a core ends."""
    blocks: Integers
    """From `cut_output`."""
    starts: Integers
    """(blocks + 1,): first sum of each block."""
    places: Integers
    """IN_MEMORY or RUNNING for each block, if no tile has slots; see `places_with_slots`."""
    size: int
    """Sums of all blocks."""
    group: int
    """Visits that are packed at a time."""
    x_shape: tuple[int, int, int]
    """Shape of one packed visit of the input."""
    grad_shape: tuple[int, int, int]
    part_size: int
    """Sums in the scratch of each thread."""


@lru_cache(maxsize=64)
def schedule(
    shape: tuple[int, int, int],
    tap_stride: int,
    split: ReductionSplit,
    slot_samples: int,
    core_order: int,
    threads: int,
    is_random: bool,
) -> Schedule:
    """Return the schedule of gradWeight (K, Cin, Cout); see `weight.grad_weight` for the arguments.

    ``is_random``: the order of cores is drawn for every row, which needs the sums of all cores.
    """
    visits, ends = arrival(split, core_order)
    blocks = cut_output(shape, blocking(split.cores if is_random else 0), threads)
    sizes = block_sizes(blocks)
    if slot_samples:
        ends = np.zeros(len(visits), np.int64)
        ends[slot_samples - 1 :: slot_samples] = 1
        ends[-1] = 1
    elif split.cores == 1 and not split.restarts:
        # One accumulator per element, which becomes the output itself.
        ends = np.zeros_like(ends)
    steps, halo = min(split.piece_steps, split.steps), (shape[0] - 1) * tap_stride
    x_shape = (-(-shape[1] // TILE_ROWS), steps + halo, TILE_STRIDE)
    grad_shape = (-(-shape[2] // TILE_COLUMNS), steps, TILE_COLUMNS)
    visit_bytes = 4 * (prod(x_shape) + prod(grad_shape))
    group = min(max(GROUP_BYTES // visit_bytes, 1), len(visits))
    if is_random:
        group = len(visits)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.full(len(blocks), IN_MEMORY if split.restarts else RUNNING, np.int64)
    part_size = int(sizes.max()) * (split.cores if is_random else split.restarts)
    return Schedule(
        visits,
        ends,
        blocks,
        starts,
        places,
        int(sizes.sum()),
        group,
        x_shape,
        grad_shape,
        part_size,
    )


def places_with_slots(blocks: Integers, tail: Flags) -> Integers:
    """Return where the sums of each block are added; channel pairs in ``tail`` have slots."""
    places = np.full(len(blocks), IN_MEMORY, np.int64)
    for number, (_, _, first_in, stop_in, first_out, stop_out) in enumerate(blocks):
        part = tail[first_in:stop_in, first_out:stop_out]
        if part.any():
            places[number] = RUNNING if part.all() else IN_BOTH
    return places


class Scratch(NamedTuple):
    """Scratch of one call."""

    packed_x: Floats
    """Packed input of a group of visits."""
    packed_grad: Floats
    sums: Floats
    """Sums of all blocks."""
    running: Floats
    """Running sums of a slot or a core."""
    finished: Floats
    """Sums of finished slots."""
    parts: Floats
    """(threads, part_size or more): accumulators of each thread."""


def scratch_of(plan: Schedule, threads: int, running: int, finished: int) -> Scratch:
    """Return scratch with all sums at 0; ``running`` and ``finished`` are sizes."""
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
    """Return ``queue[0]``, the number of the next block, and increment it atomically."""
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
