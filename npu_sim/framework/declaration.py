"""One operator, one declaration: what everything else about it is derived from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Argument, Attribute, Output, Tensor
from npu_sim.framework.assumptions import Assumed
from npu_sim.framework.axes import COMMON_AXES, Axis, Derived, Number, Switch, Values, Word
from npu_sim.plans.answers import Evidence
from npu_sim.registry import find_operator, load_operator
from npu_sim.releases import default_release, release_switches
from npu_sim.status import TILING_FAILURE, Status, UsageError, closest

Hook = Callable[..., Any]
"""A function that a declaration names for one purpose."""

TIMELINE_HOOKS = ("program", "steps", "instructions")
"""Hooks that ``timeline_hooks`` may give; ``study_hooks`` may give the other optional ones."""

GIVEN_BY_HOOKS = {
    "program": "timeline",
    "claims": "summation trees",
    "formula": "formula to compare with",
    "terms": "terms of an element",
}
"""What a hook gives, in words."""


@dataclass(frozen=True, eq=False)
class Declaration:
    """The declaration of an operator.

    Attributes
    ----------
    name, title
        Name here, and in the product documents without ``aclnn``.
    summary
        First line of the public function's help.
    arguments
        Tensors, attributes and outputs, in the order of the public function.
    axes
        What can vary, slowest first; the common ones come on top.
    checks
        The contract, in the product's order: see :mod:`npu_sim.framework.checks`. A plain function of an
        :class:`Inspection` is a check too.
    tiling
        NamedTuple of the planner's result, its fields a table (:mod:`npu_sim.tiling.fields`).
    tile
        ``tile(row, device, rules) -> tiling`` in whole numbers, so that Numba can compile it.
    used_bytes
        ``used_bytes(row, tiling, device, rules)``, compilable too, for a planner that does not check whether its buffers fit the Unified
        Buffer: how much they take. None where a tiling always fits.
    assumed
        Numbers that its planner takes for granted instead of asking the chip.
    describe
        ``describe(case)`` gives the fields of the plan that depend on the call; one that takes time may be a function that finds it
        when it is read.
    compute
        ``compute(run)`` writes the outputs of a :class:`~npu_sim.framework.execution.Run`.
    formula
        ``formula(arguments, tensors, precision)`` gives the outputs in NumPy in that precision.
    data
        ``data(arguments, seed)`` gives realistic inputs; None draws normal numbers.
    program
        ``program(plan)`` gives the timeline.
    steps
        ``steps(plan)`` says what the tiles of the timeline hold and add (:mod:`npu_sim.timelines.step_table`); None where only their
        names are known.
    instructions
        ``instructions(plan)`` gives the vector instructions of every core; None where no list of them is published.
    claims, terms, parts, causes, variants, changes
        What studies ask: summation trees, terms of an element, contributions of cores, further causes of error, math types, and how
        samples are added to a batch.
    derived
        Whole numbers that planners need and nobody varies.
    rules_of
        Facts of a profile that planners need, as whole numbers, besides the documented limits.
    limits
        Limits that a profile may state for it under ``documented_limits``; those of the package stand in the registry.
    shards
        Axes of numbers that can be split over devices: what would make a call faster tries half of them.
    products
        Products that have an operator of one's own, besides those whose profile lists it.
    evidence
        How sure its plans are at most: ``exact`` is earned by golden data in the tests.
    on_cube
        Whether it runs on cube cores.
    empty
        Path of a plan without work, in words.
    describe_empty, fill
        Further fields of such a plan, and its outputs where they are not all zeros.
    has_tiling
        ``has_tiling(row, device, rules)``: whether a call that passed the checks is certain to have a tiling; elsewhere it is tiled first.
    planner_failure, planner_words
        Status, and ``words(case)`` giving argument, message and hint, of a call that has no tiling.
    bounds
        Further numbers that bounds of fields speak of, from the largest values of a sweep.
    timeline_hooks, study_hooks
        ``timeline_hooks()`` gives the hooks of the timeline by name, ``study_hooks()`` those of studies. Each is called when one
        of its hooks is first needed and imports the modules they are in, so that planning and computing do without.
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
    has_tiling: Callable[[Any, Any, Any], bool] | None = None
    planner_failure: Status = TILING_FAILURE
    planner_words: Callable[[Any], tuple[str, str, str]] | None = None
    bounds: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    timeline_hooks: Callable[[], Mapping[str, Any]] | None = None
    study_hooks: Callable[[], Mapping[str, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to other processes by name: every process has the same operators."""
        return load_operator, (self.name,)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, outputs too."""
        return tuple(one for one in self.arguments if isinstance(one, Tensor))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors it reads."""
        return tuple(one for one in self.tensors if not isinstance(one, Output))

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The tensors it writes."""
        return tuple(one for one in self.tensors if isinstance(one, Output))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The arguments that are not tensors."""
        return tuple(one for one in self.arguments if isinstance(one, Attribute))

    @cached_property
    def prototype(self) -> tuple[Argument, ...]:
        """The parameters of the C function: inputs, attributes, outputs."""
        return (*self.inputs, *self.attributes, *self.outputs)

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(one.name for one in self.tensors)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the tensors it reads."""
        return tuple(one.name for one in self.inputs)

    @cached_property
    def addressing(self) -> tuple[str, ...]:
        """Names of the inputs that say where kernels read or write."""
        return tuple(one.name for one in self.inputs if one.addresses)

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(one.output for one in self.outputs)

    @cached_property
    def floating(self) -> tuple[str, ...]:
        """Input tensors that have a floating-point dtype of the call's choice; the others keep theirs."""
        words = {axis.name for axis in self.dtype_axes if "bfloat16" in axis.words}
        return tuple(one.name for one in self.inputs if one.dtype in words)

    def argument(self, name: str) -> Any:
        """Return the declaration of an argument."""
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, Argument]:
        """The arguments by name."""
        return {one.name: one for one in self.arguments}

    @cached_property
    def twins(self) -> dict[str, tuple[str, ...]]:
        """For every tensor the other inputs of the same shape and dtype."""
        return {
            one.name: tuple(
                other.name
                for other in self.inputs
                if other is not one and (other.shape, other.dtype) == (one.shape, one.dtype)
            )
            for one in self.tensors
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
        """The axes that say whether an optional tensor is given, and which."""
        return {
            axis.name: axis.tensor for axis in self.axes if isinstance(axis, Switch) and axis.tensor
        }

    @cached_property
    def expressions(self) -> dict[str, str]:
        """Whole numbers that follow from others in a given call, and how."""
        read = {one.name: one.read for one in self.axes if isinstance(one, Number) and one.read}
        return read | {one.name: one.swept for one in self.derived}

    @cached_property
    def readers(self) -> dict[str, Callable[[Mapping[str, Any]], int]]:
        """How derived numbers that patterns do not say are read from the specs of a call."""
        return {one.name: one.read for one in self.derived if one.read is not None}

    @cached_property
    def rule_names(self) -> tuple[str, ...]:
        """Names of the documented limits, of what the release decides, and of the other facts of a profile."""
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
        message = f"{self.name} has nothing called {name!r} to vary"
        raise UsageError(name, message, f"one of: {', '.join(names)}{closest(wanted, names)}")

    def defaults(self) -> Values:
        """Return the default value of every axis of the operator."""
        return {axis.name: axis.default for axis in self.axes}

    def has_hook(self, name: str) -> bool:
        """Return whether the declaration gives a hook."""
        return self._hook(name) is not None

    def hook(self, name: str) -> Any:
        """Return one of the functions that the declaration gives.

        Raises
        ------
        UsageError
            When the operator has none: the message says what is missing.
        """
        found = self._hook(name)
        if found is None:
            kind = GIVEN_BY_HOOKS.get(name, name)
            hint = f"its declaration needs {name}=, see docs/add_an_operator.md"
            raise UsageError("operator", f"{self.name} has no {kind}", hint)
        return found

    def _hook(self, name: str) -> Any:
        own = getattr(self, name)
        if own is not None:
            return own
        deferred = self._timeline_hooks if name in TIMELINE_HOOKS else self._study_hooks
        return deferred.get(name)

    @cached_property
    def _timeline_hooks(self) -> Mapping[str, Any]:
        return {} if self.timeline_hooks is None else self.timeline_hooks()

    @cached_property
    def _study_hooks(self) -> Mapping[str, Any]:
        return {} if self.study_hooks is None else self.study_hooks()
