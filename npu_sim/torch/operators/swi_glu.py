"""SwiGlu as in ``torch_npu``, with gradients of SwiGluGrad.

Code that computes ``silu(a) * b`` by itself is recognised as the fused call that adapters of models
make of it: ``npu_swiglu`` of a and b side by side.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.torch.flow import Kept, Kernel, Step
from npu_sim.torch.fused import Backward, Forward, FusedCall, Source
from npu_sim.torch.library import Gradient, Gradients, operator_of

__all__ = ["npu_swiglu"]

GRADIENT_OPERATOR = operator_of("swi_glu_grad")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.dim = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad: Tensor) -> Gradients:
    (x,) = ctx.saved_tensors
    return GRADIENT_OPERATOR(grad.contiguous(), x, ctx.dim), None


FORWARD_OPERATOR = operator_of("swi_glu", Gradient(_keep, _backward))


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """Return silu of the first half of a tensor along ``dim``, times the second half.

    SwiGluGrad computes the gradient.
    """
    result: Tensor = FORWARD_OPERATOR(self.contiguous(), dim)
    return result


FORWARD, OPERATOR = "swi_glu", "swi_glu_grad"
TOPIC = FORWARD
UNFUSED = Text(
    "the code computes silu(a) * b in two kernels; the call is npu_swiglu of a and b side by side, "
    "which adapters put in its place. It rounds once"
)


class Silu(NamedTuple):
    """silu of a tensor of this shape and dtype, and the kernel that computed it."""

    shape: Shape
    dtype: torch.dtype
    step: Step
    gate: Kept


def follow(kernel: Kernel) -> list[tuple[Tensor, Silu]]:
    """Return silu of a tensor as a fact, and the call where it is multiplied."""
    if kernel.name == "silu":
        result, gate = kernel.results[0], kernel.flow.keep(kernel.tensors[0])
        return [(result, Silu(tuple(result.shape), result.dtype, kernel.step, gate))]
    if kernel.name == "mul" and len(kernel.tensors) == 2:
        for tensor, other in (kernel.tensors, kernel.tensors[::-1]):
            known = kernel.flow.fact(TOPIC, tensor)
            forms = {(tuple(factor.shape), factor.dtype) for factor in (tensor, other)}
            if isinstance(known, Silu) and forms == {(known.shape, known.dtype)} and known.shape:
                kernel.span.fuse(kernel, _fused_call(kernel, known, kernel.flow.keep(other)))
                break
    return []


def _fused_call(kernel: Kernel, silu: Silu, up: Kept) -> FusedCall:
    *rows, columns = silu.shape
    dtype = str(silu.dtype)
    x, half = (str(TensorSpec((*rows, size), dtype)) for size in (2 * columns, columns))
    return FusedCall(
        compute=lambda: npu_swiglu(torch.cat((silu.gate.value(), up.value()), -1)),
        forward=[Forward(FORWARD, {"x": x})],
        backward=[Backward(OPERATOR, lambda _: {"y_grad": half, "x": x})],
        when_recorded=UNFUSED,
        steps=frozenset({silu.step, kernel.step}),
        sources=[Source(silu.gate, frozenset({silu.step})), Source(up)],
    )
