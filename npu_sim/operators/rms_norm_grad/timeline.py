"""What the cores do in RmsNormGrad, from the plan's tiling.

Source: specification page ``rms_norm_grad``, "Tiling" and "Kernels and accumulation order".
Element-wise instructions are counted once for a group of rows, which wastes no lanes at the end of
a row: a lower bound whatever the kernel does there.
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import ceil_div
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

SPLIT_D = 2
"""Tiling key of long rows (page, "col > 6080")."""
GROUP_ROWS = 32
"""Rows of a group on key 2 (page, "key 2")."""
LANES = 64
FP32 = 4


def program(plan: Plan) -> Program:
    """Return what every core does."""
    dy, gamma = TensorSpec.parse(plan.arguments["dy"]), TensorSpec.parse(plan.arguments["gamma"])
    rows = (_long_rows if plan.tiling_key == SPLIT_D else _short_rows)(plan, dy, gamma.itemsize)
    clearing = () if plan.tiling["fixed_output"] else ("clearing dgamma",)
    return Program((rows, _merge(plan)) if plan.tiling["fixed_output"] else (rows,), clearing)


def _elementwise(elements: int, count: int) -> tuple[Work, ...]:
    return (Instruction("add_sub_mul_max_min", "float32", elements, times=count),) if count else ()


def _copy(dy: TensorSpec, elements: int, times: int = 1) -> Copy:
    """Copy a part of dy, or of x or dx, which are as large."""
    return Copy(dy.itemsize * elements, elements, times, tensor_bytes=dy.nbytes)


def _widen(elements: int, element_bytes: int, count: int) -> tuple[Work, ...]:
    return (
        ()
        if element_bytes == FP32
        else (Instruction("cast_16_to_32", "float32", elements, times=count),)
    )


def _narrow(elements: int, element_bytes: int) -> tuple[Work, ...]:
    return () if element_bytes == FP32 else (Instruction("cast_32_to_16", "float32", elements),)


def _row_sum(columns: int, rows: int) -> tuple[Work, ...]:
    """Halve a row down to 64 lanes, then the tree of one repeat (page, ``halving``)."""
    halving = _elementwise((columns - LANES) * rows, 1) if columns > LANES else ()
    return (*halving, Instruction("reduce_repeat", "float32", min(columns, LANES), times=rows))


def _short_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Key 1: whole rows in groups, double-buffered; dgamma is gathered in the Unified Buffer and goes out once."""
    columns = plan.tiling["col"]

    def group(rows: int) -> tuple[Node, ...]:
        elements = rows * columns
        copy_in = (_copy(dy, elements, times=2), Copy(FP32 * rows, rows))
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
    dgamma = vector_tile(copy_out=(Copy(FP32 * columns, columns),), note="dgamma")
    cores = {
        core: (gamma, *ranged("rows", start, stop, max(plan.tiling["ub_factor"], 1), group), dgamma)
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _long_rows(plan: Plan, dy: TensorSpec, gamma_bytes: int) -> Phase:
    """Key 2: groups of rows, twice through the pieces of their columns: once for the sums, once for dx."""
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
            vector_tile(copy_out=(Copy(FP32 * width, width),), note="dgamma"),
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
        row = vector_tile((_copy(dy, width, times=2),), vector, (copy,), note="dx")
        return gamma, Loop((row,), rows, "row", 1)

    def group(rows: int) -> tuple[Node, ...]:
        rstd = vector_tile((Copy(FP32 * rows, rows),), note="rstd")
        first = ranged("columns", 0, columns, length, lambda width: sums(width, rows))
        second = ranged("columns", 0, columns, length, lambda width: gradient(width, rows))
        return rstd, *first, *second

    cores = {
        core: ranged("rows", start, stop, GROUP_ROWS, group)
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    return vector_phase("rows", cores, in_buffers=2, out_buffers=2)


def _merge(plan: Plan) -> Phase:
    """Deterministic dgamma: the cores' vectors are summed column by column, in the order of the cores."""
    columns, cores = plan.tiling["col"], plan.block_dim
    # How columns are shared out is published for the inference series only, whose cores are fused
    # (core 0 takes all): elsewhere an even share.
    workers = 1 if plan.core_kind == "AI cores" else cores
    share = ceil_div(columns, workers)

    def merge(width: int) -> tuple[Node, ...]:
        copy = Copy(FP32 * width, width, times=cores)
        return (
            vector_tile(
                (copy,), _elementwise(width, cores), (Copy(FP32 * width, width),), note="merge"
            ),
        )

    return vector_phase(
        "merge dgamma",
        {
            core: ranged("columns", core * share, min((core + 1) * share, columns), share, merge)
            for core in range(workers)
        },
    )
