"""Timeline of RmsNormGrad: work of the cores, descriptions of tiles, and vector instructions.

Sources: specification pages ``rms_norm_grad``, "Tiling" and "Kernels and accumulation order", and
``estimate``, "Instruction lists" (public kernel sources of release 8.3, without clearing and
merging of dgamma). The program counts element-wise instructions once per group of rows, without
unused lanes at the ends of rows: a lower bound. The instruction lists name a product by the buffers
of its sources.
"""

from functools import partial

from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.normalised_rows_timeline import NormalisedRows, lists_by_rows
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import DTYPE_CODES, FP32_BYTES, VECTOR_LANES, align, alignment, ceil_div
from npu_sim.tiling.rms_norm_grad import GROUP_ROWS, LANE_COLUMNS, SPLIT_D
from npu_sim.timelines.program import (
    Copy,
    Instruction,
    Loop,
    Node,
    Phase,
    Program,
    Work,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View
from npu_sim.timelines.vector_pipe import (
    InstructionLists,
    Issue,
    Issues,
    copied_rows,
    halving,
    in_groups,
    lane_sums,
    repeated,
    row_conflicts,
    spread,
    whole,
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    dy, gamma = TensorSpec.parse(plan.arguments["dy"]), TensorSpec.parse(plan.arguments["gamma"])
    rows = (_long_rows if plan.tiling_key == SPLIT_D else _short_rows)(plan, dy, gamma.itemsize)
    clearing = () if plan.tiling["fixed_output"] else ("clearing dgamma",)
    return Program((rows, _merge(plan)) if plan.tiling["fixed_output"] else (rows,), clearing)


def _elementwise(elements: int, count: int) -> tuple[Work, ...]:
    return (Instruction("add_sub_mul_max_min", "float32", elements, times=count),) if count else ()


def _copy(dy: TensorSpec, elements: int, times: int = 1) -> Copy:
    """Return a copy of a part of dy, x or dx, which have the same size."""
    return Copy(dy.itemsize * elements, elements, times, tensor_bytes=dy.nbytes)


def _widen(elements: int, element_bytes: int, count: int) -> tuple[Work, ...]:
    if element_bytes == FP32_BYTES:
        return ()
    return (Instruction("cast_16_to_32", "float32", elements, times=count),)


def _narrow(elements: int, element_bytes: int) -> tuple[Work, ...]:
    if element_bytes == FP32_BYTES:
        return ()
    return (Instruction("cast_32_to_16", "float32", elements),)


def _row_sum(columns: int, rows: int) -> tuple[Work, ...]:
    """Return a row sum: halve down to 64 lanes, then sum one repeat (page, ``halving``)."""
    halving = _elementwise((columns - VECTOR_LANES) * rows, 1) if columns > VECTOR_LANES else ()
    return (
        *halving,
        Instruction("reduce_repeat", "float32", min(columns, VECTOR_LANES), times=rows),
    )


def _short_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Return the phase of key 1: groups of whole rows, double-buffered; dgamma goes out once."""
    columns = plan.tiling["col"]

    def group(rows: int) -> tuple[Node, ...]:
        elements = rows * columns
        copy_in = (_copy(dy, elements, times=2), Copy(FP32_BYTES * rows, rows))
        # xh, p, dgamma, g, g*xh before the sum; xh*m, the difference, times rstd after it.
        vector = (
            *_widen(elements, dy.itemsize, 2),
            *_elementwise(elements, 8),
            *_row_sum(columns, rows),
            *_narrow(elements, dy.itemsize),
        )
        return (vector_tile(copy_in, vector, (_copy(dy, elements),)),)

    gamma = vector_tile(
        (Copy(gamma_bytes * columns, columns),), _widen(columns, gamma_bytes, 1), note="gamma"
    )
    dgamma = vector_tile(copy_out=(Copy(FP32_BYTES * columns, columns),), note="dgamma")
    cores = {
        core: (gamma, *ranged("rows", start, stop, max(plan.tiling["ub_factor"], 1), group), dgamma)
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _long_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Return the phase of key 2: for each group of rows one pass for sums and one for dx."""
    columns, length = plan.tiling["col"], plan.tiling["ub_factor"]

    def sums(width: int, rows: int) -> tuple[Node, ...]:
        gamma = vector_tile(
            (Copy(gamma_bytes * width, width),), _widen(width, gamma_bytes, 1), note="gamma"
        )
        vector = (*_widen(width, dy.itemsize, 2), *_elementwise(width, 4), *_row_sum(width, 1))
        row = vector_tile((_copy(dy, width, times=2),), vector, note="sums")
        return (
            gamma,
            Loop((row,), rows, "row", 1),
            vector_tile(copy_out=(Copy(FP32_BYTES * width, width),), note="dgamma"),
        )

    def gradient(width: int, rows: int) -> tuple[Node, ...]:
        gamma = vector_tile(
            (Copy(gamma_bytes * width, width),), _widen(width, gamma_bytes, 1), note="gamma"
        )
        copy = _copy(dy, width)
        vector = (
            *_widen(width, dy.itemsize, 2),
            *_elementwise(width, 5),
            *_narrow(width, dy.itemsize),
        )
        again = Copy(dy.itemsize * width, width, times=2)
        row = vector_tile((again,), vector, (copy,), note="dx")
        return gamma, Loop((row,), rows, "row", 1)

    def group(rows: int) -> tuple[Node, ...]:
        rstd = vector_tile((Copy(FP32_BYTES * rows, rows),), note="rstd")
        first = ranged("columns", 0, columns, length, lambda width: sums(width, rows))
        second = ranged("columns", 0, columns, length, lambda width: gradient(width, rows))
        return rstd, *first, *second

    cores = {
        core: ranged("rows", start, stop, GROUP_ROWS, group)
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _merge(plan: Plan) -> Phase:
    """Return the merge of deterministic dgamma: the cores' vectors are summed in core order."""
    columns, cores = plan.tiling["col"], plan.block_dim
    # The split of columns is published for the inference series only (fused cores, core 0 takes
    # all); elsewhere an even split is assumed.
    workers = 1 if plan.core_kind == "AI cores" else cores
    width_per_core = ceil_div(columns, workers)

    def merge(width: int) -> tuple[Node, ...]:
        copy = Copy(FP32_BYTES * width, width, times=cores)
        return (
            vector_tile(
                (copy,),
                _elementwise(width, cores),
                (Copy(FP32_BYTES * width, width),),
                note="merge",
            ),
        )

    return vector_phase(
        "merge dgamma",
        {
            core: ranged(
                "columns",
                core * width_per_core,
                min((core + 1) * width_per_core, columns),
                width_per_core,
                merge,
            )
            for core in range(workers)
        },
    )


ALWAYS = ("gamma", "rstd")
"""Allocations in use between the tiles of a group of rows."""

CLEARING = ("zeros", "synchronisation")


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    rows, columns = plan.tiling["row"], plan.tiling["col"]
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    views = (
        View("dy", rows, columns, by_row, by_column),
        View("x", rows, columns, by_row, by_column),
        View("rstd", rows, by_row=by_row),
        View("gamma", 1, columns, by_column=by_column),
        View("dx", rows, columns, by_row, by_column),
        View("dgamma", 1, columns, by_column=by_column),
    )
    separate = bool(plan.tiling["fixed_output"])
    whole = ("dy", "x", "dx", "dgamma", "means", "scratch", *ALWAYS)
    return StepTable(
        views,
        {
            ("rows", "gamma"): Step(
                "gamma comes in, widened to fp32", ("gamma",), live=("gamma", "dgamma", *CLEARING)
            ),
            ("rows", "rstd"): Step(
                "rstd of rows {rows} comes in", ("rstd",), live=("rstd", "means", *CLEARING)
            ),
            ("rows", ""): Step(
                "rows {rows}: dgamma += dy * x * rstd; "
                "m = mean of dy * gamma * x * rstd over the row; "
                "dx = (dy * gamma - x * rstd * m) * rstd",
                ("dy", "x", "rstd"),
                ("dx",),
                ("gamma", "dgamma"),
                whole,
            ),
            ("rows", "sums"): Step(
                "row {row} of the group, columns {columns}: dgamma += dy * x * rstd; "
                "the row's m += sum of dy * gamma * x * rstd over these columns",
                ("dy", "x"),
                (),
                ("rstd", "gamma", "dgamma"),
                ("dy", "x", "dgamma", "means", *ALWAYS),
            ),
            ("rows", "dgamma"): Step(
                "what this core has added to dgamma goes out"
                + (
                    " to its place in the workspace"
                    if separate
                    else ", added atomically to what the other cores add"
                ),
                (),
                () if separate else ("dgamma",),
                live=("dgamma", "means", *ALWAYS),
            ),
            ("rows", "dx"): Step(
                "row {row} of the group, columns {columns}: "
                "dx = (dy * gamma - x * rstd * m) * rstd, with m of the whole row",
                ("dy", "x"),
                ("dx",),
                ("rstd", "gamma"),
                ("dy", "x", "dx", "means", *ALWAYS),
            ),
            ("merge dgamma", "merge"): Step(
                "columns {columns}: dgamma = sum of what the cores have left in the workspace, "
                "in the order of the cores",
                (),
                ("dgamma",),
            ),
        },
    )


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
        return lists_by_rows(plan, rows.split, False)
    return lists_by_rows(plan, rows.whole, rows.like_compared)


class _Rows(NormalisedRows):
    """Vector instructions on rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "dy", BUFFERS, plan.tiling["col"])
        self.ub_factor = plan.tiling["ub_factor"]
        self.aligned = align(self.columns, alignment(DTYPE_CODES[self.dtype]))

    def whole(self, rows: int) -> Issues:
        """Return the instructions of key 1: whole rows in the buffer."""
        once = (*self.widened_gamma(self.aligned), whole("duplicate", self.aligned))
        if self.aligned > LANE_COLUMNS:
            return (*once, *repeated(self._halved_row(), rows))
        return (*once, *in_groups(rows, self.ub_factor, self._lane_group))

    def _halved_row(self) -> Issues:
        wide, on = self.aligned, self.on
        return (
            *(
                *self.widened(wide),
                on("muls", wide),
                *self.widened(wide),
                on("mul", wide, "dy", "x"),
                on("add", wide, "dgamma", "dx"),
            ),
            *(on("mul", wide, "dy", "gamma"), on("mul", wide, "dy", "x"), *halving(self.columns)),
            *(
                on("muls", wide),
                on("sub", wide, "dy", "dx"),
                on("muls", wide),
                *self.narrowed(wide),
            ),
        )

    def _lane_group(self, rows: int) -> Issues:
        wide, on, everything = self.aligned, self.on, rows * self.aligned
        to_rows = spread(rows, wide)
        row_bytes, dx = FP32_BYTES * wide, self.starts["dx"]
        dgamma = row_conflicts(rows, (dx, row_bytes), (self.starts["dgamma"], 0))
        repeats = whole("add", wide).repeats
        return (
            *(*to_rows, *self.widened(everything), on("mul", everything, "x", "dx")),
            *(*self.widened(everything), on("mul", everything, "dy", "x")),
            *(
                Issue("add", repeats, conflict, count, "dx and dgamma")
                for conflict, count in dgamma
            ),
            *copied_rows(rows, wide, FP32_BYTES),
            *(on("mul", everything, "dy", "dx"), on("mul", everything, "dy", "x")),
            *lane_sums(rows, self.columns, row_bytes, dx, self.starts["scratch"]),
            *(
                whole("muls", rows),
                *to_rows,
                on("mul", everything, "x", "dx"),
                on("sub", everything, "dy", "dx"),
            ),
            *(*to_rows, on("mul", everything, "dx", "dy"), *self.narrowed(everything)),
        )

    def split(self, rows: int) -> Issues:
        """Return the instructions of key 2: two passes over the column pieces of a group."""
        return in_groups(rows, GROUP_ROWS, self._split_group)

    def _split_group(self, rows: int) -> Issues:
        pieces = in_groups(self.columns, self.ub_factor, partial(self._piece, rows))
        return whole("duplicate", rows), whole("muls", rows), *pieces

    def _piece(self, rows: int, width: int) -> Issues:
        on = self.on
        sums = (
            *(
                *self.widened(width),
                on("muls", width),
                *self.widened(width),
                on("mul", width, "dy", "x"),
            ),
            *(on("add", width, "dgamma", "x"), on("mul", width, "x", "gamma"), *halving(width)),
        )
        gradient = (
            *(
                *self.widened(width),
                on("muls", width),
                on("muls", width),
                *self.widened(width),
                on("mul", width, "dy", "gamma"),
            ),
            *(on("sub", width, "dy", "x"), on("muls", width), *self.narrowed(width)),
        )
        first = (
            *self.widened_gamma(width),
            whole("duplicate", width),
            *repeated(sums, rows),
            whole("add", rows, 0, MEANS_BYTES, between="the means"),
        )
        return (*first, *self.widened_gamma(width), *repeated(gradient, rows))
