"""A call in two phases, as the product has them: what the first one found serves every call of the second."""

from typing import Any

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.execution import outputs_of
from npu_sim.framework.flips import plan_with_results
from npu_sim.framework.target import Order
from npu_sim.numbers.formats import TensorSpec, as_array, numpy_dtype
from npu_sim.plans.model import Plan
from npu_sim.plans.printing import Printed
from npu_sim.status import UsageError, closest


class Prepared(Printed):
    """A checked and planned call, to be computed as often as one likes; see :func:`npu_sim.prepare`.

    Attributes
    ----------
    plan
        The plan that every call carries out.
    """

    def __init__(self, case: Case, order: Order) -> None:
        case.keep()
        self._case, self._order = case, order
        self._names = case.operator.input_names
        self._wanted = {name: _layout(case.specs.get(name)) for name in self._names}
        self._needed = frozenset(
            name for name, wanted in self._wanted.items() if wanted is not None
        )

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return plan_with_results(self._case)

    def __call__(self, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Compute the call with some data.

        Parameters
        ----------
        *tensors, **named
            The input tensors, in the order of the public function or by name, as they were prepared.
        out
            As for :func:`npu_sim.run`.

        Returns
        -------
        ndarray or tuple of ndarray
            The results, as the public function gives them.

        Raises
        ------
        UsageError
            For a tensor that the call was not prepared for, and for one that is missing.
        AclnnError
            361001 when the data is out of bounds; ``out`` is then untouched.
        TypeError
            For more tensors than the operator has, or one given twice.
        """
        if len(tensors) > len(self._names):
            raise TypeError(
                f"{len(tensors)} tensors; {self._case.operator.name} takes {', '.join(self._names)}"
            )
        given = dict(zip(self._names, tensors, strict=False))
        if not named.keys().isdisjoint(given):
            raise TypeError(f"given twice: {', '.join(named.keys() & given.keys())}")
        given |= named
        arrays = {
            name: self._array(name, value) for name, value in given.items() if value is not None
        }
        if not self._needed <= arrays.keys():
            name = next(name for name in self._names if name in self._needed and name not in arrays)
            raise UsageError(
                name,
                f"{name} is missing",
                f"the call was prepared with {name} {self._case.specs[name]}",
            )
        return outputs_of(self._case, arrays, self._order, out)

    def _array(self, name: str, value: Any) -> np.ndarray:
        # A view: shape and strides of the caller's array may change under the call.
        array = (
            value.view() if type(value) is np.ndarray and value.dtype.isnative else as_array(value)
        )
        if (array.shape, array.dtype, array.flags.c_contiguous) == self._wanted.get(name):
            return array
        if name not in self._wanted:
            raise UsageError(
                name,
                f"{name}: no such tensor",
                f"tensors: {', '.join(self._names)}{closest(name, self._names)}",
            )
        prepared = "without it" if self._wanted[name] is None else f"for {self._case.specs[name]}"
        message = f"{name} is {TensorSpec.of(array)}, the call was prepared {prepared}"
        raise UsageError(name, message, "prepare a call for every shape and dtype")


def _layout(spec: TensorSpec | None) -> tuple[Any, ...] | None:
    return None if spec is None else (spec.shape, numpy_dtype(spec.dtype), spec.contiguous)
