"""Legal values of one argument, given the others: ``npu_sim.limits``.

The change from accepted to refused is bisected with the operator's integer planner. Then the
contract, which gives the reasons, confirms both sides of every end; where it disagrees, the search
is repeated with the contract alone.

The search (:func:`legal_ranges`) does not need a monotone test. Small domains are tested
completely. Large domains are probed at points that are dense around zero and given landmarks, and
sparser in proportion to the distance. Every change between adjacent probes is bisected, and all
integers around a change are tested. The result for a large domain assumes that the test changes
once between adjacent probes, apart from changes close to each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Number, Values
from npu_sim.framework.checking import rules_on
from npu_sim.framework.planning import FixedCall, fixed_call, overflow_of
from npu_sim.framework.row_planner import row_planner
from npu_sim.framework.target import LIMITS, Limits, Target, require_bool
from npu_sim.language import Argument
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Printed
from npu_sim.questions.varied_calls import device_groups, number_of, one_spelling
from npu_sim.status import (
    ACLNN_SUCCESS,
    NO_PLAN,
    UncountableError,
    Unplanned,
    UsageError,
    shown,
    without_internal_frames,
)

Interval = tuple[int, int]
"""First and last integer, both included."""

EXHAUSTIVE = 4096
"""Domains of up to this size are tested completely."""
NEAR = 64
"""Distance around zero, the ends and the landmarks within which every integer is tested."""
REPEATING = 8
"""Distances between changes; those of every second one being equal, the changes repeat."""


def legal_ranges(
    legal: Callable[[int], bool],
    low: int,
    high: int,
    landmarks: Iterable[int] = (),
    per_octave: int = 16,
    window: int = NEAR,
) -> list[Interval]:
    """Return the intervals of ``low .. high`` on which ``legal`` holds, in ascending order.

    - ``legal``: the test.
    - ``low``, ``high``: domain, both ends included.
    - ``landmarks``: integers with dense probes around them, such as the current value.
    - ``per_octave``: probes between two powers of two.
    - ``window``: distance around a change within which every integer is tested; twice the number of
      cores finds changes that depend on remainders.
    """
    if high - low < EXHAUSTIVE:
        return _runs((number, legal(number)) for number in range(low, high + 1))
    answers = {point: legal(point) for point in probe_points(low, high, landmarks, per_octave)}
    points = sorted(answers)
    for left, right in pairwise(points):
        if answers[left] != answers[right] and right - left > 1:
            last_same = last_equal(legal, left, right, answers[left])
            answers[last_same], answers[last_same + 1] = answers[left], answers[right]
            _look_around(legal, answers, last_same, max(low, points[0]), high, window)
    return _runs(sorted(answers.items()))


def _look_around(
    legal: Callable[[int], bool],
    answers: dict[int, bool],
    change: int,
    low: int,
    high: int,
    window: int,
) -> None:
    """Test every integer near a change, and near every further change found on the way.

    Changes that repeat, as those of the multiples of a number do, have no end: they are not
    followed.
    """
    for step, end in ((-1, low), (1, high)):
        number, left = change + (step > 0), window
        last, gaps = number, list[int]()
        while left and number != end:
            number, left = number + step, left - 1
            if number not in answers:
                answers[number] = legal(number)
            if answers[number] != answers[number - step]:
                gaps.append(abs(number - last))
                repeats = len(gaps) >= REPEATING and gaps[-REPEATING:-2] == gaps[2 - REPEATING :]
                last, left = number, 0 if repeats else window


def probe_points(low: int, high: int, landmarks: Iterable[int], per_octave: int) -> list[int]:
    """Return the integers to test in a large domain, ascending, including both ends."""
    points = {low, high}
    for center in (0, low, high, *landmarks):
        points.update(range(center - NEAR, center + NEAR + 1))
    power = NEAR
    while power <= max(abs(low), abs(high)):
        for step in range(per_octave):
            magnitude = power + power * step // per_octave
            points.update((magnitude, -magnitude, magnitude - 1, magnitude + 1))
        power *= 2
    return sorted(point for point in points if low <= point <= high)


def last_equal(function: Callable[[int], Any], left: int, right: int, answer: Any) -> int:
    """Return the last integer from ``left`` on with ``answer``; ``right`` has another one."""
    while right - left > 1:
        middle = (left + right) // 2
        left, right = (middle, right) if function(middle) == answer else (left, middle)
    return left


def _runs(answers: Iterable[tuple[int, bool]]) -> list[Interval]:
    """Return the intervals of legal integers; a gap between two legal ones counts as legal."""
    runs = (list(run) for answer, run in groupby(answers, key=itemgetter(1)) if answer)
    return [(run[0][0], run[-1][0]) for run in runs]


FRONTIER_STEPS = (1, 2, 5)
"""Values of the second argument of a frontier, times powers of ten."""
PROBES = 16
"""Probes between two powers of two."""
MANY_PROBES = 4
"""The same for many searches: a frontier, all sizes, an explanation."""
ASSUMPTION = (
    "values around zero, the ends and every change that does not repeat are all tested, others at "
    "16 points between powers of two, at 4 in a frontier and where every size is bounded; both "
    "sides of every end of a range are confirmed by the contract; sizes are searched up to 2^40"
)


Refusal = Unplanned | UncountableError
"""Why a value is not legal."""


@dataclass(frozen=True)
class Bound:
    """Legal values of one argument under one set of limits."""

    ranges: tuple[Interval, ...]
    """Intervals of legal values, both ends included; empty when no value is legal."""
    below: Refusal | None = None
    """Refusal just below the smallest legal value; None where the search ended."""
    above: Refusal | None = None
    """Refusal just above the largest legal value; None where the search ended, at
    ``npu_sim.framework.arguments.SEARCH_END``. Without legal values, the refusal of the call."""

    @property
    def smallest(self) -> int | None:
        """Smallest legal value."""
        return self.ranges[0][0] if self.ranges else None

    @property
    def largest(self) -> int | None:
        """Largest legal value; None without legal values, or if the search met no refusal."""
        return self.ranges[-1][1] if self.ranges and self.above is not None else None

    def as_dict(self) -> dict[str, Any]:
        """Return the bound as plain data."""
        return {
            "smallest": self.smallest,
            "largest": self.largest,
            "unlimited": bool(self.ranges) and self.above is None,
            "ranges": [list(interval) for interval in self.ranges],
            "below": self.below.as_dict() if self.below else None,
            "above": self.above.as_dict() if self.above else None,
        }


@dataclass(frozen=True)
class ProductLimits:
    """Bounds on the SoCs of one product that plan alike."""

    product: str
    """The product."""
    socs: tuple[str, ...]
    """Its SoCs with the same cores and buffers."""
    documented: Bound
    """Bound under the documented limits."""
    hardware: Bound
    """Bound under the limits of the hardware."""
    at: int | None = None
    """Value of the second argument, for a frontier."""
    size: str = ""
    """Name of the argument, in a table that bounds several."""
    rules_source: str = ""
    """Where the rules of the product come from, as in a plan."""

    def as_dict(self) -> dict[str, Any]:
        """Return the bounds as plain data."""
        data: dict[str, Any] = {"size": self.size} if self.size else {}
        data |= {"product": self.product, "socs": list(self.socs)}
        if self.at is not None:
            data["at"] = self.at
        return data | {
            "documented": self.documented.as_dict(),
            "hardware": self.hardware.as_dict(),
            "rules_source": self.rules_source,
        }


@dataclass(frozen=True, repr=False)
class LimitTable(Printed):
    """The answer of :func:`limits`."""

    operator: str
    """Name of the operator."""
    vary: str
    """Bounded argument; empty for all sizes."""
    along: str
    """Second argument of a frontier; empty without one."""
    fixed: dict[str, Any] = field(repr=False)
    """Values of the rest of the call."""
    rows: tuple[ProductLimits, ...] = ()
    """One row per product and kind of SoC, and per value of the second argument or size."""

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data, the form ``--json`` prints."""
        return {
            "operator": self.operator,
            "vary": self.vary or None,
            "along": self.along or None,
            "fixed": self.fixed,
            "assumption": ASSUMPTION,
            "rows": [row.as_dict() for row in self.rows],
        }


@without_internal_frames
def limits(
    operator: str,
    vary: str | Sequence[str] | None = None,
    *,
    product: str | Sequence[str] | None = None,
    soc: str | Sequence[str] | None = None,
    release: str | None = None,
    products: str | Sequence[str] | None = None,
    socs: str | Sequence[str] | None = None,
    deterministic: bool = False,
    **fixed: Any,
) -> LimitTable:
    """Find the smallest and largest legal value of an argument, given the others.

    Parameters
    ----------
    operator
        Name of the operator.
    vary
        Name of the size or number to bound, such as dim; every size when left out. Two names for a
        frontier, the bound of the first for values of the second, which may be listed:
        num_weights=1,1000.
    product
        Names, also in one text with commas, or profile files ending in .yaml; all when left out.
    soc
        SoCs, also in one text with commas; one of every kind when left out.
    products, socs
        Other names of product and soc.
    release, deterministic
        As for :func:`npu_sim.plan`.
    **fixed
        The rest of the call: sizes, dtypes and switches by axis name, or arguments as for
        :func:`npu_sim.plan`; a small legal default for everything else.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    declared = load_operator(operator)
    names = [vary] if isinstance(vary, str) else list(vary or ())
    if len(names) > 2:
        raise UsageError(
            "vary",
            "vary: {names_count} names",
            "one name, or two for a frontier",
            names_count=len(names),
        )
    call = fixed_call(declared, fixed, require_bool("deterministic", deterministic))
    groups = device_groups(
        one_spelling("product", product, products), one_spelling("soc", soc, socs), release
    )
    if names and "=" in names[0]:
        raise UsageError(
            "vary",
            "vary = {given}: the bounds of a size are found among all its values",
            "its name alone, {name}",
            given=shown(names[0]),
            name=Argument("vary", names[0].partition("=")[0].strip()),
        )
    second, _, listed = (names[1] if len(names) > 1 else "").partition("=")
    axes = [number_of(call, name) for name in filter(None, (*names[:1], second))]
    if len(set(axes)) < len(axes):
        raise UsageError("vary", "vary: {name} twice", "two different names", name=axes[0].name)
    vary, along = (*(axis.name for axis in axes), "", "")[:2]
    others = {name: value for name, value in call.values.items() if name not in (vary, along)}
    rows = tuple(_rows(call, axes, listed, groups))
    return LimitTable(declared.name, vary, along, {**others, **call.attributes}, rows)


def _rows(
    call: FixedCall,
    axes: Sequence[Number],
    listed: str,
    groups: Sequence[tuple[Profile, tuple[str, ...]]],
) -> Iterator[ProductLimits]:
    """Return the bounds of one argument, of its frontier along a second one, or of every size."""
    probes = PROBES if len(axes) == 1 else MANY_PROBES
    return (
        ProductLimits(
            profile.name,
            socs,
            *both_bounds(changed, axis, profile, probes),
            at=value,
            size="" if axes else axis.name,
            rules_source=profile.product.rules_source,
        )
        for axis in axes[:1] or call.operator.sizes
        for profile, socs in groups
        for value, changed in (
            _frontier(call, axes[0], axes[1], listed, profile) if axes[1:] else [(None, call)]
        )
    )


def find_bound(
    call: FixedCall, axis: Number, profile: Profile, limits: Limits, per_octave: int = PROBES
) -> Bound:
    """Return the legal values of one argument on one device."""
    refusal = refusals(call, axis, profile, limits)
    current = int(call.values[axis.name])
    now = refusal(current)
    if now is not None and now.status != ACLNN_SUCCESS and now.argument in ("product", "release"):
        return Bound((), None, now)  # the product has no plan of the operator at all
    window = 2 * max(profile.device.vector_cores, profile.device.cube_cores)

    def search(legal: Callable[[int], bool]) -> list[Interval]:
        return legal_ranges(legal, axis.low, axis.high, (current,), per_octave, window)

    def accepted(value: int) -> bool:
        return refusal(value) is None

    planned = quick_test(call, axis, profile, limits)
    ranges = search(planned) if planned is not None else search(accepted)
    if planned is not None and not _confirmed(ranges, accepted, axis, current):
        ranges = search(accepted)  # a property of the call that is not an axis decides
    if not ranges:
        return Bound((), None, now or refusal(axis.low))
    smallest, largest = ranges[0][0], ranges[-1][1]
    return Bound(
        tuple(ranges),
        below=refusal(smallest - 1) if smallest > axis.low else None,
        above=refusal(largest + 1) if largest < axis.high else None,
    )


def quick_test(
    call: FixedCall, axis: Number, profile: Profile, limits: Limits
) -> Callable[[int], bool] | None:
    """Return the test of a value by the operator's integer planner, faster than the contract.

    None when the call has a value outside its axes, such as a dtype that no product supports.
    """
    operator = call.operator.on(profile)  # may have more axes than the call
    values: Values = {
        **operator.defaults(),
        **call.values,
        "limits": limits,
        "deterministic": call.deterministic,
    }
    try:
        codes = {known.name: known.code(values[known.name]) for known in operator.all_axes}
    except UsageError:
        return None
    planner, device, rules = row_planner(operator), profile.device, rules_on(operator, profile)

    def legal(value: int) -> bool:
        row = planner.make_row(**{**codes, axis.name: value})
        record = planner.plan_counted(row, device, rules)
        return bool(record.status == 0 and not (limits == "hardware" and record.overflows))

    return legal


def _confirmed(
    ranges: list[Interval], accepted: Callable[[int], bool], axis: Number, current: int
) -> bool:
    """Return whether the contract agrees at every end, its neighbours, and the current value."""
    points = {axis.low, axis.high, current}
    for first, last in ranges:
        points.update((first - 1, first, last, last + 1))
    inside = (point for point in points if axis.low <= point <= axis.high)
    return all(
        accepted(point) == any(first <= point <= last for first, last in ranges) for point in inside
    )


def refusals(
    call: FixedCall, axis: Number, profile: Profile, limits: Limits
) -> Callable[[int], Refusal | None]:
    """Return a function that gives the refusal of the call with a value, or None."""
    target = Target(profile, limits=limits)

    def refusal(value: int) -> Refusal | None:
        try:
            case = call.checked_with(axis, value, target)
        except (*NO_PLAN, UncountableError) as error:
            return error
        return overflow_of(case) if limits == "hardware" else None

    return refusal


def both_bounds(
    call: FixedCall, axis: Number, profile: Profile, probes: int = PROBES
) -> tuple[Bound, Bound]:
    """Return the legal values of one argument under the documented limits, and the hardware's."""
    documented, hardware = (find_bound(call, axis, profile, limits, probes) for limits in LIMITS)
    return documented, hardware


def _frontier(
    call: FixedCall, axis: Number, second: Number, listed: str, profile: Profile
) -> list[tuple[int, FixedCall]]:
    """Return the values of the second argument of a frontier, each with its call."""
    if listed:
        values = [second.code(item) for item in listed.split(",")]
    else:
        smallest = call.with_values({axis.name: max(axis.low, 1)})
        values = _round_values(
            find_bound(smallest, second, profile, "hardware", MANY_PROBES),
            int(call.values[second.name]),
        )
    return [(value, call.with_values({second.name: value})) for value in values]


def _round_values(bound: Bound, current: int) -> list[int]:
    """Return the ends of a bound (a million without a largest) and round numbers between them."""
    if bound.smallest is None:
        return [current]
    largest = bound.largest if bound.largest is not None else max(10**6, current)
    powers = [10**exponent for exponent in range(len(str(largest)))]
    round_numbers = (power * step for power in powers for step in FRONTIER_STEPS)
    values = {bound.smallest, largest, current, *round_numbers}
    return sorted(value for value in values if max(bound.smallest, 1) <= value <= largest)
