"""Turning what was typed for an operator's arguments into specs or arrays."""

from typing import Any

from npu_sim.formats import TensorSpec


def typed_specs(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Replace tensor files by their specs; shapes stay text. Tensors that the others imply may be left out."""
    from npu_sim.files import is_tensor_file, read_tensor
    from npu_sim.ops import operator_module

    module = operator_module(operator)
    tensors = module.Arguments.tensors()
    specs = {
        name: TensorSpec.of(read_tensor(name, value)) if name in tensors and is_tensor_file(value) else value
        for name, value in typed.items()
    }
    # An operator may fill in tensors that the others imply, so that nobody has to type them.
    infer = getattr(module, "infer", None)
    filled: dict[str, Any] = infer(specs) if infer is not None else specs
    return filled


def typed_arrays(operator: str, typed: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Read every input tensor from its file, or generate realistic data where a shape was typed.

    Raises
    ------
    AclnnError
        161002 when a file cannot be read.
    """
    from npu_sim.files import is_tensor_file, read_tensor
    from npu_sim.ops import operator_module

    arguments = operator_module(operator).Arguments
    inputs = arguments.tensors(inputs_only=True)
    values = {name: read_tensor(name, value) if name in inputs and is_tensor_file(value) else value for name, value in typed.items()}
    shapes = {name for name in inputs if isinstance(values.get(name), str)}
    if not shapes:
        return values
    from npu_sim.generate import generate

    specs = typed_specs(operator, typed)
    return {**specs, **generate(operator, arguments.build(specs), seed), **{name: values[name] for name in values if name not in shapes}}
