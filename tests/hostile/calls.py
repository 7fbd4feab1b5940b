"""Small legal calls with data, built from declarations, so that tests cover new operators too."""

from typing import Any

import numpy as np

import npu_sim
from npu_sim.framework.axes import Number
from npu_sim.operators.shared.generate import generate
from npu_sim.registry import OPERATORS, load_operator

NAMES = tuple(entry.name for entry in OPERATORS)
MOST = 6
"""Sizes of the calls, where the operator allows such small sizes."""


def small_call(operator: str, seed: int = 0, **changed: Any) -> dict[str, Any]:
    """Return the keyword arguments of a small call; ``changed`` are values of axes."""
    declared = load_operator(operator)
    values = declared.defaults()
    for axis in declared.axes:
        if isinstance(axis, Number) and axis.default > MOST:
            values[axis.name] = max(MOST, axis.low)
    built = declared.build(declared.call({**values, **changed}))
    specs = {one.name: built[one.name] for one in declared.arguments if built[one.name] is not None}
    npu_sim.plan(operator, limits="hardware", **specs)  # random data is drawn for legal calls only
    tensors = generate(operator, built, seed)
    return {**{one.name: built[one.name] for one in declared.attributes}, **tensors}


def outputs_of(operator: str) -> tuple[str, ...]:
    return tuple(one.output for one in load_operator(operator).outputs)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two results have the same bits; any nan equals any nan.

    No specification page defines which of several nan values an operation returns.
    """
    if one.shape != other.shape:
        return False
    other = np.asarray(other, one.dtype)
    differ = words_of(one) != words_of(other)
    return not differ.any() or bool(np.isnan(one[differ]).all() and np.isnan(other[differ]).all())


def words_of(array: np.ndarray) -> np.ndarray:
    """Return the bits of every element as an integer."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").reshape(array.shape)
