"""ConvTbcBackward in its workspace: the tensors between its kernels, kernel by kernel (specification page ``workspace``).

Transposed operands, their fp16 copies and cube layouts, and both gradients in cube layout and after it lie in the workspace; the
values of the gradients pass through them. Reserved and not filled: the system workspace, and the private slots of split tiles
(the kernel keeps them in its own order). The matrix products have no published workspace and are not staged.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.areas import Areas
from npu_sim.formats import numpy_dtype
from npu_sim.ops.base import Order
from npu_sim.ops.conv_tbc_backward import roundings, shares_of
from npu_sim.planning.conv_tbc_backward import Case
from npu_sim.tiling.conv_tbc_problem import CHANNEL_BLOCK_BYTES, CUBE_EDGE
from npu_sim.tiling.integers import ceil_div

Array = np.ndarray[Any, Any]
TENSORS = {"self": "grad_output", "input": "input", "weight": "weight", "bias": "bias"}
"""Names of the product document to those of the arguments."""
ENTRY_ORDER = ("self", "weight", "input", "bias")
OPERANDS = ("self", "input", "weight")
CHANNELS_FIRST = (1, 2, 0)
"""(time, batch, channels) to (batch, channels, time)."""
TIME_FIRST = (2, 0, 1)
REVERSED = (2, 1, 0)
"""Weight (taps, in, out) to (out, in, taps), and back."""


def fill_blocks(blocks: Array, values: Array) -> None:
    """Lay (batch, channels, time) out as (batch, blocks of channels, 1, time, C0), filled up with 0."""
    blocks.fill(0)
    edge = blocks.shape[-1]
    for number in range(blocks.shape[1]):
        part = values[:, number * edge : (number + 1) * edge]
        blocks[:, number, 0, :, : part.shape[1]] = part.transpose(0, 2, 1)


def read_blocks(blocks: Array, values: Array) -> None:
    """Lay blocks out as (batch, channels, time)."""
    edge = blocks.shape[-1]
    for number in range(blocks.shape[1]):
        part = values[:, number * edge : (number + 1) * edge]
        part[...] = blocks[:, number, 0, :, : part.shape[1]].transpose(0, 2, 1)


def fill_fractals(fractals: Array, values: Array) -> None:
    """Lay (out, in, taps) out as (blocks of in * taps, blocks of out, 16, C0), filled up with 0."""
    fractals.fill(0)
    by_tap = _by_tap(fractals, values.shape[2])
    for number, block in enumerate(by_tap):
        part = values[:, number * block.shape[2] : (number + 1) * block.shape[2]]
        block[:, : part.shape[0], : part.shape[1]] = part.transpose(TIME_FIRST)


def read_fractals(fractals: Array, values: Array) -> None:
    """Lay fractals out as (out, in, taps)."""
    for number, block in enumerate(_by_tap(fractals, values.shape[2])):
        part = values[:, number * block.shape[2] : (number + 1) * block.shape[2]]
        part[...] = block[:, : part.shape[0], : part.shape[1]].transpose(1, 2, 0)


def _by_tap(fractals: Array, taps: int) -> Array:
    """View fractals as (blocks of in, taps, out filled up, C0)."""
    blocks, out_blocks, edge, width = fractals.shape
    return fractals.reshape(blocks // taps, taps, out_blocks * edge, width)


class _Run:
    """One call on its way through the areas."""

    def __init__(self, case: Case, tensors: Mapping[str, Array], outputs: Mapping[str, Array], order: Order, areas: Areas) -> None:
        self.case, self.tensors, self.outputs, self.order, self.areas = case, tensors, outputs, order, areas
        self.channel_block = CHANNEL_BLOCK_BYTES // case.problem.element_bytes
        self.compute = "float32" if case.compute == "hf32" else case.compute
        shape = (case.time, case.batch, case.in_channels)
        self.shapes = {"self": (case.output_time, *shape[1:2], case.out_channels), "input": shape}
        self.shapes["weight"] = (case.taps, case.in_channels, case.out_channels)

    def run(self) -> None:
        """Carry out every kernel in launch order."""
        for name in ENTRY_ORDER:
            if f"entry copy of {name}" in self.areas:
                self.areas.put(f"entry copy of {name}", self.tensors[TENSORS[name]])
        transposed = {name: self.transposed(name) for name in OPERANDS}
        self.sum_bias(transposed["self"])
        for name in OPERANDS:
            self.lay_out(name, transposed[name])
        grad_input = self.input_gradient()
        grad_weight = self.weight_gradient()
        self.outputs["grad_input"][...] = grad_input.transpose(TIME_FIRST)
        self.outputs["grad_weight"][...] = grad_weight.transpose(REVERSED)

    def transposed(self, name: str) -> Array:
        values = self.tensors[TENSORS[name]]
        if f"contiguous {name}" in self.areas:
            values = self.areas.put(f"contiguous {name}", values)
        return self.areas.put(f"transposed {name}", values.transpose(REVERSED if name == "weight" else CHANNELS_FIRST))

    def sum_bias(self, transposed: Array) -> None:
        from npu_sim.dtypes import kernel_input, storage_view
        from npu_sim.kernels.conv_tbc_backward import grad_bias

        grad_bias(kernel_input(transposed.transpose(TIME_FIRST)), storage_view(self.outputs["grad_bias"]))

    def lay_out(self, name: str, values: Array) -> None:
        if self.case.converts_to_fp16:
            values = self.cast(values, self.areas.array(f"{name} as fp16", values.shape, "float16"))
        laid_out = self.cube_area(f"{name} in cube layout", name, self.compute)
        (fill_fractals if name == "weight" else fill_blocks)(laid_out, values)

    def cast(self, values: Array, target: Array) -> Array:
        from npu_sim.dtypes import narrow_array, widen_array

        return narrow_array(widen_array(values), target.dtype, saturate=self.case.profile.saturates, out=target)

    def cube_area(self, area: str, like: str, dtype: str) -> Array:
        first, middle, last = self.shapes[like]
        if like == "weight":
            blocks = ceil_div(middle, self.channel_block) * first
            return self.areas.array(area, (blocks, ceil_div(last, CUBE_EDGE), CUBE_EDGE, self.channel_block), dtype)
        return self.areas.array(area, (middle, ceil_div(last, self.channel_block), 1, first, self.channel_block), dtype)

    def operand(self, name: str) -> Array:
        """Return an operand as the simulator's kernels take it, read from its cube layout."""
        from npu_sim.dtypes import kernel_input

        first, middle, last = self.shapes[name]
        laid_out = self.cube_area(f"{name} in cube layout", name, self.compute)
        if name == "weight":
            values = np.empty((last, middle, first), laid_out.dtype)
            read_fractals(laid_out, values)
            return kernel_input(values.transpose(REVERSED))
        values = np.empty((middle, last, first), laid_out.dtype)
        read_blocks(laid_out, values)
        return kernel_input(values.transpose(TIME_FIRST))

    def input_gradient(self) -> Array:
        from npu_sim.dtypes import storage_view
        from npu_sim.kernels.conv_tbc_backward import grad_input

        case, dtype = self.case, numpy_dtype(self.compute)
        result = np.empty(self.shapes["input"], dtype)
        _, rounded = roundings(case)
        grad_input(self.operand("self"), self.operand("weight"), storage_view(result), case.pad, self.operand_rounding(), rounded)
        blocks = self.cube_area("gradInput in cube layout", "input", self.compute)
        fill_blocks(blocks, result.transpose(CHANNELS_FIRST))
        plain = self.areas.array("gradInput", (case.batch, case.in_channels, case.time), self.compute)
        read_blocks(blocks, plain)
        if not case.converts_to_fp16:
            return plain
        return self.cast(plain, self.areas.array("gradInput in its dtype", plain.shape, case.dtype))

    def weight_gradient(self) -> Array:
        from npu_sim.kernels.conv_tbc_backward import grad_weight

        case = self.case
        result = np.empty(self.shapes["weight"], np.float32)
        shares, tail = shares_of(case)
        operands = self.operand("input"), self.operand("self")
        grad_weight(*operands, case.pad, 1, self.operand_rounding(), result, shares, tail, self.order.code, self.order.seed)
        fractals = self.cube_area("gradWeight in cube layout", "weight", "float32")
        fill_fractals(fractals, result.transpose(REVERSED))
        plain = self.areas.array("gradWeight in fp32", (case.out_channels, case.in_channels, case.taps), "float32")
        read_fractals(fractals, plain)
        if case.dtype == "float32":
            return plain
        return self.cast(plain, self.areas.array("gradWeight in its dtype", plain.shape, case.dtype))

    def operand_rounding(self) -> int:
        """Return how the kernels round operands: those in fp16 areas are rounded already."""
        from npu_sim.kernels.conv_tbc_backward import EXACT

        return EXACT if self.case.converts_to_fp16 else roundings(self.case)[0]


def compute(case: Case, tensors: Mapping[str, Array], outputs: Mapping[str, Array], order: Order, areas: Areas) -> None:
    """Compute the three gradients, every intermediate tensor in its area; ``outputs`` by the names of the operator's outputs."""
    _Run(case, tensors, outputs, order, areas).run()
