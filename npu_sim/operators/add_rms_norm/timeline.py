"""Timeline of AddRmsNorm: work of the cores, descriptions of tiles, and vector instructions.

Sources: specification pages ``add_rms_norm``, "Vector instructions of a tile", and ``estimate``,
"Instruction lists". A row, or a group of rows in the Unified Buffer, is two tiles: the first adds
and copies x out, the second writes y, which requires that x has been copied out. One list of
instructions gives both the bound, with published rates, and the estimate, with the places of
operands; an operand whose buffer is not published is assumed to be in the buffer that holds its
values. A block reduction counts as the sum of a repeat (a model).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from npu_sim.framework.vocabulary import VECTOR_LANES, Plan, align, ceil_div, release_rules
from npu_sim.operators.shared.instructions import RATES, instructions_by_core, placed
from npu_sim.operators.shared.normalised_rows.timeline import (
    NormalisedRows,
    copy_of,
    gamma_in,
    rstd_out,
    tensor_views,
    tile_of,
    written_by,
)
from npu_sim.tiling.add_rms_norm import KEY_MERGE_N, KEY_MULTI_N, KEY_SINGLE_ROW, KEY_SPLIT_D
from npu_sim.tiling.common import BLOCK_BYTES, FP32_PER_BLOCK
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Instruction,
    InstructionLists,
    Issues,
    Loop,
    Node,
    Program,
    Step,
    Work,
    in_groups,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

GROUPED = (KEY_MERGE_N, KEY_MULTI_N)
"""Templates with several whole rows in the buffer at a time."""
HALF_LANES = 2 * VECTOR_LANES
"""Lanes of an instruction on fp16 elements."""
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
SUM_OF_PIECE = replace(
    SUM_OF_ROW,
    says="row {row} of the group, columns {columns}: x = x1 + x2 is copied out, and the row's sum "
    "+= x * x / columns over these columns",
    holds=(),
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
Y_OF_PIECE = replace(
    Y_OF_ROW,
    says="row {row} of the group, columns {columns}: x is copied in again; y = x * rstd * gamma",
    holds=("gamma",),
)
ROOT = Step("rstd of sums", "rows {rows}: rstd = 1 / root(sum + epsilon)", live=LIVE)


class Vector(NamedTuple):
    """A vector instruction: its kind, elements, number of issues, and the buffers it reads."""

    kind: str
    elements: int
    times: int = 1
    sources: tuple[str, ...] = ()
    dtype: str = "float32"


Vectors = tuple[Vector, ...]


def _half(kind: str, elements: int, times: int = 1) -> Vector:
    """Return an instruction on fp16 elements."""
    return Vector(kind, elements, times, dtype="float16")


def _works(vectors: Iterable[Vector]) -> tuple[Work, ...]:
    """Return instructions with their published rates, for the bound."""
    return tuple(
        Instruction(RATES[kind], dtype, elements, times)
        for kind, elements, times, _, dtype in vectors
    )


class _Rows(NormalisedRows):
    """Vector instructions on rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "x1", LIVE, plan.tiling["num_col"])
        self.key, self.written = (plan.tiling_key or 0) % 10, written_by(plan)
        self.aligned = align(self.columns, BLOCK_BYTES // self.x.itemsize)
        self.row_factor, self.ub_factor = plan.tiling["row_factor"], plan.tiling["ub_factor"]
        self.rules = release_rules(plan.release, "add_rms_norm", plan.profile.npu_arch)
        if not self.widens:
            self.starts["x_fp32"] = self.starts["x"]

    def casts(self, kind: str, elements: int, times: int = 1) -> Vectors:
        """Return casts of elements of 16 bits."""
        return (Vector(kind, elements, times),) if self.widens else ()

    def add(self, elements: int) -> Vectors:
        """Return x1 + x2, without the cast of an fp16 sum (page, "sum")."""
        if self.dtype == "float16":
            return (_half("add", elements),)
        second = "squares" if self.widens or self.key not in (KEY_SPLIT_D, KEY_MERGE_N) else "x2"
        total = Vector("add", elements, 1, ("x_fp32", second))
        if self.widens:
            return Vector(WIDENING, elements, 2), total, Vector(NARROWING, elements)
        adds_zero = self.key not in (KEY_SINGLE_ROW, KEY_MERGE_N)
        return (total, Vector("adds", elements)) if adds_zero else (total,)

    def add_widened(self, elements: int) -> Vectors:
        """Return x1 + x2 in fp32 (page, "sum")."""
        widen = (Vector(WIDENING, elements),) if self.dtype == "float16" else ()
        return *self.add(elements), *widen

    def squares(self, elements: int) -> Vectors:
        """Return the squares, divided by the columns."""
        return Vector("mul", elements, 1, ("x_fp32", "x_fp32")), Vector("muls", elements)

    def lanes(self, columns: int, rows: int = 1) -> Vectors:
        """Return the sum of each row in 64 lanes (page, "lanes")."""
        whole = columns // VECTOR_LANES * VECTOR_LANES
        adds = [Vector("add", count, rows) for count in (whole, columns - whole) if count]
        total = Vector("sum of a repeat", VECTOR_LANES, rows)
        return Vector("duplicate", VECTOR_LANES, rows), *adds, total

    def root(self, count: int, ones: int = 0) -> Vectors:
        """Return epsilon, root, ``ones`` (by default as many), and the quotient of the means."""
        kinds = {"adds": count, "square root": count, "duplicate": ones or count, "div": count}
        return tuple(Vector(kind, elements) for kind, elements in kinds.items())

    def scale(self, elements: int) -> Vectors:
        """Return the product with gamma (page, "scale")."""
        narrow = Vector(NARROWING, elements)
        if self.dtype == "float16":
            return narrow, _half("mul", elements)
        if self.widens:
            product = Vector("mul", elements, 1, ("x_fp32", "squares"))
            return narrow, Vector(WIDENING, elements, 2), product, narrow
        return (Vector("mul", elements, 1, ("x", "gamma")),)

    def row(self) -> tuple[Vectors, Vectors]:
        """Return the instructions of a row before x is copied out, and after."""
        n = self.columns
        is_widened_again = self.key == KEY_SINGLE_ROW and self.dtype == "bfloat16"
        again = self.casts(WIDENING, n) if is_widened_again else ()
        after = (*again, *self.squares(n), *self.lanes(n), *self.root(1))
        return self.add_widened(n), (*after, Vector("muls", n), *self.scale(n))

    def sum_of_piece(self, columns: int) -> Vectors:
        """Return the instructions of a piece in the first pass."""
        return *self.add_widened(columns), *self.squares(columns), *self.lanes(columns)

    def y_of_piece(self, columns: int) -> Vectors:
        """Return the instructions of a piece in the second pass, which may add x1 and x2 again."""
        is_stored = "x" in self.written
        x = self.casts(WIDENING, columns) if is_stored else self.add_widened(columns)
        return *x, Vector("muls", columns), *self.scale(columns)

    def group(self, rows: int) -> tuple[Vectors, Vectors]:
        """Return the instructions of merged rows before x is copied out, and after."""
        columns, elements = self.columns, rows * self.aligned
        sums = (*self.casts(WIDENING, elements), *self.squares(elements))
        if self.key == KEY_MULTI_N:
            root = self.root(FP32_PER_BLOCK * rows, FP32_PER_BLOCK)
            scaled = Vector("mul", columns, rows), Vector(NARROWING, elements)
            after = (*sums, *self.lanes(columns, rows), *root, *scaled)
            return self.add(elements), (*after, _half("mul", columns, rows))
        if self.rules.spares_repeats:
            sums = (Vector("duplicate", align(self.row_factor, FP32_PER_BLOCK)), *sums)
        lanes = (
            Vector("duplicate", VECTOR_LANES * rows),
            Vector("add", VECTOR_LANES * rows, ceil_div(columns, VECTOR_LANES)),
            Vector("sum of a repeat", VECTOR_LANES * rows),
        )
        after = (*sums, *lanes, *self.root(rows), *self._scaled_group(rows, elements))
        return self.add(elements), after

    def _scaled_group(self, rows: int, elements: int) -> Vectors:
        spares, narrow = self.rules.spares_repeats, Vector(NARROWING, elements)
        count = ceil_div(rows, FP32_PER_BLOCK) if spares else rows
        first: Vectors = (
            Vector("broadcast to blocks", VECTOR_LANES * count),
            Vector("mul", VECTOR_LANES * rows, ceil_div(self.aligned, VECTOR_LANES)),
        )
        if self.rules.broadcasts_merged:
            first = (Vector("mul", elements),)
        product = first[-1]
        if not self.widens:
            return *first, product
        if self.dtype == "float16":
            half = _half("mul", HALF_LANES * rows, ceil_div(self.aligned, HALF_LANES))
            return *first, narrow, half
        gamma = Vector(WIDENING, self.aligned if spares else elements)
        return *first, narrow, Vector(WIDENING, elements), gamma, product, narrow

    def vectors(self, rows: int) -> Vectors:
        """Return all instructions of a group of rows."""
        if self.key in GROUPED:
            before, after = self.group(rows)
            return *before, *after
        if self.key != KEY_SPLIT_D:
            before, after = self.row()
            return _times((*before, *after), rows)
        whole, rest = divmod(self.columns, self.ub_factor)
        widths = [self.ub_factor] * whole + [rest] * (rest > 0)
        sums = (vector for width in widths for vector in self.sum_of_piece(width))
        results = (vector for width in widths for vector in self.y_of_piece(width))
        return *_times(sums, rows), *self.root(rows), *_times(results, rows)

    def nodes(self, rows: int) -> tuple[Node, ...]:
        """Return the tiles of a group of rows."""
        held: tuple[str, ...] = ("gamma",)
        if self.key in GROUPED:
            steps, parts, elements = (SUM_OF_ROWS, Y_OF_ROWS), self.group(rows), rows * self.columns
        else:
            steps, parts, elements = (SUM_OF_ROW, Y_OF_ROW), self.row(), self.columns
        nodes: tuple[Node, ...] = tuple(
            tile_of(step, copy_of(self.x, elements), _works(vectors), self.written)
            for step, vectors in zip(steps, parts, strict=True)
        )
        if self.key == KEY_SPLIT_D:
            nodes, held = self._split_nodes(rows), ()
        elif self.key not in GROUPED:
            nodes = (Loop(nodes, rows, "row", 1),)
        return *nodes, *((rstd_out(rows, held),) if "rstd" in self.written else ())

    def _split_nodes(self, rows: int) -> tuple[Node, ...]:
        """Return the tiles of rows in pieces: x and the sums of all pieces, then y."""

        def sums(columns: int) -> tuple[Node, ...]:
            vector = _works(self.sum_of_piece(columns))
            tile = tile_of(SUM_OF_PIECE, copy_of(self.x, columns), vector, self.written)
            return (Loop((tile,), rows, "row", 1),)

        def results(columns: int) -> tuple[Node, ...]:
            copy, step = copy_of(self.x, columns), replace(Y_OF_PIECE, reads=("x1", "x2"))
            again: tuple[Work, ...] = (copy, copy)
            if "x" in self.written:
                again, step = (replace(copy, tensor_bytes=0),), replace(step, reads=("x",))
            tile = vector_tile(again, _works(self.y_of_piece(columns)), (copy,), step)
            return gamma_in(columns, self.x.itemsize), Loop((tile,), rows, "row", 1)

        first, second = (
            ranged("columns", 0, self.columns, self.ub_factor, body) for body in (sums, results)
        )
        return *first, vector_tile(vector=_works(self.root(rows)), step=ROOT), *second

    def issues(self, rows: int) -> Issues:
        """Return the instructions of a group of rows with their places, for the estimate."""
        return tuple(
            replace(
                placed(
                    kind,
                    elements if dtype == "float32" else ceil_div(elements, 2),
                    self.starts,
                    sources,
                ),
                times=times,
            )
            for kind, elements, times, sources, dtype in self.vectors(rows)
        )


def _times(vectors: Iterable[Vector], count: int) -> Vectors:
    return tuple(vector._replace(times=count * vector.times) for vector in vectors)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    rows = _Rows(plan)
    cores = ranged_cores(plan, "rows", rows.row_factor, rows.nodes)
    if rows.key != KEY_SPLIT_D:
        once = gamma_in(rows.columns, rows.x.itemsize)
        cores = {core: (once, *nodes) for core, nodes in cores.items()}
    is_open = rows.key == KEY_MERGE_N and rows.rules.broadcasts_merged
    return Program(
        (vector_phase("rows", cores),),
        BROADCASTS if is_open else (),
        views=tensor_views(plan, ("x1", "x2"), ("x", "y")),
    )


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; none was compared with a device."""
    rows = _Rows(plan)
    return instructions_by_core(
        plan, lambda count: in_groups(count, rows.row_factor, rows.issues), compared=False
    )
