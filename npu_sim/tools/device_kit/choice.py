"""Choice of the calls of a kit: the fewest small calls that take every path of small calls.

Random calls of an operator are planned as integers, and those that differ in a field of their
tiling are described by their *features*: the path, the terms of its description and the dtype in
each mode, the outcome of every condition, the argument that a refusal blames. A greedy cover takes
the calls with most features that no call has yet, then every call is made smaller as long as it
keeps those it was taken for: a call that is large because of a threshold ends up at it.

A *path* is a kernel, a tiling key, and the branch that the description of the plan names. Dtypes
are not crossed with paths: where they change the path, the tiling key shows it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import (
    DETERMINISTIC_AXIS,
    LIMITS_AXIS,
    Axis,
    Number,
    Switch,
    Value,
    Values,
    Word,
)
from npu_sim.framework.checking import check_uncached, rules_on
from npu_sim.framework.inference import arguments_of, plan_arguments
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.row_planner import row_planner
from npu_sim.framework.target import target_of
from npu_sim.numbers.arrays import Array
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Progress
from npu_sim.plans.device_evidence import NUMBER
from npu_sim.plans.model import Plan
from npu_sim.status import AclnnError, NotModelledError, UsageError
from npu_sim.tools.device_kit.run_on_device import CALLS

DRAWN = 1 << 15
"""Random calls of an operator that are planned as integers, and changed ones as many."""
LARGEST_BITS, MOST_BITS = 17, 44
"""Bits of the largest size of a random call, and of the product of all its sizes."""
LEAST_MAGNITUDES = 0, 14, 20
"""Magnitudes above which the smallest call is taken. That of a call is the binary logarithm of the
product of its sizes: 14 for one whose two axes keep cores busy, more for one of more axes."""
LEAST_BYTES, MOST_BYTES = 1 << 16, 4 << 20
"""Bytes of inputs that a call has where possible, so that several cores work, and the most."""
MOST_CALLS = 280
"""Most calls of a kit, unless there are more paths."""
RANKS = {"path": 0, "refused": 1, "condition": 2, "odd sizes": 2, "empty": 3, "edge": 3}
"""Rank of a call by the features it was chosen for, 0 is taken first; dtypes and switches: 1."""
MOST_OPTIONAL_BYTES = 1 << 19
"""Most bytes of a refused call, and of one at a threshold."""
FORMATS = ("fp16", "bf16", "fp32", "hf32")
"""Formats of numbers as descriptions of paths name them; dtypes and switches decide them."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Columns of a plan as integers that tell paths apart, where an operator has them."""

Feature = tuple[str, ...]
Codes = dict[str, Array]
"""Calls as codes of the values of every axis."""


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
        Whether inputs begin with inf, nan, negative zeros and subnormal numbers.
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

    @property
    def paths(self) -> frozenset[Feature]:
        """The paths of the kernel that runs; none for a refused call, and for an empty one."""
        return frozenset(feature for feature in self.features if feature[1] == "path")


def chosen_calls(
    profile: Profile, progress: Progress, names: Collection[str] | None = None
) -> list[KitCall]:
    """Return the calls of a kit for a SoC and release, at most MOST_CALLS.

    - ``names``: the operators; all that torch_npu reaches without.

    Calls at thresholds are left out first, then those for conditions, dtypes and refusals. A call
    that is needed for a path is never left out.
    """
    ranked: list[tuple[tuple[int, int, int], KitCall]] = []
    operators = CALLS if names is None else names
    for number, name in enumerate(operators):
        progress("choosing calls", number / len(operators))
        operator = load_operator(name)
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


def reachable(operator: Operator, axis: Axis) -> tuple[Value, ...]:
    """Return the values of an axis that torch can choose: names, numbers or states of a switch."""
    every = axis.words if isinstance(axis, Word) else (False, True)
    chosen: tuple[Value, ...] = CALLS[operator.name].reach.get(axis.name, every)
    return chosen


def _calls_of(operator: Operator, profile: Profile) -> list[tuple[int, KitCall]]:
    """Return the calls of an operator, each with its rank, those that show most first."""
    found: dict[frozenset[Feature], KitCall] = {}
    for call in _candidates(operator, profile):
        if call.features not in found or _size(call) < _size(found[call.features]):
            found[call.features] = call
    chosen = [
        (min(RANKS.get(feature[1], 1) for feature in needed), _smaller(call, needed, profile))
        for call, needed in _cover(found.values())
    ]
    running = [place for place, (_, call) in enumerate(chosen) if call.paths]
    if running:
        taken = [path for _, call in chosen for path in call.paths]
        place = min(
            running,
            key=lambda at: (
                min(taken.count(path) for path in chosen[at][1].paths) == 1,
                _size(chosen[at][1]),
            ),
        )
        chosen[place] = chosen[place][0], replace(chosen[place][1], special=True)
    return chosen


def _size(call: KitCall) -> tuple[bool, int]:
    """Return a key that sorts the smallest sufficient call first."""
    return call.bytes < LEAST_BYTES, abs(call.bytes - LEAST_BYTES)


def _candidates(operator: Operator, profile: Profile) -> Iterator[KitCall]:
    """Yield calls with their features: of random ones and of changes of the telling ones."""
    random = np.random.default_rng(1)
    changed = _changed(operator, _telling(operator, profile, _drawn(operator, random)), random)
    telling = _telling(operator, profile, changed)
    for codes in zip(*(telling[axis.name].tolist() for axis in operator.axes), strict=True):
        call = described(
            operator,
            {axis.name: axis.value(code) for axis, code in zip(operator.axes, codes, strict=True)},
            profile,
        )
        if call is None:
            continue
        if any(feature[1] == "refused" for feature in call.features) and not call.paths:
            if call.bytes <= MOST_OPTIONAL_BYTES and not CALLS[operator.name].by_gradient:
                yield call
        elif call.bytes <= MOST_BYTES:
            yield call


def _drawn(operator: Operator, random: np.random.Generator) -> Codes:
    """Return random calls: sizes of every order of magnitude, half of them round.

    In half of the calls all sizes have few bits, so that there are enough small calls.
    """
    reach = CALLS[operator.name].reach
    magnitude = random.integers(1, 2 * LARGEST_BITS, DRAWN).clip(max=LARGEST_BITS)
    codes: Codes = {}
    for axis in (*operator.axes, DETERMINISTIC_AXIS):
        if axis in operator.sizes and axis.name not in reach:
            bits = random.integers(0, magnitude + 1)
            sizes = random.integers((1 << bits) >> 1, 1 << bits)
            unit = random.choice((1, 1, 16, 64), DRAWN)
            sizes = np.where(sizes > unit, sizes // unit * unit, sizes)
            codes[axis.name] = np.clip(sizes, axis.low, axis.high)
        elif isinstance(axis, Number) and axis.name not in reach:
            codes[axis.name] = np.full(DRAWN, axis.code(axis.default))
        else:
            states = [axis.code(value) for value in reachable(operator, axis)]
            codes[axis.name] = random.choice(states, DRAWN)
    return _possible(operator, codes, random)


def _changed(operator: Operator, codes: Codes, random: np.random.Generator) -> Codes:
    """Return calls with about one axis changed at random, after the calls themselves."""
    fresh = _drawn(operator, random)
    count = len(fresh[DETERMINISTIC_AXIS.name])
    chosen = random.integers(len(codes[DETERMINISTIC_AXIS.name]), size=count)
    made = {
        name: np.where(random.random(count) < 1 / len(codes), fresh[name], values[chosen])
        for name, values in codes.items()
    }
    made = _possible(operator, made, random)
    return {name: np.concatenate([values, made[name]]) for name, values in codes.items()}


def _possible(operator: Operator, codes: Codes, random: np.random.Generator) -> Codes:
    """Return calls with the axes that torch sets like others, without the largest calls."""
    how, count = CALLS[operator.name], len(codes[DETERMINISTIC_AXIS.name])
    codes = codes | {name: codes[other] for name, other in how.equal.items()}
    codes |= {
        name: np.where(random.random(count) < 0.5, 1, codes[other])
        for name, other in how.broadcast.items()
    }
    small = _magnitude(operator, codes) < MOST_BITS
    return {name: values[small] for name, values in codes.items()}


def _magnitude(operator: Operator, codes: Codes) -> Array:
    """Return the binary logarithm of the product of the sizes of each call."""
    sizes = np.stack([codes[axis.name] for axis in operator.sizes])
    magnitude: Array = np.log2(sizes + 1.0).sum(axis=0)
    return magnitude


def _telling(operator: Operator, profile: Profile, codes: Codes) -> Codes:
    """Return the small calls that cover 0, 1 and more in every field of every tiling key.

    For each, the smallest of all, which may take a path of its own, and the smallest sufficient
    ones.
    """
    planner, rules = row_planner(operator), rules_on(operator, profile)
    in_order = [codes[axis.name].tolist() for axis in (*operator.axes, DETERMINISTIC_AXIS)]
    in_order.insert(len(operator.axes), [LIMITS_AXIS.code("documented")] * len(in_order[0]))
    read = attrgetter(*(column.path for column in planner.columns))
    plans = np.array(
        [
            read(planner.plan_row(planner.make_row(*call), profile.device, rules))
            for call in zip(*in_order, strict=True)
        ]
    ).astype(np.int64)
    fields = {column.name: plans[:, at] for at, column in enumerate(planner.columns)}
    known = [fields[name] for name in PATH_FIELDS if name in fields]
    known.append(np.sign(fields["block_dim"]))  # 0 for a call of which nothing runs
    words = [codes[axis.name] for axis in operator.axes if isinstance(axis, Word | Switch)]
    groups = np.unique(np.stack([*known, *words]), axis=1, return_inverse=True)[1].reshape(-1)
    magnitude = _magnitude(operator, codes)
    places: set[int] = set()
    for least in LEAST_MAGNITUDES:
        order = np.lexsort((magnitude, magnitude < least))
        for values in fields.values():
            cells = 3 * groups + np.clip(values, 0, 2)
            places |= {*order[np.unique(cells[order], return_index=True)[1]].tolist()}
    return {name: values[sorted(places)] for name, values in codes.items()}


def described(operator: Operator, values: Mapping[str, Value], profile: Profile) -> KitCall | None:
    """Return a call with its features; None for one that npu_sim or torch does not make."""
    how, own_values = CALLS[operator.name], {axis.name: values[axis.name] for axis in operator.axes}
    if 0 in [own_values.get(name) for name in how.values.values()]:  # indices below 0 do not exist
        return None
    if any(own_values[name] != own_values[other] for name, other in how.equal.items()):
        return None
    arguments = plan_arguments(
        operator, {**own_values, "deterministic": False, "limits": "documented"}
    )
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
            features |= set(_features(operator, own_values, planned, mode))
        if how.forward and any(feature[1] in ("path", "empty") for feature in features):
            _check_forward(how.forward, arguments, profile)
    except (UsageError, AclnnError):
        return None
    return KitCall(operator, own_values, arguments, frozenset(features))


def _check_forward(
    forward: Mapping[str, Any], arguments: Mapping[str, Any], profile: Profile
) -> None:
    """Raise AclnnError if the product refuses the forward call that torch makes first."""
    operator = load_operator(forward["operator"])
    inputs = {name: arguments.get(forward.get(name, name)) for name in operator.by_name}
    given = {name: value for name, value in inputs.items() if value is not None}
    _planned(operator.on(profile), given, profile)


def _planned(
    operator: Operator, arguments: Mapping[str, Any], profile: Profile, deterministic: bool = False
) -> Plan:
    """Return the plan of a call, without the search for changes of its decisions."""
    target = target_of(profile, None, None, deterministic, "documented")
    case = check_uncached(operator, arguments_of(operator, arguments, infer=True), target)
    return plan_of(replace(case, searches_flips=False))


def _features(operator: Operator, values: Values, planned: Plan, mode: str) -> Iterator[Feature]:
    if not planned.kernel:
        yield operator.name, "empty", mode
        return
    yield operator.name, "path", *path_of(operator, planned), mode
    yield operator.name, "description", NUMBER.sub("N", str(planned.path)), mode
    for axis in operator.axes:
        if isinstance(axis, Word | Switch):
            yield operator.name, axis.name, str(values[axis.name])
    for decision in planned.decisions:
        yield operator.name, "condition", str(decision.name), str(decision.outcome)
    if all(int(values[axis.name]) % 2 for axis in operator.sizes):
        yield operator.name, "odd sizes"


def path_of(operator: Operator, planned: Plan) -> tuple[str, str, str]:
    """Return kernel, tiling key and branch of a plan: its path without sizes and arguments."""
    words = [word for axis in operator.axes if isinstance(axis, Word) for word in axis.words]
    named = re.compile(rf"\b({'|'.join([*map(re.escape, words), *FORMATS])})\b")
    branch = NUMBER.sub("N", named.sub("*", str(planned.path)))
    return planned.kernel, str(planned.tiling_key), branch


def _cover(calls: Iterable[KitCall]) -> list[tuple[KitCall, frozenset[Feature]]]:
    """Return few calls that have all features, each with those it was taken for; paths first."""
    left = list(calls)
    missing = {feature for call in left for feature in call.features}
    chosen = []
    while missing:
        best = min(
            left,
            key=lambda call: (
                -len(call.paths & missing),
                -len(call.features & missing),
                _size(call),
            ),
        )
        chosen.append((best, best.features & missing))
        missing -= best.features
        left.remove(best)
    return chosen


def _smaller(call: KitCall, needed: frozenset[Feature], profile: Profile) -> KitCall:
    """Return the call with the smallest sizes, one after the other, with the features it needs."""
    for axis in call.operator.sizes:
        low, high = axis.low, int(call.values[axis.name])
        while low < high and call.bytes > LEAST_BYTES:
            middle = (low + high) // 2
            made = described(call.operator, {**call.values, axis.name: middle}, profile)
            if made is not None and needed <= made.features and _size(made) < _size(call):
                call, high = made, middle
            else:
                low = middle + 1
    return call


def _edges(chosen: Iterable[tuple[int, KitCall]], profile: Profile) -> list[KitCall]:
    """Return the smallest calls on both sides of every threshold that the calls are near."""
    found: dict[Feature, KitCall] = {}
    seen: set[str] = set()
    for call in (call for _, call in chosen if call.paths):
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
                    if made is None or made.bytes > MOST_OPTIONAL_BYTES or not made.paths:
                        continue
                    if edge not in found or _size(made) < _size(found[edge]):
                        found[edge] = replace(made, features=made.features | {edge})
    return [*{(call.operator.name, *call.values.items()): call for call in found.values()}.values()]
