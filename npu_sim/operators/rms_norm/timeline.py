"""Timeline of RmsNorm: work of the cores, descriptions of tiles, and vector instructions.

Sources: specification pages ``rms_norm``, "Vector instructions of a tile" and "Unified Buffer of a
core", and ``estimate``, "Instruction lists". A row, or a group of rows in the Unified Buffer, is
two tiles: the first ends with the last instruction that reads x, after which the next x can be
copied in; the second writes y, which requires that the previous y has been copied out.

In the instruction lists, an operand whose buffer is not published is assumed to be in the buffer
that holds its values (a model): on keys 0 and 1 a widened gamma takes the place of the squares, and
`div` reads its factors from the buffers of row sums and of rstd.
"""

from collections.abc import Callable
from dataclasses import replace

from npu_sim.framework.vocabulary import FP32_BYTES, VECTOR_LANES, Plan, TensorSpec, ceil_div
from npu_sim.operators.shared.instructions import buffer_sizes, instructions_by_core
from npu_sim.operators.shared.normalised_rows.timeline import (
    NormalisedRows,
    copy_of,
    gamma_in,
    rstd_out,
    tensor_views,
)
from npu_sim.tiling.rms_norm import KEY_MERGE_N, KEY_SINGLE_ROW, KEY_SPLIT_D, RSTD_ROWS
from npu_sim.timelines import (
    LANES,
    WIDENING,
    Copy,
    Instruction,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Nodes,
    Program,
    Step,
    Works,
    by_rows,
    copied_rows,
    fp32,
    full_repeats,
    halving,
    in_groups,
    lane_sums,
    ranged,
    ranged_cores,
    repeated,
    spread,
    vector_phase,
    vector_tile,
)

BROADCASTS = (
    "broadcast of gamma to all rows in the Unified Buffer",
    "broadcast of rstd to all elements of its row",
)
"""Library calls of key 2 whose instructions are not published."""

RowGroup = Callable[[int], Nodes]
"""A function from a number of rows to their work."""

SUMMING = ("x", "x_fp32", "squares", "reduction", "sums", "rstd", "zeros")
WRITING = ("x", "x_fp32", "gamma", "y", "rstd", "sums", "zeros")
HELD = ("gamma", "rstd")
Y_OF_ROW = Step(
    "y",
    "row {row} of the group, columns {columns}: y = x * rstd * gamma",
    (),
    ("y",),
    HELD,
    WRITING,
)
Y_OF_ROWS = replace(Y_OF_ROW, says="rows {rows}, columns {columns}: y = x * rstd * gamma")


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    x = TensorSpec.parse(plan.arguments["x"])
    gamma = TensorSpec.parse(plan.arguments["gamma"]).itemsize
    columns, key = plan.tiling["num_col"], plan.tiling_key
    once: Nodes = (gamma_in(columns, gamma, widens=key == KEY_MERGE_N),)
    if key == KEY_SPLIT_D:
        once, step = (), _split_rows(columns, plan.tiling["ub_factor"], x, gamma)
    elif key == KEY_MERGE_N:
        step = _merged_rows(
            columns, plan.tiling["num_col_align"], x, bool(plan.tiling.get("is_performance"))
        )
    else:
        step = _whole_rows(columns, x, gamma, key == KEY_SINGLE_ROW)
    core_nodes = ranged_cores(plan, "rows", plan.tiling["row_factor"], step)
    cores = {core: (*once, *nodes) for core, nodes in core_nodes.items()}
    # A 16-bit x frees its buffer once it is widened, except on key 3, where the squares replace it.
    early = x.itemsize != FP32_BYTES and key != KEY_SINGLE_ROW
    broadcasts = BROADCASTS if key == KEY_MERGE_N and not plan.tiling.get("is_performance") else ()
    return Program(
        (vector_phase("rows", cores, in_buffers=2 if early else 1),),
        broadcasts,
        views=tensor_views(plan, ("x",), ("y",)),
    )


def _halving(columns: int) -> Works:
    """Return a row sum: fold to a power of two, halve down to 64 lanes, sum these in one repeat."""
    front = VECTOR_LANES
    while 2 * front <= columns:
        front *= 2
    adds = [columns - front] if columns > front else []
    while front > VECTOR_LANES:
        front //= 2
        adds.append(front)
    return *map(fp32.combine, adds), fp32.add_up(min(columns, VECTOR_LANES))


def _rstd_from_sums(rows: int) -> Works:
    """Return mean, epsilon, square root, and the division of a duplicated 1 by it."""
    scalar, root = fp32.combine_scalar(rows), fp32.exp_root_or_quotient(rows)
    return scalar, scalar, root, fp32.fill(rows), root


def _whole_rows(columns: int, x: TensorSpec, gamma: int, squares_replace_x: bool) -> RowGroup:
    """Return the work of keys 0 and 3: row by row, widening a 16-bit gamma for each."""
    copy, scale = copy_of(x, columns), fp32.combine_scalar(columns)
    total = (*fp32.widen(columns, x.itemsize), fp32.combine(columns), *_halving(columns))
    last = (*fp32.widen(columns, gamma), fp32.combine(columns), *fp32.narrow(columns, x.itemsize))
    reading, writing = (total, (scale, *last)) if squares_replace_x else ((*total, scale), last)
    summing = vector_tile(
        (copy,),
        reading,
        step=Step(
            "sum",
            "row {row} of the group: x * x, folded in halves down to 64 lanes, these added in one "
            "instruction; rstd = 1 / root(mean + epsilon)",
            ("x",),
            (),
            ("gamma",),
            (*SUMMING, "gamma"),
        ),
    )
    row = summing, vector_tile((), writing, (copy,), Y_OF_ROW)
    return lambda rows: (Loop(row, rows, "row", 1), rstd_out(rows))


def _split_rows(columns: int, length: int, x: TensorSpec, gamma: int) -> RowGroup:
    """Return the work of key 1: the sums of all pieces, then y, last piece first."""
    last = (ceil_div(columns, length) - 1) * length

    def sums(width: int, rows: int) -> Nodes:
        tile = vector_tile(
            (copy_of(x, width),),
            (*fp32.widen(width, x.itemsize), fp32.combine(width), *_halving(width)),
            step=Step(
                "sum",
                "row {row} of the group, columns {columns}: the row's sum += x * x over these "
                "columns",
                ("x",),
                live=SUMMING,
            ),
        )
        return (Loop((tile,), rows, "row", 1),)

    def results(width: int, rows: int) -> Nodes:
        out, again = copy_of(x, width), Copy(x.itemsize * width, width)
        writing = (*fp32.widen(width, gamma), fp32.combine(width), *fp32.narrow(width, x.itemsize))
        reading = vector_tile(
            (again,),
            (*fp32.widen(width, x.itemsize), fp32.combine_scalar(width)),
            step=Step(
                "x again",
                "row {row} of the group, columns {columns}: x is copied in again, times rstd",
                ("x",),
                holds=HELD,
                live=WRITING,
            ),
        )
        row = reading, vector_tile((), writing, (out,), Y_OF_ROW)
        return gamma_in(width, gamma, "sums"), Loop(row, rows, "row", 1)

    def group(rows: int) -> Nodes:
        first = ranged("columns", 0, columns, length, lambda width: sums(width, rows))
        ends = ranged("columns", last, columns, length, lambda width: results(width, rows))
        others = ranged("columns", 0, last, length, lambda width: results(width, rows))
        return (
            *first,
            vector_tile(
                vector=_rstd_from_sums(VECTOR_LANES),
                step=Step(
                    "rstd of sums",
                    "rows {rows}: rstd = 1 / root(sum / columns + epsilon)",
                    holds=("rstd",),
                    live=("sums", "rstd", "reduction", "zeros"),
                ),
            ),
            *ends,
            *others,
            rstd_out(rows, ()),
        )

    return group


def _merged_rows(columns: int, aligned: int, x: TensorSpec, is_performance: bool) -> RowGroup:
    """Return the work of key 2: each row is summed in 64 lanes."""

    def group(rows: int) -> Nodes:
        elements, lanes = rows * aligned, rows * VECTOR_LANES
        copy = copy_of(x, rows * columns)
        sums = (
            *fp32.widen(elements, x.itemsize),
            fp32.combine(elements),
            fp32.fill(lanes),
            fp32.combine(lanes, times=ceil_div(columns, VECTOR_LANES)),
            fp32.add_up(lanes),
            *_rstd_from_sums(rows),
        )
        by_rstd: Works = (fp32.combine(elements),)
        by_gamma = by_rstd
        if is_performance:
            by_gamma = (fp32.combine(lanes, times=ceil_div(aligned, VECTOR_LANES)),)
            by_rstd = (Instruction("broadcast_block_out", "float32", lanes), *by_gamma)
        narrow = fp32.narrow(elements, x.itemsize)
        reading = vector_tile(
            (copy,),
            (*sums, *by_rstd),
            step=Step(
                "sums",
                "rows {rows}: x * x is added up lane by lane, 64 columns apart, then the lanes; "
                "rstd = 1 / root(mean + epsilon); x * rstd",
                ("x",),
                (),
                ("gamma",),
                (*SUMMING, "gamma"),
            ),
        )
        return reading, rstd_out(rows), vector_tile((), (*by_gamma, *narrow), (copy,), Y_OF_ROWS)

    return group


BUFFERS = ("x", "gamma", "y", "rstd", "x_fp32", "squares", "reduction")
"""Buffers in the order of allocation."""


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core.

    Key 2 was compared with a device for bf16 rows of whole repeats (``estimate``, "Residuals").
    """
    rows, key = _Rows(plan), plan.tiling_key or 0
    paths = {KEY_MERGE_N: rows.merged, KEY_SPLIT_D: rows.split}
    return instructions_by_core(
        plan, paths.get(key, rows.whole), rows.like_compared and key == KEY_MERGE_N
    )


class _Rows(NormalisedRows):
    """Vector instructions on rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "x", BUFFERS, plan.tiling["num_col"])
        self.aligned, self.row_factor, self.ub_factor = (
            plan.tiling[name] for name in ("num_col_align", "row_factor", "ub_factor")
        )
        self.spares_broadcasts = bool(plan.tiling.get("is_performance"))
        # Merged rows read a widened gamma when its buffer has the size of an fp32 row.
        self.gamma_is_wide = buffer_sizes(plan)["gamma"] == FP32_BYTES * self.ub_factor
        if not self.widens:
            self.starts["x_fp32"] = self.starts["x"]
        if plan.tiling_key == KEY_SINGLE_ROW:
            self.starts["squares"] = self.starts["x"]

    def rstd(self, rows: int) -> Issues:
        """Return mean, epsilon, square root, and the division of a duplicated 1 by it."""
        issues = (full_repeats(kind, rows) for kind in ("muls", "adds", "square root", "duplicate"))
        return *issues, self.on("div", rows, "reduction", "rstd")

    def squared(self, elements: int) -> Issues:
        """Return the widening of x and its square."""
        return *self.widened(elements), self.on("mul", elements, "x_fp32", "x_fp32")

    def scaled(self, elements: int) -> Issues:
        """Return the product with gamma, widened again for every row, and the narrowing."""
        product = self.on("mul", elements, "x_fp32", "squares" if self.widens_gamma else "gamma")
        return *self.widened_gamma(elements), product, *self.narrowed(elements)

    def whole(self, rows: int) -> Issues:
        """Return the instructions of keys 0 and 3: row by row; the scalar unit computes rstd."""
        wide = self.columns
        return repeated(
            (*self.squared(wide), *halving(wide), full_repeats("muls", wide), *self.scaled(wide)),
            rows,
        )

    def split(self, rows: int) -> Issues:
        """Return the instructions of key 1: sums of all pieces of a group of rows, then y."""

        def sums(width: int) -> Issues:
            return *self.squared(width), *halving(width)

        def results(width: int) -> Issues:
            return *self.widened(width), full_repeats("muls", width), *self.scaled(width)

        def group(count: int) -> Issues:
            first, second = (
                repeated(in_groups(self.columns, self.ub_factor, step), count)
                for step in (sums, results)
            )
            return *first, *self.rstd(LANES), *second

        return in_groups(rows, RSTD_ROWS, group)

    def merged(self, rows: int) -> Issues:
        """Return the instructions of key 2: groups of rows, each row summed in 64 lanes."""
        once = self.widened_gamma(self.columns) if self.gamma_is_wide else ()
        if self.spares_broadcasts:
            return *once, *in_groups(rows, self.row_factor, self._spared_group)
        gamma_bytes = FP32_BYTES if self.gamma_is_wide else self.gamma_bytes
        return (
            *once,
            *copied_rows(self.row_factor, self.aligned, gamma_bytes),
            *in_groups(rows, self.row_factor, self._merged_group),
        )

    def _sums(self, rows: int) -> Issues:
        sums = lane_sums(
            rows,
            self.columns,
            FP32_BYTES * self.aligned,
            self.starts["squares"],
            self.starts["reduction"],
        )
        return *self.squared(rows * self.aligned), *sums, *self.rstd(rows)

    def _merged_group(self, rows: int) -> Issues:
        elements = rows * self.aligned
        by_rstd = (*spread(rows, self.aligned), self.on("mul", elements, "x_fp32", "squares"))
        if self.gamma_is_wide:
            by_gamma: Issues = (self.on("mul", elements, "squares", "gamma"),)
        else:  # every group widens gamma again, into the buffer of the fp32 x
            by_gamma = (
                full_repeats(WIDENING, elements),
                self.on("mul", elements, "squares", "x_fp32"),
            )
        return *self._sums(rows), *by_rstd, *by_gamma, *self.narrowed(elements)

    def _spared_group(self, rows: int) -> Issues:
        """Return the instructions of a group without broadcasts: 64 columns of all rows at a time.

        rstd is one block per row; reading it eight times adds no cycles.
        """
        steps, row_bytes = ceil_div(self.aligned, LANES), FP32_BYTES * self.aligned
        squares, gamma = self.starts["squares"], self.starts["gamma"]
        by_gamma = (
            by_rows(
                "mul",
                rows,
                (squares + FP32_BYTES * LANES * step, row_bytes),
                (gamma + FP32_BYTES * LANES * step, 0),
                "squares and gamma",
            )
            for step in range(steps)
        )
        return (
            *self._sums(rows),
            Issue("broadcast to blocks", rows),
            Issue("mul", rows, times=steps),
            *by_gamma,
            *self.narrowed(rows * self.aligned),
        )
