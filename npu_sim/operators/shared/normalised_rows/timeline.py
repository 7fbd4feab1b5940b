"""Rows that are normalised: copies of their tiles, and lists of their instructions.

Source: specification page ``estimate``, "Instruction lists".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from npu_sim.framework.vocabulary import FP32_BYTES, VECTOR_LANES, Plan, TensorSpec
from npu_sim.operators.shared.instructions import buffer_sizes, placed
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    Issue,
    Issues,
    Loop,
    Nodes,
    Program,
    Step,
    Tile,
    View,
    Work,
    Works,
    fp32,
    full_repeats,
    ranged,
    ranged_cores,
    starts_of,
    vector_phase,
    vector_tile,
)

COMPARED_DTYPES = {"bfloat16"}
"""dtypes of x and gamma that were compared with a device (page, "Residuals"), for whole repeats."""


class NormalisedRows:
    """Instructions on rows of x and gamma, whose operands lie in named buffers."""

    def __init__(self, plan: Plan, x: str, buffers: Sequence[str], columns: int) -> None:
        spec, gamma = TensorSpec.parse(plan.arguments[x]), TensorSpec.parse(plan.arguments["gamma"])
        sizes = buffer_sizes(plan)
        self.columns, self.x = columns, spec
        self.dtype, self.gamma_bytes = spec.dtype, gamma.itemsize
        self.widens, self.widens_gamma = spec.itemsize != FP32_BYTES, gamma.itemsize != FP32_BYTES
        self.starts = starts_of((name, sizes.get(name, 0)) for name in buffers)
        self.like_compared = {
            spec.dtype,
            gamma.dtype,
        } == COMPARED_DTYPES and columns % VECTOR_LANES == 0

    def on(self, kind: str, elements: int, *buffers: str) -> Issue:
        """Return an instruction whose two sources are at the start of these buffers."""
        return placed(kind, elements, self.starts, buffers)

    def widened(self, elements: int) -> Issues:
        """Return the cast of 16-bit elements to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens else ()

    def narrowed(self, elements: int) -> Issues:
        """Return the cast of fp32 elements to 16 bits."""
        return (full_repeats(NARROWING, elements),) if self.widens else ()

    def widened_gamma(self, elements: int) -> Issues:
        """Return the cast of a 16-bit gamma to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens_gamma else ()


def copy_of(x: TensorSpec, elements: int) -> Copy:
    """Return a copy of a part of x or y, which have the same size."""
    return Copy(x.itemsize * elements, elements, tensor_bytes=x.nbytes)


def gamma_in(columns: int, gamma_bytes: int, *live: str, widens: bool = False) -> Tile:
    """Return the tile that copies gamma in, and may widen it."""
    return vector_tile(
        (Copy(gamma_bytes * columns, columns),),
        fp32.widen(columns, gamma_bytes) if widens else (),
        step=Step("gamma", "gamma is copied in", ("gamma",), live=("gamma", *live)),
    )


def rstd_out(rows: int, held: tuple[str, ...] = ("gamma",)) -> Tile:
    """Return the tile that copies out rstd while ``held`` stays on the chip."""
    return vector_tile(
        copy_out=(Copy(FP32_BYTES * rows, rows),),
        step=Step(
            "rstd", "rstd of rows {rows} is copied out", (), ("rstd",), held, ("rstd", *held)
        ),
    )


def tensor_views(plan: Plan, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[View, ...]:
    """Return inputs, gamma, and those of rstd and ``outputs`` that the call asks for, as drawn."""
    fields, written = dict(plan.tiling), written_by(plan)
    rows, columns = (
        fields[name] if name in fields else fields[other]
        for name, other in (("num_row", "numRow"), ("num_col", "numCol"))
    )
    by_row, by_column = {"rows": 1, "row": 1}, {"columns": 1}
    rstd = (View("rstd", rows, by_row=by_row),) if "rstd" in written else ()
    return (
        *(View(name, rows, columns, by_row, by_column) for name in inputs),
        View("gamma", 1, columns, by_column=by_column),
        *rstd,
        *(View(name, rows, columns, by_row, by_column) for name in outputs if name in written),
    )


def written_by(plan: Plan) -> set[str]:
    """Return the outputs of a call."""
    return {order.output for order in plan.order}


def tile_of(step: Step, copy: Copy, vector: Works, written: set[str]) -> Tile:
    """Return a tile with a copy of each tensor that it reads, and of those written by the call."""
    writes = tuple(name for name in step.writes if name in written)
    copies = (copy,)
    return vector_tile(
        copies * len(step.reads), vector, copies * len(writes), replace(step, writes=writes)
    )


class Steps950(NamedTuple):
    """Tiles of a norm on Ascend 950, with the tensors that each reads and may write."""

    rows: Step
    """Several whole rows."""
    sum: Step
    """The sum of a piece of a row."""
    y: Step
    """y of a piece of a row."""


def program_on_950(
    plan: Plan, x: str, steps: Steps950, rows: int, piece: int, assumption: str
) -> Program:
    """Return the work of every core: ``rows`` at a time, whole or in pieces of columns.

    ``piece`` is 0 for whole rows; ``assumption`` is that of rows in pieces.
    """
    spec, gamma = (TensorSpec.parse(plan.arguments[name]) for name in (x, "gamma"))
    inputs, written, columns = steps.rows.reads, written_by(plan), gamma.numel

    def tile(step: Step, elements: int, *vector: Work) -> Tile:
        return tile_of(step, copy_of(spec, elements), vector, written)

    def sums(elements: int, count: int) -> Works:
        squares = fp32.combine(elements, len(inputs))
        return squares, fp32.add_up(elements), fp32.exp_root_or_quotient(count)

    def rstd(count: int, *held: str) -> Nodes:
        return (rstd_out(count, held),) if "rstd" in written else ()

    def whole_rows(count: int) -> Nodes:
        elements = count * columns
        y = fp32.combine(elements, 2)
        return tile(steps.rows, elements, *sums(elements, count), y), *rstd(count, "gamma")

    def split_rows(count: int) -> Nodes:
        def first(width: int) -> Nodes:
            return (Loop((tile(steps.sum, width, *sums(width, 1)),), count, "row", 1),)

        def second(width: int) -> Nodes:
            y = tile(steps.y, width, fp32.combine(width, 1 + len(inputs)))
            return gamma_in(width, gamma.itemsize), Loop((y,), count, "row", 1)

        passes = (ranged("columns", 0, columns, piece, body) for body in (first, second))
        return *(node for nodes in passes for node in nodes), *rstd(count)

    cores = ranged_cores(plan, "rows", rows, split_rows if piece else whole_rows)
    if not piece:
        once = gamma_in(columns, gamma.itemsize)
        cores = {core: (once, *nodes) for core, nodes in cores.items()}
    return Program(
        (vector_phase("rows", cores, in_buffers=2, out_buffers=2),),
        assumptions=(assumption,) if piece else (),
        views=tensor_views(plan, inputs, steps.rows.writes),
    )
