"""Instruction lists of RmsNorm and RmsNormGrad: rows of one dtype in adjacent buffers.

Source: specification page ``estimate``, "Instruction lists".
"""

from collections.abc import Sequence

from npu_sim.framework.vocabulary import FP32_BYTES, VECTOR_LANES, Plan, TensorSpec
from npu_sim.operators.shared.instructions import buffer_sizes, placed
from npu_sim.timelines import NARROWING, WIDENING, Issue, Issues, full_repeats, starts_of

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
