"""Answers of ``verify``: verdicts by element, with witnesses and reasons."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.arrival_search import EXCLUDED_BY_ALL, EXCLUDED_BY_INTERVAL
from npu_sim.kernels.elementwise import ulp_distance
from npu_sim.language import Text
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.orders.claims import OpenRule, Step
from npu_sim.plans.answers import Printed
from npu_sim.status import UsageError

EQUAL, REACHABLE, UNDECIDED, UNREACHABLE = range(4)
"""Codes of elements, from the best verdict to the worst."""
STATUSES = ("equal", "reachable", "undecided", "unreachable")
"""Names of the codes."""
WORST_ELEMENTS = 20
"""Maximum number of elements listed."""


@dataclass(frozen=True)
class Examined:
    """One element whose value depends on the order of arrival, examined by itself.

    Attributes
    ----------
    how
        How the search ended, see :mod:`npu_sim.kernels.arrival_search`; None where several cores
        write an element and one write remains.
    nearest
        Nearest value that an order gives, of those tried.
    low, high
        Bounds of the value over all orders; infinite if unknown.
    contributions, cores
        Number of contributions and of cores.
    steps
        The additions in an order that gives the value; empty without one.
    """

    how: int | None
    nearest: float
    low: float
    high: float
    contributions: int
    cores: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Explanation:
    """A simulated alternative that gives bits which the call cannot give.

    Attributes
    ----------
    alternative
        What differs from the call.
    explained, of
        Number of the unreachable elements that are equal or reachable there, and of all.
    whole
        Whether every element of the output is equal or reachable there.
    """

    alternative: str
    explained: int
    of: int
    whole: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "alternative": self.alternative,
            "explained": self.explained,
            "of": self.of,
            "whole": self.whole,
        }


@dataclass(frozen=True, repr=False)
class OutputVerdict(Printed):
    """Verdict on one output.

    Attributes
    ----------
    output
        Name of the output.
    elements
        uint8 codes, in the shape of the output: positions in :data:`STATUSES`.
    given, expected
        The measured values, and those of the sequential order in the same dtype.
    order_dependent
        Which elements depend on the order of arrival.
    misfits
        Which measured values the output's dtype cannot represent.
    order
        Order of arrival that gives the whole output; empty if none of the named ones does.
    rules
        Parts of the rule that are not published, for elements that differ.
    examine
        ``examine(index)`` examines an order-dependent element; None when it has no contributions.
    explanations
        Alternatives that explain unreachable elements, the best first.
    rounded_from
        dtype of the output when it is given in a narrower one, to which computed values are
        rounded; else empty.
    """

    output: str
    elements: NDArray[np.uint8]
    given: NDArray[Any]
    expected: NDArray[Any]
    order_dependent: NDArray[np.bool_]
    misfits: NDArray[np.bool_]
    order: str
    rules: tuple[OpenRule, ...]
    examine: Callable[[tuple[int, ...]], Examined | None]
    explanations: tuple[Explanation, ...] = ()
    rounded_from: str = ""

    @property
    def status(self) -> str:
        """The worst verdict of the elements; ``equal`` for an output without elements."""
        return STATUSES[int(self.elements.max(initial=EQUAL))]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of elements by verdict."""
        worst = int(self.elements.max(initial=EQUAL))
        counts = dict.fromkeys(STATUSES, 0)
        for code in range(1, worst + 1):
            counts[STATUSES[code]] = int(np.count_nonzero(self.elements == code))
        counts[STATUSES[EQUAL]] = self.elements.size - sum(counts.values())
        return counts

    @property
    def possible(self) -> bool:
        """Whether no element is unreachable."""
        return self.counts["unreachable"] == 0

    def _index(self, index: Any) -> tuple[int, ...]:
        """Return an index as nonnegative integers; raises UsageError outside the shape."""
        position = tuple(int(axis_index) for axis_index in np.atleast_1d(index))
        if len(position) != self.elements.ndim or not all(
            -size <= axis_index < size
            for axis_index, size in zip(position, self.elements.shape, strict=True)
        ):
            raise UsageError(
                "index",
                Text("index = {index} is outside {name}", index=str(position), name=self.output),
                Text("the shape is {shape}", shape=str(self.elements.shape)),
            )
        return tuple(
            axis_index % size
            for axis_index, size in zip(position, self.elements.shape, strict=True)
        )

    def status_of(self, index: Any) -> str:
        """Return the verdict on one element: ``equal``, ``reachable`` ..."""
        return STATUSES[self.elements[self._index(index)]]

    def witness(self, index: Any) -> tuple[Step, ...]:
        """Return the additions of an order that gives an element's bits; empty without one.

        Every step has the core, the contribution, its value, and the fp32 sum after it. Elements
        with one legal order have no list: their additions are those of the plan.
        """
        position = self._index(index)
        if not self.order_dependent[position] or self.elements[position] > REACHABLE:
            return ()
        examined = self.examine(position)
        return () if examined is None else examined.steps

    def reason(self, index: Any) -> str:
        """Return why an element has its verdict."""
        position = self._index(index)
        code, given = int(self.elements[position]), str(self.given[position])
        if self.misfits[position]:
            return Text(
                "the measured value is not representable in {dtype}", dtype=str(self.given.dtype)
            )
        if code == UNDECIDED:
            for rule in self.rules:
                if allows(rule, self.given)[position]:
                    return rule.reason
        if not self.order_dependent[position]:
            if code == EQUAL:
                return "one legal order, equal bits"
            return Text(
                "one legal order, which gives {expected}, not {given}: {ulp} ulp apart",
                expected=str(self.expected[position]),
                given=given,
                ulp=self.distance(position, self.expected[position]),
            )
        if code == EQUAL:
            return Text("the whole output has the bits of the order {order}", order=self.order)
        examined = self.examine(position)
        if examined is None:
            return "its order depends on timing, and the operator states no contributions"
        return self._examined_reason(position, examined, given)

    def _examined_reason(self, position: tuple[int, ...], examined: Examined, given: str) -> str:
        if self.elements[position] == REACHABLE:
            return Text(
                "an order of its {count} contributions from {cores} cores gives {given}",
                count=examined.contributions,
                cores=examined.cores,
                given=given,
            )
        nearest = Text(
            "the nearest value found is {nearest}, {ulp} ulp apart",
            nearest=str(self.given.dtype.type(examined.nearest)),
            ulp=self.distance(position, examined.nearest),
        )
        if examined.how == EXCLUDED_BY_ALL or examined.how is None:
            return Text(
                "no order of its {count} contributions from {cores} cores gives {given}, all were "
                "enumerated; {nearest}",
                count=examined.contributions,
                cores=examined.cores,
                given=given,
                nearest=nearest,
            )
        if examined.how == EXCLUDED_BY_INTERVAL:
            return Text(
                "every order gives a value from {low} to {high}, not {given}; {nearest}",
                low=str(self.given.dtype.type(examined.low)),
                high=str(self.given.dtype.type(examined.high)),
                given=given,
                nearest=nearest,
            )
        return Text(
            "no order found that gives {given}, and no proof that there is none: {count} "
            "contributions from {cores} cores exceed the budget; {nearest}",
            count=examined.contributions,
            cores=examined.cores,
            given=given,
            nearest=nearest,
        )

    def distance(self, position: tuple[int, ...], other: Any) -> int:
        """Return the distance of a measured element from a value, in ulp of the dtype."""
        given = self.given[position]
        if self.given.dtype.kind in "iu":
            return abs(int(given) - int(other))
        measured, compared = (np.array([value], self.given.dtype) for value in (given, other))
        return int(ulp_distance(measured, compared, canonical_dtype(self.given.dtype))[0])

    @cached_property
    def worst(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the worst elements that are unreachable or undecided."""
        positions = np.flatnonzero(self.elements.reshape(-1) >= UNDECIDED)
        codes = self.elements.reshape(-1)[positions].astype(np.int64)
        given, expected = self.given.reshape(-1)[positions], self.expected.reshape(-1)[positions]
        if given.dtype.kind in "iu":
            distances = np.abs(given.astype(np.int64) - expected.astype(np.int64))
        else:
            distances = ulp_distance(given, expected, canonical_dtype(given.dtype))
        order = np.lexsort((positions, -distances, -codes))[:WORST_ELEMENTS]
        shape = self.elements.shape
        return tuple(
            tuple(map(int, np.unravel_index(int(position), shape))) for position in positions[order]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data, with the worst elements."""
        return {
            "status": self.status,
            "elements": dict(self.counts),
            "order_dependent": int(np.count_nonzero(self.order_dependent)),
            "order": self.order or None,
            "rounded_from": self.rounded_from or None,
            "open_rules": [rule.reason for rule in self.rules],
            "worst": [
                {
                    "index": list(index),
                    "status": self.status_of(index),
                    "given": str(self.given[index]),
                    "expected": str(self.expected[index]),
                    "reason": self.reason(index),
                }
                for index in self.worst
            ],
            "explanations": [explanation.as_dict() for explanation in self.explanations],
        }


@dataclass(frozen=True)
class Combination:
    """SoCs and releases with one answer, with the determinism switch on or off."""

    product: str
    socs: tuple[str, ...]
    releases: tuple[str, ...]
    deterministic: bool
    possible: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the combination as plain data."""
        return {
            "product": self.product,
            "socs": list(self.socs),
            "releases": list(self.releases),
            "deterministic": self.deterministic,
            "possible": self.possible,
        }


@dataclass(frozen=True, repr=False)
class Verification(Printed):
    """Whether a product can have produced some outputs.

    Attributes
    ----------
    operator
        Name of the operator.
    product, soc, release, deterministic
        Where the verdicts hold: of all combinations that were tried, the first under which nothing
        is unreachable, or else the one with the fewest unreachable elements.
    outputs
        Verdicts by result name.
    combinations
        All combinations that were tried.
    """

    operator: str
    product: str
    soc: str
    release: str
    deterministic: bool
    outputs: Mapping[str, OutputVerdict]
    combinations: tuple[Combination, ...] = field(default=())

    @property
    def status(self) -> str:
        """The worst verdict of the outputs."""
        return max((output.status for output in self.outputs.values()), key=STATUSES.index)

    @property
    def possible(self) -> tuple[Combination, ...]:
        """Combinations under which nothing is unreachable."""
        return tuple(combination for combination in self.combinations if combination.possible)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "operator": self.operator,
            "product": self.product,
            "soc": self.soc,
            "release": self.release,
            "deterministic": self.deterministic,
            "status": self.status,
            "outputs": {name: output.as_dict() for name, output in self.outputs.items()},
            "combinations": [combination.as_dict() for combination in self.combinations],
        }


def allows(rule: OpenRule, given: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of an output a rule allows."""
    values = given.astype(np.float64)
    anything = np.isneginf(rule.lowest) & np.isposinf(rule.highest)
    allowed: NDArray[np.bool_] = ((values >= rule.lowest) & (values <= rule.highest)) | anything
    return allowed
