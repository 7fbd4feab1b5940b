"""ConvTbcBackward in its workspace: the tensors between its kernels, kernel by kernel (specification page ``workspace``).

Transposed operands, their fp16 copies and cube layouts, and both gradients in cube layout and after it lie in the workspace; the
values of the gradients pass through them. Reserved and not filled: the system workspace, what Transposes need for themselves, the
private slots of split tiles (the kernel keeps them in its own order), and everything where both gradients are matrix products.
"""

from typing import Any

import numpy as np

from npu_sim.framework.execution import Run
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.numbers.storage import kernel_input, storage_view
from npu_sim.operators.conv_tbc_backward.decisions import computed_in, converts_to_fp16
from npu_sim.operators.conv_tbc_backward.workspace import ENTRY_ORDER, OPERANDS
from npu_sim.plans.areas import Areas, contiguous
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward.planner import problem_of
from npu_sim.tiling.conv_tbc_backward.problem import CHANNEL_BLOCK_BYTES, CUBE_EDGE

Array = np.ndarray[Any, Any]
Roundings = tuple[int, int]
"""How operands, and finished sums of gradInput, are rounded to the compute dtype."""
Reduction = tuple[kernels.Shares, kernels.TailTiles]
"""How the reduction of gradWeight is shared by cores."""
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


class _Stages:
    """One call on its way through the areas."""

    def __init__(self, run: Run, areas: Areas, roundings: Roundings, reduction: Reduction) -> None:
        self.run, self.areas, self.roundings, self.reduction = run, areas, roundings, reduction
        row, compute = run.case.row, computed_in(run.case)
        self.tensors = {one.parameter: run.tensors[one.name] for one in run.case.operator.inputs}
        self.channel_block = CHANNEL_BLOCK_BYTES // problem_of(row, run.case.rules).element_bytes
        self.compute = "float32" if compute == "hf32" else compute
        self.converts = converts_to_fp16(run.case)
        self.dtype = run.case.specs["input"].dtype
        self.shapes = {
            "self": (row.To, row.B, row.Cout),
            "input": (row.T, row.B, row.Cin),
            "weight": (row.K, row.Cin, row.Cout),
        }

    def compute_all(self) -> None:
        """Carry out every kernel in launch order."""
        for name in ENTRY_ORDER:
            if f"entry copy of {name}" in self.areas:
                self.areas.put(f"entry copy of {name}", self.tensors[name])
        transposed = {name: self.transposed(name) for name in OPERANDS}
        order, bias = self.run.order, kernel_input(transposed["self"].transpose(TIME_FIRST))
        kernels.grad_bias(
            bias,
            self.run.written("grad_bias"),
            self.run.case.tiling.bias_rows,
            order.code,
            order.seed,
        )
        for name in OPERANDS:
            self.lay_out(name, transposed[name])
        grad_input = self.input_gradient()
        grad_weight = self.weight_gradient()
        self.run.outputs["grad_input"][...] = grad_input.transpose(TIME_FIRST)
        self.run.outputs["grad_weight"][...] = grad_weight.transpose(REVERSED)

    def transposed(self, name: str) -> Array:
        values = contiguous(name, self.tensors[name], self.areas)
        return self.areas.put(
            f"transposed {name}", values.transpose(REVERSED if name == "weight" else CHANNELS_FIRST)
        )

    def lay_out(self, name: str, values: Array) -> None:
        if self.converts:
            values = self.cast(values, self.areas.array(f"{name} as fp16", values.shape, "float16"))
        laid_out = self.cube_area(f"{name} in cube layout", name, self.compute)
        (fill_fractals if name == "weight" else fill_blocks)(laid_out, values)

    def cast(self, values: Array, target: Array) -> Array:
        return narrow_array(
            widen_array(values), target.dtype, saturate=self.run.case.profile.saturates, out=target
        )

    def cube_area(self, area: str, like: str, dtype: str) -> Array:
        first, middle, last = self.shapes[like]
        if like == "weight":
            blocks = ceil_div(middle, self.channel_block) * first
            return self.areas.array(
                area, (blocks, ceil_div(last, CUBE_EDGE), CUBE_EDGE, self.channel_block), dtype
            )
        return self.areas.array(
            area, (middle, ceil_div(last, self.channel_block), 1, first, self.channel_block), dtype
        )

    def operand(self, name: str) -> Array:
        """Return an operand as the simulator's kernels take it, read from its cube layout."""
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
        time, batch, channels = self.shapes["input"]
        result = np.empty(self.shapes["input"], numpy_dtype(self.compute))
        operands, pad = (self.operand("self"), self.operand("weight")), self.run.case.row.pad
        kernels.grad_input(
            *operands, storage_view(result), pad, self.operand_rounding(), self.roundings[1]
        )
        blocks = self.cube_area("gradInput in cube layout", "input", self.compute)
        fill_blocks(blocks, result.transpose(CHANNELS_FIRST))
        plain = self.areas.array("gradInput", (batch, channels, time), self.compute)
        read_blocks(blocks, plain)
        if not self.converts:
            return plain
        return self.cast(plain, self.areas.array("gradInput in its dtype", plain.shape, self.dtype))

    def weight_gradient(self) -> Array:
        result, order = np.empty(self.shapes["weight"], np.float32), self.run.order
        operands, pad = (self.operand("input"), self.operand("self")), self.run.case.row.pad
        kernels.grad_weight(
            *operands,
            pad,
            1,
            self.operand_rounding(),
            result,
            *self.reduction,
            order.code,
            order.seed,
        )
        fractals = self.cube_area("gradWeight in cube layout", "weight", "float32")
        fill_fractals(fractals, result.transpose(REVERSED))
        plain = self.areas.array("gradWeight in fp32", self.shapes["weight"][::-1], "float32")
        read_fractals(fractals, plain)
        if self.dtype == "float32":
            return plain
        return self.cast(
            plain, self.areas.array("gradWeight in its dtype", plain.shape, self.dtype)
        )

    def operand_rounding(self) -> int:
        """Return how the kernels round operands: those in fp16 areas are rounded already."""
        return kernels.EXACT if self.converts else self.roundings[0]


def compute(run: Run, areas: Areas, roundings: Roundings, reduction: Reduction) -> None:
    """Compute the three gradients, every tensor between their kernels in its area."""
    _Stages(run, areas, roundings, reduction).compute_all()
