"""Example arguments and minimal example calls of operators, derived from their declarations."""

from typing import Any, NamedTuple

from npu_sim.framework.arguments import Attribute
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.framework.operator import Operator

SMALL_SIZE = 64
"""Largest size in an example that is computed."""


class ExampleCall(NamedTuple):
    """One call of an operator."""

    values: dict[str, str]
    """Example text of every tensor, including outputs, and of every attribute."""
    needed: tuple[str, ...]
    """Names of the arguments that a call needs; the other inputs follow from them."""

    @property
    def options(self) -> str:
        """The needed arguments as options: ``--dy 1024x4096:bf16 --gamma 4096:bf16``."""
        return " ".join(f"--{name.replace('_', '-')} {self.values[name]}" for name in self.needed)


def example_call(operator: Operator, *, small: bool = False) -> ExampleCall:
    """Return an example call with default sizes, or with sizes to compute if ``small``."""
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
    """Return the needed arguments: inputs are left out, last first, if the rest implies them."""
    inputs = {
        tensor.name: given[tensor.name]
        for tensor in operator.inputs
        if not tensor.optional and given.get(tensor.name) is not None
    }
    attributes = {
        attribute.name: given[attribute.name]
        for attribute in operator.attributes
        if attribute.name in given
    }
    tensors = {tensor.name: tensor for tensor in operator.inputs}
    for name in [*inputs][::-1]:
        rest = {other: value for other, value in inputs.items() if other != name}
        if (
            operator.inferred(operator.build({**rest, **attributes}), [tensors[name]])[name]
            is not None
        ):
            inputs = rest
    return tuple(
        argument.name
        for argument in operator.arguments
        if argument.name in inputs or (isinstance(argument, Attribute) and argument.required)
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
