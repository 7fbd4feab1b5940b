"""An example of every argument of an operator, and a call with no more arguments than it needs; both from its declaration."""

from typing import Any, NamedTuple

from npu_sim.framework.arguments import Attribute
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.framework.operator import Operator

SMALL_SIZE = 64
"""Largest size of an example that is to be computed."""


class ExampleCall(NamedTuple):
    """One call of an operator.

    Attributes
    ----------
    values
        An example of every tensor that the operator supports, outputs included, and of every attribute, as text.
    needed
        Names of the arguments without which there is no call; what else is an input follows from these.
    """

    values: dict[str, str]
    needed: tuple[str, ...]

    @property
    def options(self) -> str:
        """The needed arguments as they are typed: ``--dy 1024x4096:bf16 --gamma 4096:bf16``."""
        return " ".join(f"--{name.replace('_', '-')} {self.values[name]}" for name in self.needed)


def example_call(operator: Operator, *, small: bool = False) -> ExampleCall:
    """Return an example call of an operator, with the default of every size; a ``small`` one is computed at once."""
    call = fixed_call(operator, {})
    sizes = (
        {axis.name: min(int(call.values[axis.name]), SMALL_SIZE) for axis in operator.sizes}
        if small
        else {}
    )
    given = call.arguments({**sizes, **dict.fromkeys(operator.switches, True)})
    whole = operator.inferred(operator.build(given), operator.outputs)
    needed = _needed(operator, call.arguments(sizes))
    return ExampleCall(
        {name: _text(value) for name, value in whole.items() if value is not None}, needed
    )


def _needed(operator: Operator, given: dict[str, Any]) -> tuple[str, ...]:
    """Leave out one input after the other, the last first, as long as it follows from the rest."""
    inputs = {
        one.name: given[one.name]
        for one in operator.inputs
        if not one.optional and given.get(one.name) is not None
    }
    attributes = {one.name: given[one.name] for one in operator.attributes if one.name in given}
    tensors = {one.name: one for one in operator.inputs}
    for name in [*inputs][::-1]:
        rest = {other: value for other, value in inputs.items() if other != name}
        if (
            operator.inferred(operator.build({**rest, **attributes}), [tensors[name]])[name]
            is not None
        ):
            inputs = rest
    return tuple(
        one.name
        for one in operator.arguments
        if one.name in inputs or (isinstance(one, Attribute) and one.required)
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
