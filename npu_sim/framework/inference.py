"""Arguments of a call: read from what a caller gives, inferred from each other, made from sizes."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from npu_sim.framework import patterns
from npu_sim.framework.arguments import (
    Arguments,
    Axis,
    Number,
    Output,
    Switch,
    Tensor,
    Value,
    Values,
    Word,
    build_arguments,
    evaluate,
    require_known,
)
from npu_sim.framework.operator import Operator
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError


def arguments_of(
    operator: Operator, values: Mapping[str, Any], *, infer: bool = False
) -> Arguments:
    """Build arguments from those of a caller; ``infer`` fills in inputs that others imply.

    Raises
    ------
    UsageError
        For an unknown argument, a value that is not a tensor, and a missing argument.
    """
    given = build_arguments(operator.by_name, values)
    missing = _left_out(operator, values) if infer else []
    if not missing:
        return given
    built = inferred(operator, given, missing)
    unknown = {tensor.name for tensor in missing if built[tensor.name] is None}
    if unknown and None not in [values.get(name, 0) for name in operator.input_names]:
        _require_fitting(operator, given)
    require_given(operator, set(operator.input_names) - unknown)
    return built


def _left_out(operator: Operator, names: Collection[str]) -> list[Tensor]:
    """Return the required inputs that are not among some names."""
    return [tensor for tensor in operator.required_inputs if tensor.name not in names]


def require_given(operator: Operator, names: Collection[str]) -> None:
    """Check that a call gives every required tensor; None counts, as the null pointer.

    Raises
    ------
    UsageError
        For an unknown name, which may be meant for a missing one; else for the first missing.
    """
    missing = _left_out(operator, names)
    if missing:
        require_known(operator.by_name, names)
    for tensor in sorted(missing, key=lambda tensor: tensor.name in implied(operator)):
        # Sorted: an input that no other implies is named first.
        raise UsageError(
            tensor.name,
            "{name} is missing",
            "{name}: {help}; a plan takes its shape from the others, its values must be given"
            if tensor.name in implied(operator)
            else "{name}: {help}",
            name=tensor.name,
            help=tensor.help,
        )


@cache
def implied(operator: Operator) -> frozenset[str]:
    """Return the inputs that may be left out when planning, as others imply them."""
    call = call_with(operator, operator.defaults())
    whole = {
        **{tensor.name: None for tensor in operator.tensors},
        **{attribute.name: attribute.default for attribute in operator.attributes},
        **call,
    }
    return frozenset(
        tensor.name
        for tensor in operator.inputs
        if inferred(operator, Arguments({**whole, tensor.name: None}), [tensor])[tensor.name]
        is not None
    )


def inferred(operator: Operator, arguments: Arguments, missing: Sequence[Tensor]) -> Arguments:
    """Return the arguments with the missing tensors that follow from the others."""
    filled, sizes = dict(arguments.items()), None
    specs = {name: spec for name in operator.tensor_names if (spec := filled[name]) is not None}
    for tensor in missing:
        same_form = [name for name in operator.inputs_of_same_form[tensor.name] if name in specs]
        if same_form:
            filled[tensor.name] = specs[same_form[0]]
            continue
        sizes = bound_sizes(operator, arguments, guess=False) if sizes is None else sizes
        try:
            pattern = tensor.pattern(filled)
            values = {
                name: size_of(operator, name, sizes, arguments) for name in patterns.names(pattern)
            }
            filled[tensor.name] = TensorSpec(
                patterns.build(pattern, values, sizes.groups), dtype_of(operator, tensor, specs)
            )
        except (KeyError, TypeError, ValueError, ArithmeticError):
            continue  # nothing determines it
    return Arguments(filled)


def _require_fitting(operator: Operator, arguments: Arguments) -> None:
    """Check that the shapes of given inputs do not contradict each other.

    Raises
    ------
    UsageError
        For the first input whose shape contradicts that of an input before it.
    """
    given: list[Tensor] = []
    for tensor in operator.inputs:
        spec = arguments[tensor.name]
        if spec is None:
            continue
        for other in given:
            sizes = patterns.Sizes()
            patterns.bind(other.pattern(arguments), arguments[other.name].shape, sizes)
            pattern = tensor.pattern(arguments)
            alone = patterns.bind(pattern, spec.shape, patterns.Sizes())
            if alone and not patterns.bind(pattern, spec.shape, sizes):
                raise UsageError(
                    tensor.name,
                    "{name} {spec} does not fit {other} {other_spec}",
                    "{name}: {help}",
                    name=tensor.name,
                    spec=spec,
                    other=other.name,
                    other_spec=arguments[other.name],
                    help=tensor.help,
                )
        given.append(tensor)


def dtype_of(operator: Operator, tensor: Tensor, specs: Mapping[str, TensorSpec]) -> str:
    """Return the dtype of a tensor that the others imply.

    Raises
    ------
    KeyError
        When no given tensor determines it.
    """
    if tensor.dtype not in operator.dtype_names:
        return tensor.dtype
    try:
        return _dtype_named(operator, tensor.dtype, specs)
    except KeyError:
        if tensor.like not in operator.by_name:
            if tensor.like:
                return tensor.like
            raise
        return specs[tensor.like].dtype


def _dtype_named(operator: Operator, axis: str, specs: Mapping[str, TensorSpec | None]) -> str:
    for name in operator.inputs_of_dtype[axis]:
        spec = specs.get(name)
        if spec is not None:
            return spec.dtype
    raise KeyError(axis)


def bound_sizes(operator: Operator, arguments: Arguments, guess: bool = True) -> patterns.Sizes:
    """Return the sizes that the given tensors bind; contradicting tensors are skipped."""
    sizes = patterns.Sizes()
    given = [
        (tensor.pattern(arguments), spec.shape)
        for tensor in operator.inputs
        if (spec := arguments.get(tensor.name)) is not None
    ]
    for pattern, shape in sorted(
        dict.fromkeys(given), key=lambda entry: patterns.openness(entry[0])
    ):
        patterns.bind(pattern, shape, sizes, guess)
    return sizes


def size_of(
    operator: Operator,
    name: str,
    sizes: patterns.Sizes,
    arguments: Arguments,
    pending: tuple[str, ...] = (),
) -> int:
    """Return a size, an integer attribute, 1 or 0 for a given tensor, or a number that follows.

    ``pending`` are the names whose expressions led here: two that only follow from each other
    are both unknown.

    Raises
    ------
    KeyError
        When nothing determines it.
    """
    if name in sizes.values:
        return sizes.values[name]
    if name in arguments:
        return int(arguments[name])
    if name in operator.switches:
        return int(arguments[operator.switches[name]] is not None)
    if name not in operator.expressions or name in pending:
        raise KeyError(name)
    return int(
        evaluate(
            operator.expressions[name],
            lambda other: size_of(operator, other, sizes, arguments, (*pending, name)),
        )
    )


def stated_elsewhere(operator: Operator, tensor: Tensor, pattern: str) -> tuple[str, ...]:
    """Return the sizes of a tensor's pattern that are attributes or follow from others.

    An axis of an input decides its size, even where an expression exists for it.
    """
    followed = _followed(operator, isinstance(tensor, Output))
    return tuple([name for name in patterns.names(pattern) if name in followed])


@cache
def _followed(operator: Operator, of_output: bool) -> frozenset[str]:
    """Return the names of sizes that are attributes or follow from others."""
    decided = () if of_output else [axis.name for axis in operator.axes]
    return frozenset(operator.expressions.keys() - decided | operator.by_name.keys())


def read_call(operator: Operator, arguments: Arguments) -> tuple[Values, dict[str, Shape]]:
    """Return the values of axes that a call determines, and the axes of its groups."""
    sizes = bound_sizes(operator, arguments)
    values: Values = {}
    for axis in operator.axes:
        try:
            values[axis.name] = axis_value(operator, axis, sizes, arguments)
        except (KeyError, TypeError, ValueError, ArithmeticError):
            continue
    return values, sizes.groups


def axis_value(
    operator: Operator, axis: Axis, sizes: patterns.Sizes, arguments: Arguments
) -> Value:
    """Return the value of an axis in a call.

    Raises
    ------
    KeyError
        When nothing determines it.
    """
    if isinstance(axis, Number):
        return size_of(operator, axis.name, sizes, arguments)
    if isinstance(axis, Switch) and axis.tensor:
        return arguments[axis.tensor] is not None
    if axis.name in arguments:
        value = arguments[axis.name]
        return str(value) if isinstance(axis, Word) else axis.is_on(value)
    return _dtype_named(operator, axis.name, arguments)


def call_with(
    operator: Operator,
    values: Mapping[str, Value],
    groups: Mapping[str, Shape] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments of a call with these values of axes.

    ``groups`` are the axes of a given call; its tensors keep their ranks. ``attributes`` are those
    of its arguments that are not axes; patterns may depend on them.
    """
    stated = {**(attributes or {}), **values}
    sizes = {name: int(value) for name, value in values.items() if not isinstance(value, str)}
    needed = {name for tensor in operator.inputs for name in patterns.names(tensor.pattern(stated))}
    swept = {derived.name: derived.swept for derived in operator.derived}

    def size(name: str) -> int:
        is_known = name in sizes or name not in swept
        return sizes[name] if is_known else int(evaluate(swept[name], size))

    sizes |= {name: max(size(name), 0) for name in swept if name in needed}
    is_given = {switched: values[name] for name, switched in operator.switches.items()}
    call: dict[str, Any] = {}
    for tensor in operator.inputs:
        if is_given.get(tensor.name, not tensor.optional):
            shape = patterns.build(tensor.pattern(stated), sizes, groups)
            dtype = str(values.get(tensor.dtype, tensor.dtype))
            call[tensor.name] = TensorSpec(shape, dtype)
    named = {axis.name for axis in operator.axes}
    return call | {
        attribute.name: attribute.kind(values[attribute.name])
        for attribute in operator.attributes
        if attribute.name in named
    }


def plan_arguments(operator: Operator, values: Mapping[str, Value]) -> dict[str, Any]:
    """Return all keyword arguments of :func:`npu_sim.plan` but the profile."""
    sizes = {axis.name: values[axis.name] for axis in operator.axes}
    return {
        "deterministic": values["deterministic"],
        "limits": values["limits"],
        **call_with(operator, sizes),
    }
