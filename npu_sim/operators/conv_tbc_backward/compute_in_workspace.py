"""ConvTbcBackward computed in a workspace: every tensor between its kernels lies in its area.

Source: specification page ``workspace``. These tensors are: transposed operands, their fp16 copies
and cube layouts, and both gradients in cube layout and converted from it. The gradients are
computed from them. Reserved, but not written: the system workspace, the workspace of Transposes,
the private slots of split tiles (their order is up to the kernel), and all areas if both gradients
are matrix products.
"""

from typing import Any

import numpy as np

from npu_sim.framework.execution import Run
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.language import Text
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.numbers.storage import kernel_input, storage_view
from npu_sim.operators.conv_tbc_backward.decisions import computed_in, converts_to_fp16
from npu_sim.operators.conv_tbc_backward.workspace import ENTRY_ORDER, OPERANDS
from npu_sim.plans.workspace import Areas, contiguous
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward.planner import problem_of
from npu_sim.tiling.conv_tbc_backward.problem import CHANNEL_BLOCK_BYTES, CUBE_EDGE

Array = np.ndarray[Any, Any]
Roundings = tuple[int, int]
"""Rounding of operands, and of finished sums of gradInput, to the compute dtype."""
Reduction = tuple[kernels.ReductionSplit, kernels.TailTiles]
"""How cores split the reduction of gradWeight."""
CHANNELS_FIRST = (1, 2, 0)
"""(time, batch, channels) to (batch, channels, time)."""
TIME_FIRST = (2, 0, 1)
REVERSED = (2, 1, 0)
"""Weight (taps, in, out) to (out, in, taps), and back."""


def fill_blocks(blocks: Array, values: Array) -> None:
    """Write (batch, channels, time) as (batch, channel blocks, 1, time, C0), padded with 0."""
    blocks.fill(0)
    edge = blocks.shape[-1]
    for number in range(blocks.shape[1]):
        part = values[:, number * edge : (number + 1) * edge]
        blocks[:, number, 0, :, : part.shape[1]] = part.transpose(0, 2, 1)


def read_blocks(blocks: Array, values: Array) -> None:
    """Write blocks as (batch, channels, time); the inverse of :func:`fill_blocks`."""
    edge = blocks.shape[-1]
    for number in range(blocks.shape[1]):
        part = values[:, number * edge : (number + 1) * edge]
        part[...] = blocks[:, number, 0, :, : part.shape[1]].transpose(0, 2, 1)


def fill_fractals(fractals: Array, values: Array) -> None:
    """Write (out, in, taps) as (in blocks * taps, out blocks, 16, C0), padded with 0."""
    fractals.fill(0)
    by_tap = _by_tap(fractals, values.shape[2])
    for number, block in enumerate(by_tap):
        part = values[:, number * block.shape[2] : (number + 1) * block.shape[2]]
        block[:, : part.shape[0], : part.shape[1]] = part.transpose(TIME_FIRST)


def read_fractals(fractals: Array, values: Array) -> None:
    """Write fractals as (out, in, taps); the inverse of :func:`fill_fractals`."""
    for number, block in enumerate(_by_tap(fractals, values.shape[2])):
        part = values[:, number * block.shape[2] : (number + 1) * block.shape[2]]
        part[...] = block[:, : part.shape[0], : part.shape[1]].transpose(1, 2, 0)


def _by_tap(fractals: Array, taps: int) -> Array:
    """Return a view of fractals as (in blocks, taps, padded out, C0)."""
    blocks, out_blocks, edge, width = fractals.shape
    return fractals.reshape(blocks // taps, taps, out_blocks * edge, width)


class _Stages:
    """The state of one call: its tensors, areas, roundings and layouts."""

    def __init__(self, run: Run, areas: Areas, roundings: Roundings, reduction: Reduction) -> None:
        self.run, self.areas, self.roundings, self.reduction = run, areas, roundings, reduction
        row, compute = run.case.row, computed_in(run.case)
        self.tensors = {x.parameter: run.tensors[x.name] for x in run.case.operator.inputs}
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
        """Run every kernel in launch order."""
        for name in ENTRY_ORDER:
            if Text("entry copy of {name}", name=name) in self.areas:
                self.areas.put(Text("entry copy of {name}", name=name), self.tensors[name])
        transposed = {name: self.transposed(name) for name in OPERANDS}
        order, bias_rows = self.run.order, self.run.case.tiling.bias_rows
        rows, grad_bias = transposed["self"].transpose(TIME_FIRST), self.run.written("grad_bias")
        kernels.grad_bias(kernel_input(rows), grad_bias, bias_rows, order.code, order.seed)
        for name in OPERANDS:
            self.lay_out(name, transposed[name])
        grad_input = self.input_gradient()
        grad_weight = self.weight_gradient()
        self.run.outputs["grad_input"][...] = grad_input.transpose(TIME_FIRST)
        self.run.outputs["grad_weight"][...] = grad_weight.transpose(REVERSED)

    def transposed(self, name: str) -> Array:
        """Return an operand as (batch, channels, time), or weight as (out, in, taps)."""
        values = contiguous(name, self.tensors[name], self.areas)
        axes = REVERSED if name == "weight" else CHANNELS_FIRST
        return self.areas.put(Text("transposed {name}", name=name), values.transpose(axes))

    def lay_out(self, name: str, values: Array) -> None:
        """Write a transposed operand to its cube layout, cast to fp16 where the product does."""
        if self.converts:
            values = self.cast(
                values, self.areas.array(Text("{name} as fp16", name=name), values.shape, "float16")
            )
        laid_out = self.cube_area(Text("{name} in cube layout", name=name), name, self.compute)
        (fill_fractals if name == "weight" else fill_blocks)(laid_out, values)

    def cast(self, values: Array, target: Array) -> Array:
        """Write values in the dtype of target; return target."""
        saturate = self.run.case.profile.saturates
        return narrow_array(widen_array(values), target.dtype, saturate=saturate, out=target)

    def cube_area(self, area: str, like: str, dtype: str) -> Array:
        """Return the area of a tensor in the cube layout of the operand ``like``."""
        (first, middle, last), edge = self.shapes[like], self.channel_block
        shape: tuple[int, ...] = (middle, ceil_div(last, edge), 1, first, edge)
        if like == "weight":
            shape = ceil_div(middle, edge) * first, ceil_div(last, CUBE_EDGE), CUBE_EDGE, edge
        return self.areas.array(area, shape, dtype)

    def operand(self, name: str) -> Array:
        """Return an operand for the simulator's kernels, read from its cube layout."""
        first, middle, last = self.shapes[name]
        laid_out = self.cube_area(Text("{name} in cube layout", name=name), name, self.compute)
        if name == "weight":
            values = np.empty((last, middle, first), laid_out.dtype)
            read_fractals(laid_out, values)
            return kernel_input(values.transpose(REVERSED))
        values = np.empty((middle, last, first), laid_out.dtype)
        read_blocks(laid_out, values)
        return kernel_input(values.transpose(TIME_FIRST))

    def input_gradient(self) -> Array:
        """Return gradInput as (batch, channels, time)."""
        time, batch, channels = self.shapes["input"]
        result = np.empty(self.shapes["input"], numpy_dtype(self.compute))
        operands, pad = (self.operand("self"), self.operand("weight")), self.run.case.row.pad
        roundings = self.operand_rounding(), self.roundings[1]
        kernels.grad_input(*operands, storage_view(result), pad, *roundings)
        blocks = self.cube_area("gradInput in cube layout", "input", self.compute)
        fill_blocks(blocks, result.transpose(CHANNELS_FIRST))
        plain = self.areas.array("gradInput", (batch, channels, time), self.compute)
        read_blocks(blocks, plain)
        if not self.converts:
            return plain
        return self.cast(plain, self.areas.array("gradInput in its dtype", plain.shape, self.dtype))

    def weight_gradient(self) -> Array:
        """Return gradWeight as (out, in, taps)."""
        result, order = np.empty(self.shapes["weight"], np.float32), self.run.order
        x, grad, pad = self.operand("input"), self.operand("self"), self.run.case.row.pad
        arrival = order.code, order.seed
        kernels.grad_weight(
            x, grad, pad, 1, self.operand_rounding(), result, *self.reduction, *arrival
        )
        fractals = self.cube_area("gradWeight in cube layout", "weight", "float32")
        fill_fractals(fractals, result.transpose(REVERSED))
        plain = self.areas.array("gradWeight in fp32", self.shapes["weight"][::-1], "float32")
        read_fractals(fractals, plain)
        if self.dtype == "float32":
            return plain
        target = self.areas.array("gradWeight in its dtype", plain.shape, self.dtype)
        return self.cast(plain, target)

    def operand_rounding(self) -> int:
        """Return the rounding of operands; those in fp16 areas are already rounded."""
        return kernels.EXACT if self.converts else self.roundings[0]


def compute(run: Run, areas: Areas, roundings: Roundings, reduction: Reduction) -> None:
    """Compute the three gradients, with every intermediate tensor in its area."""
    _Stages(run, areas, roundings, reduction).compute_all()
