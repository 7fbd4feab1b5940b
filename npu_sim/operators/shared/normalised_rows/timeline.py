"""Rows that are normalised: copies of their tiles, and lists of their instructions.

Source: specification page ``estimate``, "Instruction lists".
"""

from collections.abc import Sequence

from npu_sim.framework.vocabulary import FP32_BYTES, VECTOR_LANES, Plan, TensorSpec
from npu_sim.operators.shared.instructions import buffer_sizes, placed
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    Issue,
    Issues,
    Step,
    Tile,
    fp32,
    full_repeats,
    starts_of,
    vector_tile,
)

COMPARED_DTYPES = {"bfloat16"}
"""dtypes of x and gamma that were compared with a device (page, "Residuals"), for whole repeats."""


class NormalisedRows:
    """Instructions on rows of x and gamma, whose operands lie in named buffers."""

    def __init__(self, plan: Plan, x: str, buffers: Sequence[str], columns: int) -> None:
        spec, gamma = TensorSpec.parse(plan.arguments[x]), TensorSpec.parse(plan.arguments["gamma"])
        sizes = buffer_sizes(plan)
        self.columns = columns
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
