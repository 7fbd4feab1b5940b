"""The checks of a contract, which an operator lists in the product's order.

Each check names the argument it refuses. A check of sizes, dtypes or the product also has an
integer form, which becomes part of the compiled planner of sweeps: a condition is written once. Any
other check is a plain function of an :class:`Inspection` in the operator's list.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npu_sim.cores import Device, Profile, load_profile, shipped_products
from npu_sim.framework import patterns
from npu_sim.framework.arguments import (
    INT64_MAX,
    NOT_DOCUMENTED,
    Attribute,
    IntArray,
    Number,
    Output,
    Tensor,
    evaluate,
    in_row,
    names,
)
from npu_sim.framework.case import Inspection
from npu_sim.framework.inference import dtype_of, stated_elsewhere
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import require_bool
from npu_sim.language import Argument, Text, joined
from npu_sim.numbers.formats import SHORT_NAMES, TensorSpec, shape_text
from npu_sim.status import (
    INNER_FAILURE,
    INVALID,
    NULL_POINTER,
    TILING_FAILURE,
    AclnnError,
    Status,
    UncountableError,
    UsageError,
    shown,
)

MessageAndHint = tuple[str, str]
Explanation = Callable[[Inspection], MessageAndHint]
"""Message and hint of a refusal, from the call."""
_NAME = re.compile(r"[A-Za-z_]\w*")


class RowCheck(NamedTuple):
    """Integer form of a check: an expression over ``row``, ``device`` and ``rules``.

    ``ends`` is true when the call ends here, with ``status``. ``functions`` are those that it
    calls, by name.
    """

    status: Status
    ends: str
    functions: Mapping[str, Callable[..., Any]] = {}


class Check:
    """One step of a contract."""

    def __call__(self, call: Inspection) -> None:
        """Check a call; raise AclnnError when it is refused."""
        raise NotImplementedError

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the integer form of the check.

        None for a check that no call of a sweep can fail, such as ranks: a sweep builds its tensors
        from sizes.
        """
        return None


class Given(Check):
    """Every tensor that is not optional is given: 161001."""

    def __call__(self, call: Inspection) -> None:
        for argument in call.operator.required_inputs:
            if call.arguments[argument.name] is None:
                raise AclnnError(
                    NULL_POINTER,
                    argument.name,
                    "{name} is missing",
                    "{name}: {help}",
                    name=argument.name,
                    help=argument.help,
                )


class Supported(Check):
    """The product has the operator: 161002."""

    def __call__(self, call: Inspection) -> None:
        operator, profile = call.operator, call.profile
        if not operator.supported_by(profile):
            supporting = [
                name for name in shipped_products() if operator.supported_by(load_profile(name))
            ]
            raise AclnnError(
                INVALID,
                "product",
                "{title} is not supported on {product_title} ({name})",
                "supported by: {supporting}"
                if supporting
                else "no product that ships with npu_sim has it",
                title=operator.title,
                product_title=profile.product.title,
                name=profile.name,
                supporting=", ".join(supporting),
            )

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the test of ``rules.supported``."""
        return RowCheck(INVALID, "rules.supported == 0")


class DtypeCheck(Check):
    """A check of dtypes alone: :mod:`npu_sim.framework.checking` runs it once per combination."""

    status = INVALID


@dataclass(frozen=True, eq=False)
class Attributes(Check):
    """Attributes have their kind (else a usage error), and integers their range (else 161002)."""

    attributes: str

    def __call__(self, call: Inspection) -> None:
        for name in self.attributes.split():
            check_attribute(call.operator.argument(name), call.arguments[name])

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the lower limits of integers whose axis starts below them.

        ``npu-sim limits`` then finds where legal values begin.
        """
        checked = self.attributes.split()
        numbers = [axis for axis in operator.axes if isinstance(axis, Number)]
        conditions = [
            f"row.{axis.name} < {operator.argument(axis.name).low}"
            for axis in numbers
            if axis.name in checked and axis.low < operator.argument(axis.name).low
        ]
        return RowCheck(INVALID, " or ".join(conditions)) if conditions else None


def check_attribute(attribute: Attribute, value: Any) -> None:
    """Check one attribute.

    Raises
    ------
    UsageError
        For a value of another kind.
    AclnnError
        161002 for an integer out of range.
    """
    name, low, high = attribute.name, attribute.low, attribute.high
    if value is None and attribute.optional:
        return
    if attribute.kind is bool:
        require_bool(name, value)
    elif attribute.kind is int:
        if type(value) is not int and (
            isinstance(value, bool) or not isinstance(value, int | np.integer)
        ):
            raise UsageError(
                name,
                "{name} = {value} is not an integer",
                "{low} <= {name} <= {high}",
                name=name,
                value=shown(value),
                low=low,
                high=high,
            )
        if not low <= int(value) <= high:
            raise AclnnError(
                INVALID,
                name,
                "{name} = {value} is out of range",
                "{low} <= {name} <= {high}",
                name=name,
                value=shown(value),
                low=low,
                high=high,
            )
    elif attribute.kind is float:
        require_float(name, value)
    elif attribute.kind is IntArray:
        require_integers(name, value)


def require_integer(
    name: str, value: Any, low: int = -INT64_MAX - 1, high: int = INT64_MAX
) -> None:
    """Check that an option of npu_sim is an integer from ``low`` to ``high``.

    Raises UsageError when it is not.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not low <= int(value) <= high:
        raise UsageError(
            name,
            "{name} = {value} is out of range"
            if is_integer
            else "{name} = {value} is not an integer",
            "{low} <= {name} <= {high}",
            name=name,
            value=shown(value),
            low=low,
            high=high,
        )


def require_float(name: str, value: Any) -> float:
    """Check that an attribute is a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            name,
            "{name} = {value} is not a number",
            "{name}: a number",
            name=name,
            value=shown(value),
        ) from None


def require_integers(name: str, value: Any) -> IntArray:
    """Check that an attribute is a list of integers."""
    try:
        return IntArray(value)
    except (TypeError, ValueError):
        raise UsageError(
            name,
            "{name} = {value} is not a list of integers",
            "{name}: such as 4,2, or nothing",
            name=name,
            value=shown(value),
        ) from None


def require_countable(specs: Mapping[str, TensorSpec]) -> None:
    """Raise UncountableError for a tensor of more bytes than int64 counts."""
    for name, spec in specs.items():
        if spec.nbytes > INT64_MAX:
            raise UncountableError(
                name,
                "{name} {spec} has {elements} elements in {nbytes} bytes, more than int64 counts",
                "at most {most}, as shapes of the product are int64",
                name=name,
                spec=spec,
                elements=spec.numel,
                nbytes=spec.nbytes,
                most=INT64_MAX,
            )


@dataclass(frozen=True, eq=False)
class Holds(Check):
    """The condition holds: an expression over sizes, integer attributes and rules.

    Attributes
    ----------
    condition
        An expression such as ``"num_topk <= num_topk_at_most"``: names are sizes, attributes,
        documented limits and other rules.
    blames
        The argument at fault, or a function of the call that names it.
    message
        Message and hint from the call; made of the condition when None.
    status
        Status of the refusal.
    documented
        Whether it is a documented limit: skipped with ``limits=hardware``, and where the product
        states none.
    """

    condition: str
    blames: str | Callable[[Inspection], str]
    message: Explanation | None = None
    status: Status = TILING_FAILURE
    documented: bool = False

    def __call__(self, call: Inspection) -> None:
        if self.documented and (
            call.limits != "documented" or NOT_DOCUMENTED in self._rule_values(call).values()
        ):
            return
        if not evaluate(self.condition, call.number):
            raise self._refusal(call)

    def _rule_values(self, call: Inspection) -> dict[str, int]:
        """Return the values of the names in the condition that come from the product's rules."""
        return {
            name: getattr(call.rules, name)
            for name in names(self.condition)
            if name in call.operator.rule_names
        }

    def _refusal(self, call: Inspection) -> AclnnError:
        known = self._rule_values(call)
        blamed = self.blames(call) if callable(self.blames) else self.blames
        if self.message is not None:
            return AclnnError(self.status, blamed, *self.message(call))
        values = ", ".join(
            f"{name} = {call.size(name)}" for name in names(self.condition) if name not in known
        )
        condition = _NAME.sub(lambda name: str(known.get(name[0], name[0])), self.condition)
        return AclnnError(
            self.status,
            blamed,
            "{values}, which {title} does not take",
            "{condition}, a documented limit: {hardware} allows more"
            if self.documented
            else condition,
            values=values,
            title=call.operator.title,
            condition=condition,
            hardware=Argument("limits", "hardware"),
        )

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the condition over a row and the rules of a product."""
        ends = f"not ({in_row(self.condition, operator.rule_names)})"
        if self.documented:
            stated = [
                f"rules.{name} != {NOT_DOCUMENTED}"
                for name in names(self.condition)
                if name in operator.rule_names
            ]
            ends = " and ".join(["row.limits == 0", *stated, ends])
        return RowCheck(self.status, ends)


@dataclass(frozen=True, eq=False)
class Fits(Check):
    """The planner accepts the call, by its function ``fits(row, device, rules)``."""

    fits: Callable[[Any, Device, Any], bool]
    blames: str
    message: Explanation
    status: Status = TILING_FAILURE

    def __call__(self, call: Inspection) -> None:
        if not self.fits(call.row, call.device, call.rules):
            raise AclnnError(self.status, self.blames, *self.message(call))

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Call the function under a name that no other check of the operator has."""
        name = f"fits_{operator.checks.index(self)}"
        return RowCheck(self.status, f"not {name}(row, device, rules)", {name: self.fits})


@dataclass(frozen=True, eq=False)
class NothingToDo(Check):
    """If the condition holds, the call is empty: later checks are skipped and no kernel runs.

    ``condition`` is over sizes and rules, for instance ``"rows == 0"``.
    """

    condition: str

    def __call__(self, call: Inspection) -> None:
        """Refuse nothing, but mark the call as empty."""
        call.empty = bool(evaluate(self.condition, call.number))

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the condition over a row; the status is success."""
        return RowCheck(Status.ACLNN_SUCCESS, in_row(self.condition, operator.rule_names))


ND = ("ND",)
PLAIN_FORMATS = ("ND", "NCL", "NCHW", "NCDHW", "NHWC", "NDHWC", "HWCN")
"""Formats without a private layout: shape and strides describe the memory completely."""
MAX_RANK = 8
"""Highest rank of any tensor ("支持维度" of the product documents)."""


def product_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes of a product."""
    return profile.product.dtypes


@dataclass(frozen=True, eq=False)
class Dtypes(DtypeCheck):
    """Each tensor has an allowed dtype: 161002.

    ``allowed`` is a list, or a function of the profile; without it a tensor has its declared dtype,
    or one of the axis that it names.
    """

    tensors: str
    allowed: tuple[str, ...] | Callable[[Profile], Sequence[str]] = ()

    def __call__(self, call: Inspection) -> None:
        words, where = self.allowed, call.operator.title
        if callable(words):
            words, where = tuple(words(call.profile)), call.profile.product.title
        for name, spec in call.given(self.tensors):
            allowed = words or call.operator.dtypes_of(name)
            if spec.dtype not in allowed:
                raise AclnnError(
                    INVALID,
                    name,
                    "{name} is {dtype}, which {where} does not support",
                    "supported: {allowed}",
                    name=name,
                    dtype=spec.dtype,
                    where=where,
                    allowed=", ".join(allowed),
                )


@dataclass(frozen=True, eq=False)
class SameDtype(DtypeCheck):
    """Tensors that are given have the dtype of another one."""

    tensors: str
    like: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        if self.like not in call.specs:  # an optional tensor that was left out
            return
        expected = call.specs[self.like].dtype
        for name, spec in call.given(self.tensors):
            if spec.dtype != expected:
                raise AclnnError(
                    self.status,
                    name,
                    "{name} is {dtype}, {like} is {expected}: they must agree",
                    "{name}: {expected}",
                    name=name,
                    dtype=spec.dtype,
                    like=self.like,
                    expected=expected,
                )


@dataclass(frozen=True, eq=False)
class DtypeTable(DtypeCheck):
    """The dtypes of all tensors together are a row of the product's table: 161002.

    Blames the first tensor at which no row agrees with all dtypes so far. ``rows`` returns the
    table of a profile; its columns are ``tensors``. Outputs left out have the dtypes that inputs
    imply.
    """

    tensors: str
    rows: Callable[[Profile], Sequence[Sequence[str]]]

    def __call__(self, call: Inspection) -> None:
        names = self.tensors.split()
        outputs = {output.name: output for output in call.operator.outputs}
        given = tuple(
            call.specs[name].dtype
            if name in call.specs
            else dtype_of(call.operator, outputs[name], call.specs)
            for name in names
        )
        rows = [tuple(row) for row in self.rows(call.profile)]
        if given in rows:
            return
        blamed = next(
            position
            for position in range(len(given))
            if not any(row[: position + 1] == given[: position + 1] for row in rows)
        )
        agreeing = [sum(a == b for a, b in zip(row, given, strict=True)) for row in rows]
        nearest = [
            _dtypes_text(names, row, given)
            for row, count in zip(rows, agreeing, strict=True)
            if count == max(agreeing)
        ]
        raise AclnnError(
            INVALID,
            names[blamed],
            "{names} is {given}: {title} does not take the dtypes {dtypes}",
            "nearest: {nearest}",
            names=names[blamed],
            given=given[blamed],
            title=call.profile.product.title,
            dtypes=_dtypes_text(names, given),
            nearest=joined(nearest, "; or ") or "none",
        )


def _dtypes_text(
    names: Sequence[str], dtypes: Sequence[str], given: Sequence[str] | None = None
) -> str:
    """Return dtypes with the names of their tensors, only those that are not ``given``."""
    return ", ".join(
        f"{name} {SHORT_NAMES[dtype]}"
        for position, (name, dtype) in enumerate(zip(names, dtypes, strict=True))
        if given is None or dtype != given[position]
    )


@dataclass(frozen=True, eq=False)
class Formats(Check):
    """Each tensor has an allowed storage format."""

    allowed: tuple[str, ...]
    tensors: str = ""
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name, spec in call.given(self.tensors):
            if spec.storage_format not in self.allowed:
                raise AclnnError(
                    self.status,
                    name,
                    "{name} has the private format {storage_format}"
                    if self.allowed == PLAIN_FORMATS
                    else "{name} has the format {storage_format}",
                    "formats: {allowed}",
                    name=name,
                    storage_format=spec.storage_format,
                    allowed=", ".join(self.allowed),
                )


class Contiguous(Check):
    """Inputs are contiguous: 161002."""

    def __call__(self, call: Inspection) -> None:
        for argument in call.operator.inputs:
            spec = call.specs.get(argument.name)
            if spec is not None and not spec.contiguous:
                raise AclnnError(
                    INVALID,
                    argument.name,
                    "{name} is not contiguous, which {title} does not support",
                    "pass a contiguous copy of {name}",
                    name=argument.name,
                    title=call.operator.title,
                )


def refuse_strided(call: Inspection, status: Status = INNER_FAILURE) -> None:
    """Refuse strided inputs where the operator's definition asks for no copy of them."""
    for tensor in call.operator.inputs:
        spec = call.specs.get(tensor.name)
        if spec is not None and not spec.contiguous:
            raise AclnnError(
                status,
                tensor.name,
                "{name} is not contiguous, and release {release} has no copy of it on {title}: the "
                "second stage fails",
                "pass a contiguous copy of {name}",
                name=tensor.name,
                release=call.profile.release,
                title=call.profile.product.title,
            )


@dataclass(frozen=True, eq=False)
class CopiesStrided(Check):
    """Refuse strided inputs at releases whose rule ``switch`` is 0: these do not copy them."""

    switch: str

    def __call__(self, call: Inspection) -> None:
        if getattr(call.rules, self.switch) == 0:
            refuse_strided(call)


@dataclass(frozen=True, eq=False)
class ContiguousOutputs(Check):
    """Outputs that are given are contiguous: 161002.

    ``message`` returns why an output has to be.
    """

    message: Callable[[Output], str]

    def __call__(self, call: Inspection) -> None:
        for output in call.operator.outputs:
            spec = call.specs.get(output.name)
            if spec is not None and not spec.contiguous:
                raise AclnnError(
                    INVALID,
                    output.name,
                    self.message(output),
                    "pass a contiguous {name}",
                    name=output.name,
                )


@dataclass(frozen=True, eq=False)
class NotEmpty(Check):
    """A tensor has elements, whatever its rank."""

    tensor: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        spec, document = call.specs[self.tensor], call.operator.argument(self.tensor).document
        if spec.numel == 0:
            where = Text(" ({name} of the product document)", name=document) if document else ""
            raise AclnnError(
                self.status,
                self.tensor,
                "{tensor} {spec} is empty{where}",
                "every axis of {tensor} needs at least one element",
                tensor=self.tensor,
                spec=spec,
                where=where,
            )

    def row_check(self, operator: Operator) -> RowCheck | None:
        """Return the test that every size of the pattern is at least 1."""
        sizes = patterns.names(operator.argument(self.tensor).shape)
        return RowCheck(self.status, " or ".join(f"row.{name} < 1" for name in sizes))


@dataclass(frozen=True, eq=False)
class Ranks(Check):
    """Each tensor has a rank within a range."""

    tensors: str
    low: int
    high: int = MAX_RANK
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name, spec in call.given(self.tensors):
            if not self.low <= spec.rank <= self.high:
                raise AclnnError(
                    self.status,
                    name,
                    "{name} {spec} has rank {rank}",
                    self._hint(call, name),
                    name=name,
                    spec=spec,
                    rank=spec.rank,
                )

    def _hint(self, call: Inspection, name: str) -> str:
        """Return the legal ranks; for a single rank with the axes."""
        if self.low == self.high:
            axes = patterns.text(call.pattern(call.operator.argument(name)))
            return Text("rank {low}: {axes}", low=self.low, axes=axes)
        if self.low:
            return Text("rank {low} to {high}", low=self.low, high=self.high)
        return Text("rank at most {high}", high=self.high)


@dataclass(frozen=True, eq=False)
class Like(Check):
    """Tensors that are given have the shape of another one."""

    tensors: str
    like: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        expected = call.specs[self.like].shape
        for name, spec in call.given(self.tensors):
            if spec.shape != expected:
                raise AclnnError(
                    self.status,
                    name,
                    "{name} is {shape}, {like} is {like_shape}: they must have the same shape",
                    "{name}: {like_shape}",
                    name=name,
                    shape=shape_text(spec.shape),
                    like=self.like,
                    like_shape=shape_text(expected),
                )


@dataclass(frozen=True, eq=False)
class Shapes(Check):
    """Tensors have the shapes of their patterns, and equal sizes under equal names."""

    tensors: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name in self.tensors.split():
            spec, tensor = call.specs.get(name), call.operator.argument(name)
            if isinstance(tensor, Output) and not call.is_written(tensor):
                continue
            if spec is None and isinstance(tensor, Output):
                call.specs[name] = call.imply(tensor)
            if spec is None or self._bind(call, tensor, spec):
                continue
            expected = call.expected(tensor, spec.shape)
            wanted = (
                patterns.text(call.pattern(tensor)) if expected is None else shape_text(expected)
            )
            others = ", ".join(self._sources(call, tensor))
            why = Text(", which does not fit {others}", others=others) if others else ""
            raise AclnnError(
                self.status,
                name,
                "{name} is {spec}{why}",
                "{name}: {wanted}",
                name=name,
                spec=spec,
                why=why,
                wanted=wanted,
            )

    @staticmethod
    def _bind(call: Inspection, tensor: Tensor, spec: TensorSpec) -> bool:
        """Bind the sizes of a tensor; return whether its shape agrees with those bound before."""
        pattern = call.pattern(tensor)
        for name in stated_elsewhere(call.operator, tensor, pattern):
            with suppress(KeyError):
                call.sizes.values.setdefault(name, call.size(name))
        if not patterns.bind(pattern, spec.shape, call.sizes):
            return False
        call.bound.append(tensor.name)
        return True

    @staticmethod
    def _sources(call: Inspection, tensor: Tensor) -> list[str]:
        """Return inputs with a size in common with a tensor, derived sizes, and deciding modes."""
        wanted = set(patterns.names(call.pattern(tensor)))
        read = [getattr(axis, "read", "") for axis in call.operator.axes if axis.name in wanted]
        wanted.update(name for text in read if text for name in names(text))
        others = (
            argument
            for argument in call.operator.inputs
            if argument is not tensor and argument.name in call.bound
        )
        formulas = call.operator.expressions.items() if call.bound else ()
        modes = (
            attribute.name
            for attribute in call.operator.attributes
            if callable(tensor.shape) and attribute.kind in (bool, str)
        )
        tensors = [
            f"{other_tensor.name} {call.specs[other_tensor.name]}"
            for other_tensor in others
            if wanted & set(patterns.names(call.pattern(other_tensor)))
        ]
        sizes = [
            f"{name} = {text} = {call.size(name)}"
            for name, text in formulas
            if name in wanted & call.sizes.values.keys()
        ]
        return [*tensors, *sizes, *(f"{name} {call.arguments[name]}" for name in modes)]
