"""Conversion of typed arguments of an operator into specs or arrays."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

if TYPE_CHECKING:
    from npu_sim.cores import Profile
    from npu_sim.framework.target import Limits


def named_values(option: str, texts: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """Read options of the form ``name=value``; a hyphen in a name is read as an underscore.

    - ``option``: name of the option.
    - ``reserved``: names of the command's other options and arguments.

    Raises UsageError when one has another form, or its name is reserved.
    """
    named = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            message = Text("{text} is not of the form name=value", text=repr(text))
            raise UsageError(option, message, "write name=value, such as rows=4096")
        named[name.replace("-", "_")] = value
    for name in sorted(named.keys() & set(reserved)):
        message = Text("{name} is not set by --{option}", name=name, option=option)
        raise UsageError(option, message, "the command has an option or argument of this name")
    return named


def typed_specs(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with tensor files replaced by their specs; shapes stay text."""
    from npu_sim.registry import load_operator

    tensors = load_operator(operator).tensor_names
    return {
        name: TensorSpec.of(_read(name, value))
        if name in tensors and _is_tensor_file(value)
        else value
        for name, value in typed.items()
    }


def typed_arrays(
    operator: str,
    typed: dict[str, Any],
    profile: "Profile",
    limits: "Limits" = "documented",
    seed: int = 0,
) -> dict[str, Any]:
    """Return the arguments with arrays for tensors: read from files, or generated from shapes.

    Data is generated only for a call that is not refused.

    Raises UsageError when a file cannot be read; AclnnError with the product's status when the call
    is refused.
    """
    from npu_sim.registry import load_operator

    declared = load_operator(operator)
    inputs = declared.input_names
    values = {
        name: _read(name, value) if name in inputs and _is_tensor_file(value) else value
        for name, value in typed.items()
    }
    shapes = {name for name in inputs if isinstance(values.get(name), str)}
    if not shapes:
        return values
    from npu_sim.operators import plan
    from npu_sim.operators.shared.generate import generate

    specs = typed_specs(operator, typed)
    plan(operator, product=profile, limits=limits, **specs)
    built = declared.build(specs, infer=True)
    return {
        **specs,
        **generate(operator, built, seed),
        **{name: values[name] for name in values if name not in shapes},
    }


def read_arrays(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with arrays for tensors, outputs under the names of the results.

    Raises UsageError when a tensor is not a file, or a file cannot be read.
    """
    from npu_sim.registry import load_operator

    declared = load_operator(operator)
    results = {output.name: output.output for output in declared.outputs}
    return {
        results.get(name, name): _read(results.get(name, name), value)
        if name in declared.tensor_names
        else value
        for name, value in typed.items()
    }


def _is_tensor_file(text: str) -> bool:
    """Return whether a tensor argument names a file rather than a shape."""
    return text.endswith(".npy") or ".npy:" in text


def _read(name: str, text: str) -> Any:
    from npu_sim.files.tensors import read_tensor

    return read_tensor(name, text)
