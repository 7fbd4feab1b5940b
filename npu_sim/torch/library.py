"""The operators registered with PyTorch as ``torch.ops.npu_sim.<name>``, and as functions.

Registration makes them work with ``torch.compile``, ``make_fx``, meta tensors, autograd and
:mod:`torch.func`. Schema, kernel and result shapes follow from the declaration. An operator has a
gradient only if :mod:`npu_sim.torch.operators` defines one; differentiating another one raises
NotImplementedError, as does forward-mode differentiation of any.

They compute on CPU tensors, with the target of the current context. Arrays use the memory of
tensors. bfloat16 is converted through its bit pattern, since NumPy and PyTorch have no common type
for it.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd.forward_ad import unpack_dual

from npu_sim.framework.arguments import IntArray, Tensor
from npu_sim.framework.checking import checked_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target, chosen_target, current_device, device
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, as_array, bfloat16
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import run, signature_of
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES, OPERATORS

Outputs = tuple[Any, ...]
Gradients = tuple[torch.Tensor | None, ...]


def tensor_as_array(tensor: torch.Tensor) -> Array:
    """Return a CPU tensor as an array; it shares memory unless the negative bit is set.

    Raises TypeError for a sparse tensor, a tensor on another device or one without memory.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TypeError(
            Text(
                "the simulator takes dense CPU tensors, not {layout} on {device}: use tensor.cpu()",
                layout=tensor.layout,
                device=tensor.device,
            )
        )
    return as_array(tensor)


def array_as_tensor(array: Array) -> torch.Tensor:
    """Return the memory of an array as a tensor."""
    if array.dtype == bfloat16():
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def parameters_of(operator: Operator) -> list[inspect.Parameter]:
    """Return the inputs and attributes of an operator's function, in order."""
    return [
        parameter
        for parameter in signature_of(operator).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]


def compute(operator: str, target: Target, arguments: dict[str, Any], out: Any = None) -> Outputs:
    """Run an operator on tensors; return its outputs in order, None for one that is not written.

    - ``operator``: name of the operator.
    - ``target``: simulated device.
    - ``arguments``: the operator's arguments; the simulator uses the memory of tensors.
    - ``out``: tensor or tuple of tensors for the results; new ones if None.

    Raises RuntimeError, as PyTorch does, for ``out`` in a call that autograd records.
    """
    outs = (out,) if isinstance(out, torch.Tensor) else out
    if outs is not None:
        _refuse_recorded(operator, arguments, outs)
    arrays: dict[str, Any] = {
        name: tensor_as_array(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    result = run(
        operator,
        product=target.profile,
        deterministic=target.deterministic,
        core_order=target.order.core_order,
        seed=target.order.seed,
        limits=target.limits,
        out=outs,  # tensors: an array could be a copy of a tensor with the negative bit
        **arrays,
    )
    if outs is not None:
        return tuple(outs)
    written = {name: array_as_tensor(array) for name, array in result.outputs.items()}
    return tuple(written.get(tensor.output) for tensor in load_operator(operator).outputs)


def _refuse_recorded(operator: str, arguments: dict[str, Any], outs: Any) -> None:
    """Raise RuntimeError for results in ``out`` whose gradients autograd would have to know."""
    named = {**arguments, **{f"out[{place}]": out for place, out in enumerate(outs)}}
    for name, value in named.items():
        if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                Text(
                    "{operator}(): {name} requires grad, and calls with out= have no gradient: "
                    "leave out= away, or call it under torch.no_grad()",
                    operator=operator,
                    name=name,
                )
            )


def device_of(ctx: Any) -> AbstractContextManager[Any]:
    """Choose the device of the current context for a backward pass, else the forward call's."""
    return nullcontext() if chosen_target() is not None else device_like(ctx.settings)


def device_like(target: Target) -> device:
    """Return the block of a target."""
    return device(
        target.profile,
        deterministic=target.deterministic,
        core_order=target.order.core_order,
        seed=target.order.seed,
        limits=target.limits,
    )


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with autocast disabled; autocast has converted its arguments."""

    @wraps(function)
    def wrapper(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return wrapper


NAMESPACE = "npu_sim"
SCHEMA_TYPES: dict[type, str] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    IntArray: "int[]?",
}
"""Types of attributes in a schema."""


class Gradient(NamedTuple):
    """Autograd formula of an operator, as :func:`torch.library.register_autograd` takes it.

    ``keep(ctx, inputs, output)`` saves values for ``backward(ctx, *gradients)``, which runs on the
    device of its context, else of the forward call's.
    """

    keep: Callable[..., None]
    backward: Callable[..., Any]

    def keep_with_device(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the values, and the device of the forward call."""
        ctx.settings = current_device()
        self.keep(ctx, inputs, output)

    def backward_on_device(self, ctx: Any, *gradients: Any) -> Any:
        """Return the gradients of the inputs."""
        with device_of(ctx):
            return self.backward(ctx, *gradients)


def saving(*places: int, results: tuple[int, ...] = ()) -> Callable[..., None]:
    """Return the ``keep`` of a gradient that reads some tensors, and the arguments behind them.

    - ``places``: positions of input tensors, which ``ctx.saved_tensors`` has first.
    - ``results``: positions of outputs, which follow them; they have no gradients.

    ``ctx.call`` has the arguments that are neither tensors nor None.
    """

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        saved = [output[place] for place in results]
        ctx.save_for_backward(*(inputs[place] for place in places), *saved)
        ctx.mark_non_differentiable(*saved)
        ctx.call = [value for value in inputs if not isinstance(value, torch.Tensor | None)]

    return keep


@cache
def operator_function(name: str) -> Callable[..., Any]:
    """Return an operator as a function of tensors, with the arguments of :mod:`npu_sim`'s.

    Its results are written to ``out`` if given. The target is that of the current context
    (:func:`npu_sim.torch.use`).
    """
    operator = load_operator(name)
    inputs = parameters_of(operator)
    out_parameter = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = inspect.Signature([*inputs, out_parameter])
    # An operator of the package keeps the gradient that its module defines.
    registered = (
        getattr(getattr(torch.ops, NAMESPACE), operator.name).default
        if operator.name in OPERATOR_NAMES and operator.name in _libraries
        else operator_of(operator.name)
    )

    def function(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        out = arguments.pop("out", None)
        if out is None and _matches_schema(operator, arguments):
            values = {
                parameter.name: arguments.get(parameter.name, parameter.default)
                for parameter in inputs
            }
            results = registered(*values.values())
            if isinstance(results, torch.Tensor):
                return results
            return tuple(
                result if output.is_asked_for(values) else None
                for output, result in zip(operator.outputs, results, strict=True)
            )
        # PyTorch's operators take neither ``out`` nor arguments of other types; the checks of the
        # declaration report those.
        return _unpacked(compute(operator.name, current_device(), arguments, out))

    function.__name__ = function.__qualname__ = operator.name
    function.__module__ = "npu_sim.torch"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = f"{operator.summary}\n\nOn CPU tensors; see :func:`npu_sim.{operator.name}`."
    return function


def _matches_schema(operator: Operator, arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments have the types of the schema, which PyTorch requires."""
    tensors = ((argument, arguments.get(argument.name)) for argument in operator.inputs)
    return all(
        isinstance(value, torch.Tensor) or (value is None and argument.optional)
        for argument, value in tensors
    ) and all(
        _is_schema_value(attribute.kind, arguments[attribute.name])
        for attribute in operator.attributes
        if attribute.name in arguments
    )


def _is_schema_value(kind: type, value: Any) -> bool:
    """Return whether PyTorch accepts a value for an attribute; its integers have 64 bits."""
    if kind is IntArray:
        return value is None or (
            isinstance(value, list | tuple) and all(type(entry) is int for entry in value)
        )
    if kind is int:
        return type(value) is int and abs(value) < 2**63
    return type(value) is kind


@cache
def operator_of(name: str, gradient: Gradient | None = None) -> Any:
    """Register an operator of the package with PyTorch; return PyTorch's object."""
    declared = load_operator(name)
    parameters = parameters_of(declared)
    results = ", ".join("Tensor" for _ in declared.outputs)
    types = ", ".join(_schema_parameter(declared, parameter) for parameter in parameters)
    defaults = {parameter.name: parameter.default for parameter in parameters}
    no_gradient = Text(
        "npu_sim::{name} has no gradient: the product has no operator for it (second "
        "derivatives end here)",
        name=declared.name,
    )

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip(defaults, args, strict=False)) | kwargs
        values = {name: given.get(name, default) for name, default in defaults.items()}
        return {
            name: IntArray(value) if isinstance(value, list) else value
            for name, value in values.items()
        }

    def kernel(*args: Any, **kwargs: Any) -> Any:
        outputs = compute(declared.name, current_device(), arguments(args, kwargs))
        return _unpacked(tuple(torch.empty(0) if output is None else output for output in outputs))

    def shapes(*args: Any, **kwargs: Any) -> Any:
        values = arguments(args, kwargs)
        tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
        specs = {
            name: TensorSpec(tuple(value.shape), str(value.dtype), value.is_contiguous())
            if isinstance(value, torch.Tensor)
            else value
            for name, value in values.items()
        }
        case = checked_call(declared, specs, current_device())
        outputs = (case.specs.get(output.name) for output in declared.outputs)
        device = tensors[0].device
        return _unpacked(
            tuple(
                # Operators of PyTorch return all results, an empty one for what is not written.
                torch.empty(0, device=device)
                if spec is None
                else torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
                for spec in outputs
            )
        )

    return define(
        f"{declared.name}({types}) -> ({results})",
        kernel,
        shapes,
        gradient or Gradient(lambda *_: None, _refusing(no_gradient)),
    )


def _schema_parameter(declared: Operator, parameter: inspect.Parameter) -> str:
    argument = declared.argument(parameter.name)
    if isinstance(argument, Tensor):
        kind = "Tensor?" if argument.optional else "Tensor"
    else:
        kind = SCHEMA_TYPES[argument.kind]
    if parameter.default is parameter.empty:
        return f"{kind} {argument.name}"
    default = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
    return f"{kind} {argument.name}={default}"


def _unpacked(outputs: tuple[Any, ...]) -> Any:
    return outputs[0] if len(outputs) == 1 else outputs


def _refusing(message: str) -> Callable[..., Any]:
    """Return a function that raises NotImplementedError."""

    def refuse(*_: Any) -> Any:
        raise NotImplementedError(message)

    return refuse


_libraries: dict[str, Any] = {}
"""Libraries by operator. PyTorch removes a registration when its library is freed."""


def define(
    schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any], gradient: Gradient
) -> Any:
    """Register an operator with PyTorch, in place of an earlier one of the same name.

    - ``schema``: its schema, ``name(Tensor x, float epsilon) -> Tensor``.
    - ``kernel``: computes the results on CPU tensors.
    - ``shapes``: returns results without values, on the device of the inputs.
    - ``gradient``: its autograd formula.
    """
    name = schema.partition("(")[0]
    if name in _libraries:
        _libraries.pop(name)._destroy()
    library = _libraries[name] = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, _without_tangents(name, kernel), "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{name}", shapes, lib=library)
    torch.library.register_autograd(
        f"{NAMESPACE}::{name}",
        gradient.backward_on_device,
        setup_context=gradient.keep_with_device,
        lib=library,
    )
    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    library.impl(name, _transformed(name, operator, gradient), "FuncTorchDynamicLayerFrontMode")
    return operator


def _transformed(name: str, operator: Any, gradient: Gradient) -> Callable[..., Any]:
    """Return an operator for calls within transforms of :mod:`torch.func`.

    Those transforms need an autograd.Function; registration with PyTorch does not make a suitable
    one. Each transform that is active strips one layer off the tensors and calls ``forward`` or
    ``vmap``.
    """

    class Transformed(torch.autograd.Function):  # type: ignore[misc]
        forward = staticmethod(operator)
        setup_context = staticmethod(gradient.keep_with_device)
        backward = staticmethod(gradient.backward_on_device)
        jvp = staticmethod(_no_tangent(name))

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
            """Call the operator for every example; return the results and their batch axes."""
            results = []
            for index in range(info.batch_size):
                values = (
                    value.select(axis, index) if isinstance(axis, int) else value
                    for value, axis in zip(args, in_dims, strict=True)
                )
                results.append(operator(*values))
            if isinstance(results[0], torch.Tensor):
                return torch.stack(results), 0
            stacked = tuple(torch.stack(tensors) for tensors in zip(*results, strict=True))
            return stacked, (0,) * len(stacked)

    parameters = operator._schema.arguments

    def function(*args: Any) -> Any:
        # PyTorch leaves out trailing arguments that equal their defaults.
        defaults = (parameter.default_value for parameter in parameters[len(args) :])
        return Transformed.apply(*args, *defaults)

    return function


def _without_tangents(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that refuses tensors of forward-mode differentiation."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor) and unpack_dual(value).tangent is not None:
                _no_tangent(name)()
        return kernel(*args, **kwargs)

    return checked


def _no_tangent(name: str) -> Callable[..., Any]:
    return _refusing(
        Text(
            "npu_sim::{name} has no forward-mode derivative: use backward, torch.func.grad or "
            "torch.func.vjp",
            name=name,
        )
    )


def define_all() -> None:
    """Register every operator of the package that has no gradient of its own."""
    for entry in OPERATORS:
        if entry.name not in _libraries:
            operator_of(entry.name)
