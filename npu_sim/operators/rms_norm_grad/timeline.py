"""Timeline of RmsNormGrad: work of the cores, descriptions of tiles, and vector instructions.

Sources: specification pages ``rms_norm_grad``, "Tiling" and "Kernels and accumulation order", and
``estimate``, "Instruction lists" (public kernel sources of release 8.3, without clearing and
merging of dgamma). The program counts element-wise instructions once per group of rows, without
unused lanes at the ends of rows: a lower bound. The instruction lists name a product by the buffers
of its sources.
"""

from functools import partial

from npu_sim.framework.vocabulary import (
    DTYPE_CODES,
    FP32_BYTES,
    VECTOR_LANES,
    Plan,
    TensorSpec,
    align,
    alignment,
    ceil_div,
)
from npu_sim.operators.shared.instructions import instructions_by_core
from npu_sim.operators.shared.normalised_rows.timeline import NormalisedRows
from npu_sim.tiling.rms_norm_grad import GROUP_ROWS, LANE_COLUMNS, SPLIT_D
from npu_sim.timelines import (
    Copy,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Nodes,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Works,
    copied_rows,
    fp32,
    full_repeats,
    halving,
    in_groups,
    lane_sums,
    ranged,
    ranged_cores,
    repeated,
    row_conflicts,
    spread,
    vector_phase,
    vector_tile,
)

ALWAYS = ("gamma", "rstd")
"""Allocations in use between the tiles of a group of rows."""
CLEARING = ("zeros", "synchronisation")


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    dy, gamma = TensorSpec.parse(plan.arguments["dy"]), TensorSpec.parse(plan.arguments["gamma"])
    rows = (_long_rows if plan.tiling_key == SPLIT_D else _short_rows)(plan, dy, gamma.itemsize)
    fixed = plan.tiling["fixed_output"]
    phases = (rows, _merge(plan)) if fixed else (rows,)
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    row_count, columns = plan.tiling["row"], plan.tiling["col"]
    views = (
        View("dy", row_count, columns, by_row, by_column),
        View("x", row_count, columns, by_row, by_column),
        View("rstd", row_count, by_row=by_row),
        View("gamma", 1, columns, by_column=by_column),
        View("dx", row_count, columns, by_row, by_column),
        View("dgamma", 1, columns, by_column=by_column),
    )
    return Program(phases, () if fixed else ("clearing dgamma",), views=views)


def _copy(dy: TensorSpec, elements: int, times: int = 1) -> Copy:
    """Return a copy of a part of dy, x or dx, which have the same size."""
    return Copy(dy.itemsize * elements, elements, times, tensor_bytes=dy.nbytes)


def _gamma_in(columns: int, gamma_bytes: int) -> Tile:
    return vector_tile(
        (Copy(gamma_bytes * columns, columns),),
        fp32.widen(columns, gamma_bytes),
        step=Step(
            "gamma",
            "gamma is copied in, widened to fp32",
            ("gamma",),
            live=("gamma", "dgamma", *CLEARING),
        ),
    )


def _dgamma_out(columns: int, plan: Plan) -> Tile:
    says = "the core's sums for dgamma are copied out and added atomically to the result"
    writes: tuple[str, ...] = ("dgamma",)
    if plan.tiling["fixed_output"]:
        says = "the core's sums for dgamma are copied out to its place in the workspace"
        writes = ()
    return vector_tile(
        copy_out=(Copy(FP32_BYTES * columns, columns),),
        step=Step("dgamma", says, writes=writes, live=("dgamma", "means", *ALWAYS)),
    )


def _row_sum(columns: int, rows: int) -> Works:
    """Return a row sum: halve down to 64 lanes, then sum one repeat (page, ``halving``)."""
    sums = fp32.add_up(min(columns, VECTOR_LANES), rows)
    if columns <= VECTOR_LANES:
        return (sums,)
    return fp32.combine((columns - VECTOR_LANES) * rows), sums


def _short_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Return the phase of key 1: groups of whole rows, double-buffered; dgamma is written once."""
    columns = plan.tiling["col"]

    def group(rows: int) -> Nodes:
        elements = rows * columns
        # xh, p, dgamma, g, g*xh before the sum; xh*m, the difference, times rstd after it.
        vector = (
            *fp32.widen(elements, dy.itemsize, 2),
            fp32.combine(elements, 8),
            *_row_sum(columns, rows),
            *fp32.narrow(elements, dy.itemsize),
        )
        return (
            vector_tile(
                (_copy(dy, elements, times=2), Copy(FP32_BYTES * rows, rows)),
                vector,
                (_copy(dy, elements),),
                Step(
                    "",
                    "rows {rows}: dgamma += dy * x * rstd; m = mean of dy * gamma * x * rstd over "
                    "the row; dx = (dy * gamma - x * rstd * m) * rstd",
                    ("dy", "x", "rstd"),
                    ("dx",),
                    ("gamma", "dgamma"),
                    ("dy", "x", "dx", "dgamma", "means", "scratch", *ALWAYS),
                ),
            ),
        )

    first, last = _gamma_in(columns, gamma_bytes), _dgamma_out(columns, plan)
    groups = ranged_cores(plan, "rows", max(plan.tiling["ub_factor"], 1), group)
    cores = {core: (first, *nodes, last) for core, nodes in groups.items()}
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _long_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Return the phase of key 2: for each group of rows one pass for sums and one for dx."""
    columns, length = plan.tiling["col"], plan.tiling["ub_factor"]

    def sums(width: int, rows: int) -> Nodes:
        row = vector_tile(
            (_copy(dy, width, times=2),),
            (*fp32.widen(width, dy.itemsize, 2), fp32.combine(width, 4), *_row_sum(width, 1)),
            step=Step(
                "sums",
                "row {row} of the group, columns {columns}: dgamma += dy * x * rstd; "
                "the row's m += sum of dy * gamma * x * rstd over these columns",
                ("dy", "x"),
                (),
                ("rstd", "gamma", "dgamma"),
                ("dy", "x", "dgamma", "means", *ALWAYS),
            ),
        )
        return _gamma_in(width, gamma_bytes), Loop((row,), rows, "row", 1), _dgamma_out(width, plan)

    def gradient(width: int, rows: int) -> Nodes:
        widen, narrow = fp32.widen(width, dy.itemsize, 2), fp32.narrow(width, dy.itemsize)
        row = vector_tile(
            (Copy(dy.itemsize * width, width, times=2),),
            (*widen, fp32.combine(width, 5), *narrow),
            (_copy(dy, width),),
            Step(
                "dx",
                "row {row} of the group, columns {columns}: "
                "dx = (dy * gamma - x * rstd * m) * rstd, with m of the whole row",
                ("dy", "x"),
                ("dx",),
                ("rstd", "gamma"),
                ("dy", "x", "dx", "means", *ALWAYS),
            ),
        )
        return _gamma_in(width, gamma_bytes), Loop((row,), rows, "row", 1)

    def group(rows: int) -> Nodes:
        rstd = vector_tile(
            (Copy(FP32_BYTES * rows, rows),),
            step=Step(
                "rstd",
                "rstd of rows {rows} is copied in",
                ("rstd",),
                live=("rstd", "means", *CLEARING),
            ),
        )
        first = ranged("columns", 0, columns, length, lambda width: sums(width, rows))
        second = ranged("columns", 0, columns, length, lambda width: gradient(width, rows))
        return rstd, *first, *second

    cores = ranged_cores(plan, "rows", GROUP_ROWS, group)
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _merge(plan: Plan) -> Phase:
    """Return the merge of deterministic dgamma: the cores' vectors are summed in core order."""
    columns, cores = plan.tiling["col"], plan.block_dim
    # The split of columns is published for the inference series only (fused cores, core 0 takes
    # all); elsewhere an even split is assumed.
    workers = 1 if plan.core_kind == "AI cores" else cores
    width_per_core = ceil_div(columns, workers)

    def merge(width: int) -> Nodes:
        return (
            vector_tile(
                (Copy(FP32_BYTES * width, width, cores),),
                (fp32.combine(width, cores),),
                (Copy(FP32_BYTES * width, width),),
                Step(
                    "merge",
                    "columns {columns}: dgamma = sum of the parts of all cores in the workspace, "
                    "in core order",
                    writes=("dgamma",),
                ),
            ),
        )

    nodes = {}
    for core in range(workers):
        start, stop = core * width_per_core, min((core + 1) * width_per_core, columns)
        nodes[core] = ranged("columns", start, stop, width_per_core, merge)
    return vector_phase("merge dgamma", nodes)


BUFFERS = ("dy", "x", "rstd", "gamma", "dx", "dgamma", "scratch")
"""Buffers in the order of allocation."""

MEANS_BYTES = 128
"""Bytes of each of the two adjacent mean buffers of key 2 (page ``rms_norm_grad``, "Unified Buffer
of a core")."""


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core.

    Key 1 was compared with a device for bf16 rows of whole repeats (``estimate``, "Residuals").
    """
    rows = _Rows(plan)
    if plan.tiling_key == SPLIT_D:
        return instructions_by_core(plan, rows.split, False)
    return instructions_by_core(plan, rows.whole, rows.like_compared)


class _Rows(NormalisedRows):
    """Vector instructions on rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "dy", BUFFERS, plan.tiling["col"])
        self.ub_factor = plan.tiling["ub_factor"]
        self.aligned = align(self.columns, alignment(DTYPE_CODES[self.dtype]))

    def whole(self, rows: int) -> Issues:
        """Return the instructions of key 1: whole rows in the buffer."""
        once = (*self.widened_gamma(self.aligned), full_repeats("duplicate", self.aligned))
        if self.aligned > LANE_COLUMNS:
            return (*once, *repeated(self._halved_row(), rows))
        return (*once, *in_groups(rows, self.ub_factor, self._lane_group))

    def _halved_row(self) -> Issues:
        wide, on, widened = self.aligned, self.on, self.widened(self.aligned)
        xh = (*widened, on("muls", wide), *widened)
        sums = on("mul", wide, "dy", "x"), on("add", wide, "dgamma", "dx")
        products = on("mul", wide, "dy", "gamma"), on("mul", wide, "dy", "x")
        dx = on("muls", wide), on("sub", wide, "dy", "dx"), on("muls", wide)
        return *xh, *sums, *products, *halving(self.columns), *dx, *self.narrowed(wide)

    def _lane_group(self, rows: int) -> Issues:
        wide, on, everything = self.aligned, self.on, rows * self.aligned
        to_rows = spread(rows, wide)
        row_bytes, dx = FP32_BYTES * wide, self.starts["dx"]
        dgamma = row_conflicts(rows, (dx, row_bytes), (self.starts["dgamma"], 0))
        repeats = full_repeats("add", wide).repeats
        widened, scaled = self.widened(everything), on("mul", everything, "x", "dx")
        return (
            *to_rows,
            *widened,
            scaled,
            *widened,
            on("mul", everything, "dy", "x"),
            *(Issue("add", repeats, slowdown, n, "dx and dgamma") for slowdown, n in dgamma),
            *copied_rows(rows, wide, FP32_BYTES),
            on("mul", everything, "dy", "dx"),
            on("mul", everything, "dy", "x"),
            *lane_sums(rows, self.columns, row_bytes, dx, self.starts["scratch"]),
            full_repeats("muls", rows),
            *to_rows,
            scaled,
            on("sub", everything, "dy", "dx"),
            *to_rows,
            on("mul", everything, "dx", "dy"),
            *self.narrowed(everything),
        )

    def split(self, rows: int) -> Issues:
        """Return the instructions of key 2: two passes over the column pieces of a group."""

        def group(count: int) -> Issues:
            pieces = in_groups(self.columns, self.ub_factor, partial(self._piece, count))
            return full_repeats("duplicate", count), full_repeats("muls", count), *pieces

        return in_groups(rows, GROUP_ROWS, group)

    def _piece(self, rows: int, width: int) -> Issues:
        on = self.on
        widened, scaled, gamma = self.widened(width), on("muls", width), self.widened_gamma(width)
        dgamma = on("mul", width, "dy", "x"), on("add", width, "dgamma", "x")
        products = (on("mul", width, "x", "gamma"), *halving(width))
        sums = (*widened, scaled, *widened, *dgamma, *products)
        dx = on("mul", width, "dy", "gamma"), on("sub", width, "dy", "x"), scaled
        gradient = (*widened, scaled, scaled, *widened, *dx, *self.narrowed(width))
        return (
            *gamma,
            full_repeats("duplicate", width),
            *repeated(sums, rows),
            full_repeats("add", rows, 0, MEANS_BYTES, between="the means"),
            *gamma,
            *repeated(gradient, rows),
        )
