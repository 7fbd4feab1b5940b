"""What the cores do, tile by tile: the language in which every operator declares its timeline.

A program is a list of phases with a barrier after each. In a phase every core works through tiles;
a tile is the work it gives to each pipe. Loops keep a million equal tiles one object. Where ranges
start is left out of comparisons, so that cores that do the same amount of work compare equal and
are timed once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from npu_sim.plans.model import Plan

VECTOR_PIPES = ("MTE2", "V", "MTE3")
"""Global memory to Unified Buffer, vector unit, Unified Buffer to global memory (specification page
``timeline``)."""
CUBE_PIPES = ("MTE2", "MTE1", "M", "FIXP")
"""Global memory to L1, L1 to L0, cube unit, L0C out."""
COPY_PIPES = ("MTE2", "MTE1", "MTE3", "FIXP")
COPY_BLOCK_BYTES = 32
"""A copy moves whole blocks of this size."""

WRITING_PIPES = ("MTE3", "FIXP")
"""Pipes that write global memory; MTE2 reads it."""

CopyRate = Literal["memory", "l1_to_l0a_bytes_per_cycle", "l1_to_l0b_bytes_per_cycle"]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, done ``times`` times.

    Attributes
    ----------
    bytes, elements
        What one copy moves.
    tensor_bytes
        Size of the tensor that it moves a part of: one that fits the L2 moves faster. 0 for what
        surely fits, and for a bound that holds whatever the size.
    rate
        The fact of the chip that limits it; ``memory``: global memory, or the L2 before it.
    """

    bytes: int
    elements: int
    times: int = 1
    tensor_bytes: int = 0
    rate: CopyRate = "memory"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A vector instruction on ``elements``, issued ``times`` times; ``kind`` is a key of the profile's throughput table."""

    kind: str
    dtype: str
    elements: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Multiply:
    """A matrix product of m x k by k x n in the cube unit, done ``times`` times."""

    dtype: str
    m: int
    n: int
    k: int
    times: int = 1


Work = Copy | Instruction | Multiply


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: its work for every pipe of the phase, in the pipes' order; an empty entry leaves a pipe alone."""

    work: tuple[tuple[Work, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """``count`` equal iterations that step over an axis; without an axis they add nothing to the names of tiles."""

    body: "tuple[Node, ...]"
    count: int = 1
    axis: str = ""
    step: int = 0
    start: int = field(default=0, compare=False)


Node = Tile | Loop


@dataclass(frozen=True, slots=True)
class Hold:
    """A buffer that pipe number ``filled_by`` fills and pipe number ``freed_by`` frees; there are ``count`` of it."""

    filled_by: int
    freed_by: int
    count: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Part of a kernel between two barriers: what every core does, by core number; absent cores are idle.

    ``kernel`` is the launch it belongs to; the plan's kernel when empty.
    """

    name: str
    pipes: tuple[str, ...]
    holds: tuple[Hold, ...]
    cores: dict[int, tuple[Node, ...]]
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """The phases of a call.

    Attributes
    ----------
    phases
        In order, a barrier after each.
    not_counted
        Steps of the kernels that are not published: they take time that the bound leaves out.
    assumptions
        What the data is taken to be where a plan cannot know it.
    """

    phases: tuple[Phase, ...]
    not_counted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def vector_tile(
    copy_in: tuple[Work, ...] = (),
    vector: tuple[Work, ...] = (),
    copy_out: tuple[Work, ...] = (),
    note: str = "",
) -> Tile:
    """Return a tile of a vector kernel."""
    return Tile((copy_in, vector, copy_out), note)


def vector_phase(
    name: str, cores: dict[int, tuple[Node, ...]], in_buffers: int = 1, out_buffers: int = 1
) -> Phase:
    """Return a phase of a vector kernel with so many buffers for what comes in and what goes out."""
    return Phase(name, VECTOR_PIPES, (Hold(0, 1, in_buffers), Hold(1, 2, out_buffers)), cores)


def ranged(
    axis: str, start: int, stop: int, step: int, body: Callable[[int], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Cut a range into equal steps and a shorter last one.

    Parameters
    ----------
    axis
        Name of what is cut, for the names of tiles.
    start, stop
        The half-open range.
    step
        Length of a step; at least 1.
    body
        The work of one step, given its length.
    """
    whole, rest = divmod(max(stop - start, 0), step)
    nodes: list[Node] = []
    if whole:
        nodes.append(Loop(body(step), whole, axis, step, start))
    if rest:
        nodes.append(Loop(body(rest), 1, axis, rest, start + whole * step))
    return tuple(nodes)


def rows_of_cores(plan: Plan) -> dict[int, tuple[int, int]]:
    """Return the rows of every core: the first of its ranges in the plan."""
    return {work.core: next(iter(work.ranges.values())) for work in plan.cores}


def row_pieces(
    length: int, count: int, tail: int, body: Callable[[int], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Cut a row into ``count`` pieces of ``length`` columns and a tail, without a loop for one."""
    if count == 0 or (count == 1 and tail == 0):
        return body(length if count else tail)
    return ranged("columns", 0, count * length + tail, length, body)


def tiles(nodes: tuple[Node, ...]) -> int:
    """Return how many tiles nodes stand for."""
    return sum(1 if isinstance(node, Tile) else node.count * tiles(node.body) for node in nodes)


def weighted_work(nodes: tuple[Node, ...], times: int = 1) -> Iterator[tuple[int, int, Work]]:
    """Yield (how often, number of the pipe, work) for every work of the nodes, loops multiplied out."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from weighted_work(node.body, times * node.count)
        else:
            for pipe, works in enumerate(node.work):
                for work in works:
                    yield times, pipe, work
