"""Choice of the calls of a kit: the fewest small calls that take every path.

A random sweep of an operator finds the calls; each is described by its *features*: the path of
each mode with the dtypes, the outcome of every condition, the argument that a refusal blames. A
greedy cover takes the calls with most features that no call has yet, then every call is made
smaller as long as it keeps those it was taken for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.device_kit.run_on_device import CALLS
from npu_sim.framework.axes import Number, Switch, Value, Values, Word
from npu_sim.framework.checking import check_uncached
from npu_sim.framework.inference import arguments_of, plan_arguments
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import target_of
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import plan
from npu_sim.plans.device_evidence import NUMBER
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.status import AclnnError, NotModelledError, UsageError
from npu_sim.sweeps.records import Records
from npu_sim.sweeps.runner import sweep

SAMPLE = 1 << 17
"""Calls of an operator that are swept."""
LARGEST_SIZE = 1 << 17
"""Largest value of a size in the sweep."""
COMMON_SIZES = (1, 2, 16, 17, 64, 128, 200)
"""Sizes of a second sweep, in which sizes of different tensors often agree."""
SMALLEST, RANDOM, TINY = 12, 100, 1000
"""Calls of a group of equal records that are planned: the smallest sufficient ones, others, and the
smallest of all without repetitions, which take paths of their own."""
LEAST_ELEMENTS = 1 << 14
"""Product of the sizes of a call that is large enough to keep cores busy."""
LEAST_BYTES, MOST_BYTES = 1 << 16, 4 << 20
"""Bytes of inputs that a call has where possible, so that several cores work, and the most."""
MOST_CALLS = 300
"""Most calls of a kit, unless there are more paths."""
RANKS = {"path": 0, "special values": 1, "refused": 1, "condition": 2, "odd sizes": 2, "edge": 3}
"""Rank of a call by the features it was chosen for, 0 is kept first; dtypes and switches: 1."""
MOST_OPTIONAL_BYTES = 1 << 19
"""Most bytes of a refused call, and of one at a threshold."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Columns of a sweep that tell paths apart, where an operator has them."""

Feature = tuple[str, ...]
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class KitCall:
    """A call of a kit.

    Attributes
    ----------
    operator
        Its declaration.
    values
        Values of the operator's axes.
    arguments
        Arguments of :func:`npu_sim.plan` without the mode.
    features
        What the call shows.
    special
        Whether inputs hold inf, nan, negative zeros and subnormal numbers.
    """

    operator: Operator = field(repr=False)
    values: Values
    arguments: Mapping[str, Any] = field(compare=False)
    features: frozenset[Feature] = field(compare=False)
    special: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the inputs."""
        return sum(spec.nbytes for spec in self.arguments.values() if isinstance(spec, TensorSpec))


def chosen_calls(profile: Profile, progress: Progress) -> list[KitCall]:
    """Return the calls of a kit for a SoC and release, at most MOST_CALLS.

    Calls at thresholds are left out first, then those for conditions, dtypes and refusals. A call
    that is needed for a path is never left out.
    """
    ranked: list[tuple[tuple[int, int, int], KitCall]] = []
    for number, name in enumerate(CALLS):
        progress("choosing calls", number / len(CALLS))
        operator: Operator = load_operator(name)
        try:
            if operator.supported_by(profile):
                chosen = _calls_of(operator.on(profile), profile)
                edges = [(RANKS["edge"], call) for call in _edges(chosen, profile)]
                ordered = enumerate([*chosen, *sorted(edges, key=lambda edge: _size(edge[1]))])
                ranked += [((rank, place, number), call) for place, (rank, call) in ordered]
        except NotModelledError:
            continue
    ranked.sort(key=lambda entry: entry[0])
    paths = sum(rank == RANKS["path"] for (rank, _, _), _ in ranked)
    kept = ranked[: max(MOST_CALLS, paths)]
    return [call for _, call in sorted(kept, key=lambda entry: (entry[0][2], entry[0][1]))]


def reachable(operator: Operator, axis: Any) -> tuple[Value, ...]:
    """Return the values of an axis that torch can choose: names, numbers or states of a switch."""
    chosen: tuple[Value, ...] | None = CALLS[operator.name].reach.get(axis.name)
    if chosen is not None:
        return chosen
    every: tuple[Value, ...] = (False, True) if isinstance(axis, Switch) else axis.words
    return every


def _calls_of(operator: Operator, profile: Profile) -> list[tuple[int, KitCall]]:
    """Return the calls of an operator, each with its rank, those that show most first."""
    found = {
        call.features: call for call in sorted(_candidates(operator, profile), key=_size)[::-1]
    }
    chosen = _cover(found.values())
    smaller = [
        (min(RANKS.get(feature[1], 1) for feature in needed), _smaller(call, needed, profile))
        for call, needed in chosen
    ]
    special = min((call for _, call in smaller if _runs(call)), key=_size, default=None)
    if special is not None:
        shown = frozenset({(operator.name, "special values")})
        made = KitCall(operator, special.values, special.arguments, shown, special=True)
        smaller.append((RANKS["special values"], made))
    return smaller


def _size(call: KitCall) -> tuple[bool, int]:
    """Return a key that sorts the smallest sufficient call first."""
    return call.bytes < LEAST_BYTES, abs(call.bytes - LEAST_BYTES)


def _runs(call: KitCall) -> bool:
    return any(feature[1] == "path" for feature in call.features)


def _candidates(operator: Operator, profile: Profile) -> Iterator[KitCall]:
    """Yield small calls of every group of a sweep's records, planned in both modes."""
    grid: dict[str, Any] = {
        "product": [profile.product.name],
        "soc": [profile.soc],
        "release": [profile.release],
        "deterministic": [False, True],
    }
    for axis in operator.axes:
        if not isinstance(axis, Number) or axis.name in CALLS[operator.name].reach:
            grid[axis.name] = [*reachable(operator, axis)]
    yield from _small_calls(operator, _swept(operator, grid), profile)
    # Sizes that must agree, such as those of cos and x, seldom do when they are drawn freely.
    listed = {axis.name: COMMON_SIZES for axis in operator.sizes if axis.name not in grid}
    records = sweep(operator.name, {**grid, **listed}, sample=SAMPLE)
    yield from _small_calls(operator, records, profile)


def _small_calls(operator: Operator, records: Records, profile: Profile) -> Iterator[KitCall]:
    """Yield small calls of every group of equal records, planned in both modes."""
    names = [
        name for name in (*PATH_FIELDS, *_words(operator)) if name in (records.dtype.names or ())
    ]
    sizes = [axis.name for axis in operator.sizes]
    groups = np.unique(records[names].view(np.ndarray), return_inverse=True)[1]
    magnitude = np.zeros(len(records))
    for axis in operator.sizes:
        magnitude += np.log2(records[axis.name] + 1.0)
    too_small = magnitude < np.log2(LEAST_ELEMENTS)
    magnitude[too_small] = 64 - magnitude[too_small]  # the largest of them first, after the others
    order = np.lexsort((magnitude, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        group = order[start:end]
        small = group[too_small[group] | (magnitude[group] < np.log2(MOST_BYTES))]
        step = max(1, len(small) // RANDOM)
        tiny = order[max(start, end - TINY) : end]
        different = np.unique(records[sizes][tiny].view(np.ndarray), return_index=True)[1]
        rows = {*order[start : start + SMALLEST], *small[::step], *tiny[different]}
        for row in sorted(rows):
            _, values = records.space.call_at(int(row))
            call = described(operator, values, profile)
            if call is None:
                continue
            if _runs(call):
                if call.bytes <= MOST_BYTES:
                    yield call
            elif call.bytes <= MOST_OPTIONAL_BYTES and not CALLS[operator.name].by_gradient:
                yield call


def _swept(operator: Operator, grid: dict[str, Any]) -> Records:
    """Return a random sweep, with sizes as large as its columns of 64 bits can hold."""
    largest = LARGEST_SIZE
    while True:
        sizes = {
            axis.name: f"{max(axis.low, 0)}..{min(largest, axis.high)}:log"
            for axis in operator.sizes
            if axis.name not in grid
        }
        try:
            return sweep(operator.name, {**grid, **sizes}, sample=SAMPLE)
        except UsageError:
            if largest == 1:
                raise
            largest //= 2


def _words(operator: Operator) -> list[str]:
    return [axis.name for axis in operator.axes if isinstance(axis, Word | Switch)]


def described(operator: Operator, values: Mapping[str, Value], profile: Profile) -> KitCall | None:
    """Return a call with its features; None for one that npu_sim itself refuses."""
    own = {axis.name: values[axis.name] for axis in operator.axes}
    below = [own.get(name) for name in CALLS[operator.name].values.values()]
    if 0 in below:  # indices below 0 do not exist
        return None
    arguments = plan_arguments(operator, {**own, "deterministic": False, "limits": "documented"})
    del arguments["deterministic"], arguments["limits"]
    features: set[Feature] = set()
    try:
        for deterministic in (False, True):
            mode = "deterministic" if deterministic else "default"
            try:
                planned = _planned(operator, arguments, profile, deterministic)
            except AclnnError as error:
                features.add((operator.name, "refused", str(int(error.status)), error.argument))
                continue
            features |= set(_features(operator, own, planned, mode))
    except UsageError:
        return None
    return KitCall(operator, own, arguments, frozenset(features))


def _planned(
    operator: Operator, arguments: Mapping[str, Any], profile: Profile, deterministic: bool = False
) -> Plan:
    """Return the plan of a call, without the search for changes of its decisions."""
    target = target_of(profile, None, None, deterministic, "documented")
    case = check_uncached(operator, arguments_of(operator, arguments, infer=True), target)
    return plan_of(replace(case, searches_flips=False))


def _features(operator: Operator, values: Values, planned: Plan, mode: str) -> Iterator[Feature]:
    dtypes = [str(values[axis.name]) for axis in operator.dtype_axes[:1]]
    yield operator.name, "path", *path_of(planned), mode, *dtypes
    for axis in operator.axes:
        if isinstance(axis, Word | Switch):
            yield operator.name, axis.name, str(values[axis.name])
    for decision in planned.decisions:
        yield operator.name, "condition", str(decision.name), str(decision.outcome)
    if all(int(values[axis.name]) % 2 for axis in operator.sizes):
        yield operator.name, "odd sizes"


def path_of(planned: Plan) -> tuple[str, ...]:
    """Return what identifies the path of a plan: kernel, tiling key, and name without numbers."""
    return planned.kernel, str(planned.tiling_key), NUMBER.sub("N", str(planned.path))


def _cover(calls: Iterable[KitCall]) -> list[tuple[KitCall, frozenset[Feature]]]:
    """Return few calls that have all features, each with those it was taken for."""
    left = list(calls)
    missing = {feature for call in left for feature in call.features}
    chosen = []
    while missing:
        best = min(left, key=lambda call: (-len(call.features & missing), _size(call)))
        chosen.append((best, best.features & missing))
        missing -= best.features
        left.remove(best)
    return chosen


def _smaller(call: KitCall, needed: frozenset[Feature], profile: Profile) -> KitCall:
    """Return the call with smaller sizes, as far as it keeps the features it is needed for."""
    changed = True
    while changed:
        changed = False
        for axis in call.operator.sizes:
            size = int(call.values[axis.name])
            for trial in (size // 4, size // 2, size * 3 // 4):
                if not axis.low <= trial < size:
                    continue
                made = described(call.operator, {**call.values, axis.name: trial}, profile)
                if made is not None and needed <= made.features and _size(made) < _size(call):
                    call, changed = made, True
                    break
    return call


def _edges(chosen: Iterable[tuple[int, KitCall]], profile: Profile) -> list[KitCall]:
    """Return the smallest calls on both sides of every threshold that the calls are near."""
    found: dict[Feature, KitCall] = {}
    seen: set[str] = set()
    for call in (call for _, call in chosen if _runs(call)):
        names = {feature[2] for feature in call.features if feature[1] == "condition"}
        if names <= seen:
            continue
        try:
            planned = plan(call.operator.name, product=profile, **call.arguments)
        except AclnnError:  # runs in deterministic mode only
            continue
        seen |= names
        for decision in planned.decisions:
            for flip in decision.flips:
                now = call.values.get(flip.argument)
                if not isinstance(flip.value, int) or not isinstance(now, int):
                    continue
                before = flip.value - (1 if flip.value > now else -1)
                for side, value in (("before", before), ("after", flip.value)):
                    made = described(call.operator, {**call.values, flip.argument: value}, profile)
                    edge = call.operator.name, "edge", str(decision.name), flip.argument, side
                    if made is None or made.bytes > MOST_OPTIONAL_BYTES or not _runs(made):
                        continue
                    if edge not in found or _size(made) < _size(found[edge]):
                        found[edge] = replace(made, features=made.features | {edge})
    return [*{(call.operator.name, *call.values.items()): call for call in found.values()}.values()]


def bytes_of(calls: Iterable[KitCall]) -> int:
    """Return the bytes of the inputs of all calls."""
    return sum(call.bytes for call in calls)
