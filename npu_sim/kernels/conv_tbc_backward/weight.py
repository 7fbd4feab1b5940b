"""ConvTbcBackward: gradWeight.

gradWeight[k, i, o] = sum over b and t of x[t + k*stride - pad, b, i] * grad[t, b, o].

Order of accumulation: see `register_tile` for the time steps of a sample. Default mode: each core
has one accumulator per output element. It starts at 0 and takes the core's samples in order, each
over the core's range of the time axis, ascending. If several cores reduce the same output, their
sums arrive in any order. Deterministic mode on A2 and A3: one core computes a tile, its accumulator
restarts with every sample, and the sums are added to memory sample by sample. A *visit* is one
sample on one core's range of the time axis.

On the host, a thread takes one block of the output after the other from a queue and adds all visits
to it. Neither the division into blocks nor the thread that takes a block changes a bit of the
result.

Neighbouring samples are adjacent within a row of time, so operands are packed for a group of visits
at a time: a read touches whole rows, and every element is rounded once. Memory beyond inputs and
output: the packed group (8 MiB, or one visit if that is more; all visits in the random order), one
fp32 sum per weight (two if several cores reduce a tile, three if tiles have slots), and in the
random order 16 MiB per thread for the sums of the cores.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Sources: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``, "Atomic addition
to global memory".
"""

from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward.operands import START, STOP, Tiles, pack_tiles, take
from npu_sim.kernels.conv_tbc_backward.register_tile import (
    PACKED_STEPS,
    TILE_COLUMNS,
    TILE_ROWS,
    TILE_SIZE,
    TIME_BLOCK,
    Walk,
    multiply_channels,
)
from npu_sim.kernels.engine.compile import (
    device_function,
    kernel,
    long_kernel,
    thread_count,
    thread_scratch,
    threads_for,
)
from npu_sim.kernels.shared.arrival_orders import IN_CORE_ORDER, RANDOM, ArrivalOrder, arrivals
from npu_sim.kernels.vectors.lanes import Floats, Integers, Stored
from npu_sim.kernels.vectors.row_sums import add_to, clear
from npu_sim.numbers.arrays import aligned
from npu_sim.numbers.scalars import narrow

Flags = NDArray[np.bool_]


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


class Reduction(NamedTuple):
    """How cores divide the reduction, and the order in which their sums arrive."""

    split: ReductionSplit
    tail: TailTiles = NO_TAIL
    """Tiles summed through private slots; they require a ``split`` that restarts."""
    order: ArrivalOrder = IN_CORE_ORDER


def tail_mask(tiles: TailTiles, in_channels: int, out_channels: int) -> NDArray[np.bool_]:
    """Return the mask (input channels, output channels) of the tiles with slots."""
    n = np.arange(in_channels)[:, None] // tiles.n_edge
    m = np.arange(out_channels)[None, :] // tiles.m_edge
    number = n * tiles.m_tiles + m if tiles.m_fastest else m * tiles.n_tiles + n
    return number >= tiles.first


def visits_by_core(split: ReductionSplit) -> list[list[tuple[int, int, int]]]:
    """Return the visits (sample, start, stop) of each core of a tile, in its program order."""
    cores = []
    for first in range(0, split.samples, split.group_samples):
        for start in range(0, split.steps, split.piece_steps):
            samples = range(first, min(first + split.group_samples, split.samples))
            stop = min(start + split.piece_steps, split.steps)
            cores.append([(sample, start, stop) for sample in samples])
    return cores


def arrived_visits(split: ReductionSplit, order: int) -> tuple[Integers, Integers]:
    """Return all visits in the order of the cores' arrival, and a flag: last visit of its core.

    For ``RANDOM``, cores are in ascending order, because the order is drawn for every output row.
    """
    cores = visits_by_core(split)
    fixed = IN_CORE_ORDER if order == RANDOM else ArrivalOrder(order)
    arrived = [cores[number] for number in arrivals(np.ones(len(cores), np.int64), fixed)[0]]
    last = [
        int(visit == visits_of_part[-1]) for visits_of_part in arrived for visit in visits_of_part
    ]
    visits = [visit for visits_of_part in arrived for visit in visits_of_part]
    return np.array(visits, np.int64), np.array(last, np.int64)


MOST_TAPS = 16
MOST_ROW_TILES = 112 // TILE_ROWS
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


# --- Schedule of gradWeight ---

GROUP_BYTES = 1 << 23
"""Packed operands held at a time, unless a single visit is larger."""


class Blocks(NamedTuple):
    """Blocks of gradWeight, and where their sums are."""

    ranges: Integers
    """From `cut_output`."""
    starts: Integers
    """(blocks + 1,): first sum of each block."""


class Schedule(NamedTuple):
    """Visits and blocks of gradWeight. Cached between calls, so arrays must not be modified."""

    visits: Integers
    ends: Integers
    """1 for a visit with which a slot or a core ends."""
    blocks: Blocks
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
    """Return the schedule of gradWeight (K, Cin, Cout); see `grad_weight` for the arguments.

    ``is_random``: the order of cores is drawn for every row, which needs the sums of all cores.
    """
    visits, ends = arrived_visits(split, core_order)
    blocks = cut_output(shape, blocking(split.cores if is_random else 0), threads)
    taps, inputs, outputs = (blocks[:, column + 1] - blocks[:, column] for column in (0, 2, 4))
    sizes = taps * -(-inputs // TILE_ROWS) * -(-outputs // TILE_COLUMNS) * TILE_SIZE
    if slot_samples:
        ends = np.zeros(len(visits), np.int64)
        ends[slot_samples - 1 :: slot_samples] = 1
        ends[-1] = 1
    elif split.cores == 1 and not split.restarts:
        # One accumulator per element, which becomes the output itself.
        ends = np.zeros_like(ends)
    steps, halo = min(split.piece_steps, split.steps), (shape[0] - 1) * tap_stride
    x_shape = (-(-shape[1] // TILE_ROWS), steps + halo, TILE_ROWS)
    grad_shape = (-(-shape[2] // TILE_COLUMNS), steps, TILE_COLUMNS)
    visit_bytes = 4 * (prod(x_shape) + prod(grad_shape))
    group = min(max(GROUP_BYTES // visit_bytes, 1), len(visits))
    if is_random:
        group = len(visits)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    part_size = int(sizes.max()) * (split.cores if is_random else split.restarts)
    numbers = int(sizes.sum()), group, x_shape, grad_shape, part_size
    return Schedule(visits, ends, Blocks(blocks, starts), *numbers)


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


class Operands(NamedTuple):
    """Packed operands of a group of visits, in the order in which they are added."""

    x: Floats
    """(visits, elements), for each visit (tiles, x_rows, TILE_ROWS): row 0 is the input that tap
    0 reads at the start of the visit."""
    x_rows: int
    grad: Floats
    """(visits, elements), for each visit (panels, grad_rows, TILE_COLUMNS): row 0 is grad at the
    start of the visit."""
    grad_rows: int
    visits: Integers
    ends: Integers
    """1 for a visit with which a slot or a core ends."""
    taps: Taps


class Accumulators(NamedTuple):
    """Sums of one block to which a visit is added."""

    values: Floats
    first: int
    """Position of the block in ``values``."""
    restarts: bool
    """Whether they start at 0 with every visit; otherwise they continue."""


@device_function
def _multiply_time(
    packed: tuple[Floats, Floats],
    left: int,
    right: int,
    values: Floats,
    place: int,
    before: int,
    steps: int,
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
        walk = Walk(1, 0, 0, blocks, TIME_BLOCK * TILE_ROWS, length)
        a, b = left + done * TILE_ROWS, right + done * TILE_COLUMNS
        multiply_channels(packed[0], a, packed[1], b, values, place, walk)
        done += blocks * length


@device_function
def _add_visit(
    operands: Operands,
    visit: int,
    block: Block,
    accumulators: Accumulators,
    sums: Floats,
    running: Floats,
) -> None:
    """Add the products of one visit to the accumulators of a block.

    Time is processed in pieces that fit the cache. Accumulators that restart are added to ``sums``
    and ``running`` in the end; either may be empty.
    """
    start, stop = operands.visits[visit, START], operands.visits[visit, STOP]
    packed = operands.x[visit], operands.grad[visit]
    taps, restarts = operands.taps, accumulators.restarts
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
                right = right_panel * operands.grad_rows + valid_start - start
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
                        left = left_tile * operands.x_rows + valid_start + shift - first_row
                        _multiply_time(
                            packed,
                            left * TILE_ROWS,
                            right * TILE_COLUMNS,
                            accumulators.values,
                            place,
                            valid_start - start,
                            valid_stop - valid_start,
                        )
                    if restarts and end == stop:
                        if sums.size > 0:
                            add_to(sums[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                        if running.size > 0:
                            add_to(running[number * TILE_SIZE : (number + 1) * TILE_SIZE], tile)
                    number += 1


# --- All samples, on all threads ---


class Sums(NamedTuple):
    """Sums of all blocks."""

    sums: Floats
    running: Floats
    """Running sums of a slot or a core; the same as ``sums`` where there is one accumulator, and
    empty where it restarts and there are no slots."""
    finished: Floats
    """Sums of finished slots; the same as ``sums`` without slots."""


def _zeros(size: int) -> Floats:
    """Return an array of zeros that starts on a cache line."""
    values = aligned((size,))
    values.fill(0)
    return values


@device_function
def _block(blocks: Blocks, number: int) -> Block:
    line = blocks.ranges[number]
    return Block(line[0], line[1], line[2], line[3], line[4], line[5])


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

    With ``restarts`` the sum of a visit is added to ``sums.sums`` and, if there are slots, to
    ``sums.running``. Otherwise ``sums.running`` is the accumulator. When a slot or core ends,
    ``sums.running`` is added to ``sums.finished`` and set to 0.
    """
    parts, none = all_parts[thread], sums.sums[:0]
    number = take(queue)
    while number < len(blocks.ranges):
        block = _block(blocks, number)
        start, stop = blocks.starts[number], blocks.starts[number + 1]
        running = sums.running[start:stop]
        in_memory, slots = (sums.sums[start:stop], running) if restarts else (none, none)
        accumulators = Accumulators(parts if restarts else running, 0, restarts)
        for visit in range(len(operands.visits)):
            _add_visit(operands, visit, block, accumulators, in_memory, slots)
            if running.size > 0 and operands.ends[visit] != 0:
                add_to(sums.finished[start:stop], running)
                clear(running)
        number = take(queue)


@long_kernel
def _multiply_random(
    thread: int,
    operands: Operands,
    blocks: Blocks,
    orders: Integers,
    sums: Floats,
    queue: Integers,
    all_parts: Floats,
) -> None:
    """Compute the accumulators of every core, then add them row by row in a random order.

    ``orders`` (taps, input channels, cores) has the order of every row.
    """
    parts, none = all_parts[thread], sums[:0]
    number = take(queue)
    while number < len(blocks.ranges):
        block, start = _block(blocks, number), blocks.starts[number]
        size, core = blocks.starts[number + 1] - start, 0
        clear(parts[: orders.shape[2] * size])
        for visit in range(len(operands.visits)):
            accumulators = Accumulators(parts, core * size, False)
            _add_visit(operands, visit, block, accumulators, none, none)
            core += operands.ends[visit]
        for tap in range(block.first_tap, block.stop_tap):
            for in_channel in range(block.first_in, block.stop_in):
                for first in range(block.first_out, block.stop_out, TILE_COLUMNS):
                    place = place_in_block(block, tap, in_channel, first)
                    target = sums[start + place : start + place + TILE_COLUMNS]
                    for number_of_core in orders[tap, in_channel]:
                        part = number_of_core * size + place
                        add_to(target, parts[part : part + TILE_COLUMNS])
        number = take(queue)


@kernel
def _store(
    number: int, blocks: Blocks, sums: Floats, slotted: Floats, tail: Flags, out: Stored
) -> None:
    """Round the sums of a block to the dtype of the output; in ``tail`` take those of slots."""
    block, start = _block(blocks, number), blocks.starts[number]
    for tap in range(block.first_tap, block.stop_tap):
        for row in range(block.first_in, block.stop_in):
            for first in range(block.first_out, block.stop_out, TILE_COLUMNS):
                place = start + place_in_block(block, tap, row, first)
                target = out[tap, row, first : min(first + TILE_COLUMNS, block.stop_out)]
                for column in range(target.size):
                    target[column] = narrow(sums[place + column], target)
                if tail.size > 0:
                    for column in range(target.size):
                        if tail[row, first + column]:
                            target[column] = narrow(slotted[place + column], target)


def grad_weight(
    x: Stored,
    grad: Stored,
    pad: int,
    tap_stride: int,
    rounding: int,
    out: Stored,
    reduction: Reduction,
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
    reduction : Reduction
        Division of the reduction among cores, and the order of their sums.
    """
    (split, tail, order), (taps, in_channels, out_channels) = reduction, out.shape
    is_random = order.code == RANDOM and split.cores > 1
    operations = grad.size * taps * in_channels
    threads = thread_count() if is_random else threads_for(operations=operations)
    plan = schedule(out.shape, tap_stride, split, tail.slot_samples, order.code, threads, is_random)
    mask = tail_mask(tail, in_channels, out_channels) if tail.slot_samples else NO_MASK
    has_slots, restarts = mask.size > 0 and bool(mask.any()), split.restarts == 1
    packed_x, packed_grad = (
        aligned((plan.group, *plan.x_shape)),
        aligned((plan.group, *plan.grad_shape)),
    )
    parts, total = thread_scratch(threads, plan.part_size), _zeros(plan.size)
    running = total[:0] if restarts else total
    sums = Sums(
        total,
        _zeros(plan.size) if has_slots or split.cores > 1 else running,
        _zeros(plan.size) if has_slots else total,
    )
    for first in range(0, len(plan.visits), plan.group):
        group, queue = slice(first, first + plan.group), np.zeros(1, np.int64)
        visits = plan.visits[group]
        tiles = Tiles(x, packed_x, (taps - 1) * tap_stride, pad), Tiles(grad, packed_grad, 0, 0)
        pack_tiles(*tiles, visits, rounding)
        operands = Operands(
            packed_x.reshape(plan.group, -1),
            plan.x_shape[1],
            packed_grad.reshape(plan.group, -1),
            plan.grad_shape[1],
            visits,
            plan.ends[group],
            Taps(pad, tap_stride, x.shape[0]),
        )
        if is_random:
            orders = arrivals(np.ones(split.cores, np.int64), order, taps * in_channels)
            rows = orders.reshape(taps, in_channels, split.cores)
            _multiply_random.over(threads, operands, plan.blocks, rows, total, queue, parts)
        else:
            _multiply.over(threads, operands, plan.blocks, restarts, sums, queue, parts)
    _store.over(len(plan.blocks.ranges), plan.blocks, total, sums.finished, mask, out)
