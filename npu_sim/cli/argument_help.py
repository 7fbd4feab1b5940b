"""The help of an operator's argument."""

from npu_sim.framework.arguments import Attribute, Output, Tensor
from npu_sim.language import Verbatim, say
from npu_sim.questions.example_calls import ExampleCall


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
    return say(
        "{text}; e.g. {shape}, or a .npy file; what the others imply when left out",
        text=text,
        shape=shape,
    )


def _with_example(text: str, value: str | None) -> str:
    return text if value is None else say("{text}; e.g. {value}", text=text, value=Verbatim(value))
