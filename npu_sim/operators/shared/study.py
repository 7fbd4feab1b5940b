"""A call split into what studies change: arguments, tensors, and options."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.arguments import Arguments
from npu_sim.framework.case import Case
from npu_sim.framework.execution import own_copies
from npu_sim.framework.operator import Operator
from npu_sim.framework.results import Result
from npu_sim.framework.target import Order, Target
from npu_sim.numbers.formats import as_array
from npu_sim.operators import run
from npu_sim.registry import load_operator


@dataclass(frozen=True)
class StudyCall:
    """One call of an operator.

    Attributes
    ----------
    operator
        Its declaration.
    tensors, attributes
        Input tensors and attributes by name.
    profile
        Product, SoC and release.
    options
        ``deterministic``, ``core_order``, ``seed``, ``limits``.
    """

    operator: Operator
    tensors: Mapping[str, np.ndarray]
    attributes: Mapping[str, Any]
    profile: Profile
    options: Mapping[str, Any]

    @property
    def arguments(self) -> Arguments:
        """The call as its contract takes it."""
        return self.operator.build({**self.tensors, **self.attributes})

    @property
    def case(self) -> Case:
        """The checked call."""
        deterministic = self.options.get("deterministic", False)
        limits = self.options.get("limits", "documented")
        return self.operator.check(
            self.arguments, Target(self.profile, deterministic, self.order, limits)
        )

    @property
    def order(self) -> Order:
        """Order in which atomic additions arrive."""
        return Order(self.options.get("core_order", "sequential"), self.options.get("seed", 0))

    def run(self) -> Result:
        """Compute the call."""
        call: dict[str, Any] = {**self.options, **self.tensors, **self.attributes}
        return run(self.operator.name, product=self.profile, **call)

    def outputs(self, **changed: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the call with some tensors replaced; return its results."""
        return self.with_tensors(**changed).run().outputs

    def with_tensors(self, **changed: np.ndarray) -> "StudyCall":
        """Return the call with some tensors replaced."""
        return replace(self, tensors={**self.tensors, **changed})

    def with_attributes(self, **changed: Any) -> "StudyCall":
        """Return the call with some attributes replaced."""
        return replace(self, attributes={**self.attributes, **changed})

    def with_options(self, **changed: Any) -> "StudyCall":
        """Return the call with some options replaced."""
        return replace(self, options={**self.options, **changed})


def study_call(operator: str, call: Mapping[str, Any]) -> StudyCall:
    """Split a call as :func:`npu_sim.run` takes it."""
    declared: Operator = load_operator(operator)
    given = {
        name: as_array(call[name]) for name in declared.input_names if call.get(name) is not None
    }
    tensors = own_copies(declared.addressing, given)
    attributes = {one.name: call[one.name] for one in declared.attributes if one.name in call}
    known = (*declared.tensor_names, *attributes, "product", "soc", "release")
    options = {name: value for name, value in call.items() if name not in known}
    profile = load_profile(call.get("product"), call.get("soc"), call.get("release"))
    return StudyCall(declared, tensors, attributes, profile, options)


Restore = Callable[[str, np.ndarray], np.ndarray | None]
"""Finds the given samples in an output of a changed call, by the output's name; None where they
cannot be compared."""


@dataclass(frozen=True)
class Changes:
    """What an operator says of changes of a batch, where the axes of its samples alone do not: the ``changes`` of a declaration.

    Attributes
    ----------
    grown
        ``grown(call, extra, fill)`` appends samples that do not touch the given ones, copies of
        them (``fill = "copy"``) or zeros (``"zero"``); None where that is impossible.
    found
        ``found(call, output, values)`` finds the given samples in an output of such a call.
    others
        ``others(call)`` gives further changes that do not matter in exact arithmetic: name, changed
        call, restore.
    places
        ``places(call)`` says how many places along the axis of samples one sample has, by input; 1
        in others, and in all when None.
    """

    grown: Callable[[StudyCall, int, str], StudyCall | None] | None = None
    found: Callable[[StudyCall, str, np.ndarray], np.ndarray | None] | None = None
    others: Callable[[StudyCall], Iterator[tuple[str, StudyCall, Restore]]] | None = None
    places: Callable[[StudyCall], Mapping[str, int]] | None = None


def plain(
    operator: str,
    arguments: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    precision: Any = np.float64,
) -> dict[str, np.ndarray]:
    """Compute an operator by its formula.

    Parameters
    ----------
    operator
        Name of the operator.
    arguments
        The call; only its attributes are read.
    tensors
        The input tensors by name, in the operator's dtypes.
    precision
        ``numpy.float64`` or ``numpy.float32``: the dtype of every intermediate value and of the results.

    Returns
    -------
    dict
        Output arrays by name, in ``precision``.
    """
    values: dict[str, np.ndarray] = load_operator(operator).hook("formula")(
        arguments, tensors, np.dtype(precision)
    )
    return values
