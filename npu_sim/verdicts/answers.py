"""Answers of ``verify``: verdicts by element, with witnesses and reasons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.shared.arrival_search import EXCLUDED_BY_ALL, EXCLUDED_BY_INTERVAL
from npu_sim.kernels.shared.elementwise import ulp_distance
from npu_sim.language import Argument, Text
from npu_sim.numbers.arrays import Index
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.orders.claims import OpenRule, Step
from npu_sim.plans.answers import Printed
from npu_sim.status import UsageError

EQUAL, REACHABLE, UNDECIDED, UNREACHABLE = range(4)
"""Codes of elements, from the best verdict to the worst."""
VERDICTS = ("equal", "reachable", "undecided", "unreachable")
"""Names of the codes."""
WORST_ELEMENTS = 20
"""Maximum number of elements listed."""
MEASURED_SETS = 3
"""Elements whose set of reachable values is measured."""


@dataclass(frozen=True)
class Examined:
    """One element whose value depends on the order of arrival, examined by itself.

    Attributes
    ----------
    how
        How the search ended, see :mod:`npu_sim.kernels.shared.arrival_search`; None where several
        cores write an element and one write remains.
    nearest
        Nearest value that an order gives, of those tried.
    low, high
        Bounds of the value over all orders; infinite if unknown.
    values
        Number of values that the orders give; 0 where they were not enumerated.
    contributions, cores
        Number of contributions and of cores.
    steps
        The additions in an order that gives the value; empty without one.
    """

    how: int | None
    nearest: float
    low: float
    high: float
    values: int
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
    impossible
        Number of elements that the call can give, but not the alternative.
    """

    alternative: str
    explained: int
    of: int
    whole: bool
    impossible: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "alternative": self.alternative,
            "explained": self.explained,
            "of": self.of,
            "whole": self.whole,
            "impossible": self.impossible,
        }


@dataclass(frozen=True, repr=False)
class OutputVerdict(Printed):
    """Verdict on one output.

    Attributes
    ----------
    output
        Name of the output.
    elements
        uint8 codes, in the shape of the output: positions in :data:`VERDICTS`.
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
    cut_short
        Which elements are undecided because the budget of the whole call was spent.
    examine
        ``examine(indices)`` examines order-dependent elements; those without contributions are
        missing in the answer.
    explanations
        Alternatives that explain unreachable elements, the best first.
    patterns
        Common properties of the unreachable elements: places, bits, ratio ...
    rounded_from
        dtype of the output when it is given in a narrower one, to which computed values are
        rounded; else empty.
    race
        Code of the plan's warning on a race that can overwrite the order-dependent elements; else
        empty.
    """

    output: str
    elements: NDArray[np.uint8]
    given: NDArray[Any]
    expected: NDArray[Any]
    order_dependent: NDArray[np.bool_]
    misfits: NDArray[np.bool_]
    order: str
    rules: tuple[OpenRule, ...]
    cut_short: NDArray[np.bool_]
    examine: Callable[[Sequence[Index]], Mapping[Index, Examined]]
    explanations: tuple[Explanation, ...] = ()
    patterns: tuple[str, ...] = ()
    rounded_from: str = ""
    race: str = ""

    @property
    def status(self) -> str:
        """The worst verdict of the elements; ``equal`` for an output without elements."""
        return VERDICTS[int(self.elements.max(initial=EQUAL))]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of elements by verdict."""
        worst = int(self.elements.max(initial=EQUAL))
        counts = dict.fromkeys(VERDICTS, 0)
        for code in range(1, worst + 1):
            counts[VERDICTS[code]] = int(np.count_nonzero(self.elements == code))
        counts[VERDICTS[EQUAL]] = self.elements.size - sum(counts.values())
        return counts

    @cached_property
    def allowed_by_a_rule(self) -> NDArray[np.bool_]:
        """Which measured values a part of the rule that is not published allows."""
        allowed = np.zeros(self.elements.shape, np.bool_)
        for rule in self.rules:
            allowed |= allows(rule, self.given)
        return allowed

    @cached_property
    def overwritten(self) -> NDArray[np.bool_]:
        """Which elements have other bits than computed, and those that a race can leave."""
        found = self.order_dependent & (self.elements == REACHABLE) & bool(self.race)
        differing: NDArray[np.bool_] = found & ~equal_bits(self.given, self.expected)
        return differing

    @property
    def possible(self) -> bool:
        """Whether no element is unreachable."""
        return self.counts["unreachable"] == 0

    def _index(self, index: Any) -> Index:
        """Return an index as nonnegative integers; raises UsageError outside the shape."""
        position = tuple(int(axis_index) for axis_index in np.atleast_1d(index))
        if len(position) != self.elements.ndim or not all(
            -size <= axis_index < size
            for axis_index, size in zip(position, self.elements.shape, strict=True)
        ):
            raise UsageError(
                "index",
                "index = {index} is outside {name}",
                "the shape is {shape}",
                index=str(position),
                name=self.output,
                shape=str(self.elements.shape),
            )
        return tuple(
            axis_index % size
            for axis_index, size in zip(position, self.elements.shape, strict=True)
        )

    def status_of(self, index: Any) -> str:
        """Return the verdict on one element: ``equal``, ``reachable`` ..."""
        return VERDICTS[self.elements[self._index(index)]]

    def witness(self, index: Any) -> tuple[Step, ...]:
        """Return the additions of an order that gives an element's bits; empty without one.

        Every step has the core, the contribution, its value, and the fp32 sum after it. Elements
        with one legal order have no list: their additions are those of the plan.
        """
        position = self._index(index)
        if not self.order_dependent[position] or self.elements[position] > REACHABLE:
            return ()
        examined = self._examined(position)
        return () if examined is None else examined.steps

    @cached_property
    def _examinations(self) -> dict[Index, Examined]:
        """Elements that were examined: first the listed ones, together."""
        return dict(self.examine([at for at in self.worst if self.order_dependent[at]]))

    def _examined(self, position: Index) -> Examined | None:
        if position not in self._examinations:
            self._examinations.update(self.examine([position]))
        return self._examinations.get(position)

    @cached_property
    def measured_sets(self) -> tuple[Examined, ...]:
        """Some order-dependent elements that do not have the bits of the whole output's order."""
        differs = self.order_dependent & (self.elements > EQUAL) & (not self.race)
        places = np.argwhere(differs)
        steps = np.linspace(0, max(0, len(places) - 1), min(MEASURED_SETS, len(places)))
        indices = [tuple(map(int, places[int(step)])) for step in steps]
        return tuple(filter(None, map(self._examined, indices)))

    def width(self, examined: Examined) -> int:
        """Return the distance of the bounds of an element in ulp of the output's dtype."""
        low, high = (np.array([side], self.given.dtype) for side in (examined.low, examined.high))
        return int(ulp_distance(low, high, canonical_dtype(self.given.dtype))[0])

    @cached_property
    def within_a_rule(self) -> NDArray[np.bool_]:
        """Which elements have a part of the rule that is not published."""
        within = np.zeros(self.elements.shape, np.bool_)
        for rule in self.rules:
            within |= rule.lowest <= rule.highest
        return within

    def reason(self, index: Any) -> str:
        """Return why an element has its verdict."""
        position = self._index(index)
        code, given = int(self.elements[position]), str(self.given[position])
        if self.misfits[position]:
            return Text(
                "the measured value is not representable in {dtype}", dtype=str(self.given.dtype)
            )
        if code == UNDECIDED and self.allowed_by_a_rule[position]:
            return next(rule.reason for rule in self.rules if allows(rule, self.given)[position])
        if code == UNREACHABLE and self.within_a_rule[position]:
            return self._beyond_rule(position, given)
        if not self.order_dependent[position]:
            if code == EQUAL:
                return "one legal order, equal bits"
            return Text(
                "one legal order, which gives {expected}, not {given}{distance}",
                expected=str(self.expected[position]),
                given=given,
                distance=self._apart(position, self.expected[position], ": "),
            )
        if code == EQUAL and self.race:
            return Text("equal bits: the race {race} overwrote nothing", race=self.race)
        if code == EQUAL:
            return Text("the whole output has the bits of the order {order}", order=self.order)
        if self.cut_short[position]:
            return "the budget of the whole call was spent before all orders were tried"
        examined = self._examined(position)
        if examined is None:
            return "its order depends on timing, and the operator states no contributions"
        return self._examined_reason(position, examined, given)

    def _beyond_rule(self, position: Index, given: str) -> str:
        """Return that an element is beyond the bound of a rule that is not published."""
        shape = self.elements.shape
        bounds = [
            (
                rule,
                *(np.broadcast_to(side, shape)[position] for side in (rule.lowest, rule.highest)),
            )
            for rule in self.rules
        ]
        rule, low, high = next(found for found in bounds if found[1] <= found[2])
        return Text(
            "{given} is beyond the bound {low} to {high}: {rule}",
            given=given,
            low=str(self.given.dtype.type(low)),
            high=str(self.given.dtype.type(high)),
            rule=rule.reason,
        )

    def _examined_reason(self, position: Index, examined: Examined, given: str) -> str:
        if self.race and examined.steps:
            return Text(
                "{given} is {contribution}, see {race}",
                given=given,
                contribution=examined.steps[-1].contribution,
                race=self.race,
            )
        if self.race:
            return Text(
                "{given} is neither {expected}, the computed value, nor what {race} can leave",
                given=given,
                expected=str(self.expected[position]),
                race=self.race,
            )
        if self.elements[position] == REACHABLE:
            return Text(
                "an order of its {count} contributions from {cores} cores gives {given}; "
                "{reachable}",
                count=examined.contributions,
                cores=examined.cores,
                given=given,
                reachable=self._width_text(examined),
            )
        nearest = Text(
            "the nearest value found is {nearest}{distance}",
            nearest=str(self.given.dtype.type(examined.nearest)),
            distance=self._apart(position, examined.nearest, Text(", ")),
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

    def _width_text(self, examined: Examined) -> str:
        ulp = self.width(examined)
        if not examined.values:
            return Text("all orders lie within {ulp} ulp", ulp=ulp)
        return Text(
            "{count} values are reachable, within {ulp} ulp", count=examined.values, ulp=ulp
        )

    def _apart(self, position: Index, other: Any, before: str) -> str:
        """Return the distance of a measured element from a value as text; empty for nan."""
        ulp = self.distance(position, other)
        return "" if ulp is None else Text("{before}{ulp} ulp apart", before=before, ulp=ulp)

    def distance(self, position: Index, other: Any) -> int | None:
        """Return the distance of a measured element from a value, in ulp; None where one is nan."""
        given = self.given[position]
        if given != given or other != other:
            return None
        if self.given.dtype.kind in "iu":
            return abs(int(given) - int(other))
        measured, compared = (np.array([value], self.given.dtype) for value in (given, other))
        return int(ulp_distance(measured, compared, canonical_dtype(self.given.dtype))[0])

    @cached_property
    def worst(self) -> tuple[Index, ...]:
        """Indices of the worst elements that are unreachable or undecided.

        Those come first that differ most from the computed values: in ulp, sums near 0 would.
        """
        positions = np.flatnonzero(self.elements.reshape(-1) >= UNDECIDED)
        codes = self.elements.reshape(-1)[positions].astype(np.int64)
        with np.errstate(all="ignore"):
            distances = np.abs(
                self.given.reshape(-1)[positions].astype(np.float64)
                - self.expected.reshape(-1)[positions].astype(np.float64)
            )
        distances[np.isnan(distances)] = np.inf
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
            "race": self.race or None,
            "overwritten": int(np.count_nonzero(self.overwritten)),
            "rounded_from": self.rounded_from or None,
            "open_rules": [rule.reason for rule in self.rules],
            "reachable_sets": [
                {"values": examined.values or None, "ulp": self.width(examined)}
                for examined in self.measured_sets
            ],
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
            "patterns": list(self.patterns),
            "explanations": [explanation.as_dict() for explanation in self.explanations],
            "next": list(self.next_steps),
        }

    @cached_property
    def next_steps(self) -> tuple[str, ...]:
        """What decides undecided elements, or helps with unreachable ones."""
        undecided = self.elements == UNDECIDED
        ruled = int(np.count_nonzero(undecided & self.allowed_by_a_rule))
        unruled = undecided & ~self.allowed_by_a_rule
        cut_short = int(np.count_nonzero(unruled & self.cut_short))
        searched = self.counts["undecided"] - ruled - cut_short
        steps: list[str] = []
        if cut_short:
            steps.append(
                Text(
                    "{count} elements: the budget of the whole call was spent; raise "
                    "{total_budget}, name SoC, release and mode, or verify some columns of the "
                    "tensors",
                    count=cut_short,
                    total_budget=Argument("total_budget"),
                )
            )
        if searched > 0:
            steps.append(
                Text(
                    "{count} elements: the search found neither an order nor a proof; raise "
                    "{budget}",
                    count=searched,
                    budget=Argument("budget"),
                )
            )
        if ruled:
            steps.append(
                Text(
                    "{count} elements: part of the rule is not published, no search decides them",
                    count=ruled,
                )
            )
        if not self.possible and not self.explanations:
            steps.append(
                Text(
                    "make sure that the inputs are those that the kernel read, in their own dtype "
                    "and saved before they were changed in place; then verify a second run against "
                    "this one"
                )
            )
        return tuple(steps)


@dataclass(frozen=True)
class ResultDifference:
    """How a second result of the same call differs from the first.

    Attributes
    ----------
    first, second
        Verdicts on both results of an output.
    """

    first: OutputVerdict
    second: OutputVerdict

    @cached_property
    def differing(self) -> NDArray[np.bool_]:
        """Which elements differ in their bits or, if nan, in being nan."""
        return ~equal_bits(self.first.given, self.second.given)

    @cached_property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """Rows with elements that differ, as plain data; impossible ones first, then large ones.

        A row is what lies along the last axis; ``index`` has the other indices.
        """
        if not self.differing.size:
            return ()
        columns = self.differing.shape[-1] if self.differing.ndim else 1
        different = self.differing.reshape(-1, columns)
        places = np.flatnonzero(different.any(axis=1))
        first, second = (
            side.given.reshape(-1, columns)[places] for side in (self.first, self.second)
        )
        codes = [side.elements.reshape(-1, columns)[places] for side in (self.first, self.second)]
        shape, where = self.differing.shape[:-1], different[places]
        with np.errstate(all="ignore"):
            apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
        largest = np.where(where & np.isnan(apart), np.inf, np.where(where, apart, 0)).max(axis=1)
        worst = np.maximum(*(np.where(where, side, 0).max(axis=1) for side in codes))
        return tuple(
            {
                "index": [int(at) for at in np.unravel_index(int(places[row]), shape)],
                "elements": int(where[row].sum()),
                "largest_difference": float(largest[row]),
                "first": VERDICTS[int(codes[0][row][where[row]].max())],
                "second": VERDICTS[int(codes[1][row][where[row]].max())],
            }
            for row in np.lexsort((-largest, -worst.astype(np.int64))).tolist()
        )

    @property
    def proved(self) -> bool:
        """Whether every element that differs is possible in both results."""
        return all(
            row[side] in VERDICTS[:UNDECIDED] for row in self.rows for side in ("first", "second")
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, with the rows that differ most."""
        return {
            "elements": int(np.count_nonzero(self.differing)),
            "rows": len(self.rows),
            "proved": self.proved,
            "worst_rows": list(self.rows[:WORST_ELEMENTS]),
            "second": self.second.as_dict(),
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
    against
        How second results differ, by result name.
    completed
        Inputs that were left out and computed as the forward operator does.
    """

    operator: str
    product: str
    soc: str
    release: str
    deterministic: bool
    outputs: Mapping[str, OutputVerdict]
    combinations: tuple[Combination, ...] = ()
    against: Mapping[str, ResultDifference] = field(default_factory=dict)
    completed: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The worst verdict of the outputs, second results included."""
        seconds = [difference.second for difference in self.against.values()]
        verdicts = (*self.outputs.values(), *seconds)
        return max((verdict.status for verdict in verdicts), key=VERDICTS.index)

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
            "against": {name: difference.as_dict() for name, difference in self.against.items()},
            "completed": list(self.completed),
        }


def allows(rule: OpenRule, given: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of an output a rule allows."""
    values = given.astype(np.float64)
    anything = np.isneginf(rule.lowest) & np.isposinf(rule.highest)
    allowed: NDArray[np.bool_] = ((values >= rule.lowest) & (values <= rule.highest)) | anything
    return allowed


def equal_bits(array: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where two arrays of a dtype have equal bits; every nan equals every nan."""
    if array.dtype.kind in "iu":
        integers: NDArray[np.bool_] = array == other
        return integers
    same: NDArray[np.bool_] = bits_of(array) == bits_of(other)
    if not same.all():
        same |= np.isnan(array) & np.isnan(other)
    return same.reshape(array.shape)


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of an array as unsigned integers."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")
