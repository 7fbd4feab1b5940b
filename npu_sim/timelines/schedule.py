"""Cycles of work at published rates, and the earliest start and end of tiles on a core's pipes.

Every time is the maximum of earlier times plus a duration. A tile is therefore a matrix over
(max, +), a loop is a power of the matrix of its body, and a million equal tiles cost twenty
products. Nothing is approximated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property, reduce
from math import ceil

import numpy as np

from npu_sim.cores import Profile
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.product import Chip, Throughput
from npu_sim.status import closest
from npu_sim.tiling.common import align, ceil_div
from npu_sim.timelines.program import (
    COPY_BLOCK_BYTES,
    WRITING_PIPES,
    Copy,
    Hold,
    Instruction,
    Loop,
    Multiply,
    Node,
    Phase,
    Tile,
    Work,
    tiles,
)

REPEAT_BYTES = 256
"""Bytes of a repeat: 64 fp32 lanes or 128 lanes of 16 bits (page, "V")."""
CUBE_BLOCK = 16
"""Rows and columns of one block of the cube unit (page, "M")."""
MEASURED_ELEMENTS_PER_CYCLE = {"cast_32_to_16": 128}
"""Rates measured above the published ones; bounds use the larger (page, "V")."""


def clock_mhz(profile: Profile) -> float:
    """Return the clock of bounds in MHz: that of vector cores if published, else of cube cores."""
    return profile.chip.vector_clock_mhz or profile.chip.cube_clock_mhz


def cycles(work: Work, profile: Profile, pipe: str) -> float | None:
    """Return the cycles of a piece of work on a pipe; None when its rate is not published."""
    if isinstance(work, Copy):
        return _copy_cycles(work, profile.chip, pipe)
    throughput = profile.product.throughput or Throughput()
    if isinstance(work, Instruction):
        return _instruction_cycles(work, throughput)
    return _multiply_cycles(work, throughput)


def moving_cycles(chip: Chip, moved_bytes: int, tensor_bytes: int, *, writes: bool) -> float:
    """Return the cycles in which one core moves a part of a tensor in the first pass over it.

    Whatever the L2 holds, at least ``1 - l2_bytes / tensor_bytes`` of the tensor comes from global
    memory (page, "MTE2, MTE3"); the rest may be answered by the L2.
    """
    rate = chip.l2_write_bytes_per_cycle if writes else chip.l2_read_bytes_per_cycle
    from_memory = max(0.0, 1 - chip.l2_bytes / tensor_bytes) if tensor_bytes else 0.0
    return moved_bytes * ((1 - from_memory) / rate + from_memory / chip.ddr_bytes_per_cycle)


def work_kind(work: Work) -> str:
    """Return the kind of a computation: of an instruction its key in the throughput table."""
    return work.kind if isinstance(work, Instruction) else "cube product"


def rate_name(work: Work, profile: Profile) -> str:
    """Return how a missing rate is listed, such as ``exp float16``, with a similar known kind."""
    if isinstance(work, Instruction):
        known = (profile.product.throughput or Throughput()).vector_elements_per_cycle
        parts = {part: name for name in known for part in name.split("_")}
        return Text(
            "{kind} {dtype}{similar}",
            kind=work.kind,
            dtype=work.dtype,
            similar="" if work.kind in known else closest(parts.get(work.kind, work.kind), known),
        )
    if isinstance(work, Multiply):
        return Text("cube product {dtype}", dtype=work.dtype)
    return work.rate


def copied_bytes(work: Work) -> int:
    """Return the bytes that a copy moves, padded to whole blocks; 0 for other work."""
    return work.times * align(work.bytes, COPY_BLOCK_BYTES) if isinstance(work, Copy) else 0


def elements(work: Work) -> int:
    """Return the number of elements of a piece of work."""
    return work.times * (work.m * work.n if isinstance(work, Multiply) else work.elements)


def _copy_cycles(copy: Copy, chip: Chip, pipe: str) -> float:
    moved = copied_bytes(copy)
    if copy.rate == "memory":
        return moving_cycles(chip, moved, copy.tensor_bytes, writes=pipe in WRITING_PIPES)
    rate: float = getattr(chip, copy.rate)
    return moved / rate


def _instruction_cycles(instruction: Instruction, throughput: Throughput) -> float | None:
    rates = throughput.vector_elements_per_cycle.get(instruction.kind)
    rate = rates.get(instruction.dtype) if isinstance(rates, dict) else rates
    if rate is None:
        return None
    lanes = REPEAT_BYTES // TensorSpec((), instruction.dtype).itemsize
    return float(
        instruction.times
        * ceil(
            align(instruction.elements, lanes)
            / _exact(max(rate, MEASURED_ELEMENTS_PER_CYCLE.get(instruction.kind, rate)))
        )
    )


@cache
def _exact(rate: float) -> Fraction:
    """Return a published rate as a fraction: 9.142857 is 64 elements in seven cycles."""
    return Fraction(rate).limit_denominator(1000)


def _multiply_cycles(multiply: Multiply, throughput: Throughput) -> float | None:
    rate = throughput.cube_macs_per_cycle.get(multiply.dtype)
    if rate is None:
        return None
    m, n = align(multiply.m, CUBE_BLOCK), align(multiply.n, CUBE_BLOCK)
    return float(
        multiply.times * ceil_div(m * n * align(multiply.k, rate.block_k), rate.m * rate.n * rate.k)
    )


NEVER = -np.inf
"""The zero of (max, +): no constraint."""


@dataclass(frozen=True)
class Piece:
    """One event of every pipe: a tile, or a run of tiles drawn as one."""

    name: str
    """Ranges of the tile or of the run."""
    nodes: tuple[Node, ...]
    """Nodes of the program that it represents."""
    tiles: int
    """Number of tiles."""
    start: tuple[float, ...]
    """Start of every pipe, in cycles."""
    busy: tuple[float, ...]
    """Busy time of every pipe, in cycles; 0 for an idle pipe."""


@dataclass
class Scheduler:
    """Schedules the nodes of one phase on one profile; equal nodes are timed once."""

    phase: Phase
    profile: Profile
    copies_alone: bool = False
    """Whether all work but copies counts 0."""
    _matrices: dict[Node, np.ndarray] = field(default_factory=dict)
    _costs: dict[Tile, tuple[float, ...]] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        """Length of the state: last end of every pipe, last releases of every buffer."""
        return len(self.phase.pipes) + sum(hold.count for hold in self.phase.holds)

    def initial(self) -> np.ndarray:
        """Return the state in which everything is free at time 0."""
        return np.zeros(self.size)

    def finish(self, nodes: tuple[Node, ...]) -> float:
        """Return the end of the last pipe of a core that starts at 0."""
        state = reduce(self.advance, nodes, self.initial())
        return float(state[: len(self.phase.pipes)].max())

    def busy(self, nodes: tuple[Node, ...]) -> np.ndarray:
        """Return the busy time of every pipe, in cycles."""
        times = (
            np.array(self.cost(node))
            if isinstance(node, Tile)
            else node.count * self.busy(node.body)
            for node in nodes
        )
        return sum(times, np.zeros(len(self.phase.pipes)))

    def cost(self, tile: Tile) -> tuple[float, ...]:
        """Return the cycles of a tile on every pipe; unknown rates count as 0."""
        if tile not in self._costs:
            self._costs[tile] = tuple(
                sum(self._cycles(work, pipe) for work in works)
                for works, pipe in zip(tile.work, self.phase.pipes, strict=True)
            )
        return self._costs[tile]

    def _cycles(self, work: Work, pipe: str) -> float:
        if self.copies_alone and not isinstance(work, Copy):
            return 0.0
        return cycles(work, self.profile, pipe) or 0.0

    def advance(self, state: np.ndarray, node: Node) -> np.ndarray:
        """Return the state after a node."""
        after: np.ndarray = (self.matrix(node) + state).max(axis=1)
        return after

    def matrix(self, node: Node) -> np.ndarray:
        """Return the (max, +) matrix of a node."""
        if node not in self._matrices:
            self._matrices[node] = (
                self._tile_matrix(node)
                if isinstance(node, Tile)
                else _power(
                    reduce(_after, map(self.matrix, node.body), _identity(self.size)), node.count
                )
            )
        return self._matrices[node]

    def _tile_matrix(self, tile: Tile) -> np.ndarray:
        """Return the matrix of a tile; a row holds the terms of the maximum for one new time."""
        pipes, cost = len(self.phase.pipes), self.cost(tile)
        old = _identity(self.size)
        new = old.copy()
        before = None
        for pipe in range(pipes):
            if not tile.work[pipe]:
                continue
            start = old[pipe]  # pipes process tiles in order
            if before is not None:
                start = np.maximum(start, new[before])  # the tile's data must be there
            elif pipe:
                start = np.maximum(start, old[pipe - 1])
            for hold, first in self._holds(tile):
                if hold.filled_by == pipe:
                    start = np.maximum(start, old[first + hold.count - 1])  # a buffer must be free
            new[pipe] = start + cost[pipe]
            before = pipe
        for hold, first in self._holds(tile):
            new[first + 1 : first + hold.count] = old[first : first + hold.count - 1]
            new[first] = new[hold.freed_by]
        return new

    def _holds(self, tile: Tile) -> Iterator[tuple[Hold, int]]:
        first = len(self.phase.pipes)
        for hold in self.phase.holds:
            if tile.work[hold.filled_by] and tile.work[hold.freed_by]:
                yield hold, first
            first += hold.count

    def pieces(self, nodes: tuple[Node, ...], max_events: int) -> Iterator[Piece]:
        """Yield the events of a core in order, about ``max_events`` at most for every pipe."""
        state = self.initial()
        for name, part in _outline(nodes, max_events, ""):
            yield self._piece(name, part, state)
            state = reduce(self.advance, part, state)

    def _piece(self, name: str, part: tuple[Node, ...], state: np.ndarray) -> Piece:
        first = _first_tile(part)
        ends, cost = self.advance(state, first), self.cost(first)
        start = tuple(
            float(ends[pipe] - cost[pipe]) if first.work[pipe] else float(state[pipe])
            for pipe in range(len(self.phase.pipes))
        )
        return Piece(name, part, tiles(part), start, tuple(float(busy) for busy in self.busy(part)))


def _first_tile(nodes: tuple[Node, ...]) -> Tile:
    node = nodes[0]
    while isinstance(node, Loop):
        node = node.body[0]
    return node


def _identity(size: int) -> np.ndarray:
    matrix = np.full((size, size), NEVER)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _after(earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Return the (max, +) product of two matrices: one node after the other."""
    product: np.ndarray = (later[:, :, None] + earlier[None, :, :]).max(axis=1)
    return product


def _power(matrix: np.ndarray, exponent: int) -> np.ndarray:
    result = _identity(len(matrix))
    while exponent:
        if exponent & 1:
            result = _after(result, matrix)
        matrix = _after(matrix, matrix)
        exponent >>= 1
    return result


def _outline(
    nodes: tuple[Node, ...], max_events: int, prefix: str
) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Yield name and nodes of every event; long loops merge their middle iterations."""
    limit = max(max_events // max(len(nodes), 1), 1)
    for node in nodes:
        if isinstance(node, Tile):
            yield (
                Text(
                    "{prefix}{value}", prefix=prefix, value=node.step.note and " " + node.step.note
                ).strip()
                or "tile",
                (node,),
            )
        elif tiles((node,)) <= limit:
            for iteration in range(node.count):
                yield from _outline(
                    node.body, limit, _extend(prefix, node, iteration, iteration + 1)
                )
        else:
            yield from _outline_long(node, limit, prefix)


def _outline_long(loop: Loop, limit: int, prefix: str) -> Iterator[tuple[str, tuple[Node, ...]]]:
    if limit < 3:  # too few events for a first tile, a run and a last tile
        yield _extend(prefix, loop, 0, loop.count) or "tiles", (loop,)
        return
    if loop.count <= limit:
        for iteration in range(loop.count):
            yield from _outline(
                loop.body, limit // loop.count, _extend(prefix, loop, iteration, iteration + 1)
            )
        return
    shown = max(limit // (2 * tiles(loop.body)), 1)
    tiles_at_each_end = limit // (2 * shown)
    for iteration in range(shown):
        yield from _outline(
            loop.body, tiles_at_each_end, _extend(prefix, loop, iteration, iteration + 1)
        )
    merged = Loop(
        loop.body, loop.count - 2 * shown, loop.axis, loop.step, loop.start + shown * loop.step
    )
    yield _extend(prefix, loop, shown, loop.count - shown) or "tiles", (merged,)
    for iteration in range(loop.count - shown, loop.count):
        yield from _outline(
            loop.body, tiles_at_each_end, _extend(prefix, loop, iteration, iteration + 1)
        )


def _extend(prefix: str, loop: Loop, first: int, stop: int) -> str:
    if not loop.axis:
        return prefix
    low, high = loop.start + first * loop.step, loop.start + stop * loop.step
    return Text(
        "{prefix}{value}{axis} {low}..{high}",
        prefix=prefix,
        value=prefix and ", ",
        axis=loop.axis,
        low=low,
        high=high,
    )
