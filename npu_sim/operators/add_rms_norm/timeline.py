"""Timeline of AddRmsNorm: work of the cores, descriptions of tiles, and vector instructions.

Sources: specification pages ``add_rms_norm``, "Vector instructions of a tile", and ``estimate``,
"Instruction lists". A row, or a group of rows in the Unified Buffer, is two tiles: the first adds
and copies x out, the second writes y, which requires that x has been copied out. One list of
instructions gives both the bound, with published rates, and the estimate, with the places of
operands; an operand whose buffer is not published is assumed to be in the buffer that holds its
values. A block reduction counts as the sum of a repeat (a model).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from npu_sim.framework.vocabulary import (
    VECTOR_LANES,
    Plan,
    TensorSpec,
    align,
    ceil_div,
    release_rules,
)
from npu_sim.operators.shared.instructions import RATES, buffer_sizes, instructions_by_core, placed
from npu_sim.operators.shared.normalised_rows.timeline import copy_of, gamma_in, rstd_out
from npu_sim.tiling.add_rms_norm import (
    KEY_MERGE_N,
    KEY_MULTI_N,
    KEY_SINGLE_ROW,
    KEY_SPLIT_D,
    OUTPUT_KEYS,
    Y_ONLY,
)
from npu_sim.tiling.common import BLOCK_BYTES, FP32_PER_BLOCK
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Instruction,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Node,
    Program,
    Step,
    View,
    Work,
    in_groups,
    ranged,
    ranged_cores,
    repeated,
    starts_of,
    vector_phase,
    vector_tile,
)

HALF_ADD, HALF_MUL, ROW_SUM, BLOCKS = "half add", "half mul", "sum of a repeat", "broadcast"
HALF_LANES = 2 * VECTOR_LANES
"""Lanes of an instruction on fp16 elements."""
RATE_OF = {**RATES, ROW_SUM: "reduce_repeat", BLOCKS: "broadcast_block_out"}
BROADCASTS = ("library broadcasts of gamma and rstd to all rows",)
"""Calls of merged rows at release 8.3 whose instructions are not published."""
LIVE = ("x", "x2", "gamma", "y", "rstd", "x_fp32", "squares", "sums", "reduction", "offsets")
SUM_OF_ROW = Step(
    "sum",
    "row {row} of the group, columns {columns}: x = x1 + x2 is copied out",
    ("x1", "x2"),
    ("x",),
    ("gamma",),
    LIVE,
)
Y_OF_ROW = Step(
    "y",
    "row {row} of the group, columns {columns}: x * x / columns is added up lane by lane, 64 "
    "columns apart, then the lanes; y = x * rstd * gamma",
    (),
    ("y",),
    ("gamma", "x"),
    LIVE,
)
SUM_OF_ROWS = replace(SUM_OF_ROW, says="rows {rows}: x = x1 + x2 is copied out")
Y_OF_ROWS = replace(
    Y_OF_ROW,
    says="rows {rows}: x * x / columns is added up lane by lane, 64 columns apart, then the lanes; "
    "y = x * rstd * gamma",
)


class Vector(NamedTuple):
    """A vector instruction: its kind, elements, number of issues, and the buffers it reads."""

    kind: str
    elements: int
    times: int = 1
    sources: tuple[str, ...] = ()


Vectors = tuple[Vector, ...]


class _Rows:
    """Vector instructions on rows of one call."""

    def __init__(self, plan: Plan) -> None:
        self.spec = TensorSpec.parse(plan.arguments["x1"])
        self.dtype, self.key = self.spec.dtype, (plan.tiling_key or 0) % 10
        self.columns = plan.tiling["num_col"]
        self.aligned = align(self.columns, BLOCK_BYTES // self.spec.itemsize)
        self.row_factor, self.ub_factor = plan.tiling["row_factor"], plan.tiling["ub_factor"]
        self.rules = release_rules(plan.release, "add_rms_norm", plan.profile.npu_arch)
        self.asks_x = (plan.tiling_key or 0) < OUTPUT_KEYS[Y_ONLY]
        self.asks_rstd = "rstd" in {order.output for order in plan.order}
        sizes = buffer_sizes(plan)
        self.starts = starts_of((name, sizes.get(name, 0)) for name in LIVE)
        if self.dtype == "float32":
            self.starts["x_fp32"] = self.starts["x"]

    def add(self, elements: int, *, widens: bool = True) -> Vectors:
        """Return x1 + x2, in fp32 too (page, "sum")."""
        if self.dtype == "float16":
            total = (Vector(HALF_ADD, elements, 1, ("x", "x2")),)
            return (*total, Vector(WIDENING, elements)) if widens else total
        if self.dtype == "bfloat16":
            total = (Vector("add", elements, 1, ("x_fp32", "squares")),)
            return Vector(WIDENING, elements, 2), *total, Vector(NARROWING, elements)
        second = "x2" if self.key in (KEY_SPLIT_D, KEY_MERGE_N) else "squares"
        total = (Vector("add", elements, 1, ("x", second)),)
        plus_zero = self.key not in (KEY_SINGLE_ROW, KEY_MERGE_N)
        return (*total, Vector("adds", elements)) if plus_zero else total

    def squares(self, elements: int) -> Vectors:
        """Return the squares, divided by the columns."""
        square = Vector("mul", elements, 1, ("x_fp32", "x_fp32"))
        return square, Vector("muls", elements)

    def lanes(self, columns: int) -> Vectors:
        """Return the sum of a row in 64 lanes (page, "lanes")."""
        whole = columns // VECTOR_LANES * VECTOR_LANES
        adds = [Vector("add", count) for count in (whole, columns - whole) if count]
        return Vector("duplicate", VECTOR_LANES), *adds, Vector(ROW_SUM, VECTOR_LANES)

    def root(self, count: int) -> Vectors:
        """Return epsilon, root and quotient of the means of rows."""
        kinds = ("adds", "square root", "duplicate", "div")
        return tuple(Vector(kind, count) for kind in kinds)

    def scale(self, elements: int) -> Vectors:
        """Return the product with gamma (page, "scale")."""
        if self.dtype == "float16":
            return Vector(NARROWING, elements), Vector(HALF_MUL, elements)
        product = Vector("mul", elements, 1, ("x_fp32", "squares"))
        if self.dtype == "bfloat16":
            narrow = Vector(NARROWING, elements)
            return narrow, Vector(WIDENING, elements, 2), product, narrow
        return (Vector("mul", elements, 1, ("x", "gamma")),)

    def row(self) -> tuple[Vectors, Vectors]:
        """Return the instructions of a row before x is copied out, and after."""
        n = self.columns
        again = (Vector(WIDENING, n),) if self.key == KEY_SINGLE_ROW else ()
        again = again if self.dtype == "bfloat16" else ()
        after = (*again, *self.squares(n), *self.lanes(n), *self.root(1))
        return self.add(n), (*after, Vector("muls", n), *self.scale(n))

    def piece(self, columns: int) -> tuple[Vectors, Vectors, Vectors]:
        """Return the instructions of a piece: x1 + x2, its sum, and y of it."""
        widened = () if self.dtype == "float32" else (Vector(WIDENING, columns),)
        again = widened if self.asks_x else self.add(columns)
        y = (*again, Vector("muls", columns), *self.scale(columns))
        return self.add(columns), (*self.squares(columns), *self.lanes(columns)), y

    def group(self, rows: int) -> tuple[Vectors, Vectors]:
        """Return the instructions of merged rows before x is copied out, and after."""
        columns, elements = self.columns, rows * self.aligned
        widened = () if self.dtype == "float32" else (Vector(WIDENING, elements),)
        sums = (*widened, *self.squares(elements))
        add = self.add(elements, widens=False)
        if self.key == KEY_MULTI_N:
            blocks = FP32_PER_BLOCK * rows
            lanes = tuple(item._replace(times=rows) for item in self.lanes(columns))
            root = [
                item._replace(elements=FP32_PER_BLOCK) if item.kind == "duplicate" else item
                for item in self.root(blocks)
            ]
            scaled = Vector("mul", columns, rows), Vector(NARROWING, elements)
            return add, (*sums, *lanes, *root, *scaled, Vector(HALF_MUL, columns, rows))
        if self.rules.spares_repeats:
            sums = (Vector("duplicate", align(self.row_factor, FP32_PER_BLOCK)), *sums)
        lanes = (
            Vector("duplicate", VECTOR_LANES * rows),
            Vector("add", VECTOR_LANES * rows, ceil_div(columns, VECTOR_LANES)),
            Vector(ROW_SUM, VECTOR_LANES * rows),
        )
        return add, (*sums, *lanes, *self.root(rows), *self._scaled_group(rows, elements))

    def _scaled_group(self, rows: int, elements: int) -> Vectors:
        narrow, steps = Vector(NARROWING, elements), ceil_div(self.aligned, VECTOR_LANES)
        product = Vector("mul", VECTOR_LANES * rows, steps)
        if self.rules.broadcasts_merged:
            product = Vector("mul", elements)
            blocks: Vectors = ()
        else:
            count = ceil_div(rows, FP32_PER_BLOCK) if self.rules.spares_repeats else rows
            blocks = (Vector(BLOCKS, VECTOR_LANES * count),)
        if self.dtype == "float32":
            return *blocks, product, product
        if self.dtype == "float16":
            half = Vector(HALF_MUL, HALF_LANES * rows, ceil_div(self.aligned, HALF_LANES))
            return *blocks, product, narrow, half
        gamma = self.aligned if self.rules.spares_repeats else elements
        wide = Vector(WIDENING, elements), Vector(WIDENING, gamma)
        return *blocks, product, narrow, *wide, product, narrow

    def issues(self, vectors: Iterable[Vector]) -> Issues:
        """Return instructions with their places, for the estimate."""
        found: list[Issue] = []
        for kind, elements, times, sources in vectors:
            if kind in (HALF_ADD, HALF_MUL):
                issue = Issue(kind.removeprefix("half "), ceil_div(elements, HALF_LANES))
            elif kind == BLOCKS:
                issue = Issue("broadcast to blocks", elements // VECTOR_LANES)
            else:
                issue = placed(kind, elements, self.starts, sources)
            found += repeated((issue,), times)
        return tuple(found)

    @staticmethod
    def work(vectors: Iterable[Vector]) -> tuple[Work, ...]:
        """Return instructions with their published rates, for the bound."""
        halves = (HALF_ADD, HALF_MUL)
        return tuple(
            Instruction("add_sub_mul_max_min", "float16", elements, times)
            if kind in halves
            else Instruction(RATE_OF[kind], "float32", elements, times)
            for kind, elements, times, _ in vectors
        )


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    rows = _Rows(plan)
    once: tuple[Node, ...] = (gamma_in(rows.columns, rows.spec.itemsize),)
    if rows.key == KEY_SPLIT_D:
        once, group = (), _split_rows(rows)
    elif rows.key in (KEY_MERGE_N, KEY_MULTI_N):
        group = _grouped_rows(rows)
    else:
        group = _whole_rows(rows)
    core_nodes = ranged_cores(plan, "rows", rows.row_factor, group)
    cores = {core: (*once, *nodes) for core, nodes in core_nodes.items()}
    merged = rows.key == KEY_MERGE_N and rows.rules.broadcasts_merged
    return Program(
        (vector_phase("rows", cores),), BROADCASTS if merged else (), views=tensor_views(plan)
    )


def tensor_views(plan: Plan) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    fields = dict(plan.tiling)
    rows, columns = (
        fields[name] if name in fields else fields[other]
        for name, other in (("num_row", "numRow"), ("num_col", "numCol"))
    )
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    written = {order.output for order in plan.order}
    return (
        *(View(name, rows, columns, by_row, by_column) for name in ("x1", "x2")),
        View("gamma", 1, columns, by_column=by_column),
        *(View("rstd", rows, by_row=by_row) for _ in written & {"rstd"}),
        *(View(name, rows, columns, by_row, by_column) for name in ("x", "y") if name in written),
    )


RowGroup = Callable[[int], tuple[Node, ...]]


def _two_tiles(
    rows: _Rows, elements: int, parts: tuple[Vectors, Vectors], steps: tuple[Step, Step]
) -> tuple[Node, ...]:
    """Return the tile of x1 + x2, and that of y."""
    copy, (first, last) = copy_of(rows.spec, elements), map(rows.work, parts)
    x_out = (copy,) if rows.asks_x else ()
    step = steps[0] if rows.asks_x else replace(steps[0], writes=())
    return vector_tile((copy, copy), first, x_out, step), vector_tile((), last, (copy,), steps[1])


def _end(rows: _Rows, count: int, held: tuple[str, ...] = ("gamma",)) -> tuple[Node, ...]:
    """Return the copy of rstd, where the call asks for it."""
    return (rstd_out(count, held),) if rows.asks_rstd else ()


def _whole_rows(rows: _Rows) -> RowGroup:
    tiles = _two_tiles(rows, rows.columns, rows.row(), (SUM_OF_ROW, Y_OF_ROW))
    return lambda count: (Loop(tiles, count, "row", 1), *_end(rows, count))


def _grouped_rows(rows: _Rows) -> RowGroup:
    def group(count: int) -> tuple[Node, ...]:
        tiles = _two_tiles(rows, count * rows.columns, rows.group(count), (SUM_OF_ROWS, Y_OF_ROWS))
        return *tiles, *_end(rows, count)

    return group


def _split_rows(rows: _Rows) -> RowGroup:
    """Return the work of rows in pieces: x and the sums of all pieces, then y from the left."""
    spec = rows.spec

    def sums(columns: int, count: int) -> tuple[Node, ...]:
        add, total, _ = rows.piece(columns)
        copy = copy_of(spec, columns)
        step = replace(
            SUM_OF_ROW,
            says="row {row} of the group, columns {columns}: x = x1 + x2 is copied out, and the "
            "row's sum += x * x / columns over these columns",
            writes=("x",) if rows.asks_x else (),
            holds=(),
        )
        tile = vector_tile(
            (copy, copy), rows.work((*add, *total)), (copy,) if rows.asks_x else (), step
        )
        return (Loop((tile,), count, "row", 1),)

    def results(columns: int, count: int) -> tuple[Node, ...]:
        copy, (*_, y) = copy_of(spec, columns), rows.piece(columns)
        step = replace(
            Y_OF_ROW,
            says="row {row} of the group, columns {columns}: x is copied in again; "
            "y = x * rstd * gamma",
            reads=("x",) if rows.asks_x else ("x1", "x2"),
            holds=("gamma",),
        )
        again = (replace(copy, tensor_bytes=0),) if rows.asks_x else (copy, copy)
        tile = vector_tile(again, rows.work(y), (copy,), step)
        return gamma_in(columns, spec.itemsize), Loop((tile,), count, "row", 1)

    def group(count: int) -> tuple[Node, ...]:
        root = vector_tile(
            vector=rows.work(rows.root(count)),
            step=Step("rstd of sums", "rows {rows}: rstd = 1 / root(sum + epsilon)", live=LIVE),
        )
        return (
            *ranged("columns", 0, rows.columns, rows.ub_factor, lambda n: sums(n, count)),
            root,
            *ranged("columns", 0, rows.columns, rows.ub_factor, lambda n: results(n, count)),
            *_end(rows, count, ()),
        )

    return group


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; none was compared with a device."""
    rows = _Rows(plan)

    def split(count: int) -> Issues:
        def sums(columns: int) -> Issues:
            add, total, _ = rows.piece(columns)
            return repeated(rows.issues((*add, *total)), count)

        def results(columns: int) -> Issues:
            return repeated(rows.issues(rows.piece(columns)[2]), count)

        first, second = (in_groups(rows.columns, rows.ub_factor, step) for step in (sums, results))
        return *first, *rows.issues(rows.root(count)), *second

    def grouped(count: int) -> Issues:
        return rows.issues((*rows.group(count)[0], *rows.group(count)[1]))

    def whole(count: int) -> Issues:
        return repeated(rows.issues((*rows.row()[0], *rows.row()[1])), count)

    kinds = {KEY_SPLIT_D: split, KEY_MERGE_N: grouped, KEY_MULTI_N: grouped}
    step = kinds.get(rows.key, whole)
    return instructions_by_core(
        plan, lambda count: in_groups(count, rows.row_factor, step), compared=False
    )
