"""Small legal calls with data, built from declarations, so that tests cover new operators too."""

from typing import Any

import numpy as np

import npu_sim
from npu_sim.framework.arguments import Number
from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate
from npu_sim.registry import OPERATORS

NAMES = tuple(entry.name for entry in OPERATORS)
MAXIMUM_SIZE = 6
"""Sizes of the calls, where the operator allows such small sizes."""


def small_call(operator: str, seed: int = 0, **changed: Any) -> dict[str, Any]:
    """Return the keyword arguments of a small call; ``changed`` are values of axes."""
    declared = load_operator(operator)
    values = declared.defaults()
    for axis in declared.axes:
        if isinstance(axis, Number) and axis.default > MAXIMUM_SIZE:
            values[axis.name] = max(MAXIMUM_SIZE, axis.low)
    built = arguments_of(declared, call_with(declared, {**values, **changed}))
    specs = {
        argument.name: built[argument.name]
        for argument in declared.arguments
        if built[argument.name] is not None
    }
    npu_sim.plan(operator, limits="hardware", **specs)  # random data is drawn for legal calls only
    tensors = generate(operator, built, seed)
    return {
        **{attribute.name: built[attribute.name] for attribute in declared.attributes},
        **tensors,
    }


def outputs_of(operator: str) -> tuple[str, ...]:
    return tuple(output.output for output in load_operator(operator).outputs)


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two results have the same bits; any nan equals any nan.

    No specification page defines which of several nan values an operation returns.
    """
    if first.shape != second.shape:
        return False
    second = np.asarray(second, first.dtype)
    differ = bits_of(first) != bits_of(second)
    return not differ.any() or bool(
        np.isnan(first[differ]).all() and np.isnan(second[differ]).all()
    )


def bits_of(array: np.ndarray) -> np.ndarray:
    """Return the bits of every element as an integer."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(array.shape)
