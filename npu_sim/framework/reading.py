"""From arguments to sizes and back: what the patterns of an operator's tensors say of a call."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from npu_sim.framework import arguments as declared
from npu_sim.framework import patterns
from npu_sim.framework.arguments import Arguments, Output, Tensor
from npu_sim.framework.axes import Axis, Number, Switch, Value, Values, Word
from npu_sim.framework.declaration import Declaration
from npu_sim.framework.expressions import evaluate
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError


class Reader(Declaration):
    """A declaration that reads calls."""

    def call(
        self, values: Mapping[str, Value], groups: Mapping[str, patterns.Shape] | None = None
    ) -> dict[str, Any]:
        """Return the arguments of a call with these values; ``groups`` are the axes of a given call, whose rank they keep."""
        sizes = {name: int(value) for name, value in values.items() if not isinstance(value, str)}
        needed = {name for one in self.inputs for name in patterns.names(self.pattern(one, values))}
        swept = {derived.name: derived.swept for derived in self.derived}

        def size_of(name: str) -> int:
            return (
                sizes[name]
                if name in sizes or name not in swept
                else int(evaluate(swept[name], size_of))
            )

        sizes |= {name: max(size_of(name), 0) for name in swept if name in needed}
        given = {tensor: values[name] for name, tensor in self.switches.items()}
        call: dict[str, Any] = {}
        for one in self.inputs:
            if given.get(one.name, not one.optional):
                shape = patterns.build(self.pattern(one, values), sizes, groups)
                call[one.name] = TensorSpec(shape, str(values.get(one.dtype, one.dtype)))
        named = {axis.name for axis in self.axes}
        return call | {
            one.name: one.kind(values[one.name]) for one in self.attributes if one.name in named
        }

    def plan_arguments(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return all keyword arguments of :func:`npu_sim.plan` but the profile."""
        own = {axis.name: values[axis.name] for axis in self.axes}
        return {
            "deterministic": values["deterministic"],
            "limits": values["limits"],
            **self.call(own),
        }

    def read(self, arguments: Arguments) -> tuple[Values, dict[str, patterns.Shape]]:
        """Return the values of a call's axes as far as it says them, and the axes of its groups."""
        sizes = self.bound(arguments)
        values: Values = {}
        for axis in self.axes:
            try:
                values[axis.name] = self._value(axis, sizes, arguments)
            except (KeyError, TypeError, ValueError, ArithmeticError):
                continue
        return values, sizes.groups

    def _value(self, axis: Axis, sizes: patterns.Sizes, arguments: Arguments) -> Value:
        if isinstance(axis, Number):
            return self.size(axis.name, sizes, arguments)
        if isinstance(axis, Switch) and axis.tensor:
            return arguments[axis.tensor] is not None
        if axis.name in arguments:
            value = arguments[axis.name]
            return str(value) if isinstance(axis, Word) else bool(value)
        return self._dtype_named(axis.name, arguments)

    def pattern(self, tensor: Tensor, arguments: Mapping[str, Any]) -> str:
        """Return the pattern of a tensor's axes, which attributes may decide."""
        return tensor.shape(arguments) if callable(tensor.shape) else tensor.shape

    def stated_elsewhere(self, tensor: Tensor, pattern: str) -> tuple[str, ...]:
        """Return the sizes of a tensor's pattern that attributes say, or that follow from others.

        An axis of an input says its size itself, whatever it would be without the input.
        """
        found = self._stated_elsewhere.get((tensor.name, pattern))
        if found is None:
            said = () if isinstance(tensor, Output) else [axis.name for axis in self.axes]
            follows = self.expressions.keys() - said | self.by_name.keys()
            found = self._stated_elsewhere[tensor.name, pattern] = tuple(
                name for name in patterns.names(pattern) if name in follows
            )
        return found

    @cached_property
    def _stated_elsewhere(self) -> dict[tuple[str, str], tuple[str, ...]]:
        return {}

    def bound(self, arguments: Arguments, guess: bool = True) -> patterns.Sizes:
        """Return what the given tensors say of the sizes; those that contradict the ones before are passed over."""
        sizes = patterns.Sizes()
        given = [
            (self.pattern(one, arguments), spec.shape)
            for one in self.inputs
            if (spec := arguments.get(one.name)) is not None
        ]
        for pattern, shape in sorted(
            dict.fromkeys(given), key=lambda one: patterns.openness(one[0])
        ):
            patterns.bind(pattern, shape, sizes, guess)
        return sizes

    def size(
        self, name: str, sizes: patterns.Sizes, arguments: Arguments, asked: tuple[str, ...] = ()
    ) -> int:
        """Return a size, a whole number among the attributes, whether a tensor is given, or what follows from them.

        ``asked`` are the names that this one is wanted for: two that only follow from each other are both unknown.

        Raises
        ------
        KeyError
            When nothing says it.
        """
        if name in sizes.values:
            return sizes.values[name]
        if name in arguments:
            return int(arguments[name])
        if name in self.switches:
            return int(arguments[self.switches[name]] is not None)
        if name not in self.expressions or name in asked:
            raise KeyError(name)
        return int(
            evaluate(
                self.expressions[name],
                lambda other: self.size(other, sizes, arguments, (*asked, name)),
            )
        )

    def build(self, values: Mapping[str, Any], *, infer: bool = False) -> Arguments:
        """Build arguments from what a caller passed; with ``infer`` inputs left out become what the others imply.

        Raises
        ------
        UsageError
            For an unknown argument, a tensor that is none, and an argument that is missing.
        """
        built = declared.build(self.by_name, values)
        missing = (
            [one for one in self.inputs if not one.optional and one.name not in values]
            if infer
            else []
        )
        if missing:
            built = self.inferred(built, missing)
            self.require_given(
                set(self.input_names).difference(
                    one.name for one in missing if built[one.name] is None
                )
            )
        return built

    def require_given(self, names: Collection[str]) -> None:
        """Check that a call gives every tensor that it needs; None is given as well, and stands for the null pointer.

        Raises
        ------
        UsageError
            For the first one that is left out, or for a name that is none, which may be meant for it.
        """
        missing = [one for one in self.inputs if not one.optional and one.name not in names]
        if missing:
            declared.require_known(self.by_name, names)
        for one in sorted(
            missing, key=lambda one: one.name in self.implied
        ):  # what the others imply is not what is to be given
            raise UsageError(one.name, f"{one.name} is missing", f"{one.name}: {one.help}")

    @cached_property
    def implied(self) -> frozenset[str]:
        """Inputs that a call which plans need not give: the others say what they are."""
        call = self.call(self.defaults())
        whole = {
            **{one.name: None for one in self.tensors},
            **{one.name: one.default for one in self.attributes},
            **call,
        }
        return frozenset(
            one.name
            for one in self.inputs
            if self.inferred(Arguments({**whole, one.name: None}), [one])[one.name] is not None
        )

    def inferred(self, arguments: Arguments, missing: Sequence[Tensor]) -> Arguments:
        """Return the arguments with the missing tensors that follow from the others."""
        filled, sizes = dict(arguments.items()), None
        specs = {name: spec for name in self.tensor_names if (spec := filled[name]) is not None}
        for one in missing:
            twins = [name for name in self.twins[one.name] if name in specs]
            if twins:
                filled[one.name] = specs[twins[0]]
                continue
            sizes = self.bound(arguments, guess=False) if sizes is None else sizes
            try:
                pattern = self.pattern(one, filled)
                values = {
                    name: self.size(name, sizes, arguments) for name in patterns.names(pattern)
                }
                filled[one.name] = TensorSpec(
                    patterns.build(pattern, values, sizes.groups), self.dtype_of(one, specs)
                )
            except (KeyError, TypeError, ValueError, ArithmeticError):
                continue  # nothing says it
        return Arguments(filled)

    def dtype_of(self, tensor: Tensor, specs: Mapping[str, TensorSpec]) -> str:
        """Return the dtype that a tensor must have, given the others.

        Raises
        ------
        KeyError
            When no given tensor says it.
        """
        return (
            tensor.dtype
            if tensor.dtype not in self.dtype_names
            else self._dtype_named(tensor.dtype, specs)
        )

    def _dtype_named(self, axis: str, specs: Mapping[str, TensorSpec | None]) -> str:
        for name in self._inputs_of_dtype[axis]:
            spec = specs.get(name)
            if spec is not None:
                return spec.dtype
        raise KeyError(axis)

    @cached_property
    def _inputs_of_dtype(self) -> dict[str, tuple[str, ...]]:
        """For every axis that is a dtype the inputs that have it."""
        return {
            name: tuple(one.name for one in self.inputs if one.dtype == name)
            for name in self.dtype_names
        }
