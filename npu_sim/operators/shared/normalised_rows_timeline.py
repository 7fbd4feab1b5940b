"""Instruction lists that RmsNorm and RmsNormGrad share: rows of one dtype in adjacent buffers.

Source: specification page ``estimate``, "Instruction lists".
"""

from collections.abc import Callable, Mapping, Sequence

from npu_sim.language import joined
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import FP32_BYTES, VECTOR_LANES
from npu_sim.timelines.program import rows_of_cores
from npu_sim.timelines.vector_pipe import (
    NARROWING,
    WIDENING,
    InstructionLists,
    Issue,
    Issues,
    full_repeats,
    starts_of,
)

COMPARED_DTYPES = {"bfloat16"}
"""dtypes of x and gamma that were compared with a device (page, "Residuals"), for whole repeats."""


def buffer_sizes(plan: Plan) -> Mapping[str, int]:
    """Return the bytes of every buffer of a core by name."""
    return {buffer.name: buffer.bytes for buffer in plan.memories[0].allocations}


def instructions_by_core(
    plan: Plan, instructions_for: Callable[[int], Issues], compared: bool
) -> InstructionLists:
    """Return the instructions of every core, given those of a number of rows."""
    row_counts = {core: stop - start for core, (start, stop) in rows_of_cores(plan).items()}
    lists = {count: instructions_for(count) for count in set(row_counts.values())}
    return InstructionLists({core: lists[count] for core, count in row_counts.items()}, compared)


class NormalisedRows:
    """Instructions on rows of x and gamma, whose operands lie in named buffers."""

    def __init__(self, plan: Plan, x: str, buffers: Sequence[str], columns: int) -> None:
        spec, gamma = TensorSpec.parse(plan.arguments[x]), TensorSpec.parse(plan.arguments["gamma"])
        sizes = buffer_sizes(plan)
        self.columns = columns
        self.dtype, self.gamma_bytes = spec.dtype, gamma.itemsize
        self.widens, self.widens_gamma = spec.itemsize != FP32_BYTES, gamma.itemsize != FP32_BYTES
        self.starts = starts_of((name, sizes.get(name, 0)) for name in buffers)
        dtypes = {spec.dtype, gamma.dtype}
        self.like_compared = dtypes == COMPARED_DTYPES and columns % VECTOR_LANES == 0

    def on(self, kind: str, elements: int, *buffers: str) -> Issue:
        """Return an instruction whose two sources are at the start of these buffers."""
        starts = (self.starts[name] for name in buffers)
        return full_repeats(kind, elements, *starts, between=joined(buffers, " and "))

    def widened(self, elements: int) -> Issues:
        """Return the cast of 16-bit elements to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens else ()

    def narrowed(self, elements: int) -> Issues:
        """Return the cast of fp32 elements to 16 bits."""
        return (full_repeats(NARROWING, elements),) if self.widens else ()

    def widened_gamma(self, elements: int) -> Issues:
        """Return the cast of a 16-bit gamma to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens_gamma else ()
