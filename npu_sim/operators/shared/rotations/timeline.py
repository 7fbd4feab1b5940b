"""Timelines of RotaryPositionEmbedding and its gradient.

A step reads some rows of cos and sin; then pieces of x are computed with them. The vector
instructions are written once, as (kind, sources); bound and estimate read the same list.

Source: specification pages ``rotary_position_embedding`` and ``rotary_position_embedding_grad``,
"Instructions of a tile".
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from npu_sim.framework.vocabulary import (
    BLOCK_BYTES,
    FP32_BYTES,
    VECTOR_LANES,
    Plan,
    TensorSpec,
    align,
    ceil_div,
)
from npu_sim.operators.shared.instructions import RATES, buffer_sizes, placed
from npu_sim.tiling.common import even_range
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    Instruction,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Node,
    Nodes,
    Program,
    Step,
    View,
    Works,
    repeated,
    starts_of,
    vector_phase,
    vector_tile,
)


class Steps(NamedTuple):
    """``times`` equal steps: rows of cos, then ``pieces`` pieces of so many rows of x."""

    rows: int
    piece_rows: int
    pieces: int
    times: int


Listed = tuple[tuple[str, ...], ...]
"""Instructions: the kind, then the buffers of two sources."""


class Lists(NamedTuple):
    """What a step does, before, in and after its pieces, and the tensors that are copied."""

    before: Listed
    piece: Listed
    after: Listed
    read: tuple[str, ...]
    written: tuple[str, ...]
    written_after: tuple[str, ...] = ()


CAST, BACK, COPIED = (WIDENING,), (NARROWING,), ("copy",)
MOVED = ("copy_half",)
"""A copy of one half of every row; two of them swap the halves."""


class Sizes(NamedTuple):
    """Sizes of a call: rows of x and of cos, columns, and bytes of an element."""

    rows: int
    cos_rows: int
    columns: int
    itemsize: int

    @property
    def padded(self) -> int:
        """Columns of a row in a buffer: of half, both halves in whole blocks."""
        return 2 * align(self.columns // 2, BLOCK_BYTES // self.itemsize)


def sizes_of(plan: Plan, first: str) -> Sizes:
    """Return the sizes of a call whose first tensor has this name."""
    x, cos = TensorSpec.parse(plan.arguments[first]), TensorSpec.parse(plan.arguments["cos"])
    columns = x.shape[-1]
    return Sizes(x.numel // columns, cos.numel // columns, columns, x.itemsize)


def cut(items: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield size and number of the pieces of ``most`` items, and those of the rest."""
    for size, number in ((most, items // most), (items % most, 1)):
        if size and number:
            yield size, number


def rows_of_core(plan: Plan) -> dict[int, int]:
    """Return the rows of cos of every core, of which one takes several lines if it repeats them."""
    fields, cores = plan.tiling, plan.block_dim
    rows = fields.get("totalSLines", fields.get("seqLen", 0))
    ranges = (even_range(core, rows // cores, rows % cores) for core in range(cores))
    return {core: stop - start for core, (start, stop) in enumerate(ranges)}


StepsOf = Callable[[int], tuple[Steps, ...]]


def program_of(
    plan: Plan,
    first: str,
    lists: Lists,
    steps_of: StepsOf,
    buffers: int,
    cores: dict[int, int] | None = None,
) -> Program:
    """Return the work of every core from its steps; ``cores`` has the rows of cos of each."""
    sizes = sizes_of(plan, first)
    totals = {"cos": sizes.cos_rows, "sin": sizes.cos_rows}
    reading = Step("cos and sin", None, ("cos", "sin"))
    piece = Step("piece", None, lists.read, lists.written)
    ending = Step("sums", None, (), lists.written_after)

    def copies(names: Iterable[str], rows: int) -> Works:
        size, elements = rows * sizes.columns * sizes.itemsize, rows * sizes.columns
        row_bytes = sizes.columns * sizes.itemsize
        return tuple(
            Copy(size, elements, tensor_bytes=totals.get(name, sizes.rows) * row_bytes)
            for name in names
        )

    def work(listed: Listed, rows: int) -> Works:
        return tuple(
            Instruction(RATES[kind.removesuffix("_half")], "float32", rows * elements)
            for kind, *_ in listed
            for elements in (sizes.columns // 2 if kind == "muls_half" else sizes.padded,)
        )

    @cache
    def nodes(rows: int) -> Nodes:
        found: list[Node] = []
        for step in steps_of(rows):
            begin = vector_tile(
                copies(reading.reads, step.rows), work(lists.before, step.rows), (), reading
            )
            body = vector_tile(
                copies(lists.read, step.piece_rows),
                work(lists.piece, step.piece_rows),
                copies(lists.written, step.piece_rows),
                piece,
            )
            end = vector_tile(
                (), work(lists.after, step.rows), copies(lists.written_after, step.rows), ending
            )
            last = (end,) if lists.written_after else ()
            found.append(Loop((begin, Loop((body,), step.pieces), *last), step.times))
        return tuple(found)

    of_cores = rows_of_core(plan) if cores is None else cores
    names = (*lists.read, "cos", "sin", *lists.written, *lists.written_after)
    views = tuple(
        View(name, sizes.rows if name in (*lists.read, *lists.written) else sizes.cos_rows)
        for name in names
    )
    work_of_cores = {core: nodes(rows) for core, rows in of_cores.items()}
    return Program((vector_phase("steps", work_of_cores, buffers, buffers),), views=views)


def lists_of(
    plan: Plan, first: str, lists: Lists, steps_of: StepsOf, cores: dict[int, int] | None = None
) -> InstructionLists:
    """Return the vector instructions of every core from those of a step."""
    sizes, starts = sizes_of(plan, first), starts_of(buffer_sizes(plan).items())
    half_bytes = sizes.padded // 2 * FP32_BYTES

    def issue(kind: str, rows: int, sources: list[str]) -> Issue:
        if kind == "copy_half":
            return Issue("copy", rows * ceil_div(half_bytes, FP32_BYTES * VECTOR_LANES))
        if kind == "muls_half":
            # The left halves of the rows lie apart: an instruction for every 64 of their columns.
            return Issue("muls", rows, times=ceil_div(sizes.columns // 2, VECTOR_LANES))
        return placed(kind, rows * sizes.padded, starts, sources)

    def issues(listed: Listed, rows: int, times: int) -> Issues:
        return repeated((issue(kind, rows, sources) for kind, *sources in listed), times)

    @cache
    def of_rows(rows: int) -> Issues:
        return sum(
            (
                issues(lists.before, step.rows, step.times)
                + issues(lists.piece, step.piece_rows, step.times * step.pieces)
                + issues(lists.after, step.rows, step.times)
                for step in steps_of(rows)
            ),
            (),
        )

    of_cores = rows_of_core(plan) if cores is None else cores
    compared = "bfloat16" in TensorSpec.parse(plan.arguments[first]).dtype
    is_whole = sizes.columns % (2 * VECTOR_LANES) == 0
    return InstructionLists(
        {c: of_rows(rows) for c, rows in of_cores.items()}, compared and is_whole
    )
