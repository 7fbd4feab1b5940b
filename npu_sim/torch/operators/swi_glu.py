"""SwiGlu as in ``torch_npu``, with gradients of SwiGluGrad.

Of code that computes ``silu(a) * b`` by itself, the recorder records the fused call that adapters
of models make of it: ``npu_swiglu`` of a and b side by side.
"""

from typing import Any, NamedTuple

import torch

from npu_sim.numbers.formats import TensorSpec
from npu_sim.torch.flow import Kernel, Step
from npu_sim.torch.library import Gradient, Gradients, operator_of

__all__ = ["npu_swiglu"]

GRADIENT_OPERATOR = operator_of("swi_glu_grad")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.dim = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad: torch.Tensor) -> Gradients:
    (x,) = ctx.saved_tensors
    return GRADIENT_OPERATOR(grad.contiguous(), x, ctx.dim), None


FORWARD_OPERATOR = operator_of("swi_glu", Gradient(_keep, _backward))


def npu_swiglu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return silu of the first half of a tensor along ``dim``, times the second half.

    SwiGluGrad computes the gradient.
    """
    result: torch.Tensor = FORWARD_OPERATOR(self.contiguous(), dim)
    return result


FORWARD, OPERATOR = "swi_glu", "swi_glu_grad"
TOPIC = FORWARD
UNFUSED = (
    "the code computes silu(a) * b in two kernels; the call is npu_swiglu of a and b side by side, "
    "which adapters put in its place. It rounds once"
)


class Silu(NamedTuple):
    """silu of a tensor of this shape and dtype, and the kernel that computed it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    step: Step


def follow(kernel: Kernel) -> list[tuple[torch.Tensor, Silu]]:
    """Return silu of a tensor as a fact, and record the call where it is multiplied."""
    if kernel.name == "silu":
        result = kernel.results[0]
        return [(result, Silu(tuple(result.shape), result.dtype, kernel.step))]
    if kernel.name == "mul" and len(kernel.tensors) == 2:
        for tensor, other in (kernel.tensors, kernel.tensors[::-1]):
            known = kernel.flow.fact(TOPIC, tensor)
            forms = {(tuple(factor.shape), factor.dtype) for factor in (tensor, other)}
            if isinstance(known, Silu) and forms == {(known.shape, known.dtype)} and known.shape:
                _record(kernel, known)
                break
    return []


def _record(kernel: Kernel, silu: Silu) -> None:
    """Record the call and, whenever its gradient arrives, that of the gradient."""
    *rows, columns = silu.shape
    dtype, span = str(silu.dtype), kernel.span
    x, half = (str(TensorSpec((*rows, size), dtype)) for size in (2 * columns, columns))
    span.call(FORWARD, {"x": x}, None)
    span.on_gradient(OPERATOR, {"y_grad": half, "x": x}, None)
    span.account({silu.step, kernel.step})
    span.remark(FORWARD, UNFUSED, None)
