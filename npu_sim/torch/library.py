"""The operators as operators of PyTorch, ``torch.ops.npu_sim.<name>``: what ``torch.compile``, ``make_fx``, meta tensors and autograd need.

The schema of an operator, its kernel and the shapes of its results follow from its declaration. A gradient is PyTorch's to know only
where :mod:`npu_sim.torch.differentiable` gives one: those of gradients are refused.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from npu_sim.framework.arguments import IntArray, Tensor
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import OPERATORS, load_operator
from npu_sim.settings import current_device
from npu_sim.torch.memory import torch_dtype
from npu_sim.torch.simulation import compute, inputs_of

NAMESPACE = "npu_sim"
KINDS: dict[type, str] = {int: "int", float: "float", bool: "bool", str: "str", IntArray: "int[]?"}
"""Kinds of attributes in a schema."""


class Gradient(NamedTuple):
    """How autograd goes back through an operator: ``keep(ctx, inputs, output)`` and ``backward(ctx, *gradients)``."""

    keep: Callable[..., None]
    backward: Callable[..., Any]


@cache
def operator_of(declared: Operator, gradient: Gradient | None = None) -> Any:
    """Register a declared operator with PyTorch; return it as PyTorch's object."""
    parameters = inputs_of(declared)
    names = [one.name for one in declared.inputs]
    outputs = ", ".join("Tensor" for _ in declared.outputs)
    schema = f"{declared.name}({', '.join(_parameter(declared, one) for one in parameters)}) -> ({outputs})"

    def arguments(given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        named = dict(zip((one.name for one in parameters), given, strict=False)) | options
        values = {one.name: named.get(one.name, one.default) for one in parameters}
        return {
            name: IntArray(value) if isinstance(value, list) else value
            for name, value in values.items()
        }

    def kernel(*given: Any, **options: Any) -> Any:
        results = compute(declared.name, current_device(), arguments(given, options))
        return _one_or_all(tuple(torch.empty(0) if one is None else one for one in results))

    def shapes(*given: Any, **options: Any) -> Any:
        values, device = arguments(given, options), current_device()
        place = next(values[name].device for name in names if values[name] is not None)
        specs = {
            name: TensorSpec(tuple(value.shape), str(value.dtype), value.is_contiguous())
            if isinstance(value, torch.Tensor)
            else value
            for name, value in values.items()
        }
        case = declared.check(declared.build(specs), device)
        found = (case.specs.get(one.name) for one in declared.outputs)
        return _one_or_all(tuple(_without_values(spec, place) for spec in found))

    return define(
        schema, kernel, shapes, gradient or Gradient(_keep_nothing, _refuse(declared.name))
    )


def takes(declared: Operator, arguments: Mapping[str, Any]) -> bool:
    """Whether arguments are what the schema says, so that PyTorch passes them on."""
    tensors = ((one.optional, arguments.get(one.name)) for one in declared.inputs)
    values: Iterable[tuple[Any, Any]] = (
        (one.kind, arguments[one.name]) for one in declared.attributes if one.name in arguments
    )
    given = all(
        isinstance(tensor, torch.Tensor) or (tensor is None and optional)
        for optional, tensor in tensors
    )
    return given and all(_is_value(kind, value) for kind, value in values)


def _is_value(kind: type, value: Any) -> bool:
    """Whether PyTorch takes a value for an attribute of a kind: its whole numbers have 64 bits."""
    if kind is IntArray:
        return value is None or (
            isinstance(value, list | tuple) and all(type(one) is int for one in value)
        )
    if kind is int:
        return type(value) is int and abs(value) < 2**63
    return type(value) is kind


def define(
    schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any], gradient: Gradient
) -> Any:
    """Register an operator with PyTorch.

    Parameters
    ----------
    schema
        Its schema, ``name(Tensor x, float epsilon) -> Tensor``.
    kernel
        Computes it on CPU tensors.
    shapes
        Gives results without values, on the device of the inputs.
    gradient
        How autograd goes back through it.
    """
    name = schema.partition("(")[0]
    library = _library(name)
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{name}", shapes, lib=library)
    torch.library.register_autograd(
        f"{NAMESPACE}::{name}", gradient.backward, setup_context=gradient.keep, lib=library
    )
    return getattr(getattr(torch.ops, NAMESPACE), name).default


_libraries: dict[str, Any] = {}
"""What PyTorch knows of this package lives as long as these."""


def _library(name: str) -> Any:
    """Return a new library for an operator; one of the same name that was registered before is forgotten."""
    if name in _libraries:
        _libraries.pop(name)._destroy()
    _libraries[name] = torch.library.Library(NAMESPACE, "FRAGMENT")
    return _libraries[name]


def define_all() -> None:
    """Register every operator of the package that has no gradient of its own."""
    for entry in OPERATORS:
        if entry.name not in _libraries:
            operator_of(load_operator(entry.name))


def _parameter(declared: Operator, parameter: Any) -> str:
    one = declared.argument(parameter.name)
    kind = (
        KINDS[one.kind] if not isinstance(one, Tensor) else "Tensor?" if one.optional else "Tensor"
    )
    if parameter.default is parameter.empty:
        return f"{kind} {one.name}"
    default = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
    return f"{kind} {one.name}={default}"


def _without_values(spec: TensorSpec | None, place: torch.device) -> torch.Tensor:
    """Return a tensor of a spec; an empty one for a result that is not written, since PyTorch's operators always give all."""
    return (
        torch.empty(0, device=place)
        if spec is None
        else torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=place)
    )


def _one_or_all(results: tuple[torch.Tensor, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """There is no way back."""


def _refuse(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError(
            Text(
                "npu_sim::{name} has no gradient: the product has no operator for it (second "
                "derivatives end here)",
                name=name,
            )
        )

    return backward
