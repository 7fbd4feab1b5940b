"""The operators on CPU tensors, under the settings of the current context (:func:`npu_sim.torch.use`)."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target
from npu_sim.operators import run, signature_of
from npu_sim.registry import load_operator
from npu_sim.settings import chosen_device, device
from npu_sim.torch.memory import array_as_tensor, tensor_as_array

Outputs = tuple[Any, ...]
Gradients = tuple[torch.Tensor | None, ...]


@contextmanager
def device_of(ctx: Any) -> Iterator[None]:
    """Choose the simulated device of a backward pass: the one chosen where it runs, else that of the forward call."""
    if chosen_device() is not None:
        yield
        return
    kept: Target = ctx.settings
    order = kept.order
    with device(
        kept.profile,
        deterministic=kept.deterministic,
        core_order=order.core_order,
        seed=order.seed,
        limits=kept.limits,
    ):
        yield


def inputs_of(operator: Operator) -> list[inspect.Parameter]:
    """Return the parameters of an operator's function that are its inputs and attributes, in order."""
    return [
        one
        for one in signature_of(operator).parameters.values()
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]


def compute(operator: str, settings: Target, arguments: dict[str, Any], out: Any = None) -> Outputs:
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
        name: tensor_as_array(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    given = (out,) if isinstance(out, torch.Tensor) else out
    result = run(
        operator,
        product=settings.profile,
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


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in the dtypes it is given: what autocast changes, it changes before."""

    @wraps(function)
    def computed(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return computed
