"""A call while it is checked, and the checked call that plans and kernels are made for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from npu_sim.cores import Device, Profile
from npu_sim.framework import patterns
from npu_sim.framework.arguments import Arguments, Output, Tensor
from npu_sim.framework.target import Limits
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.answers import Evidence
from npu_sim.plans.launches import Launch, LaunchTensor, contiguous_copy

Answer = TypeVar("Answer")
Form = tuple[tuple[int, str, bool, str] | None, ...]
"""Of every tensor of a call its rank, dtype, whether it is contiguous, and storage format; None for
one that is not given."""


@dataclass
class Inspection:
    """A call on its way through the checks: they fill in what they find.

    Attributes
    ----------
    specs
        Every tensor that is given, and from :meth:`imply` on every output.
    sizes
        What the shapes checked so far say.
    device, rules
        The integers of the SoC and of the product that planners take.
    agreed
        Tensors whose shapes have been checked.
    """

    operator: Any
    arguments: Arguments
    profile: Profile
    limits: Limits
    deterministic: bool
    specs: dict[str, TensorSpec]
    sizes: patterns.Sizes
    device: Device
    rules: Any
    agreed: list[str] = field(default_factory=list)
    _row: Any = None

    def size(self, name: str) -> int:
        """Return a size, a whole number among the attributes, or one that is derived from them."""
        read = self.operator.readers.get(name)
        if read is not None:
            return int(read(self.specs))
        known = self.sizes.values.get(name)
        return int(self.operator.size(name, self.sizes, self.arguments)) if known is None else known

    def number(self, name: str) -> int:
        """Return a size as :meth:`size` does, or what the product says under a name."""
        return (
            int(getattr(self.rules, name)) if name in self.operator.rule_names else self.size(name)
        )

    @property
    def form(self) -> Form:
        """Everything about the tensors that is no size."""
        specs = map(self.specs.get, self.operator.tensor_names)
        return tuple(
            [
                None
                if one is None
                else (len(one.shape), one.dtype, one.contiguous, one.storage_format)
                for one in specs
            ]
        )

    def pattern(self, tensor: Tensor) -> str:
        """Return the pattern of a tensor's axes, which attributes may decide."""
        return str(self.operator.pattern(tensor, self.arguments))

    def expected(self, tensor: Tensor, given: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """Return the shape that the sizes known so far give a tensor; None when they do not say.

        Axes that nothing else says keep their size in a ``given`` shape of as many axes as the
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
        """Whether the call has what an output is written for."""
        return not output.given_with or output.given_with in self.specs

    def imply(self, output: Output) -> TensorSpec:
        """Return the spec of an output that was left out."""
        for twin in self.operator.twins[output.name]:
            if twin in self.specs:
                return self.specs[twin].plain()
        pattern, known = self.pattern(output), self.sizes
        if known.values.keys() >= set(patterns.names(pattern)):
            shape = patterns.build(pattern, known.values, known.groups)
        else:
            found = self.expected(output)
            assert found is not None, (
                f"{output.name} of {self.operator.name}: its sizes follow from no tensor checked before it"
            )
            shape = found
            patterns.bind(pattern, shape, known)  # so that what follows is not worked out again
        return TensorSpec.known(shape, self.operator.dtype_of(output, self.specs))

    @property
    def row(self) -> Any:
        """The call in whole numbers, as planners and sweeps take it."""
        if self._row is None:
            self._row = self.operator.row_of(self)
        return self._row

    def case(self, *, empty: bool) -> "Case":
        """Return the checked call."""
        for output in self.operator.outputs:
            if not self.is_written(output):
                self.specs.pop(output.name, None)
            elif output.name not in self.specs:
                self.specs[output.name] = self.imply(output)
        return Case(
            self.operator,
            self.arguments,
            dict(self.specs),
            self.row,
            self.profile,
            self.device,
            self.rules,
            self.limits,
            self.deterministic,
            empty,
        )


@dataclass(frozen=True, eq=False)
class Case:
    """A checked call.

    Attributes
    ----------
    operator
        What is called.
    arguments
        As they were given.
    specs
        Every tensor of the call, outputs that are written included.
    row
        The call in whole numbers: a NamedTuple of the sizes, the codes of dtypes and words,
        ``limits`` and ``deterministic``.
    profile
        Product and SoC.
    device, rules
        The integers of the SoC and of the product that planners take.
    empty
        Whether there is nothing to compute.
    """

    operator: Any
    arguments: Arguments
    specs: Mapping[str, TensorSpec]
    row: Any
    profile: Profile
    device: Device
    rules: Any
    limits: Limits
    deterministic: bool
    empty: bool = False
    is_kept: bool = field(default=False, init=False)
    _answers: dict[Callable[["Case"], Any], Any] = field(
        default_factory=dict, init=False, repr=False
    )

    def keep(self) -> None:
        """Say that the call stays: so does its plan, which knows it. A call that goes leaves no circle to Python's search for garbage."""
        object.__setattr__(self, "is_kept", True)

    @property
    def tiling(self) -> Any:
        """How the product tiles the call."""
        return self.once(_tiling)

    @property
    def is_tiled(self) -> bool:
        """Whether the product has a tiling for the call."""
        certain = self.operator.has_tiling
        return bool(
            (certain is not None and certain(self.row, self.device, self.rules))
            or self.tiling.status == 0
        )

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs that are written."""
        return self.once(_outputs)

    def tensor(self, name: str) -> LaunchTensor:
        """Return a tensor of the call as a kernel sees it."""
        spec = self.specs[name]
        return LaunchTensor(name=name, shape=spec.shape, dtype=spec.dtype)

    @cached_property
    def copies(self) -> tuple[Launch, ...]:
        """Launches that make contiguous the inputs that are not."""
        given = ((one.name, self.specs.get(one.name)) for one in self.operator.inputs)
        return tuple(
            contiguous_copy(name, spec.shape, spec.dtype)
            for name, spec in given
            if spec is not None and not spec.contiguous
        )

    def launches(self, kernel: str, block_dim: int, evidence: Evidence) -> tuple[Launch, ...]:
        """Return the launches of an operator with one kernel, which reads every input that is given and writes every output."""
        copied = {copy.inputs[0].name: copy.outputs[0] for copy in self.copies}
        inputs = tuple(
            copied.get(one.name) or self.tensor(one.name)
            for one in self.operator.inputs
            if one.name in self.specs
        )
        outputs = tuple(self.tensor(one.name) for one in self.outputs)
        return (
            *self.copies,
            Launch(
                kernel=kernel,
                inputs=inputs,
                outputs=outputs,
                block_dim=block_dim,
                evidence=evidence,
            ),
        )

    def once(self, question: Callable[["Case"], Answer]) -> Answer:
        """Return ``question(case)``, asked once: the answer is kept as long as the call."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: Answer = self._answers[question]
        return answer

    def changed(self, **sizes: int) -> "Case":
        """Return the call with other whole numbers: what flips of decisions try; its tensors stay as they are."""
        return replace(self, row=self.row._replace(**sizes))

    def with_determinism(self, deterministic: bool) -> "Case":
        """Return the call with the determinism switch on or off."""
        return replace(
            self,
            deterministic=deterministic,
            row=self.row._replace(deterministic=int(deterministic)),
        )


def _tiling(case: Case) -> Any:
    return case.operator.tile(case.row, case.device, case.rules)


def _outputs(case: Case) -> tuple[Output, ...]:
    return tuple(one for one in case.operator.outputs if one.name in case.specs)
