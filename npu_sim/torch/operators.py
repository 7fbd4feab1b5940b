"""The operators on CPU tensors, under the settings of the current context (:func:`npu_sim.torch.use`)."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from npu_sim.operators import run
from npu_sim.operators.contract.functions import signature_of
from npu_sim.operators.contract.operator import Operator
from npu_sim.registry import load_operator
from npu_sim.settings import Settings, chosen_device, current_device
from npu_sim.torch.memory import array_as_tensor, tensor_as_array

Outputs = tuple[Any, ...]
Gradients = tuple[torch.Tensor | None, ...]


def device_of(ctx: Any) -> Settings:
    """Return the simulated device of a backward pass."""
    settings: Settings = chosen_device() or ctx.settings
    return settings


def compute(operator: str, settings: Settings, arguments: dict[str, Any], out: Any = None) -> Outputs:
    """Run an operator on tensors; return its outputs in order, None for one that is not written.

    Parameters
    ----------
    operator
        Name of the operator.
    settings
        Simulated device.
    arguments
        The operator's arguments; tensors share their memory with the simulator.
    out
        Tensor, or tuple of tensors, to write the results to; new ones when None.
    """
    arrays: dict[str, Any] = {
        name: tensor_as_array(value) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()
    }
    given = (out,) if isinstance(out, torch.Tensor) else out
    result = run(
        operator,
        profile=settings.profile,
        deterministic=settings.deterministic,
        core_order=settings.order.core_order,
        seed=settings.order.seed,
        limits=settings.limits,
        out=None if given is None else tuple(tensor_as_array(one) for one in given),
        **arrays,
    )
    if given is not None:
        return tuple(given)
    written = {name: array_as_tensor(array) for name, array in result.outputs.items()}
    declared: Operator = load_operator(operator)
    return tuple(written.get(one.output) for one in declared.outputs)


@cache
def operator_function(name: str) -> Callable[..., Any]:
    """Return an operator as a function of tensors: the arguments of :mod:`npu_sim`'s function, and ``out``."""
    operator: Operator = load_operator(name)
    inputs = [one for one in signature_of(operator).parameters.values() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    signature = inspect.Signature([*inputs, inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)])

    def function(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        outputs = compute(operator.name, current_device(), arguments, arguments.pop("out", None))
        return outputs[0] if len(outputs) == 1 else outputs

    function.__name__ = function.__qualname__ = operator.name
    function.__module__ = "npu_sim.torch"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = f"{operator.summary}\n\nOn CPU tensors; see :func:`npu_sim.{operator.name}`."
    return function
