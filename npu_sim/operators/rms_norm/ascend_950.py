"""RmsNorm on Ascend 950: own planner and kernels, the contract of A2 and A3.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``rms_norm_950``.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Description,
    Plan,
    Run,
    TensorSpec,
    Text,
    caveat,
    ceil_div,
    counted,
    decision,
    vector_plan,
)
from npu_sim.operators.rms_norm.compute import compute_rows
from npu_sim.operators.rms_norm.plan import workspace_parts, zero_epsilon_caveats
from npu_sim.operators.rms_norm.study import row_claim
from npu_sim.operators.rms_norm.timeline import copy_of, gamma_in, rstd_out, tensor_views
from npu_sim.operators.shared.study import Claim, StudyCall, trees
from npu_sim.tiling.ascend_950 import rms_norm as tiler
from npu_sim.tiling.rms_norm import row_range
from npu_sim.timelines import (
    Loop,
    Node,
    Program,
    Step,
    Work,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm import Split

OFFSET_BITS = 32
"""Bits in which key 2001 passes the start of a row to its sum (page, "Warnings")."""
FULL_LOAD = Condition(
    "full load",
    Text(
        "a padded row has at most {widest} elements and fits beside its y, gamma and sums",
        widest=tiler.WIDEST_FULL_LOAD,
    ),
    tiler.loads_whole_rows,
    "whole rows, several at a time; squares are folded once, then registers are added as trees",
    "rows are cut into pieces of columns, whose sums are added in lists of 256",
    ("col",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, col_align = case.tiling, tiler.full_load_columns(case.row)
    path, reason, per_core = _path(case, col_align)
    return vector_plan(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        buffers=tiler.buffers(tiling, case.row)._asdict(),
        ranges=[row_range(tiling, core) for core in range(tiling.block_dim)],
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=workspace_parts(case),
        conditions=lambda: [decision(case, FULL_LOAD, col=case.row.col, col_align=col_align)],
        caveats=_caveats(case),
    )


def _path(case: Case, col_align: int) -> tuple[str, str, str]:
    """Return the path, its reason, and the work of a core."""
    tiling, factor, width = case.tiling, case.tiling.ub_factor, f"col_align {col_align}"
    if tiling.tiling_key == tiler.KEY_SPLIT:
        return (
            "split",
            Text("{width} does not fit the buffer whole", width=width),
            Text(
                "{pieces} pieces of up to {ub_factor} columns",
                pieces=ceil_div(case.row.col, factor),
                ub_factor=factor,
            ),
        )
    groups = counted(ceil_div(tiling.block_factor, factor), "group")
    return (
        "full load",
        Text(
            "{width}: {row_factor} rows fit the buffer",
            width=width,
            row_factor=tiler.rows_in_ub(case.row, case.device),
        ),
        Text("{groups} of up to {rows} rows", groups=groups, rows=factor),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    yield caveat(
        "rstd_differs_between_products",
        "rstd",
        "A2 and A3 add the squares in another order and take another root: the last bits "
        "of rstd can differ from theirs",
    )
    row = case.row
    if case.tiling.tiling_key == tiler.KEY_SPLIT and row.row * row.col > 1 << OFFSET_BITS:
        yield caveat(
            "row_offset_wraps",
            "x",
            "the start of a row goes to its sum in {bits} bits: the sums of rows that begin "
            "beyond 2^{bits} elements are those of other rows; the simulator computes as if "
            "they were not. Read in the public sources; not run on a device",
            bits=OFFSET_BITS,
            not_modelled="*",
            since="9.1",
        )
    yield from zero_epsilon_caveats(case)


def split_of(case: Case) -> "Split":
    """Return the kernel's argument for the summation of a row."""
    from npu_sim.kernels.rms_norm import FOLDED, LISTS, Split

    tiling = case.tiling
    return Split(
        FOLDED if tiling.fold > 0 else LISTS, tiling.ub_factor, tiling.fold, tiling.ub_loop
    )


def compute(run: Run) -> None:
    """Compute y and rstd."""
    compute_rows(run, split_of)


SUMMING = ("x", "rstd", "register_sums", "row_sums", "fp32", "work", "levels", "pair")
WRITING = (*SUMMING, "gamma", "y")
Y_OF_ROWS = Step(
    "y",
    "rows {rows}: x * x is folded and added as trees; y = x * rstd * gamma",
    ("x",),
    ("y",),
    ("gamma",),
    WRITING,
)
Y_OF_PIECE = replace(
    Y_OF_ROWS, says="row {row} of the group, columns {columns}: y = x * rstd * gamma"
)
instructions = None
"""No rates of vector instructions are published."""


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    x, gamma = (TensorSpec.parse(plan.arguments[name]) for name in ("x", "gamma"))
    columns, factor = plan.tiling["num_col"], plan.tiling["ub_factor"]
    assumptions: tuple[str, ...] = ()
    if plan.tiling_key == tiler.KEY_FULL_LOAD:
        once = gamma_in(columns, gamma.itemsize)
        groups = ranged_cores(plan, "rows", factor, lambda rows: _whole_rows(rows, columns, x))
        cores = {core: (once, *nodes) for core, nodes in groups.items()}
    else:
        assumptions = ("gamma is copied in once for every 64 rows of a core",)
        cores = ranged_cores(
            plan,
            "rows",
            tiler.SPLIT_ROWS,
            lambda rows: _split_rows(rows, columns, factor, x, gamma.itemsize),
        )
    return Program(
        (vector_phase("rows", cores, in_buffers=2, out_buffers=2),),
        assumptions=assumptions,
        views=tensor_views(plan),
    )


def _sum_of_squares(elements: int, rows: int) -> tuple[Work, ...]:
    return fp32.combine(elements), fp32.add_up(elements), fp32.exp_root_or_quotient(rows)


def _whole_rows(rows: int, columns: int, x: TensorSpec) -> tuple[Node, ...]:
    elements, copy = rows * columns, copy_of(x, rows * columns)
    vector = (*_sum_of_squares(elements, rows), fp32.combine(elements, 2))
    return vector_tile((copy,), vector, (copy,), Y_OF_ROWS), rstd_out(rows)


def _split_rows(rows: int, columns: int, piece: int, x: TensorSpec, gamma: int) -> tuple[Node, ...]:
    def sums(width: int) -> tuple[Node, ...]:
        tile = vector_tile(
            (copy_of(x, width),),
            _sum_of_squares(width, 1),
            step=Step(
                "sum",
                "row {row} of the group, columns {columns}: x * x is added in pairs of registers",
                ("x",),
                live=SUMMING,
            ),
        )
        return (Loop((tile,), rows, "row", 1),)

    def results(width: int) -> tuple[Node, ...]:
        copy = copy_of(x, width)
        tile = vector_tile((copy,), (fp32.combine(width, 2),), (copy,), Y_OF_PIECE)
        return gamma_in(width, gamma), Loop((tile,), rows, "row", 1)

    return (
        *ranged("columns", 0, columns, piece, sums),
        *ranged("columns", 0, columns, piece, results),
        rstd_out(rows, ()),
    )


ALIGNED_BYTES = 512
"""The squares of a piece are padded to a multiple of this many bytes of x (page, key 2001)."""
Floats = np.ndarray[Any, np.dtype[np.float32]]


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row."""
    case = call.case
    if case.tiling.fold > 0:
        yield row_claim(call, case, whole_tree(case), refined_root)
    else:
        yield row_claim(call, case, pieces_tree(case))


def whole_tree(case: Case) -> trees.Tree | None:
    """Return the tree of key 5000."""
    columns, fold = list(range(case.row.col)), case.tiling.fold
    if fold < trees.LANES:
        return trees.tree64(columns)
    register_sums = [
        trees.tree64(register) for register in trees.registers(trees.fold(columns, fold))
    ]
    first, second = register_sums[: trees.LANES], register_sums[trees.LANES :]
    return trees.tree64(trees.added(first, second) if second else first)


def pieces_tree(case: Case) -> trees.Tree | None:
    """Return the tree of key 2001."""
    columns, tiling = list(range(case.row.col)), case.tiling
    piece, half = tiling.ub_factor, tiling.ub_factor // 2
    step = ALIGNED_BYTES // case.specs["x"].itemsize
    begin = 0

    def taken(count: int, power: int) -> trees.Tree | None:
        nonlocal begin
        piece, begin = columns[begin : begin + count], begin + count
        return trees.paired(piece, -(-count // step) * step, power)

    pairs, tail = divmod(case.row.col - tiling.ub_loop * piece, piece)
    slots = []
    for number in range(tiling.ub_loop):
        if number < pairs:
            slots.append(trees.join(taken(piece, piece), taken(piece, piece)))
        elif number == pairs and tail > half:
            slots.append(trees.join(taken(piece, piece), taken(tail, half)))
        elif number == pairs and tail > 0:
            slots.append(trees.join(taken(half + tail, half), taken(half, half)))
        else:
            slots.append(taken(piece, piece))
    return trees.level(slots)


def refined_root(mean: Floats) -> Floats:
    """Return 1/sqrt(mean) by the fused steps of key 5000, for positive normal means."""
    from npu_sim.kernels.vectors.lanes import fused_multiply_add

    unit = np.float32(1)
    r = unit / mean
    root = np.sqrt(r)
    first = root * fused_multiply_add((mean * np.float32(-0.5)) * root, root, np.float32(1.5))
    error = fused_multiply_add(
        mean, fused_multiply_add(-first, first, r), fused_multiply_add(-mean, r, unit)
    )
    refined: Floats = fused_multiply_add(error * first, np.float32(0.5), first)
    return refined


FIELDS: dict[str, Any] = {
    "tiling": tiler.Tiling,
    "tile": tiler.tile,
    "used_bytes": tiler.used_bytes,
}
"""Fields of the declaration that differ on Ascend 950."""
