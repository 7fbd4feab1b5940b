"""The checks of a contract: an operator lists them in the product's order, with the argument that each one blames.

A check that speaks of sizes, dtypes or the product only also says so in whole numbers, and so becomes part of the compiled planner
of sweeps: a condition stands once. What no check here says is a plain function of an :class:`Inspection` in the operator's list.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npu_sim.cores import load_profile, shipped_products
from npu_sim.framework.arguments import INT64_MAX, Attribute, IntArray
from npu_sim.framework.case import Inspection
from npu_sim.framework.expressions import evaluate, in_row, names
from npu_sim.framework.target import require_bool
from npu_sim.status import INVALID, MISSING, TILING_FAILURE, AclnnError, Status, UsageError, shown

Words = Callable[[Any], tuple[str, str]]
"""Message and hint of a refusal, from the call."""


class RowCheck(NamedTuple):
    """A check in whole numbers: the text of an expression over ``row``, ``device`` and ``rules`` that holds when the call is refused.

    ``functions`` are those the expression calls, by the name it calls them.
    """

    status: Status
    refuses: str
    functions: Mapping[str, Callable[..., Any]] = {}


class Check:
    """One step of a contract."""

    def __call__(self, call: Inspection) -> None:
        """Check a call; raise AclnnError when it is refused."""
        raise NotImplementedError

    def row_check(self, operator: Any) -> RowCheck | None:
        """Return the same check in whole numbers; None when calls that sizes describe always pass it."""
        return None


class Given(Check):
    """Every tensor that is not optional is given: 161001."""

    def __call__(self, call: Inspection) -> None:
        for one in call.operator.inputs:
            if not one.optional and call.arguments[one.name] is None:
                raise AclnnError(
                    MISSING, one.name, f"{one.name} is missing", f"{one.name}: {one.help}"
                )


class Supported(Check):
    """The product has the operator: 161002."""

    def __call__(self, call: Inspection) -> None:
        operator, profile = call.operator, call.profile
        if not operator.supported_by(profile):
            message = (
                f"{operator.title} is not supported on {profile.product.title} ({profile.name})"
            )
            supporting = [
                name for name in shipped_products() if operator.supported_by(load_profile(name))
            ]
            hint = (
                f"supported by: {', '.join(supporting)}"
                if supporting
                else "no product that ships with npu_sim has it"
            )
            raise AclnnError(INVALID, "product", message, hint)

    def row_check(self, operator: Any) -> RowCheck | None:
        """The product's fact ``supported``."""
        return RowCheck(INVALID, "rules.supported == 0")


class DtypeCheck(Check):
    """A check of dtypes alone: sweeps ask once for every combination whether all of them pass, see ``Operator.rules``."""

    status = INVALID


@dataclass(frozen=True, eq=False)
class Attributes(Check):
    """Attributes have their kind, and whole numbers their range: 161002."""

    attributes: str

    def __call__(self, call: Inspection) -> None:
        for name in self.attributes.split():
            check_attribute(call.operator.argument(name), call.arguments[name])

    def row_check(self, operator: Any) -> RowCheck | None:
        """Axes may go below an attribute's range, so that limits can say where it begins."""
        texts = []
        for name in self.attributes.split():
            axis = next(
                (one for one in operator.axes if one.name == name and hasattr(one, "low")), None
            )
            if axis is not None and axis.low < operator.argument(name).low:
                texts.append(f"row.{name} < {operator.argument(name).low}")
        return RowCheck(INVALID, " or ".join(texts)) if texts else None


def check_attribute(attribute: Attribute, value: Any) -> None:
    """Check one attribute.

    Raises
    ------
    UsageError
        For a value of another kind or out of range.
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
                name, f"{name} = {shown(value)} is not a whole number", f"{low} <= {name} <= {high}"
            )
        if not low <= int(value) <= high:
            raise AclnnError(
                INVALID,
                name,
                f"{name} = {shown(value)} is out of range",
                f"{low} <= {name} <= {high}",
            )
    elif attribute.kind is float:
        require_float(name, value)
    elif attribute.kind is IntArray:
        require_whole_numbers(name, value)


def require_whole(name: str, value: Any, low: int = -INT64_MAX - 1) -> None:
    """Check that an option of ours is a whole number and not below ``low``.

    Raises
    ------
    UsageError
        When it is none, or below.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not low <= int(value) <= INT64_MAX
    ):
        raise UsageError(
            name,
            f"{name} = {shown(value)} is no whole number in range",
            f"{low} <= {name} <= {INT64_MAX}",
        )


def require_float(name: str, value: Any) -> float:
    """Check that an attribute is a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            name, f"{name} = {shown(value)} is not a number", f"{name}: a number"
        ) from None


def require_whole_numbers(name: str, value: Any) -> IntArray:
    """Check that an attribute is a list of whole numbers."""
    try:
        return IntArray(value)
    except (TypeError, ValueError):
        message = f"{name} = {shown(value)} is no list of whole numbers"
        raise UsageError(name, message, f"{name}: such as 4,2, or nothing") from None


@dataclass(frozen=True, eq=False)
class Holds(Check):
    """A condition over sizes, whole numbers among the attributes and facts of the product; refused where it does not hold.

    Attributes
    ----------
    condition
        An expression such as ``"num_topk <= num_topk_at_most"``: names are sizes, attributes, documented limits and other facts.
    blames
        The argument at fault, or a function of the call that names it.
    words
        Message and hint from the call; made of the condition when None.
    status
        Status of the refusal.
    documented
        Whether it is a documented limit: not asked with ``limits=hardware``, nor where the product states none.
    """

    condition: str
    blames: str | Callable[[Any], str]
    words: Words | None = None
    status: Status = TILING_FAILURE
    documented: bool = False

    def __call__(self, call: Inspection) -> None:
        if self.documented and (call.limits != "documented" or -1 in self._stated(call).values()):
            return
        if not evaluate(self.condition, call.number):
            raise self._refusal(call)

    def _stated(self, call: Inspection) -> dict[str, int]:
        """Return what the condition speaks of and the product says."""
        return {
            name: getattr(call.rules, name)
            for name in names(self.condition)
            if name in call.operator.rule_names
        }

    def _refusal(self, call: Inspection) -> AclnnError:
        known = self._stated(call)
        blamed = self.blames(call) if callable(self.blames) else self.blames
        if self.words is not None:
            return AclnnError(self.status, blamed, *self.words(call))
        values = ", ".join(
            f"{name} = {call.size(name)}" for name in names(self.condition) if name not in known
        )
        limits = ", ".join(f"{name} = {value}" for name, value in known.items())
        if self.documented:
            limits += ', a documented limit: limits="hardware" allows more'
        return AclnnError(
            self.status,
            blamed,
            f"{values}: {call.operator.title} needs {self.condition}",
            limits or self.condition,
        )

    def row_check(self, operator: Any) -> RowCheck | None:
        """The same condition over a row and the rules of a product."""
        refuses = f"not ({in_row(self.condition, operator.rule_names)})"
        if self.documented:
            stated = [
                f"rules.{name} >= 0"
                for name in names(self.condition)
                if name in operator.rule_names
            ]
            refuses = " and ".join(["row.limits == 0", *stated, refuses])
        return RowCheck(self.status, refuses)


@dataclass(frozen=True, eq=False)
class Fits(Check):
    """A planner's own condition ``fits(row, device, rules)``, in whole numbers; refused where it does not hold."""

    fits: Callable[[Any, Any, Any], bool]
    blames: str
    words: Words
    status: Status = TILING_FAILURE

    def __call__(self, call: Inspection) -> None:
        if not self.fits(call.row, call.device, call.rules):
            raise AclnnError(self.status, self.blames, *self.words(call))

    def row_check(self, operator: Any) -> RowCheck | None:
        """The function itself."""
        name = f"fits_{self.fits.__name__}"
        return RowCheck(self.status, f"not {name}(row, device, rules)", {name: self.fits})


@dataclass(frozen=True, eq=False)
class NothingToDo(Check):
    """A call without work: later checks are not asked, and no kernel runs. ``condition`` is over sizes, for instance ``"rows == 0"``."""

    condition: str

    def __call__(self, call: Inspection) -> None:
        """Nothing is refused here; the engine asks :meth:`holds` instead."""

    def holds(self, call: Inspection) -> bool:
        """Whether the call has no work."""
        return bool(evaluate(self.condition, call.size))

    def row_check(self, operator: Any) -> RowCheck | None:
        """The condition over a row; the status is success."""
        return RowCheck(Status.ACLNN_SUCCESS, in_row(self.condition))
