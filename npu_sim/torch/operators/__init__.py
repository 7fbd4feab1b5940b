"""Operators in PyTorch, one module each, found by its name: that of the operator, or its gradient.

Every operator is registered as ``torch.ops.npu_sim.<name>``; a module adds what else it has:

1. ``GRADIENT_OPERATOR = operator_of("swi_glu_grad")``: the registered operator as a function.
2. ``FORWARD_OPERATOR = operator_of("swi_glu", Gradient(_keep, _backward))``: with autograd;
   ``define(schema, ...)`` for a forward pass that the product has no operator for.
3. ``__all__``: public functions of :mod:`npu_sim.torch`; those named ``npu_*`` also are those of
   ``torch_npu`` and ``torch.ops.npu`` while a program is recorded.
4. ``FUNCTIONS``: PyTorch functions, with a reader ``(span, *arguments)`` of their calls, which
   returns a :class:`npu_sim.torch.fused.FusedCall`: what a recording lists, and how an emulation
   computes it.
5. ``KERNELS``: kernels of PyTorch that result from such calls only, with the name of the code.
6. ``follow(kernel)`` and ``TOPIC``, for code by hand: the facts of a kernel's results, which later
   kernels find under the topic. :class:`npu_sim.torch.flow.Formula` derives them from rules.
   The rule of the last kernel gives a FusedCall to ``span.fuse``.
7. ``on_module_exit(span, module, inputs, result)``: at the end of every module, and with
   ``module=None`` at the end of the recording.
8. ``FORWARD`` and ``OPERATOR``: names of the operators in a FusedCall; an emulation names the call
   by the first of them.
9. ``on_optimizer_step(span, optimizer)``: after every step of an optimizer of PyTorch.

The simulated device is that of the context that calls ``backward``, else of the forward call.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from npu_sim.registry import OPERATORS


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return the modules of all operators that have one."""
    names = (f"{__name__}.{entry.name}" for entry in OPERATORS)
    return tuple(import_module(name) for name in names if find_spec(name) is not None)


def differentiable_functions() -> dict[str, Any]:
    """Return the functions of all operators by name."""
    return {name: getattr(module, name) for module in modules() for name in module.__all__}
