"""Typed arguments of operators as specs or arrays."""

from collections.abc import Iterable
from typing import Any

from npu_sim.files.tensors import names_tensor_file, read_tensor
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.status import UsageError

Arguments = dict[str, Any]
"""Typed arguments of an operator by name."""


def named_values(option: str, texts: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """Read options of the form ``name=value``; a hyphen in a name is read as an underscore.

    - ``option``: name of the option.
    - ``reserved``: names of the command's other options and arguments.

    Raises UsageError when one has another form, or its name is reserved or given twice.
    """
    named: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise UsageError(
                option,
                "{text} is not of the form name=value",
                "write name=value, such as rows=4096",
                text=repr(text),
            )
        name = name.replace("-", "_")
        if name in named:
            raise UsageError(
                option,
                "{name} is given twice, as {first} and as {second}",
                "give each name once; several values of a grid are written as 1,2 or 1..8",
                name=name,
                first=named[name],
                second=value,
            )
        named[name] = value
    for name in sorted(named.keys() & set(reserved)):
        raise UsageError(
            option,
            "{name} is not set by --{option}",
            "the command has an option or argument of this name",
            name=name,
            option=option,
        )
    return named


def typed_specs(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with tensor files replaced by their specs; shapes stay text."""
    tensors = load_operator(operator).tensor_names
    return {
        name: TensorSpec.of(read_tensor(name, value))
        if name in tensors and names_tensor_file(value)
        else value
        for name, value in typed.items()
    }
