"""An example of every argument of an operator, and a call with no more arguments than it needs; both from its declaration."""

from typing import Any, NamedTuple

from npu_sim.language import Verbatim, say
from npu_sim.operators.contract.arguments import Attribute, Output, Tensor
from npu_sim.operators.contract.fixed_calls import fixed_call
from npu_sim.operators.contract.operator import Operator

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
    sizes = {axis.name: min(int(call.values[axis.name]), SMALL_SIZE) for axis in operator.sizes} if small else {}
    given = call.arguments({**sizes, **dict.fromkeys(operator.switches, True)})
    whole = operator.inferred(operator.build(given), operator.outputs)
    needed = _needed(operator, call.arguments(sizes))
    return ExampleCall({name: _text(value) for name, value in whole.items() if value is not None}, needed)


def _needed(operator: Operator, given: dict[str, Any]) -> tuple[str, ...]:
    """Leave out one input after the other, the last first, as long as it follows from the rest."""
    inputs = {one.name: given[one.name] for one in operator.inputs if not one.optional and given.get(one.name) is not None}
    attributes = {one.name: given[one.name] for one in operator.attributes if one.name in given}
    tensors = {one.name: one for one in operator.inputs}
    for name in [*inputs][::-1]:
        rest = {other: value for other, value in inputs.items() if other != name}
        if operator.inferred(operator.build({**rest, **attributes}), [tensors[name]])[name] is not None:
            inputs = rest
    return tuple(one.name for one in operator.arguments if one.name in inputs or (isinstance(one, Attribute) and one.required))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def argument_help(argument: Tensor | Attribute, example: ExampleCall) -> str:
    """Return what an argument is, whether a call needs it, and what it may look like."""
    if isinstance(argument, Output):
        return _with_example(argument.help, example.values.get(argument.name))
    needed = argument.name in example.needed
    text = say("required: {help}", help=argument.help) if needed else argument.help
    if isinstance(argument, Attribute):
        return _with_example(text, example.values[argument.name] if needed else None)
    if argument.name not in example.values:
        return argument.help
    shape = Verbatim(example.values[argument.name])
    if needed or argument.optional:
        return say("{text}; e.g. {shape}, or a .npy file", text=text, shape=shape)
    return say("{text}; e.g. {shape}, or a .npy file; what the others imply when left out", text=text, shape=shape)


def _with_example(text: str, value: str | None) -> str:
    return text if value is None else say("{text}; e.g. {value}", text=text, value=Verbatim(value))
