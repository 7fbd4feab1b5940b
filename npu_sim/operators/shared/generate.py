"""Realistic input data for the shapes of a call; used where a user gives shapes instead of files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.framework.operator import Operator
from npu_sim.numbers.formats import TensorSpec, numpy_dtype
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
        The call; it should pass the operator's checks.
    seed
        The same seed gives the same data; a generator is drawn from.

    Returns
    -------
    dict
        C-contiguous arrays by argument, in the shapes and dtypes of the call; optional tensors only when the call has them.

    Raises
    ------
    UsageError
        When there is no such operator, or a tensor that this machine has no memory for.
    """
    declared: Operator = load_operator(operator)
    for one in declared.inputs:
        _require_memory(one.name, arguments[one.name])
    if declared.data is None:
        return _normal_numbers(declared, arguments, seed)
    data: dict[str, np.ndarray] = declared.hook("data")(arguments, seed)
    return data


def _require_memory(name: str, spec: TensorSpec | None) -> None:
    if spec is None:
        return
    try:
        np.empty(spec.shape)  # numbers are drawn as doubles
    except (MemoryError, ValueError):
        message = (
            f"data for {name} {spec} takes {spec.nbytes} bytes and more, which this machine does "
            "not have"
        )
        raise UsageError(
            name, message, "make it smaller; npu_sim.plan needs no memory for it"
        ) from None


def _normal_numbers(
    operator: Operator, arguments: Mapping[str, Any], seed: int | np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw normal numbers for floating tensors, zeros for others."""
    random = np.random.default_rng(seed)
    data = {}
    for one in operator.inputs:
        spec = arguments[one.name]
        if spec is not None:
            data[one.name] = (
                normal(random, spec)
                if spec.dtype in FLOATING
                else np.zeros(spec.shape, numpy_dtype(spec.dtype))
            )
    return data
