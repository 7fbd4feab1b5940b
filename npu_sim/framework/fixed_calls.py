"""A call by its natural names, from which others with changed values are built."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from npu_sim.framework.axes import COMMON_AXES, DETERMINISTIC, LIMITS, Axis, Value, Values
from npu_sim.framework.case import Case
from npu_sim.framework.checking import checked_call
from npu_sim.framework.inference import arguments_of, call_with, read_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target, require_limits
from npu_sim.numbers.formats import TensorSpec


@dataclass(frozen=True)
class FixedCall:
    """One call, by its natural names."""

    operator: Operator
    """The operator."""
    values: Values
    """Value of every axis of the operator."""
    attributes: Mapping[str, Any]
    """Arguments that are not axes."""
    marks: Mapping[str, tuple[bool, str]]
    """Of given tensors that are not contiguous or not in ND: these two facts, by tensor."""
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Axes of the given tensors, where several make one size: other sizes keep their number."""
    deterministic: bool = False
    """The determinism switch."""

    def with_values(self, changed: Mapping[str, Value]) -> "FixedCall":
        """Return the call with other values."""
        return replace(self, values={**self.values, **changed})

    def arguments(self, changed: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """Return the arguments of the call, some values changed."""
        values = {**self.values, **(changed or {})}
        built = call_with(self.operator, values, self.groups, self.attributes)
        arguments = {**self.attributes, **built}
        for name, (contiguous, storage_format) in self.marks.items():
            if isinstance(arguments.get(name), TensorSpec):
                arguments[name] = replace(
                    arguments[name], contiguous=contiguous, storage_format=storage_format
                )
        return arguments

    def checked_with(self, axis: Axis, value: Value, target: Target) -> Case:
        """Check the call with another value of one axis, determinism switch and limits included.

        Raises AclnnError when the changed call is refused; UsageError when the value is invalid.
        """
        if axis is LIMITS:
            target = replace(target, limits=require_limits(value))
        switch = bool(value) if axis is DETERMINISTIC else self.deterministic
        target = replace(target, deterministic=switch)
        changed = self.arguments({} if axis in COMMON_AXES else {axis.name: value})
        return checked_call(self.operator, changed, target)


def fixed_call(
    operator: Operator, given: Mapping[str, Any], deterministic: bool = False
) -> FixedCall:
    """Build a call from natural names and arguments; others take the default of their axis.

    Raises UsageError for an unknown name.
    """
    axes = {axis.name: axis for axis in operator.axes}
    known = {argument.name for argument in operator.arguments} - axes.keys()
    natural: Values = {}
    for name, value in given.items():
        if name not in known:
            axis = operator.axis(name)
            natural[axis.name] = axis.value(axis.code(value))
    attributes = [attribute.name for attribute in operator.attributes]
    shared = {name: natural.get(name, axes[name].default) for name in attributes if name in axes}
    built = arguments_of(
        operator, {**shared, **{name: value for name, value in given.items() if name in known}}
    )
    read, groups = read_call(operator, built)
    specs = {name: built[name] for name in operator.tensor_names}
    return FixedCall(
        operator,
        values={**operator.defaults(), **read, **natural},
        attributes={name: built[name] for name in attributes if name not in axes},
        marks={
            name: (spec.contiguous, spec.storage_format)
            for name, spec in specs.items()
            if spec and (not spec.contiguous or spec.storage_format != "ND")
        },
        groups=groups,
        deterministic=deterministic,
    )
