"""One operator, one declaration: its arguments, its contract, and the functions it names.

Everything else about an operator is derived from these fields. :class:`Operator` reads the
arguments of a call, infers those that are left out, and checks the call.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework import patterns
from npu_sim.framework.arguments import (
    Argument,
    Arguments,
    Attribute,
    Output,
    Signature,
    Tensor,
    build_arguments,
    cache_key,
    require_known,
)
from npu_sim.framework.axes import (
    COMMON_AXES,
    NOT_DOCUMENTED,
    Axis,
    Derived,
    Number,
    Switch,
    Value,
    Values,
    Word,
)
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.checks import Check, DtypeCheck, NothingToDo
from npu_sim.framework.expressions import evaluate
from npu_sim.framework.rows import RowPlanner, row_planner
from npu_sim.framework.target import Target
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.answers import Evidence
from npu_sim.registry import find_operator, load_operator
from npu_sim.releases import default_release, is_older, release_switches
from npu_sim.status import TILING_FAILURE, AclnnError, NotModelledError, Status, UsageError, closest
from npu_sim.tiling.fields import SUCCESS

CACHED_CALLS = 256
"""Number of checked calls that are cached."""

Hook = Callable[..., Any]
"""A function of a declaration that serves one purpose."""

TIMELINE_HOOKS = ("program", "steps", "instructions")
"""Hooks that ``timeline_hooks`` may return; ``study_hooks`` may return the other optional ones."""

GIVEN_BY_HOOKS = {
    "program": "timeline",
    "claims": "summation trees",
    "formula": "formula to compare with",
    "terms": "terms of an element",
}
"""Nouns for what hooks return."""


@dataclass(frozen=True)
class Assumed:
    """A number that an operator's planner assumes instead of reading it from the chip.

    Attributes
    ----------
    key
        Key of a profile that states it for a chip.
    value
        The planner's value on every SoC.
    source
        Source of the assumption.
    if_asked
        ``if_asked(case)`` describes what the planner would do with the chip's value; a model. None
        where that is unknown.
    """

    key: str
    value: int
    source: str
    if_asked: Callable[[Any], str] | None = None


@dataclass(frozen=True, eq=False)
class Operator:
    """The declaration of an operator, which also reads and checks its calls.

    Attributes
    ----------
    name, title
        Name here, and in the product documents without ``aclnn``.
    summary
        First line of the public function's help.
    arguments
        Tensors, attributes and outputs, in the order of the public function.
    axes
        What can vary, slowest first; the common axes are added.
    checks
        The contract, in the product's order: see :mod:`npu_sim.framework.checks`. A plain function
        of an :class:`Inspection` is a check too.
    tiling
        NamedTuple of the planner's result, its fields a table (:mod:`npu_sim.tiling.fields`).
    tile
        ``tile(row, device, rules) -> tiling`` in integers, so that Numba can compile it.
    used_bytes
        ``used_bytes(row, tiling, device, rules)``, compilable too: bytes of the Unified Buffer that
        the tiling takes. Given for planners that do not check whether they fit; else None.
    assumed
        Numbers that its planner assumes instead of reading them from the chip.
    describe
        ``describe(case)`` returns the fields of the plan that depend on the call. Those in
        ``plans.model.DEFERRED`` may be functions, which are called when the field is first read.
    compute
        ``compute(run)`` writes the outputs of a :class:`~npu_sim.framework.execution.Run`.
    formula
        ``formula(arguments, tensors, precision)`` returns the outputs, in NumPy in that precision.
    data
        ``data(arguments, seed)`` returns realistic inputs; None draws normal numbers.
    program
        ``program(plan)`` returns the timeline.
    steps
        ``steps(plan)`` returns what the tiles of the timeline hold and add
        (:mod:`npu_sim.timelines.steps`); None where only their names are known.
    instructions
        ``instructions(plan)`` returns the vector instructions of every core; None where no list is
        published.
    claims
        ``claims(call)`` yields the declared summation trees of the outputs (certificate).
    terms
        ``terms(call, output, index)`` returns the terms of one element (studies).
    parts
        ``parts(call, result, output)`` yields the contributions of every core (determinism,
        verify).
    writes
        ``writes(call, result, output)`` yields an index of some output elements, and the values
        (writes, ...) of which one survives, for outputs that several cores overwrite (verify).
    open_rules
        ``open_rules(call, result)`` yields the values that are possible where part of the rule is
        not published, as :class:`~npu_sim.orders.claims.OpenRule` (verify).
    miscounted
        ``miscounted(call, output, index, difference)`` yields name and call with a sample added
        twice, or missing, that may explain the element; ``difference`` is the measured output minus
        the computed one, in fp64 (verify).
    causes
        ``causes(call, dtype, golden)`` returns causes of error besides rounding (precision).
    variants
        ``variants(call)`` yields the math types to compare (precision).
    changes
        Ways to add samples to a batch (invariance).
    derived
        Integers that planners need and that are not axes.
    rules_of
        Integers of a profile that planners need besides the documented limits.
    limits
        Limits that a profile may state under ``documented_limits``; the registry lists those of the
        package's operators.
    shards
        Number axes that can be split over devices. A suggested faster call halves one of them.
    products
        Products that have the operator besides those whose profile lists it.
    evidence
        Best evidence of its plans; ``exact`` requires golden data in the tests.
    on_cube
        Whether it runs on cube cores.
    empty
        Path of a plan without work, as text.
    describe_empty, fill
        Further fields of such a plan, and its outputs where they are not all zeros.
    planner_failure, planner_message
        Status of a call without tiling, and a function of the case that returns argument, message
        and hint.
    bounds
        Functions of the largest values in a sweep, by the names that bounds of fields use.
    architectures
        For other architectures, by number, a function that returns the fields that differ there:
        another family of products has other planners and kernels. None where the family has the
        operator and npu_sim does not model it. Architectures that are not named have no difference.
    architecture
        Number of the one architecture that the declaration serves; set by :meth:`on_architecture`.
    timeline_hooks, study_hooks
        ``timeline_hooks()`` returns the hooks of the timeline by name, ``study_hooks()`` those of
        studies. Each runs when one of its hooks is first needed, and imports their modules then:
        planning and computing do not need them.
    """

    name: str
    title: str
    summary: str
    arguments: tuple[Argument, ...]
    axes: tuple[Axis, ...]
    checks: tuple[Callable[[Any], None], ...]
    tiling: type
    tile: Callable[[Any, Any, Any], Any]
    describe: Hook
    compute: Hook
    formula: Hook | None = None
    data: Hook | None = None
    program: Hook | None = None
    steps: Hook | None = None
    instructions: Hook | None = None
    claims: Hook | None = None
    terms: Hook | None = None
    parts: Hook | None = None
    writes: Hook | None = None
    open_rules: Hook | None = None
    miscounted: Hook | None = None
    causes: Hook | None = None
    variants: Hook | None = None
    changes: Hook | None = None
    derived: tuple[Derived, ...] = ()
    rules_of: Mapping[str, Callable[[Profile], int]] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    used_bytes: Callable[[Any, Any, Any, Any], int] | None = None
    shards: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    evidence: Evidence = Evidence.MODEL
    on_cube: bool = False
    empty: str = "empty: nothing runs"
    describe_empty: Hook | None = None
    fill: Hook | None = None
    planner_failure: Status = TILING_FAILURE
    planner_message: Callable[[Any], tuple[str, str, str]] | None = None
    bounds: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    architectures: Mapping[int, Callable[[], Mapping[str, Any]] | None] = field(
        default_factory=dict
    )
    architecture: int | None = None
    timeline_hooks: Callable[[], Mapping[str, Any]] | None = None
    study_hooks: Callable[[], Mapping[str, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: every process has the same operators."""
        return _loaded, (self.name, self.architecture)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, outputs too."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Tensor))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that the operator reads."""
        return tuple(tensor for tensor in self.tensors if not isinstance(tensor, Output))

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """Tensors that the operator writes."""
        return tuple(tensor for tensor in self.tensors if isinstance(tensor, Output))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """Arguments that are not tensors."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Attribute))

    @cached_property
    def prototype(self) -> tuple[Argument, ...]:
        """Parameters of the C function: inputs, attributes, outputs."""
        return (*self.inputs, *self.attributes, *self.outputs)

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(tensor.name for tensor in self.tensors)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(tensor.name for tensor in self.inputs)

    @cached_property
    def addressing(self) -> tuple[str, ...]:
        """Names of the inputs that hold addresses for kernels, such as indices."""
        return tuple(tensor.name for tensor in self.inputs if tensor.addresses)

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(output.output for output in self.outputs)

    @cached_property
    def floating(self) -> tuple[str, ...]:
        """Names of the inputs whose floating-point dtype a call chooses."""
        words = {axis.name for axis in self.dtype_axes if "bfloat16" in axis.words}
        return tuple(tensor.name for tensor in self.inputs if tensor.dtype in words)

    def argument(self, name: str) -> Any:
        """Return the declaration of an argument."""
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, Argument]:
        """The arguments by name."""
        return {argument.name: argument for argument in self.arguments}

    @cached_property
    def inputs_of_same_form(self) -> dict[str, tuple[str, ...]]:
        """Other inputs of the same shape and dtype, by tensor."""
        return {
            tensor.name: tuple(
                other.name
                for other in self.inputs
                if other is not tensor
                and (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
            )
            for tensor in self.tensors
        }

    @cached_property
    def all_axes(self) -> tuple[Axis, ...]:
        """The operator's axes, then the common ones."""
        return self.axes + COMMON_AXES

    @cached_property
    def dtype_axes(self) -> tuple[Word, ...]:
        """The axes that are dtypes of tensors."""
        used = {tensor.dtype for tensor in self.tensors}
        return tuple(axis for axis in self.axes if isinstance(axis, Word) and axis.name in used)

    @cached_property
    def dtype_names(self) -> frozenset[str]:
        """Names of the axes that are dtypes of tensors."""
        return frozenset(axis.name for axis in self.dtype_axes)

    @cached_property
    def sizes(self) -> tuple[Number, ...]:
        """The axes that are sizes or counts."""
        return tuple(axis for axis in self.axes if isinstance(axis, Number) and axis.unit)

    @cached_property
    def switches(self) -> dict[str, str]:
        """Optional tensors, by the axis that states whether each is given."""
        return {
            axis.name: axis.tensor for axis in self.axes if isinstance(axis, Switch) and axis.tensor
        }

    @cached_property
    def expressions(self) -> dict[str, str]:
        """Expressions of the integers that follow from others in a given call."""
        read = {
            axis.name: axis.read for axis in self.axes if isinstance(axis, Number) and axis.read
        }
        return read | {derived.name: derived.swept for derived in self.derived}

    @cached_property
    def readers(self) -> dict[str, Callable[[Mapping[str, Any]], int]]:
        """Functions that read derived numbers from the specs of a call."""
        return {derived.name: derived.read for derived in self.derived if derived.read is not None}

    @cached_property
    def rule_names(self) -> tuple[str, ...]:
        """Names of the rules: documented limits, switches of the release, other facts."""
        entry = find_operator(self.name)
        return (
            *(entry.limits if entry else ()),
            *self.limits,
            *release_switches(default_release(), self.name),
            *self.rules_of,
        )

    def axis(self, name: str) -> Axis:
        """Return the axis of a name or alias.

        Raises
        ------
        UsageError
            When there is none.
        """
        wanted = name.replace("-", "_").lower()
        for axis in self.all_axes:
            if wanted in (known.lower() for known in (axis.name, *axis.aliases)):
                return axis
        names = [axis.name for axis in self.all_axes]
        message = Text("{name} has nothing called {axis} to vary", self, axis=repr(name))
        hint = Text("one of: {names}{hint}", names=", ".join(names), hint=closest(wanted, names))
        raise UsageError(name, message, hint)

    def defaults(self) -> Values:
        """Return the default value of every axis of the operator."""
        return {axis.name: axis.default for axis in self.axes}

    def has_hook(self, name: str) -> bool:
        """Return whether the declaration has a hook."""
        return self._hook(name) is not None

    def hook(self, name: str) -> Any:
        """Return a hook of the declaration.

        Raises
        ------
        UsageError
            When the operator has none; the message names what is missing.
        """
        found = self._hook(name)
        if found is None:
            kind = GIVEN_BY_HOOKS.get(name, name)
            hint = Text("its declaration needs {name}=, see docs/add_an_operator.md", name=name)
            raise UsageError("operator", Text("{name} has no {kind}", self, kind=kind), hint)
        return found

    def _hook(self, name: str) -> Any:
        hook = getattr(self, name)
        if hook is not None:
            return hook
        deferred = self._timeline_hooks if name in TIMELINE_HOOKS else self._study_hooks
        return deferred.get(name)

    @cached_property
    def _timeline_hooks(self) -> Mapping[str, Any]:
        return {} if self.timeline_hooks is None else self.timeline_hooks()

    @cached_property
    def _study_hooks(self) -> Mapping[str, Any]:
        return {} if self.study_hooks is None else self.study_hooks()

    def call(
        self, values: Mapping[str, Value], groups: Mapping[str, patterns.Shape] | None = None
    ) -> dict[str, Any]:
        """Return the arguments of a call with these values of axes.

        ``groups`` are the axes of a given call; its tensors keep their ranks.
        """
        sizes = {name: int(value) for name, value in values.items() if not isinstance(value, str)}
        needed = {
            name for tensor in self.inputs for name in patterns.names(self.pattern(tensor, values))
        }
        swept = {derived.name: derived.swept for derived in self.derived}

        def size_of(name: str) -> int:
            is_known = name in sizes or name not in swept
            return sizes[name] if is_known else int(evaluate(swept[name], size_of))

        sizes |= {name: max(size_of(name), 0) for name in swept if name in needed}
        is_given = {switched: values[name] for name, switched in self.switches.items()}
        call: dict[str, Any] = {}
        for tensor in self.inputs:
            if is_given.get(tensor.name, not tensor.optional):
                shape = patterns.build(self.pattern(tensor, values), sizes, groups)
                dtype = str(values.get(tensor.dtype, tensor.dtype))
                call[tensor.name] = TensorSpec(shape, dtype)
        named = {axis.name for axis in self.axes}
        return call | {
            attribute.name: attribute.kind(values[attribute.name])
            for attribute in self.attributes
            if attribute.name in named
        }

    def plan_arguments(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return all keyword arguments of :func:`npu_sim.plan` but the profile."""
        sizes = {axis.name: values[axis.name] for axis in self.axes}
        return {
            "deterministic": values["deterministic"],
            "limits": values["limits"],
            **self.call(sizes),
        }

    def read(self, arguments: Arguments) -> tuple[Values, dict[str, patterns.Shape]]:
        """Return the values of axes that a call determines, and the axes of its groups."""
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
        """Return the sizes of a tensor's pattern that are attributes or follow from others.

        An axis of an input decides its size, even where an expression exists for it.
        """
        decided = () if isinstance(tensor, Output) else [axis.name for axis in self.axes]
        follows = self.expressions.keys() - decided | self.by_name.keys()
        return tuple(name for name in patterns.names(pattern) if name in follows)

    def bound(self, arguments: Arguments, guess: bool = True) -> patterns.Sizes:
        """Return the sizes that the given tensors bind; contradicting tensors are skipped."""
        sizes = patterns.Sizes()
        given = [
            (self.pattern(tensor, arguments), spec.shape)
            for tensor in self.inputs
            if (spec := arguments.get(tensor.name)) is not None
        ]
        for pattern, shape in sorted(
            dict.fromkeys(given), key=lambda entry: patterns.openness(entry[0])
        ):
            patterns.bind(pattern, shape, sizes, guess)
        return sizes

    def size(
        self, name: str, sizes: patterns.Sizes, arguments: Arguments, pending: tuple[str, ...] = ()
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
        if name in self.switches:
            return int(arguments[self.switches[name]] is not None)
        if name not in self.expressions or name in pending:
            raise KeyError(name)
        return int(
            evaluate(
                self.expressions[name],
                lambda other: self.size(other, sizes, arguments, (*pending, name)),
            )
        )

    def build(self, values: Mapping[str, Any], *, infer: bool = False) -> Arguments:
        """Build arguments from those of a caller; ``infer`` fills in inputs that others imply.

        Raises
        ------
        UsageError
            For an unknown argument, a value that is not a tensor, and a missing argument.
        """
        built = build_arguments(self.by_name, values)
        missing = (
            [tensor for tensor in self.inputs if not tensor.optional and tensor.name not in values]
            if infer
            else []
        )
        if missing:
            given = built
            built = self.inferred(given, missing)
            unknown = {tensor.name for tensor in missing if built[tensor.name] is None}
            if unknown and None not in [values.get(name, 0) for name in self.input_names]:
                self._require_fitting(given)
            self.require_given(set(self.input_names) - unknown)
        return built

    def _require_fitting(self, arguments: Arguments) -> None:
        """Check that the shapes of given inputs do not contradict each other.

        Raises
        ------
        UsageError
            For the first input whose shape contradicts that of an input before it.
        """
        given: list[Tensor] = []
        for tensor in self.inputs:
            spec = arguments[tensor.name]
            if spec is None:
                continue
            for other in given:
                sizes = patterns.Sizes()
                patterns.bind(self.pattern(other, arguments), arguments[other.name].shape, sizes)
                pattern = self.pattern(tensor, arguments)
                alone = patterns.bind(pattern, spec.shape, patterns.Sizes())
                if alone and not patterns.bind(pattern, spec.shape, sizes):
                    message = Text(
                        "{name} {spec} does not fit {other} {other_spec}",
                        tensor,
                        spec=spec,
                        other=other.name,
                        other_spec=arguments[other.name],
                    )
                    raise UsageError(tensor.name, message, Text("{name}: {help}", tensor))
            given.append(tensor)

    def require_given(self, names: Collection[str]) -> None:
        """Check that a call gives every required tensor; None counts, as the null pointer.

        Raises
        ------
        UsageError
            For an unknown name, which may be meant for a missing one; else for the first missing.
        """
        missing = [
            tensor for tensor in self.inputs if not tensor.optional and tensor.name not in names
        ]
        if missing:
            require_known(self.by_name, names)
        for tensor in sorted(missing, key=lambda tensor: tensor.name in self.implied):
            # Sorted: an input that no other implies is named first.
            raise UsageError(
                tensor.name, Text("{name} is missing", tensor), Text("{name}: {help}", tensor)
            )

    @cached_property
    def implied(self) -> frozenset[str]:
        """Inputs that may be left out when planning, as others imply them."""
        call = self.call(self.defaults())
        whole = {
            **{tensor.name: None for tensor in self.tensors},
            **{attribute.name: attribute.default for attribute in self.attributes},
            **call,
        }
        return frozenset(
            tensor.name
            for tensor in self.inputs
            if self.inferred(Arguments({**whole, tensor.name: None}), [tensor])[tensor.name]
            is not None
        )

    def inferred(self, arguments: Arguments, missing: Sequence[Tensor]) -> Arguments:
        """Return the arguments with the missing tensors that follow from the others."""
        filled, sizes = dict(arguments.items()), None
        specs = {name: spec for name in self.tensor_names if (spec := filled[name]) is not None}
        for tensor in missing:
            same_form = [name for name in self.inputs_of_same_form[tensor.name] if name in specs]
            if same_form:
                filled[tensor.name] = specs[same_form[0]]
                continue
            sizes = self.bound(arguments, guess=False) if sizes is None else sizes
            try:
                pattern = self.pattern(tensor, filled)
                values = {
                    name: self.size(name, sizes, arguments) for name in patterns.names(pattern)
                }
                filled[tensor.name] = TensorSpec(
                    patterns.build(pattern, values, sizes.groups), self.dtype_of(tensor, specs)
                )
            except (KeyError, TypeError, ValueError, ArithmeticError):
                continue  # nothing determines it
        return Arguments(filled)

    def dtype_of(self, tensor: Tensor, specs: Mapping[str, TensorSpec]) -> str:
        """Return the dtype of a tensor that the others imply.

        Raises
        ------
        KeyError
            When no given tensor determines it.
        """
        if tensor.dtype not in self.dtype_names:
            return tensor.dtype
        return self._dtype_named(tensor.dtype, specs)

    def _dtype_named(self, axis: str, specs: Mapping[str, TensorSpec | None]) -> str:
        for name in self._inputs_of_dtype[axis]:
            spec = specs.get(name)
            if spec is not None:
                return spec.dtype
        raise KeyError(axis)

    @cached_property
    def _inputs_of_dtype(self) -> dict[str, tuple[str, ...]]:
        """Inputs by the dtype axis that they have."""
        return {
            name: tuple(tensor.name for tensor in self.inputs if tensor.dtype == name)
            for name in self.dtype_names
        }

    @cached_property
    def planner(self) -> RowPlanner:
        """Contract and planner as functions of integers."""
        return row_planner(self)

    def supported_by(self, profile: Profile) -> bool:
        """Return whether a product has the operator."""
        return self.name in profile.product.operators or profile.name in self.products

    def on(self, profile: Profile) -> "Operator":
        """Return the declaration that serves a product's architecture.

        Raises
        ------
        NotModelledError
            When the product has the operator and npu_sim does not model it there, or not at this
            release.
        """
        if not self.supported_by(profile):
            return self  # the contract refuses the call
        product = profile.product
        if is_older(profile.release, product.oldest_release):
            message = Text(
                "release = {release}: the rules of {product_title} are known from release {oldest} "
                "on ({source})",
                profile,
                product_title=product.title,
                oldest=product.oldest_release,
                source=product.rules_source,
            )
            raise NotModelledError(
                "release", message, Text("release {oldest}", oldest=product.oldest_release)
            )
        return self.on_architecture(profile.npu_arch, product.title)

    def on_architecture(self, number: int, product_title: str = "") -> "Operator":
        """Return the declaration that serves an architecture.

        Raises
        ------
        NotModelledError
            When no declaration models it there.
        """
        if self.architecture == number:
            return self
        base = self if self.architecture is None else load_operator(self.name)
        if number not in base.architectures:
            return base
        if base.architectures[number] is None:
            message = Text(
                "{product_title} has {title}, npu_sim does not model it there yet",
                self,
                product_title=product_title or str(number),
            )
            raise NotModelledError("product", message, "choose another product")
        return _on_architecture(base, number)

    def check(self, arguments: Arguments, target: Target) -> Case:
        """Run the checks of the contract in the product's order and tile the call.

        Calls that pass are cached by signature.

        Raises
        ------
        AclnnError
            With the status of the first check that fails.
        NotModelledError
            See :meth:`on`.
        """
        declared = self.on(target.profile)
        signature = cache_key(arguments)
        if signature is None:
            return declared.check_uncached(arguments, target)
        return _cached_case(declared, signature, target)

    def check_uncached(self, arguments: Arguments, target: Target) -> Case:
        """Like :meth:`check`, by this declaration and without caching."""
        device, rules = target.profile.device, self.rules(target.profile)
        specs = arguments.given(self.tensor_names)
        call = Inspection(self, arguments, target, specs, patterns.Sizes(), device, rules)
        for check in self.checks:
            if isinstance(check, NothingToDo) and check.holds(call):
                return call.case(empty=True)
            check(call)
        case = call.case(empty=False)
        if case.tiling.status != SUCCESS:
            raise AclnnError(self.planner_failure, *self._failure_message(case))
        return case

    def _failure_message(self, case: Case) -> tuple[str, str, str]:
        if self.planner_message is not None:
            return self.planner_message(case)
        return (
            self.inputs[0].name,
            Text(
                "{title} has no tiling for this call on {product_title}",
                self,
                product_title=case.profile.title,
            ),
            "try smaller sizes",
        )

    def row_of(self, call: Inspection) -> Any:
        """Return a call as integers, see :mod:`npu_sim.framework.rows`."""
        values = [
            call.size(axis.name) if isinstance(axis, Number) else self._code(axis, call)
            for axis in self.axes
        ]
        common = [int(call.limits == "hardware"), int(call.deterministic)]
        return self.planner.row(
            *values, *common, *(call.size(derived.name) for derived in self.derived)
        )

    def _code(self, axis: Word | Switch, call: Inspection) -> int:
        try:
            value = self._value(axis, call.sizes, call.arguments)
        except KeyError:  # the dtype of an optional tensor that was left out
            value = axis.default
        return int(value) if isinstance(axis, Switch) else axis.words.index(str(value))

    def rules(self, profile: Profile) -> Any:
        """Return the integers of a profile that planners need; ``NOT_DOCUMENTED`` for others."""
        return _rules(self, profile)

    def dtype_mask(self, profile: Profile) -> int:
        """Return a mask with one bit per combination of dtypes, set if the contract accepts it.

        The last axis varies fastest.
        """
        dtype_checks = [check for check in self.checks if isinstance(check, DtypeCheck)]
        mask = 0
        for code, words in enumerate(itertools.product(*(axis.words for axis in self.dtype_axes))):
            chosen = dict(zip((axis.name for axis in self.dtype_axes), words, strict=True))
            specs = {
                tensor.name: TensorSpec((), chosen.get(tensor.dtype, tensor.dtype))
                for tensor in self.inputs
                if not tensor.optional
            }
            call = Inspection(
                self, Arguments({}), Target(profile), specs, patterns.Sizes(), profile.device, None
            )
            mask |= int(all(_passes(check, call) for check in dtype_checks)) << code
        return mask


@cache
def _on_architecture(base: Operator, number: int) -> Operator:
    """Return the declaration with the fields that differ on an architecture."""
    differing = base.architectures[number]
    assert differing is not None
    return replace(base, architecture=number, **differing())


def _loaded(name: str, architecture: int | None) -> Operator:
    """Return an operator by name, or its declaration for one architecture."""
    declared: Operator = load_operator(name)
    return declared if architecture is None else declared.on_architecture(architecture)


@lru_cache(maxsize=CACHED_CALLS)
def _cached_case(operator: Operator, signature: Signature, target: Target) -> Case:
    arguments = Arguments({name: value for name, _, value in signature})
    return operator.check_uncached(arguments, target)


@lru_cache(maxsize=256)
def _rules(operator: Operator, profile: Profile) -> Any:
    limits = profile.documented_limits(operator.name)
    facts = {**limits, **profile.release_switches(operator.name)}
    rules_of = operator.rules_of
    stated = [
        rules_of[name](profile) if name in rules_of else facts.get(name, NOT_DOCUMENTED)
        for name in operator.rule_names
    ]
    supported, mask = operator.supported_by(profile), operator.dtype_mask(profile)
    return operator.planner.rules(int(supported), mask, *stated)


def _passes(check: Check, call: Inspection) -> bool:
    try:
        check(call)
    except AclnnError:
        return False
    return True
