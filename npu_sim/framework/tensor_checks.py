"""The checks of a contract that speak of tensors: their dtypes, formats, ranks and shapes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from npu_sim.framework import patterns
from npu_sim.framework.arguments import Output
from npu_sim.framework.case import Inspection
from npu_sim.framework.checks import Check, DtypeCheck, RowCheck
from npu_sim.framework.expressions import names
from npu_sim.numbers.formats import SHORT_NAMES, TensorSpec, shape_text
from npu_sim.status import INVALID, AclnnError, Status

ND = ("ND",)
PLAIN_FORMATS = ("ND", "NCL", "NCHW", "NCDHW", "NHWC", "NDHWC", "HWCN")
"""Formats without a private layout: the tensor is what its shape and strides say."""
MAX_RANK = 8
"""Highest rank of any tensor ("支持维度" of the product documents)."""


@dataclass(frozen=True, eq=False)
class Dtypes(DtypeCheck):
    """Tensors have one of some dtypes: ``allowed`` is a list, or a function of the profile that gives it."""

    tensors: str
    allowed: tuple[str, ...] | Callable[[Any], Sequence[str]]

    def __call__(self, call: Inspection) -> None:
        by_product = callable(self.allowed)
        allowed = self.allowed(call.profile) if callable(self.allowed) else self.allowed
        where = call.profile.product.title if by_product else call.operator.title
        for name in self.tensors.split():
            spec = call.specs.get(name)
            if spec is not None and spec.dtype not in allowed:
                message = f"{name} is {spec.dtype}, which {where} does not support"
                raise AclnnError(INVALID, name, message, f"supported: {', '.join(allowed)}")


@dataclass(frozen=True, eq=False)
class SameDtype(DtypeCheck):
    """Tensors that are given have the dtype of another one."""

    tensors: str
    like: str

    def __call__(self, call: Inspection) -> None:
        if self.like not in call.specs:  # an optional tensor that was left out
            return
        expected = call.specs[self.like].dtype
        for name in self.tensors.split():
            spec = call.specs.get(name)
            if spec is not None and spec.dtype != expected:
                message = f"{name} is {spec.dtype}, {self.like} is {expected}: they must agree"
                raise AclnnError(INVALID, name, message, f"{name}: {expected}")


@dataclass(frozen=True, eq=False)
class DtypeTable(DtypeCheck):
    """The dtypes of all tensors together are a row of the product's table; blamed is the first that no row has after those before.

    ``rows`` gives the table of a profile; its columns are ``tensors``, and outputs that were left out have what the others imply.
    """

    tensors: str
    rows: Callable[[Any], Sequence[Sequence[str]]]

    def __call__(self, call: Inspection) -> None:
        names = self.tensors.split()
        outputs = {one.name: one for one in call.operator.outputs}
        given = tuple(
            call.specs[name].dtype
            if name in call.specs
            else call.operator.dtype_of(outputs[name], call.specs)
            for name in names
        )
        rows = [tuple(row) for row in self.rows(call.profile)]
        if given in rows:
            return
        fault = (
            next(
                end
                for end in range(1, len(given) + 1)
                if not any(row[:end] == given[:end] for row in rows)
            )
            - 1
        )
        agreeing = [sum(a == b for a, b in zip(row, given, strict=True)) for row in rows]
        nearest = [
            _dtypes_text(names, row)
            for row, count in zip(rows, agreeing, strict=True)
            if count == max(agreeing)
        ]
        title = call.profile.product.title
        message = f"{names[fault]} is {given[fault]}: {title} does not take the dtypes {_dtypes_text(names, given)}"
        raise AclnnError(
            INVALID, names[fault], message, f"nearest: {'; or '.join(nearest) or 'none'}"
        )


def _dtypes_text(names: Sequence[str], dtypes: Sequence[str]) -> str:
    return ", ".join(
        f"{name} {SHORT_NAMES[dtype]}" for name, dtype in zip(names, dtypes, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Formats(Check):
    """Tensors have one of some storage formats."""

    allowed: tuple[str, ...]
    tensors: str = ""
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name in self.tensors.split() or call.operator.tensor_names:
            spec = call.specs.get(name)
            if spec is not None and spec.storage_format not in self.allowed:
                private = "private " if self.allowed == PLAIN_FORMATS else ""
                message = f"{name} has the {private}format {spec.storage_format}"
                raise AclnnError(self.status, name, message, f"formats: {', '.join(self.allowed)}")


class Contiguous(Check):
    """Inputs are contiguous: 161002."""

    def __call__(self, call: Inspection) -> None:
        for one in call.operator.inputs:
            spec = call.specs.get(one.name)
            if spec is not None and not spec.contiguous:
                message = (
                    f"{one.name} is not contiguous, which {call.operator.title} does not support"
                )
                raise AclnnError(
                    INVALID, one.name, message, f"pass a contiguous copy of {one.name}"
                )


@dataclass(frozen=True, eq=False)
class NotEmpty(Check):
    """A tensor has elements, whatever its rank."""

    tensor: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        spec, named = call.specs[self.tensor], call.operator.argument(self.tensor).document
        if spec.numel == 0:
            where = f" ({named} of the product document)" if named else ""
            hint = f"every axis of {self.tensor} needs at least one element"
            raise AclnnError(
                self.status, self.tensor, f"{self.tensor} {spec} is empty{where}", hint
            )

    def row_check(self, operator: Any) -> RowCheck | None:
        """Every size of the pattern."""
        sizes = patterns.names(operator.argument(self.tensor).shape)
        return RowCheck(self.status, " or ".join(f"row.{name} < 1" for name in sizes))


@dataclass(frozen=True, eq=False)
class Ranks(Check):
    """Tensors have a rank within a range."""

    tensors: str
    low: int
    high: int = MAX_RANK
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name in self.tensors.split():
            spec = call.specs.get(name)
            if spec is not None and not self.low <= spec.rank <= self.high:
                several = (
                    f"rank {self.low} to {self.high}" if self.low else f"rank at most {self.high}"
                )
                wanted = f"rank {self.low}" if self.low == self.high else several
                axes = (
                    f": {patterns.text(call.pattern(call.operator.argument(name)))}"
                    if self.low == self.high
                    else ""
                )
                raise AclnnError(
                    self.status, name, f"{name} {spec} has rank {spec.rank}", wanted + axes
                )


@dataclass(frozen=True, eq=False)
class Like(Check):
    """Tensors that are given have the shape of another one."""

    tensors: str
    like: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        right = call.specs[self.like].shape
        for name in self.tensors.split():
            spec = call.specs.get(name)
            if spec is not None and spec.shape != right:
                message = f"{name} is {shape_text(spec.shape)}, {self.like} is {shape_text(right)}: they must have the same shape"
                raise AclnnError(self.status, name, message, f"{name}: {shape_text(right)}")


@dataclass(frozen=True, eq=False)
class Shapes(Check):
    """Tensors have the shapes of their patterns, one after the other: each adds what it says to the sizes of the call."""

    tensors: str
    status: Status = INVALID

    def __call__(self, call: Inspection) -> None:
        for name in self.tensors.split():
            spec, tensor = call.specs.get(name), call.operator.argument(name)
            if isinstance(tensor, Output) and not call.is_written(tensor):
                continue
            if spec is None and isinstance(tensor, Output):
                call.specs[name] = call.imply(tensor)
            if spec is None or self._agrees(call, tensor, spec):
                continue
            expected = call.expected(tensor, spec.shape)
            wanted = (
                patterns.text(call.pattern(tensor)) if expected is None else shape_text(expected)
            )
            others = ", ".join(self._sources(call, tensor))
            why = f": with {others} it has shape {wanted}" if others else ""
            raise AclnnError(self.status, name, f"{name} is {spec}{why}", f"{name}: {wanted}")

    @staticmethod
    def _agrees(call: Inspection, tensor: Any, spec: TensorSpec) -> bool:
        pattern = call.pattern(tensor)
        for name in call.operator.stated_elsewhere(tensor, pattern):
            with suppress(KeyError):
                call.sizes.values.setdefault(name, call.size(name))
        if not patterns.bind(pattern, spec.shape, call.sizes):
            return False
        call.agreed.append(tensor.name)
        return True

    @staticmethod
    def _sources(call: Inspection, tensor: Any) -> list[str]:
        """Say which inputs before share a size with a tensor, how derived sizes follow, and which modes decide its axes."""
        wanted = set(patterns.names(call.pattern(tensor)))
        read = [getattr(axis, "read", "") for axis in call.operator.axes if axis.name in wanted]
        wanted.update(name for text in read if text for name in names(text))
        others = (
            one for one in call.operator.inputs if one is not tensor and one.name in call.agreed
        )
        formulas = call.operator.expressions.items() if call.agreed else ()
        modes = (
            [one.name for one in call.operator.attributes if one.kind in (bool, str)]
            if callable(tensor.shape)
            else []
        )
        return [
            *(
                f"{one.name} {call.specs[one.name]}"
                for one in others
                if wanted & set(patterns.names(call.pattern(one)))
            ),
            *(
                f"{name} = {text} = {call.size(name)}"
                for name, text in formulas
                if name in wanted & call.sizes.values.keys()
            ),
            *(f"{name} {call.arguments[name]}" for name in modes),
        ]
