"""A call during its checks, and the checked call that plans and kernels are made for."""

from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, get_type_hints

import numpy as np

from npu_sim.cores import Device, Profile
from npu_sim.framework import patterns
from npu_sim.framework.arguments import COMMON_AXES, Arguments, Number, Output, Switch, Tensor, Word
from npu_sim.framework.inference import axis_value, dtype_of, size_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Limits, Target
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Launch, LaunchTensor, contiguous_copy
from npu_sim.status import UsageError, shown


@cache
def row_type(operator: Operator) -> Any:
    """Return the NamedTuple of a call as integers: its axes, then the numbers derived from them."""
    entries = (*operator.axes, *COMMON_AXES, *operator.derived)
    return namedtuple("Row", [entry.name for entry in entries])


def tiled(operator: Operator, row: Any, device: Device, rules: Any) -> Any:
    """Return the tiling of a call.

    Raises UsageError when the planner of an operator of one's own returns none.
    """
    if not operator.is_foreign:
        with np.errstate(over="ignore"):  # sizes beyond what fp32 holds are refused later
            return operator.tile(row, device, rules)
    try:
        tiling = operator.tile(row, device, rules)
        fields = get_type_hints(operator.tiling)
        is_tiling = isinstance(tiling, operator.tiling) and all(
            kind is not int or isinstance(getattr(tiling, name), int | np.integer)
            for name, kind in fields.items()
        )
    except SystemExit as end:
        tiling, is_tiling = end, False
    if is_tiling and (tiling.status or getattr(tiling, "block_dim", 1) != 0):
        return tiling
    raise UsageError(
        "tile",
        "{name}: its planner returns {value}",
        "a {kind} of integers, with at least one core",
        name=operator.name,
        value=shown(tiling),
        kind=operator.tiling.__name__,
    )


def require_cores(operator: Operator, profile: Profile, device: Device, block_dim: int) -> int:
    """Return the cores of an operator; raise UsageError when a planner launches on more."""
    cores = device.cube_cores if operator.on_cube else device.vector_cores
    if not 0 <= block_dim <= cores:
        raise UsageError(
            "block_dim",
            "{operator}: its planner returns block_dim = {block_dim}",
            "{soc} has {cores} cores: 0 to {cores}",
            operator=operator.name,
            block_dim=block_dim,
            soc=profile.soc,
            cores=cores,
        )
    return cores


class OfTarget:
    """Base of calls: what their target states."""

    target: Target

    @property
    def profile(self) -> Profile:
        """Product, SoC and release."""
        return self.target.profile

    @property
    def limits(self) -> Limits:
        """The set of limits that is enforced."""
        return self.target.limits

    @property
    def deterministic(self) -> bool:
        """The determinism switch."""
        return self.target.deterministic


@dataclass
class Inspection(OfTarget):
    """A call while its contract is checked; checks fill in sizes and specs.

    Attributes
    ----------
    operator, arguments, target
        The call.
    specs
        Every tensor that is given; checks of shapes and :meth:`case` add the outputs that were left
        out.
    device, rules
        The integers of the SoC and of the product that planners take.
    sizes
        Sizes bound by the shapes checked so far.
    bound
        Names of the tensors that have bound their sizes so far.
    empty
        Whether there is nothing to compute, as far as is known; ends the checks.
    not_written
        Names of outputs that the product leaves as they are, although the call asks for them.
    """

    operator: Operator
    arguments: Arguments
    target: Target
    specs: dict[str, TensorSpec]
    device: Device
    rules: Any
    sizes: patterns.Sizes = field(default_factory=patterns.Sizes)
    bound: list[str] = field(default_factory=list)
    empty: bool = False
    not_written: set[str] = field(default_factory=set)

    def given(self, names: str) -> Iterable[tuple[str, TensorSpec]]:
        """Return the tensors among some names that are given; all for no names."""
        specs = self.specs
        if not names:
            return specs.items()
        return [(name, specs[name]) for name in names.split() if name in specs]

    def size(self, name: str) -> int:
        """Return a size, an attribute as an integer, or a number derived from them."""
        read = self.operator.readers.get(name)
        if read is not None:
            return int(read(self.specs))
        known = self.sizes.values.get(name)
        if known is not None:
            return known
        word = self.operator.named_attributes.get(name)
        if word is not None:
            return self._code(word)
        return size_of(self.operator, name, self.sizes, self.arguments)

    def number(self, name: str) -> int:
        """Return a size as :meth:`size` does, or a rule of the product."""
        is_rule = name in self.operator.rule_names
        return int(getattr(self.rules, name)) if is_rule else self.size(name)

    def pattern(self, tensor: Tensor) -> str:
        """Return the pattern of a tensor's axes, which attributes may decide."""
        return tensor.pattern(self.arguments)

    def expected(self, tensor: Tensor, given: Shape = ()) -> Shape | None:
        """Return the shape of a tensor by the sizes known so far; None when they do not decide it.

        Axes without a known size keep their size in a ``given`` shape of as many axes as the
        pattern names.
        """
        names = patterns.names(self.pattern(tensor))
        values = dict(zip(names, given, strict=True)) if len(names) == len(given) else {}
        values |= {name: size for name in names if (size := self._known_size(name)) is not None}
        try:
            return patterns.build(self.pattern(tensor), values, self.sizes.groups)
        except KeyError:
            return None

    def _known_size(self, name: str) -> int | None:
        try:
            return self.size(name)
        except KeyError:
            return None

    def is_written(self, output: Output) -> bool:
        """Return whether the call writes an output: some depend on an argument."""
        return output.name not in self.not_written and output.is_asked_for(self.arguments)

    def imply(self, output: Output) -> TensorSpec:
        """Return the spec of an output that was left out.

        It is that of an input of the same form, or follows from the sizes; sizes that had to be
        derived are bound.
        """
        for name in self.operator.inputs_of_same_form[output.name]:
            if name in self.specs:
                return self.specs[name].plain()
        pattern, known = self.pattern(output), self.sizes
        if known.values.keys() >= set(patterns.names(pattern)):
            shape = patterns.build(pattern, known.values, known.groups)
        else:
            expected = self.expected(output)
            where = f"{output.name} of {self.operator.name}"
            assert expected is not None, f"{where}: no tensor checked before it implies its sizes"
            shape = expected
            patterns.bind(pattern, shape, known)  # later outputs need not derive them again
        return TensorSpec.known(shape, dtype_of(self.operator, output, self.specs))

    @cached_property
    def row(self) -> Any:
        """The call as integers, the input of planners and sweeps."""
        operator = self.operator
        values = [
            self.size(axis.name) if isinstance(axis, Number) else self._code(axis)
            for axis in operator.axes
        ]
        common = [int(self.limits == "hardware"), int(self.deterministic)]
        return row_type(operator)(
            *values, *common, *(self.size(derived.name) for derived in operator.derived)
        )

    def _code(self, axis: Word | Switch) -> int:
        try:
            value = axis_value(self.operator, axis, self.sizes, self.arguments)
        except KeyError:  # the dtype of an optional tensor that was left out
            value = axis.default
        if isinstance(axis, Switch):
            return int(value)
        # An empty call of any dtype succeeds where the product checks dtypes afterwards.
        return axis.words.index(str(value) if str(value) in axis.words else axis.default)

    def case(self) -> "Case":
        """Return the checked call, tiled unless it is empty."""
        operator = self.operator
        for output in operator.outputs:
            if not self.is_written(output):
                self.specs.pop(output.name, None)
            elif output.name not in self.specs:
                self.specs[output.name] = self.imply(output)
        row, device, rules, empty = self.row, self.device, self.rules, self.empty
        tiling = None if empty else tiled(operator, row, device, rules)
        if operator.is_foreign and tiling is not None:
            require_cores(operator, self.profile, device, getattr(tiling, "block_dim", 0))
        specs = dict(self.specs)
        return Case(operator, self.arguments, self.target, row, tiling, specs, device, rules, empty)


@dataclass(frozen=True, eq=False)
class Case(OfTarget):
    """A checked call.

    Attributes
    ----------
    operator
        The declaration.
    arguments
        As they were given.
    target
        Product, SoC, release and switches.
    row
        The call as integers: a NamedTuple of the sizes, the codes of dtypes and named values,
        ``limits`` and ``deterministic``.
    tiling
        Result of the planner; None for an empty call.
    specs
        Every tensor of the call, outputs that are written included.
    device, rules
        The integers of the SoC and of the product that planners take.
    empty
        Whether there is nothing to compute.
    searches_flips
        Whether decisions of its plan search the values that flip them.
    """

    operator: Operator
    arguments: Arguments
    target: Target
    row: Any
    tiling: Any
    specs: Mapping[str, TensorSpec]
    device: Device
    rules: Any
    empty: bool = False
    searches_flips: bool = True

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs that are written."""
        return tuple(output for output in self.operator.outputs if output.name in self.specs)

    def tensor(self, name: str) -> LaunchTensor:
        """Return a tensor of the call as a kernel reads or writes it."""
        spec = self.specs[name]
        return LaunchTensor(name=name, shape=spec.shape, dtype=spec.dtype)

    @property
    def copies(self) -> tuple[Launch, ...]:
        """Launches that make contiguous the inputs that are not."""
        strided = {name: spec for name, spec in self.specs.items() if not spec.contiguous}
        return tuple(
            [
                contiguous_copy(name, strided[name].shape, strided[name].dtype)
                for name in self.operator.input_names
                if name in strided
            ]
        )

    def launches(self, kernel: str, block_dim: int, evidence: Evidence) -> tuple[Launch, ...]:
        """Return the launches of an operator with one kernel.

        The kernel reads every input that is given and writes every output.
        """
        copied = {copy.inputs[0].name: copy.outputs[0] for copy in self.copies}
        names = [tensor.name for tensor in self.operator.inputs if tensor.name in self.specs]
        launch = Launch(
            kernel=kernel,
            inputs=tuple(copied.get(name) or self.tensor(name) for name in names),
            outputs=tuple(self.tensor(output.name) for output in self.outputs),
            block_dim=block_dim,
            evidence=evidence,
        )
        return (*self.copies, launch)

    def changed(self, **sizes: int) -> "Case":
        """Return the call with other integers, tiled anew, for questions about its tiling.

        Its tensors, arguments and derived integers stay as they are.
        """
        row = self.row._replace(**sizes)
        return replace(self, row=row, tiling=tiled(self.operator, row, self.device, self.rules))

    def with_determinism(self, deterministic: bool) -> "Case":
        """Return the call with the determinism switch on or off, tiled anew."""
        changed = self.changed(deterministic=int(deterministic))
        return replace(changed, target=replace(self.target, deterministic=deterministic))
