"""Realistic input data for the shapes of a call; used where a user gives shapes instead of files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.numbers.formats import numpy_dtype
from npu_sim.numbers.values import normal
from npu_sim.operators.contract.operator import Operator
from npu_sim.registry import load_operator

FLOATING = ("float16", "bfloat16", "float32", "float64")


def generate(operator: str, arguments: Mapping[str, Any], seed: int | np.random.Generator = 0) -> dict[str, np.ndarray]:
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
    AclnnError
        161002 when there is no such operator.
    """
    declared: Operator = load_operator(operator)
    if declared.data is None:
        return _normal_numbers(declared, arguments, seed)
    data: dict[str, np.ndarray] = declared.hook("data")(arguments, seed)
    return data


def _normal_numbers(operator: Operator, arguments: Mapping[str, Any], seed: int | np.random.Generator) -> dict[str, np.ndarray]:
    """Draw normal numbers for floating tensors, zeros for others."""
    random = np.random.default_rng(seed)
    data = {}
    for one in operator.inputs:
        spec = arguments[one.name]
        if spec is not None:
            data[one.name] = normal(random, spec) if spec.dtype in FLOATING else np.zeros(spec.shape, numpy_dtype(spec.dtype))
    return data
