"""The public function of an operator: its signature and its help follow from the declaration."""

import inspect
from collections.abc import Callable
from typing import Any

from npu_sim.framework import patterns
from npu_sim.framework.arguments import OPTIONS, Attribute, Tensor
from npu_sim.framework.operator import Operator


def public_function(operator: Operator, outputs: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an operator's name.

    Parameters
    ----------
    operator
        The declaration.
    outputs
        Does what :func:`npu_sim.run` does, and returns the results alone.
    """
    signature = signature_of(operator)
    positions = [
        one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    required = {one.name for one in signature.parameters.values() if one.default is one.empty}

    def function(*args: Any, **kwargs: Any) -> Any:
        call = dict(zip(positions, args, strict=False)) | kwargs
        if (
            len(call) < len(args) + len(kwargs)
            or not required <= call.keys() <= signature.parameters.keys()
        ):
            signature.bind(
                *args, **kwargs
            )  # says what is wrong; it takes too long to ask it every time
        return outputs(operator.name, **call)

    function.__name__ = function.__qualname__ = operator.name
    function.__module__ = "npu_sim"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = _help(operator)
    return function


def signature_of(operator: Operator) -> inspect.Signature:
    """Return the signature of an operator's public function: its inputs and attributes, then the options."""
    parameters: list[inspect.Parameter] = []
    default: Any = inspect.Parameter.empty
    for one in reversed([one for one in operator.arguments if one not in operator.outputs]):
        # From the last one back: an optional tensor before one that must be given has no default,
        # but may be None.
        is_last = not parameters or parameters[-1].default is not inspect.Parameter.empty
        if isinstance(one, Tensor):
            default = None if one.optional and is_last else inspect.Parameter.empty
        else:
            default = inspect.Parameter.empty if one.required else one.default
        parameters.append(
            inspect.Parameter(one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        )
    parameters.reverse()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
        for name, value in OPTIONS.items()
    ]
    return inspect.Signature(parameters + options)


def _help(operator: Operator) -> str:
    """Write the docstring: arguments, results, and what is raised."""
    lines = [operator.summary, "", "Parameters", "----------"]
    for one in operator.arguments:
        if one not in operator.outputs:
            lines += [one.name, f"    {_argument_help(operator, one)}"]
    lines += [", ".join(OPTIONS), "    See :func:`npu_sim.run`.", "", "Returns", "-------"]
    for output in operator.outputs:
        lines += [f"{output.output} : ndarray", f"    {_argument_help(operator, output)}"]
    lines += ["", "Raises", "------", "AclnnError"]
    lines += [
        "    With the product's status when the call is refused, 361001 for data out of bounds."
    ]
    return "\n".join(lines)


def _argument_help(operator: Operator, one: Tensor | Attribute) -> str:
    text = one.help[0].upper() + one.help[1:]
    if isinstance(one, Attribute):
        return f"{text}."
    words = {axis.name: " or ".join(axis.words) for axis in operator.dtype_axes}
    shape = "" if callable(one.shape) else f": {patterns.text(one.shape)}"
    return f"{text}{shape}, {words.get(one.dtype, one.dtype)}."
