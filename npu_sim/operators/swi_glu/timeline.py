"""Timeline of SwiGlu and SwiGluGrad on A2, A3 and the Atlas inference series.

The vector instructions of a tile are written once, as (kind, sources); bound and estimate read the
same list.

Source: specification pages ``swi_glu``, ``swi_glu_grad``, "Vector instructions of a tile".
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from math import gcd
from typing import NamedTuple

from npu_sim.framework.vocabulary import (
    BLOCK_BYTES,
    FP32_BYTES,
    VECTOR_LANES,
    Plan,
    TensorSpec,
    Text,
    align,
    ceil_div,
)
from npu_sim.operators.shared.timelines import RATES, buffer_sizes, placed
from npu_sim.tiling.swi_glu import BUFFERS
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    Instruction,
    InstructionLists,
    Issues,
    Loop,
    Node,
    Program,
    Step,
    View,
    Work,
    repeated,
    starts_of,
    vector_phase,
    vector_tile,
)

WHERE = "rows {rows}, columns {columns}"
ONES = Step("ones", "a buffer is filled with ones", live=("ones",))
Listed = tuple[tuple[str, ...], ...]
"""Instructions on a tile: the kind, then the buffers of two sources."""
SHOWN_TILES = 40
"""Most tiles of a core that are listed in their order, with their place; more are only counted."""


class TileLists(NamedTuple):
    """What a core does: once, and for every tile, by dtype; ``step`` states the formula alone."""

    once_fp32: Listed
    fp32: Listed
    sixteen_bits: Listed
    step: Step

    def of(self, is_fp32: bool) -> tuple[Listed, Listed]:
        """Return the instructions at the start, on a whole buffer, and those of a tile."""
        return (self.once_fp32, self.fp32) if is_fp32 else ((), self.sixteen_bits)


FORWARD = TileLists(
    (("duplicate",),),
    (
        *(("muls",), ("exp",), ("adds",), ("div", "ones", "out")),
        *(("mul", "out", "a"), ("mul", "out", "b")),
    ),
    (
        *((WIDENING,), ("muls",), ("exp",), ("adds",), ("div", "a_fp32", "out_fp32")),
        *((WIDENING,), ("mul", "out_fp32", "a_fp32"), (NARROWING,)),
    ),
    Step("tile", "out = a / (1 + exp(-a)) * b", ("x", "x"), ("out",), live=sum(BUFFERS, ())),
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    return tiles_program(plan, FORWARD)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; bf16 was compared with a device."""
    return tile_instructions(plan, FORWARD)


class _Tiles:
    """The tiles of a plan: number along both axes, and how cores take them."""

    def __init__(self, plan: Plan) -> None:
        tiling = plan.tiling
        self.rows, self.columns = tiling["rowLen"], tiling["colLen"]
        self.tile_rows, self.tile_columns = tiling["baseRowLen"], tiling["baseColLen"]
        self.across = ceil_div(self.columns, self.tile_columns)
        self.down = ceil_div(self.rows, self.tile_rows)
        self.cores = plan.block_dim

    def place(self, number: int) -> tuple[int, int, int, int]:
        """Return the first row and column of a tile, and its rows and columns."""
        row, column = (
            place * size
            for place, size in zip(
                divmod(number, self.across), (self.tile_rows, self.tile_columns), strict=True
            )
        )
        rows = min(self.tile_rows, self.rows - row)
        return row, column, rows, min(self.tile_columns, self.columns - column)

    def of_core(self, core: int) -> range:
        """Return the numbers of a core's tiles."""
        return range(core, self.across * self.down, self.cores)

    def shapes(self, core: int) -> Counter[tuple[int, int]]:
        """Return how many tiles of a core have which rows and columns.

        Only the last tile of a row of tiles and the last row are cut: no tile is looked at.
        """
        numbers, last_row = self.of_core(core), (self.down - 1) * self.across
        cut_rows = numbers[_first_from(numbers, last_row) :]
        whole = numbers[: len(numbers) - len(cut_rows)]
        last_rows = self.rows - (self.down - 1) * self.tile_rows
        last_columns = self.columns - (self.across - 1) * self.tile_columns
        counts: Counter[tuple[int, int]] = Counter()
        for numbers_of_rows, rows in ((cut_rows, last_rows), (whole, self.tile_rows)):
            cut = _count_at(numbers_of_rows, self.across, self.across - 1)
            counts[rows, last_columns] += cut
            counts[rows, self.tile_columns] += len(numbers_of_rows) - cut
        return +counts


def _first_from(numbers: range, start: int) -> int:
    """Return the position of the first number from ``start`` on."""
    return min(max(ceil_div(start - numbers.start, numbers.step), 0), len(numbers))


def _count_at(numbers: range, modulus: int, rest: int) -> int:
    """Return how many numbers have this rest: every ``period``-th from the first on, or none."""
    shared = gcd(numbers.step, modulus)
    if (rest - numbers.start) % shared:
        return 0
    period = modulus // shared
    first = (rest - numbers.start) // shared * pow(numbers.step // shared, -1, period) % period
    return max(ceil_div(len(numbers) - first, period), 0)


def _is_fp32(plan: Plan) -> bool:
    return TensorSpec.parse(plan.arguments["x"]).itemsize == FP32_BYTES


def _padded(plan: Plan, rows: int, columns: int) -> int:
    """Return the elements of a tile with padded rows."""
    size = TensorSpec.parse(plan.arguments["x"]).itemsize
    return rows * align(columns, BLOCK_BYTES // size)


def tiles_program(plan: Plan, lists: TileLists) -> Program:
    """Return the work of every core from the instructions of a tile."""
    tiles, x = _Tiles(plan), TensorSpec.parse(plan.arguments["x"])
    half = x.nbytes // 2
    totals = {"x": x.nbytes, "y_grad": half, "out": half * len(lists.step.writes)}

    def work(listed: Listed, elements: int) -> tuple[Work, ...]:
        return tuple(Instruction(RATES[kind], "float32", elements) for kind, *_ in listed)

    once, of_tile = lists.of(_is_fp32(plan))
    located = replace(lists.step, says=Text("{where}: {says}", lists.step, where=WHERE))

    @cache
    def tile(rows: int, columns: int, step: Step) -> tuple[Node, ...]:
        size = rows * align(columns * x.itemsize, BLOCK_BYTES)

        def copies(names: tuple[str, ...]) -> tuple[Work, ...]:
            return tuple(Copy(size, rows * columns, tensor_bytes=totals[name]) for name in names)

        vector = work(of_tile, _padded(plan, rows, columns))
        return (vector_tile(copies(step.reads), vector, copies(step.writes), step),)

    def nodes(core: int) -> Iterator[Node]:
        if once:
            elements = _padded(plan, tiles.tile_rows, tiles.tile_columns)
            yield vector_tile(vector=work(once, elements), step=ONES)
        if len(tiles.of_core(core)) > SHOWN_TILES:
            for (rows, columns), count in tiles.shapes(core).items():
                yield Loop(tile(rows, columns, lists.step), count)
            return
        for number in tiles.of_core(core):
            row, column, rows, columns = tiles.place(number)
            inner = Loop(tile(rows, columns, located), 1, "columns", columns, column)
            yield Loop((inner,), 1, "rows", rows, row)

    cores = {core: tuple(nodes(core)) for core in range(tiles.cores)}
    buffers = 1 + plan.tiling["isDoubleBuffer"]
    names = [name for name in totals if name in (*lists.step.reads, *lists.step.writes)]
    views = tensor_views(tiles.rows, tiles.columns, names)
    return Program((vector_phase("tiles", cores, buffers, buffers),), views=views)


def tensor_views(rows: int, columns: int, names: Iterable[str]) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn; x by its first half."""
    return tuple(View(name, rows, columns, {"rows": 1}, {"columns": 1}) for name in names)


def tile_instructions(plan: Plan, lists: TileLists) -> InstructionLists:
    """Return the vector instructions of every core from those of a tile."""
    tiles, starts = _Tiles(plan), starts_of(buffer_sizes(plan).items())
    once, of_tile = lists.of(_is_fp32(plan))

    def issues(listed: Listed, rows: int, columns: int) -> Issues:
        elements = _padded(plan, rows, columns)
        return tuple(placed(kind, elements, starts, sources) for kind, *sources in listed)

    def of_core(core: int) -> Issues:
        start = issues(once, tiles.tile_rows, tiles.tile_columns)
        shapes = tiles.shapes(core).items()
        return sum((repeated(issues(of_tile, *shape), count) for shape, count in shapes), start)

    compared = "bfloat16" in TensorSpec.parse(plan.arguments["x"]).dtype
    is_whole = plan.tiling["colLen"] % VECTOR_LANES == 0
    cores = {core: of_core(core) for core in range(tiles.cores)}
    return InstructionLists(cores, compared and is_whole)
