"""Random input data for the shapes of a call, for callers who give shapes instead of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.files.tensors import names_tensor_file, read_tensor
from npu_sim.framework.vocabulary import (
    DATA,
    Arrays,
    Operator,
    Target,
    TensorSpec,
    UsageError,
    arguments_of,
    check,
    memory_bytes,
    numpy_dtype,
)
from npu_sim.numbers.values import normal
from npu_sim.operators.loading import load_operator

FLOATING = ("float16", "bfloat16", "float32", "float64")


def generate(
    operator: str, arguments: Mapping[str, Any], seed: int | np.random.Generator = 0
) -> Arrays:
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
    declared = load_operator(operator)
    given = {
        tensor.name: arguments[tensor.name]
        for tensor in declared.inputs
        if arguments[tensor.name] is not None
    }
    for name, spec in given.items():
        if 8 * spec.numel > memory_bytes():  # numbers are drawn in float64
            raise UsageError(
                name,
                "data for {name} {spec} takes {nbytes} bytes and more, which this machine does not "
                "have",
                "make it smaller; a plan needs no memory for it",
                name=name,
                spec=spec,
                nbytes=spec.nbytes,
            )
    if declared.has_hook(DATA):
        return declared.hook(DATA)(arguments, seed)
    random = np.random.default_rng(seed)
    return {
        name: normal(random, spec)
        if spec.dtype in FLOATING
        else np.zeros(spec.shape, numpy_dtype(spec.dtype))
        for name, spec in given.items()
    }


def with_data(operator: Operator, arguments: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return arguments with arrays for tensors: files are read, and shapes get drawn data.

    Data is drawn with the target's seed, and only for a call that is not refused.

    Raises UsageError when a file cannot be read; AclnnError with the product's status when the call
    is refused.
    """
    inputs = operator.input_names
    values = {
        name: read_tensor(name, value) if name in inputs and names_tensor_file(value) else value
        for name, value in arguments.items()
    }
    shapes = {name for name in inputs if isinstance(values.get(name), str | TensorSpec)}
    if not shapes:
        return values
    built = arguments_of(operator, values, infer=True)
    check(operator, built, target)
    return {
        **values,
        **generate(operator.name, built, target.order.seed),
        **{name: values[name] for name in values.keys() - shapes},
    }
