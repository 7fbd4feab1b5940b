"""Programs: the work of the cores tile by tile, as operators declare it.

A program is a list of phases with a barrier after each. In a phase every core processes tiles; a
tile lists the work of each pipe and describes it. A loop represents any number of equal tiles.
Comparisons ignore the start of a loop's range, so cores with the same amount of work are equal and
are timed once. Bounds, traces and the steps of pages are all derived from the program.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from npu_sim.plans.model import Plan

VECTOR_PIPES = ("MTE2", "V", "MTE3")
"""Global memory to Unified Buffer, vector unit, Unified Buffer to global memory (page
``timeline``)."""
CUBE_PIPES = ("MTE2", "MTE1", "M", "FIXP")
"""Global memory to L1, L1 to L0, cube unit, L0C out."""
COPY_PIPES = ("MTE2", "MTE1", "MTE3", "FIXP")
COPY_BLOCK_BYTES = 32
"""Copies move multiples of this size."""

READING_PIPE = "MTE2"
WRITING_PIPES = ("MTE3", "FIXP")
"""Pipes that write global memory; MTE2 reads it."""

CopyRate = Literal["memory", "l1_to_l0a_bytes_per_cycle", "l1_to_l0b_bytes_per_cycle"]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, done ``times`` times.

    Attributes
    ----------
    bytes, elements
        Size of one copy.
    tensor_bytes
        Size of the whole tensor in the first pass over it: of a tensor larger than L2 a part is
        sure to come from global memory. 0 in later passes, which L2 may answer; when the tensor
        certainly fits; and when the data decides which part of it is copied.
    rate
        The chip's limiting rate; ``memory`` is global memory or L2.
    """

    bytes: int
    elements: int
    times: int = 1
    tensor_bytes: int = 0
    rate: CopyRate = "memory"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A vector instruction, issued ``times`` times; ``kind`` is a key of the throughput table."""

    kind: str
    dtype: str
    elements: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Multiply:
    """A matrix product of m x k by k x n in the cube unit, ``times`` times."""

    dtype: str
    m: int
    n: int
    k: int
    times: int = 1


Work = Copy | Instruction | Multiply
Works = tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as rows and columns, and the axes of the program that step over them.

    Attributes
    ----------
    name
        Name of the tensor.
    rows, columns
        Size of the tensor, with leading dimensions merged as in the kernel.
    by_row, by_column
        Axes of the program that step over the tensor, outermost first, with the rows or columns of
        one step of length 1. The first axis counts from the start of the tensor, every other one
        from the position of the axis before it. Axes outside a tile are skipped. A tile with none
        of them covers the core's range of such an axis in the plan, or the whole tensor.
    """

    name: str
    rows: int
    columns: int = 1
    by_row: Mapping[str, float] = field(default_factory=dict)
    by_column: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Description of a tile. Steps with equal names are equal: a phase has one of each name.

    Attributes
    ----------
    note
        Name of the kind of tile; may be empty.
    says
        Its operation in one sentence; ``{axis}`` stands for the tile's range of that axis. None for
        a tile that is not described: it shows its name, and all allocations are in use.
    reads, writes, holds
        Names of views of which parts are copied in, copied out, or on chip since an earlier tile.
    live
        On-chip allocations in use during the tile; names that the plan lacks are ignored.
    by_data
        Those of the views whose rows depend on the data.
    """

    note: str = ""
    says: str | None = field(default=None, compare=False)
    reads: tuple[str, ...] = field(default=(), compare=False)
    writes: tuple[str, ...] = field(default=(), compare=False)
    holds: tuple[str, ...] = field(default=(), compare=False)
    live: tuple[str, ...] = field(default=(), compare=False)
    by_data: tuple[str, ...] = field(default=(), compare=False)


UNNAMED = Step()


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: work for every pipe of the phase, in the order of the pipes, and what it is."""

    work: tuple[tuple[Work, ...], ...]
    step: Step = UNNAMED


@dataclass(frozen=True, slots=True)
class Loop:
    """``count`` equal iterations over an axis; an axis of "" adds nothing to tile names."""

    body: "tuple[Node, ...]"
    count: int = 1
    axis: str = ""
    step: int = 0
    start: int = field(default=0, compare=False)


Node = Tile | Loop
Nodes = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """``count`` buffers that pipe number ``filled_by`` fills and number ``freed_by`` frees."""

    filled_by: int
    freed_by: int
    count: int


@dataclass(frozen=True)
class Phase:
    """Part of a kernel between two barriers: work by core number; absent cores are idle.

    ``kernel`` is the kernel of the launch that it belongs to; the plan's kernel when empty.
    ``memory`` is the name of the phase in the plan's memories; its own when empty.
    """

    name: str
    pipes: tuple[str, ...]
    holds: tuple[Hold, ...]
    cores: dict[int, tuple[Node, ...]]
    kernel: str = ""
    memory: str = ""

    @cached_property
    def cores_by_work(self) -> dict[tuple[Node, ...], list[int]]:
        """The cores that do the same work."""
        found: dict[tuple[Node, ...], list[int]] = {}
        for core, nodes in self.cores.items():
            found.setdefault(nodes, []).append(core)
        return found


@dataclass(frozen=True, slots=True)
class Program:
    """The phases of a call.

    Attributes
    ----------
    phases
        In order, a barrier after each.
    not_counted
        Unpublished steps of the kernels, which the bound leaves out.
    assumptions
        Assumptions about data that the plan does not have.
    otherwise
        The opposite of an assumption under which a kernel does less, and the phases under it.
    views
        Tensors in the order in which they are drawn.
    """

    phases: tuple[Phase, ...]
    not_counted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    otherwise: "tuple[tuple[str, tuple[Phase, ...]], ...]" = ()
    views: tuple[View, ...] = ()


def vector_tile(
    copy_in: tuple[Work, ...] = (),
    vector: tuple[Work, ...] = (),
    copy_out: tuple[Work, ...] = (),
    step: Step = UNNAMED,
) -> Tile:
    """Return a tile of a vector kernel."""
    return Tile((copy_in, vector, copy_out), step)


def vector_phase(
    name: str,
    cores: dict[int, tuple[Node, ...]],
    in_buffers: int = 1,
    out_buffers: int = 1,
    memory: str = "",
) -> Phase:
    """Return a phase of a vector kernel with the given numbers of input and output buffers."""
    return Phase(
        name, VECTOR_PIPES, (Hold(0, 1, in_buffers), Hold(1, 2, out_buffers)), cores, memory=memory
    )


def ranged(
    axis: str, start: int, stop: int, step: int, body: Callable[[int], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Cut a range into equal steps and a shorter last one.

    Parameters
    ----------
    axis
        Name of the axis, for the names of tiles.
    start, stop
        The half-open range.
    step
        Length of a step; at least 1.
    body
        Returns the work of one step, given its length.
    """
    whole, rest = divmod(max(stop - start, 0), step)
    parts = ((step, whole, start), (rest, int(rest > 0), start + whole * step))
    return tuple(
        Loop(body(length), count, axis, length, first) for length, count, first in parts if count
    )


def ranged_cores(
    plan: Plan, axis: str, step: int, body: Callable[[int], tuple[Node, ...]]
) -> dict[int, tuple[Node, ...]]:
    """Return the work of every core: its rows (:func:`rows_of_cores`), cut by :func:`ranged`."""
    return {core: ranged(axis, *rows, step, body) for core, rows in rows_of_cores(plan).items()}


def dropped_tokens(live: int, of: int) -> str:
    """Return the assumption about dropped tokens when ``live`` rows ``of`` some are not dropped."""
    return "no token is dropped" if live == of else "dropped tokens are spread evenly"


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
    """Return the number of tiles of nodes."""
    return sum(1 if isinstance(node, Tile) else node.count * tiles(node.body) for node in nodes)


def weighted_work(nodes: tuple[Node, ...], times: int = 1) -> Iterator[tuple[int, int, Work]]:
    """Yield repetitions, pipe number and work for all work of the nodes."""
    for repetitions, tile in weighted_tiles(nodes, times):
        for pipe, works in enumerate(tile.work):
            for work in works:
                yield repetitions, pipe, work


def weighted_tiles(nodes: tuple[Node, ...], times: int = 1) -> Iterator[tuple[int, Tile]]:
    """Yield repetitions and tile for all tiles of the nodes."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from weighted_tiles(node.body, times * node.count)
        else:
            yield times, node
