"""Timelines of SwiGlu and SwiGluGrad: tiles, and the vector instructions of each.

The instructions of a tile are written once, as (kind, sources); bound and estimate read the same
list.

Source: specification pages ``swi_glu``, ``swi_glu_grad``, "Vector instructions of a tile".
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
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
from npu_sim.operators.shared.instructions import SHOWN_TILES, buffer_sizes, in_fp32, placed
from npu_sim.timelines import (
    Copy,
    InstructionLists,
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

WHERE = "rows {rows}, columns {columns}"
ONES = Step("ones", "a buffer is filled with ones", live=("ones",))
Listed = tuple[tuple[str, ...], ...]
"""Instructions on a tile: the kind, then the buffers of two sources."""


class TileLists(NamedTuple):
    """What a core does: once, and for every tile, by dtype; ``step`` states the formula alone."""

    once_fp32: Listed
    fp32: Listed
    sixteen_bits: Listed
    step: Step

    def of(self, is_fp32: bool) -> tuple[Listed, Listed]:
        """Return the instructions at the start, on a whole buffer, and those of a tile."""
        return (self.once_fp32, self.fp32) if is_fp32 else ((), self.sixteen_bits)


class _Tiles:
    """The tiles of a plan: number along both axes, and how cores take them."""

    def __init__(self, plan: Plan) -> None:
        tiling, self.x = plan.tiling, TensorSpec.parse(plan.arguments["x"])
        self.rows, self.columns = tiling["rowLen"], tiling["colLen"]
        self.tile_rows, self.tile_columns = tiling["baseRowLen"], tiling["baseColLen"]
        self.across = ceil_div(self.columns, self.tile_columns)
        self.down = ceil_div(self.rows, self.tile_rows)
        self.cores = plan.block_dim
        self.row_ends: Counter[int] = Counter()
        """Last tiles of a row by core, without the last row; cores repeat after ``cores`` rows."""
        for row in range(min(self.down - 1, self.cores)):
            core = ((row + 1) * self.across - 1) % self.cores
            self.row_ends[core] += len(range(row, self.down - 1, self.cores))

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

    def padded(self, rows: int, columns: int) -> int:
        """Return the elements of a tile with padded rows."""
        return rows * align(columns, BLOCK_BYTES // self.x.itemsize)

    def of_core(self, core: int) -> range:
        """Return the numbers of a core's tiles."""
        return range(core, self.across * self.down, self.cores)

    def shapes(self, core: int) -> Counter[tuple[int, int]]:
        """Return how many tiles of a core have which rows and columns, without a look at each.

        Only the last row of tiles and the last tile of each row are cut.
        """
        above, numbers, ends = self.down - 1, self.of_core(core), self.row_ends[core]
        whole = len(range(core, above * self.across, self.cores))
        last_end = int(self.down * self.across - 1 in numbers)
        last_rows = self.rows - above * self.tile_rows
        last_columns = self.columns - (self.across - 1) * self.tile_columns
        counts: Counter[tuple[int, int]] = Counter()
        counts[last_rows, last_columns] += last_end
        counts[last_rows, self.tile_columns] += len(numbers) - whole - last_end
        counts[self.tile_rows, last_columns] += ends
        counts[self.tile_rows, self.tile_columns] += whole - ends
        return +counts


def tiles_program(plan: Plan, lists: TileLists) -> Program:
    """Return the work of every core from the instructions of a tile."""
    tiles = _Tiles(plan)
    half = tiles.x.nbytes // 2
    totals = {"x": tiles.x.nbytes, "y_grad": half, "out": half * len(lists.step.writes)}

    once, of_tile = lists.of(tiles.x.itemsize == FP32_BYTES)
    located = replace(lists.step, says=Text("{where}: {says}", where=WHERE, says=lists.step.says))

    @cache
    def tile(rows: int, columns: int, step: Step) -> Nodes:
        elements = tiles.padded(rows, columns)

        def copies(names: tuple[str, ...]) -> Works:
            size = elements * tiles.x.itemsize
            return tuple(Copy(size, rows * columns, tensor_bytes=totals[name]) for name in names)

        vector = in_fp32([kind for kind, *_ in of_tile], elements)
        return (vector_tile(copies(step.reads), vector, copies(step.writes), step),)

    def nodes(core: int) -> Iterator[Node]:
        if once:
            elements = tiles.padded(tiles.tile_rows, tiles.tile_columns)
            yield vector_tile(vector=in_fp32([kind for kind, *_ in once], elements), step=ONES)
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
    once, of_tile = lists.of(tiles.x.itemsize == FP32_BYTES)

    def issues(listed: Listed, rows: int, columns: int) -> Issues:
        elements = tiles.padded(rows, columns)
        return tuple(placed(kind, elements, starts, sources) for kind, *sources in listed)

    @cache
    def of_shapes(*shapes: tuple[tuple[int, int], int]) -> Issues:
        start = issues(once, tiles.tile_rows, tiles.tile_columns)
        return sum((repeated(issues(of_tile, *shape), count) for shape, count in shapes), start)

    compared = "bfloat16" in tiles.x.dtype
    is_whole = plan.tiling["colLen"] % VECTOR_LANES == 0
    cores = {core: of_shapes(*tiles.shapes(core).items()) for core in range(tiles.cores)}
    return InstructionLists(cores, compared and is_whole)
