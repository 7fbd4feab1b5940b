"""What the cores do in RmsNorm, from the plan's tiling.

Source: specification page ``rms_norm``, "Vector instructions of a tile". A row, or what lies in the
Unified Buffer at a time, is two tiles: the first ends with the last instruction that reads x, after
which the next x may come in; the second writes y, for which the copy of the y before it must be
done.
"""

from collections.abc import Callable

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import FP32_BYTES, VECTOR_LANES, ceil_div
from npu_sim.tiling.rms_norm import KEY_MERGE_N, KEY_SINGLE_ROW, KEY_SPLIT_D
from npu_sim.timelines.program import (
    Copy,
    Instruction,
    Loop,
    Node,
    Program,
    Tile,
    Work,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

BROADCASTS = (
    "broadcast of gamma to all rows in the Unified Buffer",
    "broadcast of rstd to all elements of its row",
)
"""Library calls of key 2 whose instructions are not published."""

Step = Callable[[int], tuple[Node, ...]]
"""The work of so many rows."""


def program(plan: Plan) -> Program:
    """Return what every core does."""
    x, gamma = (
        TensorSpec.parse(plan.arguments["x"]),
        TensorSpec.parse(plan.arguments["gamma"]).itemsize,
    )
    columns, key = plan.tiling["num_col"], plan.tiling_key
    once: tuple[Node, ...] = (_gamma_in(columns, gamma, widens=key == KEY_MERGE_N),)
    if key == KEY_SPLIT_D:
        once, step = (), _split_rows(columns, plan.tiling["ub_factor"], x, gamma)
    elif key == KEY_MERGE_N:
        step = _merged_rows(
            columns, plan.tiling["num_col_align"], x, bool(plan.tiling.get("is_performance"))
        )
    else:
        step = _whole_rows(columns, x, gamma, key == KEY_SINGLE_ROW)
    cores = {
        core: (*once, *ranged("rows", *rows, plan.tiling["row_factor"], step))
        for core, rows in rows_of_cores(plan).items()
    }
    # A 16-bit x leaves its buffer as soon as it is widened, but on key 3, where its squares take
    # its place.
    early = x.itemsize != FP32_BYTES and key != KEY_SINGLE_ROW
    broadcasts = BROADCASTS if key == KEY_MERGE_N and not plan.tiling.get("is_performance") else ()
    return Program((vector_phase("rows", cores, in_buffers=2 if early else 1),), broadcasts)


def _multiply_or_add(elements: int, times: int = 1) -> Work:
    return Instruction("add_sub_mul_max_min", "float32", elements, times)


def _by_a_number(elements: int) -> Work:
    """Multiplication by, or addition of, one number."""
    return Instruction("adds_muls_maxs_mins", "float32", elements)


def _root_or_quotient(elements: int) -> Work:
    return Instruction("exp_ln_sqrt_div", "float32", elements)


def _duplicate(elements: int) -> Work:
    return Instruction("duplicate_create_index", "float32", elements)


def _widen(elements: int, element_bytes: int) -> tuple[Work, ...]:
    return (
        () if element_bytes == FP32_BYTES else (Instruction("cast_16_to_32", "float32", elements),)
    )


def _narrow(elements: int, element_bytes: int) -> tuple[Work, ...]:
    return (
        () if element_bytes == FP32_BYTES else (Instruction("cast_32_to_16", "float32", elements),)
    )


def _halving(columns: int) -> tuple[Work, ...]:
    """Add what lies beyond a power of two to the front, halve it down to 64 lanes, and sum these in one repeat."""
    front = VECTOR_LANES
    while 2 * front <= columns:
        front *= 2
    adds = [columns - front] if columns > front else []
    while front > VECTOR_LANES:
        front //= 2
        adds.append(front)
    return (
        *map(_multiply_or_add, adds),
        Instruction("reduce_repeat", "float32", min(columns, VECTOR_LANES)),
    )


def _rstd_from_sums(rows: int) -> tuple[Work, ...]:
    """Mean, epsilon, root, and the quotient of a duplicated 1 by it."""
    return (
        _by_a_number(rows),
        _by_a_number(rows),
        _root_or_quotient(rows),
        _duplicate(rows),
        _root_or_quotient(rows),
    )


def _copy(x: TensorSpec, elements: int) -> Copy:
    """Copy a part of x, or of y, which is as large."""
    return Copy(x.itemsize * elements, elements, tensor_bytes=x.nbytes)


def _gamma_in(columns: int, gamma_bytes: int, widens: bool = False) -> Tile:
    vector = _widen(columns, gamma_bytes) if widens else ()
    return vector_tile((Copy(gamma_bytes * columns, columns),), vector, note="gamma")


def _rstd_out(rows: int) -> Tile:
    return vector_tile(copy_out=(Copy(FP32_BYTES * rows, rows),), note="rstd")


def _whole_rows(columns: int, x: TensorSpec, gamma: int, squares_replace_x: bool) -> Step:
    """Keys 0 and 3: one row after the other; a 16-bit gamma is widened for every row anew."""
    copy, scale = _copy(x, columns), _by_a_number(columns)
    total = (*_widen(columns, x.itemsize), _multiply_or_add(columns), *_halving(columns))
    result = (*_widen(columns, gamma), _multiply_or_add(columns), *_narrow(columns, x.itemsize))
    reading, writing = (total, (scale, *result)) if squares_replace_x else ((*total, scale), result)
    row = vector_tile((copy,), reading, note="sum"), vector_tile((), writing, (copy,), note="y")
    return lambda rows: (Loop(row, rows, "row", 1), _rstd_out(rows))


def _split_rows(columns: int, length: int, x: TensorSpec, gamma: int) -> Step:
    """Key 1: for a group of rows first the sums of all pieces, then y, last piece first."""
    last = (ceil_div(columns, length) - 1) * length

    def sums(width: int, rows: int) -> tuple[Node, ...]:
        vector = (*_widen(width, x.itemsize), _multiply_or_add(width), *_halving(width))
        return (Loop((vector_tile((_copy(x, width),), vector, note="sum"),), rows, "row", 1),)

    def results(width: int, rows: int) -> tuple[Node, ...]:
        copy = _copy(x, width)
        writing = (*_widen(width, gamma), _multiply_or_add(width), *_narrow(width, x.itemsize))
        reading = vector_tile(
            (copy,), (*_widen(width, x.itemsize), _by_a_number(width)), note="x again"
        )
        return _gamma_in(width, gamma), Loop(
            (reading, vector_tile((), writing, (copy,), note="y")), rows, "row", 1
        )

    def group(rows: int) -> tuple[Node, ...]:
        first = ranged("columns", 0, columns, length, lambda width: sums(width, rows))
        ends = ranged("columns", last, columns, length, lambda width: results(width, rows))
        others = ranged("columns", 0, last, length, lambda width: results(width, rows))
        return (
            *first,
            vector_tile(vector=_rstd_from_sums(VECTOR_LANES), note="rstd of sums"),
            *ends,
            *others,
            _rstd_out(rows),
        )

    return group


def _merged_rows(columns: int, aligned: int, x: TensorSpec, is_performance: bool) -> Step:
    """Key 2: all rows in the Unified Buffer at a time, summed in lanes side by side."""

    def group(rows: int) -> tuple[Node, ...]:
        elements, lanes = rows * aligned, rows * VECTOR_LANES
        copy = _copy(x, rows * columns)
        sums = (
            *(*_widen(elements, x.itemsize), _multiply_or_add(elements), _duplicate(lanes)),
            _multiply_or_add(lanes, times=ceil_div(columns, VECTOR_LANES)),
            Instruction("reduce_repeat", "float32", lanes),
            *_rstd_from_sums(rows),
        )
        by_rstd: tuple[Work, ...] = (_multiply_or_add(elements),)
        by_gamma = by_rstd
        if is_performance:
            by_gamma = (_multiply_or_add(lanes, times=ceil_div(aligned, VECTOR_LANES)),)
            by_rstd = (Instruction("broadcast_block_out", "float32", lanes), *by_gamma)
        reading = vector_tile((copy,), (*sums, *by_rstd), note="sums")
        writing = vector_tile((), (*by_gamma, *_narrow(elements, x.itemsize)), (copy,), note="y")
        return reading, _rstd_out(rows), writing

    return group
