"""Random input data for the shapes of a call, for callers who give shapes instead of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.framework import hooks
from npu_sim.framework.execution import memory_bytes
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.numbers.values import normal
from npu_sim.registry import load_operator
from npu_sim.status import UsageError

FLOATING = ("float16", "bfloat16", "float32", "float64")


def generate(
    operator: str, arguments: Mapping[str, Any], seed: int | np.random.Generator = 0
) -> dict[str, np.ndarray]:
    """Return data for the input tensors of a call.

    Parameters
    ----------
    operator
        Name of the operator, here or in the product documents.
    arguments
        The call; it should pass the checks of the operator.
    seed
        Seed of the data, or the generator to draw from.

    Returns
    -------
    dict
        C-contiguous arrays by argument, in the shapes and dtypes of the call. Optional tensors are
        included if the call has them.

    An operator without the hook ``data`` gets normal numbers, and zeros for tensors of integers.

    Raises UsageError if the operator does not exist, or a tensor does not fit in the memory of this
    machine.
    """
    declared: Operator = load_operator(operator)
    given = {
        tensor.name: arguments[tensor.name]
        for tensor in declared.inputs
        if arguments[tensor.name] is not None
    }
    for name, spec in given.items():
        if 8 * spec.numel > memory_bytes():  # numbers are drawn in float64
            message = Text(
                "data for {name} {spec} takes {nbytes} bytes and more, which this machine does not "
                "have",
                name=name,
                spec=spec,
                nbytes=spec.nbytes,
            )
            hint = "make it smaller; npu_sim.plan needs no memory for it"
            raise UsageError(name, message, hint)
    if declared.has_hook(hooks.DATA):
        return declared.hook(hooks.DATA)(arguments, seed)
    random = np.random.default_rng(seed)
    return {
        name: normal(random, spec)
        if spec.dtype in FLOATING
        else np.zeros(spec.shape, numpy_dtype(spec.dtype))
        for name, spec in given.items()
    }
