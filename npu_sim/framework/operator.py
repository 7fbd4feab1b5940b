"""One operator, one declaration: its arguments, its contract, and the functions it names.

Everything else about an operator is derived from these fields: :mod:`npu_sim.framework.inference`
reads the arguments of a call, :mod:`npu_sim.framework.checking` checks it.
"""

from __future__ import annotations  # hooks have types that planning does not import

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from npu_sim.cores import Device, Profile, is_older, release_table
from npu_sim.framework.arguments import (
    COMMON_AXES,
    Argument,
    Attribute,
    Axis,
    Derived,
    Number,
    Output,
    Switch,
    Tensor,
    Values,
    Word,
)
from npu_sim.language import Text
from npu_sim.numbers.arrays import Arrays, Dtype, Index
from npu_sim.plans.answers import Evidence
from npu_sim.registry import find_operator
from npu_sim.status import TILING_FAILURE, NotModelledError, Status, UsageError, closest, tip
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES

if TYPE_CHECKING:
    import numpy as np

    from npu_sim.orders.claims import Claim, LastWrites, OpenRule, Parts
    from npu_sim.plans.model import Plan
    from npu_sim.timelines.program import Program
    from npu_sim.timelines.vector_pipe import InstructionLists

Function = TypeVar("Function")


@dataclass(frozen=True, eq=False)
class Hook(Generic[Function]):
    """One purpose that a function of an operator may serve.

    A declaration gives a hook as the field of its name, or names its package: then the hook is the
    function of that name in ``module``, which is imported when the hook is first needed. On a
    family of products it is that of the module of this name in the package of the family, if any.

    Attributes
    ----------
    name
        Field of the declaration, and name in the module.
    module
        Module of the operator's package that has it.
    noun
        What it gives, for the message of an operator without it; the name when empty.
    attribute
        Name in the module where it is not a function; the name when empty.
    """

    name: str
    module: str
    noun: str = ""
    attribute: str = ""


PlannerMessage = tuple[str, str, str]
"""Argument, message and hint of a call without a tiling."""

COMPUTE: Hook[Callable[[Any], None]] = Hook("compute", "compute")
FILL: Hook[Callable[[Any], None]] = Hook("fill", "compute")
FORMULA: Hook[Callable[[Mapping[str, Any], Arrays, Dtype], Arrays]] = Hook(
    "formula", "compute", "formula to compare with"
)
DATA: Hook[Callable[[Mapping[str, Any], int | np.random.Generator], Arrays]] = Hook(
    "data", "compute"
)
PROGRAM: Hook[Callable[[Plan], Program]] = Hook("program", "timeline", "timeline")
INSTRUCTIONS: Hook[Callable[[Plan], InstructionLists]] = Hook("instructions", "timeline")
CLAIMS: Hook[Callable[[Any], Iterator[Claim]]] = Hook("claims", "study", "summation trees")
TERMS: Hook[Callable[[Any, str, Index], list[tuple[str, float]]]] = Hook(
    "terms", "study", "terms of an element"
)
PARTS: Hook[Callable[[Any, Any, str], Iterator[Parts]]] = Hook("parts", "study")
WRITES: Hook[Callable[[Any, Any, str], Iterator[LastWrites]]] = Hook("writes", "study")
OPEN_RULES: Hook[Callable[[Any, Any], Iterable[OpenRule]]] = Hook("open_rules", "study")
MISCOUNTED: Hook[Callable[[Any, str, Index, np.ndarray], Iterator[tuple[str, Any]]]] = Hook(
    "miscounted", "study"
)
CAUSES: Hook[Callable[[Any, str, np.ndarray], list[tuple[str, float, str]]]] = Hook(
    "causes", "study"
)
VARIANTS: Hook[Callable[[Any], Iterable[tuple[str, str, Any]]]] = Hook("variants", "study")
UNFUSED: Hook[Callable[[Any, str], Iterator[tuple[str, Callable[[], Any]]]]] = Hook(
    "unfused", "study"
)
COMPLETED: Hook[Mapping[str, Callable[[Any], np.ndarray]]] = Hook(
    "completed", "study", attribute="COMPLETED"
)
CHANGES: Hook[Any] = Hook("changes", "study", attribute="CHANGES")
IN_DUMPS: Hook[Any] = Hook("in_dumps", "study", attribute="IN_DUMPS")

OwnHook = Callable[..., Any] | None
"""A hook of a declaration, see :class:`Hook`; None: that of the package."""


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


def system_workspace(section: str) -> Assumed:
    """Return the system workspace that a planner assumes; ``section`` of a specification page."""
    source = Text("specification page {section}", section=section)
    return Assumed("system_workspace_bytes", SYSTEM_WORKSPACE_BYTES, source)


@dataclass(frozen=True, eq=False)
class Operator:
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
        What can vary, slowest first; the common axes are added.
    checks
        The contract, in the product's order: see :mod:`npu_sim.framework.checks`. A plain function
        of an :class:`Inspection` is a check too.
    tiling
        NamedTuple of the planner's result, its fields a table (:mod:`npu_sim.tiling.common`).
    tile
        ``tile(row, device, rules) -> tiling`` in integers, so that Numba can compile it.
    used_bytes
        ``used_bytes(row, tiling, device, rules)``, compilable too: bytes of the Unified Buffer that
        the tiling takes. Given for planners that do not check whether they fit; else None.
    assumed
        Numbers that its planner assumes instead of reading them from the chip.
    describe
        ``describe(case)`` returns what the operator states of the plan of a call, as a
        :class:`~npu_sim.framework.describing.Description`.
    compute
        ``compute(run)`` writes the outputs of a :class:`~npu_sim.framework.execution.Run`.
    formula
        ``formula(arguments, tensors, precision)`` returns the outputs, in NumPy in that precision.
    data
        ``data(arguments, seed)`` returns realistic inputs; None draws normal numbers.
    program
        ``program(plan)`` returns the timeline.
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
        ``writes(call, result, output)`` yields the values of which one survives, for outputs that
        several cores overwrite, as :class:`~npu_sim.orders.claims.LastWrites` (verify).
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
    unfused
        ``unfused(call, output)`` yields what frameworks compute in several kernels, as a sentence
        and a function that returns both ends of the output's values (verify).
    completed
        Inputs that verify computes when they are left out, by name: ``function(call)`` returns the
        array.
    changes
        Ways to add samples to a batch (invariance).
    in_dumps
        How dumps name its calls, and what statistics of its tensors must obey (dump).
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
    c_forms
        The declaration as other C functions take it, each with the title of its function: outputs
        in place, other names of parameters, other defaults.
    c_order
        Names of the parameters of the C function, where their order is another than inputs,
        attributes, outputs.
    package
        Package that has the hooks which are not given (:class:`Hook`); empty for a
        declaration that gives all of them.
    families
        Families of products (``registry.FAMILIES``) that have the operator with other planners and
        kernels: the package of a family gives what differs there as ``DIFFERENCES``, see
        :class:`Differences`.
    families_not_modelled
        Families that have the operator, and npu_sim does not model it there. The declaration serves
        families that neither names.
    not_modelled_since
        Release, by architecture, from which on products have the operator and npu_sim does not
        model it there.
    family
        The one family that the declaration serves; set by :meth:`on_family`.
    absent
        Hooks of the package that do not hold for the family; set by :meth:`on_family`.
    common
        The declaration that serves the other products; None in that one itself.
    """

    name: str
    title: str
    summary: str
    arguments: tuple[Argument, ...]
    axes: tuple[Axis, ...]
    checks: tuple[Callable[[Any], None], ...]
    tiling: type
    tile: Callable[[Any, Device, Any], Any]
    describe: OwnHook = None
    compute: OwnHook = None
    formula: OwnHook = None
    data: OwnHook = None
    program: OwnHook = None
    instructions: OwnHook = None
    claims: OwnHook = None
    terms: OwnHook = None
    parts: OwnHook = None
    writes: OwnHook = None
    open_rules: OwnHook = None
    miscounted: OwnHook = None
    causes: OwnHook = None
    variants: OwnHook = None
    unfused: OwnHook = None
    completed: Any = None
    changes: OwnHook = None
    in_dumps: OwnHook = None
    derived: tuple[Derived, ...] = ()
    rules_of: Mapping[str, Callable[[Profile], int]] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    used_bytes: Callable[[Any, Any, Device, Any], int] | None = None
    shards: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    evidence: Evidence = Evidence.MODEL
    on_cube: bool = False
    empty: str = "empty: nothing runs"
    describe_empty: OwnHook = None
    fill: OwnHook = None
    planner_failure: Status = TILING_FAILURE
    planner_message: Callable[[Any], PlannerMessage] | None = None
    bounds: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    c_forms: tuple[Operator, ...] = ()
    c_order: tuple[str, ...] = ()
    package: str = ""
    families: tuple[str, ...] = ()
    families_not_modelled: tuple[str, ...] = ()
    not_modelled_since: Mapping[int, str] = field(default_factory=dict)
    family: str = ""
    absent: tuple[str, ...] = ()
    common: Operator | None = None

    def __new__(cls, *fields_in_order: Any, **fields_by_name: Any) -> Operator:
        """Name the fields that a declaration lacks; Python lists them as parameters."""
        required = [
            member.name
            for member in fields(cls)
            if member.default is MISSING and member.default_factory is MISSING
        ]
        known = [member.name for member in fields(cls)]
        for name in fields_by_name.keys() - set(known):
            raise TypeError(
                Text(
                    "Operator(...) has no field {name}{near}", name=name, near=closest(name, known)
                )
            )
        lacking = [name for name in required[len(fields_in_order) :] if name not in fields_by_name]
        if lacking:
            raise TypeError(Text("Operator(...) lacks {names}", names=", ".join(lacking)))
        return super().__new__(cls)

    @cached_property
    def is_foreign(self) -> bool:
        """Whether it was declared outside npu_sim, so that its functions are checked."""
        return not self.tile.__module__.startswith("npu_sim.")

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
        """Parameters of the C function: inputs, attributes, outputs that are not in place."""
        if self.c_order:
            return tuple(map(self.argument, self.c_order))
        outputs = (output for output in self.outputs if not output.in_place)
        return (*self.inputs, *self.attributes, *outputs)

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(tensor.name for tensor in self.tensors)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(tensor.name for tensor in self.inputs)

    @cached_property
    def required_inputs(self) -> tuple[Tensor, ...]:
        """Inputs that a call must give."""
        return tuple(tensor for tensor in self.inputs if not tensor.optional)

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

    def dtypes_of(self, tensor: str) -> tuple[str, ...]:
        """Return the dtypes that the declaration states for a tensor."""
        dtype = self.argument(tensor).dtype
        return next((axis.words for axis in self.dtype_axes if axis.name == dtype), (dtype,))

    @cached_property
    def sizes(self) -> tuple[Number, ...]:
        """The axes that are sizes or counts."""
        return tuple(axis for axis in self.axes if isinstance(axis, Number) and axis.unit)

    @cached_property
    def named_attributes(self) -> dict[str, Word]:
        """Axes of the string attributes."""
        words = (axis for axis in self.axes if isinstance(axis, Word))
        return {word.name: word for word in words if word.name in self.by_name}

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
        documented = entry.limits if entry else ()
        return (
            *documented,
            *self.limits,
            *release_table().switches.get(self.name, {}),
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
        raise UsageError(
            name,
            "{name} has nothing called {axis} to vary",
            "{tip}one of: {names}",
            name=self.name,
            axis=repr(name),
            names=", ".join(names),
            tip=tip(wanted, names),
        )

    def defaults(self) -> Values:
        """Return the default value of every axis of the operator."""
        return {axis.name: axis.default for axis in self.axes}

    def has_hook(self, hook: Hook[Any]) -> bool:
        """Return whether the operator has a hook."""
        return find_hook(self, hook) is not None

    def hook(self, hook: Hook[Function]) -> Function:
        """Return a hook of the operator.

        Raises
        ------
        UsageError
            When the operator has none; the message names what is missing.
        """
        found: Function | None = find_hook(self, hook)
        if found is None:
            raise UsageError(
                "operator",
                "{name} has no {kind}",
                "its declaration needs {hook}=, or package= with a module that has {hook}, as in "
                "the file that npu-sim new-operator writes",
                name=self.name,
                kind=hook.noun or hook.name,
                hook=hook.name,
            )
        return found

    @cached_property
    def inputs_of_dtype(self) -> dict[str, tuple[str, ...]]:
        """Inputs by the dtype axis that they have."""
        return {
            name: tuple(tensor.name for tensor in self.inputs if tensor.dtype == name)
            for name in self.dtype_names
        }

    def supported_by(self, profile: Profile) -> bool:
        """Return whether a product has the operator."""
        return self.name in profile.product.operators or profile.name in self.products

    def on(self, profile: Profile) -> Operator:
        """Return the declaration that serves a product.

        Raises
        ------
        NotModelledError
            When npu_sim does not model the operator there, or not at this release.
        """
        product = profile.product
        if self.name in product.not_modelled:
            raise NotModelledError(
                "product",
                "{title} is not modelled on {product_title}: {reason}",
                "choose another product",
                title=self.title,
                product_title=product.title,
                reason=product.not_modelled[self.name],
            )
        since = self.not_modelled_since.get(profile.npu_arch)
        if since is not None and not is_older(profile.release, since):
            raise NotModelledError(
                "product",
                "{title} has the operator from release {since} on; npu_sim does not model it there "
                "yet",
                "choose another product",
                title=product.title,
                since=since,
            )
        if not self.supported_by(profile):
            return self  # the contract refuses the call
        if is_older(profile.release, product.oldest_release):
            raise NotModelledError(
                "release",
                "release = {release}: the rules of {product_title} are known from release "
                "{oldest} on ({source})",
                "release {oldest}",
                release=profile.release,
                product_title=product.title,
                oldest=product.oldest_release,
                source=product.rules_source,
            )
        return self.on_family(profile.family, product.title)

    def on_family(self, family: str, product_title: str = "") -> Operator:
        """Return the declaration that serves a family of products; empty for the common one.

        Raises
        ------
        NotModelledError
            When no declaration models it there.
        """
        if self.family == family:
            return self
        base = self.common or self
        if family in base.families_not_modelled:
            raise NotModelledError(
                "product",
                "{product_title} has {title}, npu_sim does not model it there yet",
                "choose another product",
                product_title=product_title or family,
                title=self.title,
            )
        return _on_family(base, family) if family in base.families else base


SAME: Any = object()
"""Fields that a family of products has in common with the others, see :class:`Differences`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Differences:
    """What an operator does otherwise on a family of products.

    The fields are those of :class:`Operator`; what is not given is as on the other products. Hooks
    stand in modules of the same names as the operator's (:class:`Hook`); ``absent`` names those
    that do not hold for the family.
    """

    arguments: tuple[Argument, ...] = SAME
    axes: tuple[Axis, ...] = SAME
    derived: tuple[Derived, ...] = SAME
    checks: tuple[Callable[[Any], None], ...] = SAME
    tiling: type = SAME
    tile: Callable[[Any, Device, Any], Any] = SAME
    used_bytes: Callable[[Any, Any, Device, Any], int] | None = SAME
    bounds: Mapping[str, Callable[[Any], int]] = SAME
    assumed: tuple[Assumed, ...] = SAME
    planner_message: Callable[[Any], PlannerMessage] | None = SAME
    empty: str = SAME
    absent: tuple[str, ...] = ()


@cache
def _on_family(base: Operator, family: str) -> Operator:
    """Return the declaration with the fields that differ on a family."""
    differences = import_module(f"{base.package}.{family}").DIFFERENCES
    given = {name: value for name, value in vars(differences).items() if value is not SAME}
    return replace(base, family=family, common=base, **given)


@cache
def find_hook(operator: Operator, hook: Hook[Any]) -> Any:
    """Return a hook of a declaration, or None."""
    given = getattr(operator, hook.name)
    if given is not None or not operator.package or hook.name in operator.absent:
        return given
    package = operator.package
    for place in (f"{package}.{operator.family}", package) if operator.family else (package,):
        module = f"{place}.{hook.module}"
        if find_spec(module) is not None:
            found = vars(import_module(module)).get(hook.attribute or hook.name)
            if found is not None:
                return found
    return None
