"""The operators on tensors under their names, with the settings of the current context (:func:`npu_sim.torch.use`)."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from npu_sim.framework.operator import Operator
from npu_sim.registry import load_operator
from npu_sim.settings import current_device
from npu_sim.torch.library import operator_of, takes
from npu_sim.torch.simulation import compute, inputs_of


@cache
def operator_function(name: str) -> Callable[..., Any]:
    """Return an operator as a function of tensors: the arguments of :mod:`npu_sim`'s function, and ``out``."""
    operator: Operator = load_operator(name)
    inputs = inputs_of(operator)
    signature = inspect.Signature(
        [*inputs, inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)]
    )
    registered = operator_of(operator)

    def function(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        out = arguments.pop("out", None)
        if out is None and takes(operator, arguments):
            results = registered(*(arguments.get(one.name, one.default) for one in inputs))
            return (
                results
                if isinstance(results, torch.Tensor)
                else tuple(_written(operator, arguments, results))
            )
        # Results that have a place, and values that no operator of PyTorch can be given: the
        # contract says what is wrong with them.
        outputs = compute(operator.name, current_device(), arguments, out)
        return outputs[0] if len(outputs) == 1 else outputs

    function.__name__ = function.__qualname__ = operator.name
    function.__module__ = "npu_sim.torch"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = f"{operator.summary}\n\nOn CPU tensors; see :func:`npu_sim.{operator.name}`."
    return function


def _written(
    operator: Operator, arguments: Mapping[str, Any], results: Sequence[torch.Tensor]
) -> Iterator[torch.Tensor | None]:
    """Go through results; None for one that is not written, as its argument is not given."""
    for one, result in zip(operator.outputs, results, strict=True):
        yield None if one.given_with and arguments.get(one.given_with) is None else result
