"""Simulation of operators on CPU tensors, with the target of the current context.

Arrays use the memory of tensors. bfloat16 is converted through its bit pattern, since NumPy and
PyTorch have no common type for it.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import torch

from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target
from npu_sim.language import Text
from npu_sim.numbers.arrays import as_array, bfloat16
from npu_sim.operators import run, signature_of
from npu_sim.registry import load_operator
from npu_sim.settings import chosen_device, device

Array = np.ndarray[Any, Any]
Outputs = tuple[Any, ...]
Gradients = tuple[torch.Tensor | None, ...]


def tensor_as_array(tensor: torch.Tensor) -> Array:
    """Return a CPU tensor as an array; it shares memory unless the negative bit is set.

    Raises TypeError for a sparse tensor, a tensor on another device or one without memory.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TypeError(
            Text(
                "the simulator takes dense CPU tensors, not {layout} on {device}: use tensor.cpu()",
                tensor,
            )
        )
    return as_array(tensor)


def array_as_tensor(array: Array) -> torch.Tensor:
    """Return the memory of an array as a tensor."""
    if array.dtype == bfloat16():
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def parameters_of(operator: Operator) -> list[inspect.Parameter]:
    """Return the inputs and attributes of an operator's function, in order."""
    return [
        parameter
        for parameter in signature_of(operator).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]


def compute(operator: str, target: Target, arguments: dict[str, Any], out: Any = None) -> Outputs:
    """Run an operator on tensors; return its outputs in order, None for one that is not written.

    - ``operator``: name of the operator.
    - ``target``: simulated device.
    - ``arguments``: the operator's arguments; the simulator uses the memory of tensors.
    - ``out``: tensor or tuple of tensors for the results; new ones if None.
    """
    arrays: dict[str, Any] = {
        name: tensor_as_array(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    outs = (out,) if isinstance(out, torch.Tensor) else out
    result = run(
        operator,
        product=target.profile,
        deterministic=target.deterministic,
        core_order=target.order.core_order,
        seed=target.order.seed,
        limits=target.limits,
        out=outs,  # tensors: an array could be a copy of a tensor with the negative bit
        **arrays,
    )
    if outs is not None:
        return tuple(outs)
    written = {name: array_as_tensor(array) for name, array in result.outputs.items()}
    declared: Operator = load_operator(operator)
    return tuple(written.get(tensor.output) for tensor in declared.outputs)


@contextmanager
def device_of(ctx: Any) -> Iterator[None]:
    """Choose the device of the current context for a backward pass, else the forward call's."""
    if chosen_device() is not None:
        yield
        return
    target: Target = ctx.settings
    with device(
        target.profile,
        deterministic=target.deterministic,
        core_order=target.order.core_order,
        seed=target.order.seed,
        limits=target.limits,
    ):
        yield


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with autocast disabled; autocast has converted its arguments."""

    @wraps(function)
    def wrapper(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return wrapper
