"""Search for an order of arrival that gives an element the bits of a measured value.

An element is the left fold of its contributions from an initial value, 0 where the memory was
cleared, one fp32 rounding an addition, in some merge of the cores' sequences. The sum is then
scaled, rounded to the dtype of the output and, on products with saturation mode, saturated.

Source: specification page ``numerics``, "Atomic addition to global memory".
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import (
    device_function,
    long_kernel,
    thread_count,
    thread_scratch,
)
from npu_sim.kernels.shared.arrival_orders import (
    RANDOM,
    Contributions,
    arrival,
    open_lines,
    rounded,
)
from npu_sim.kernels.vectors.lanes import ONE, ZERO, Floats, Integers

REACHED, EXCLUDED_BY_ALL, EXCLUDED_BY_INTERVAL, NOT_FOUND = range(4)
"""How a search ended: order found; all orders enumerated; outside the interval; budget spent."""

Keys = NDArray[np.int32]

BEAM_WIDTH = 16
FIRST_DRAWS = 64
"""Random orders tried before the enumeration."""
ELEMENTS_TOGETHER = 64
"""Elements between two progress reports."""
NAN_KEY = 0x7FC00000
SIGN = 1 << 31
UNIT = 2.0**-24
"""Largest relative error of one fp32 addition."""
LARGEST = float(np.finfo(np.float32).max)


class Finish(NamedTuple):
    """Conversion of a sum to the output."""

    dtype: int
    """Position of the output's dtype in OUTPUT_DTYPES."""
    largest: float
    """Largest finite value of the output's dtype, with saturation mode; 0 without."""


class Effort(NamedTuple):
    """Effort of a search: partial sums for an element, and the seed of its random orders."""

    sums: int
    seed: int


class Goal(NamedTuple):
    """The value to reach, and how a sum becomes a value."""

    target: Any
    """Measured value, as fp32."""
    factor: Any
    """fp32 factor of the sum."""
    initial: Any
    """fp32 value to which the contributions are added."""
    finish: Finish


class Scratch(NamedTuple):
    """Memory of one thread, for one element."""

    rows: Any
    """float32 (contributions, columns): contributions of the element's part."""
    terms: Any
    """float32 (contributions,): those of the element."""
    lines: Any
    """int64 (4, contributions): of every core the first contribution and their number, then two
    rows for orders, the last also for the stride of its digit in the number of a state."""
    trail: Any
    """int64 (contributions,): the order that was found."""
    sums: Any
    """int32 (budget,): keys of the partial sums of every state, ascending."""
    merged: Any
    """int32 (budget,)"""
    offsets: Any
    """int64 (budget + 1,): first partial sum of every state."""
    beam: Any
    """float64 (4, BEAM_WIDTH * cores): partial and exact sums, and distances."""
    taken: Any
    """int64 (2, BEAM_WIDTH * cores): contributions taken, by candidate and core."""
    steps: Any
    """int64 (2, budget): parent and core of every step of the beam."""


class Found(NamedTuple):
    """Results by element."""

    how: Any
    """uint8: REACHED ..."""
    nearest: Any
    """float32: nearest value that an order gives, of those tried; nan without any."""
    low: Any
    """float32: no order gives less; -inf without a bound."""
    high: Any
    """float32: no order gives more; inf without a bound."""
    values: Any
    """int64: number of values that the orders give; 0 where they were not enumerated."""
    spent: Any
    """int64: partial sums that were computed."""


@device_function
def key_of(value: Any) -> int:
    """Return an integer that orders fp32 values as bits: -0 before +0, nan last."""
    if value != value:
        return np.int64(NAN_KEY)
    bits = np.int64(np.float32(value).view(np.uint32))
    return bits if bits < SIGN else SIGN - 1 - bits


@device_function
def value_of(key: int) -> np.float32:
    """Return the fp32 value of a key."""
    bits = np.int64(key) if key >= 0 else SIGN - 1 - np.int64(key)
    return np.uint32(bits).view(np.float32)


@device_function
def finished(total: Any, goal: Goal) -> np.float32:
    """Return the output's value for a sum, as fp32."""
    dtype, largest = goal.finish
    value = np.float32(total)
    if goal.factor != ONE:
        value = value * goal.factor
    value = rounded(value, dtype)
    if largest > 0.0:
        if value != value:
            return ZERO
        if np.isinf(value):
            return np.float32(largest) if value > ZERO else np.float32(-largest)
    return value


@device_function
def interval(terms: Floats, goal: Goal) -> tuple[bool, float, float]:
    """Return whether no order overflows, and then the smallest and largest possible result.

    n*u / (1 - n*u) * sum |c| bounds the error of n additions in any order; an addition to 0 is
    exact and does not count. fp32 additions with a subnormal result are exact too.
    """
    total = np.float64(goal.initial)
    size = abs(total)
    additions = terms.size - 1 if size == 0.0 else terms.size
    for term in terms:
        total += np.float64(term)
        size += abs(np.float64(term))
    error = additions * UNIT
    if not (error < 0.5 and size * (1 + 2 * error) < LARGEST):
        return False, np.float32(-np.inf), np.float32(np.inf)
    # The sums above are rounded to fp64.
    radius = size * (error / (1 - error) + terms.size * 2.0**-51)
    low, high = np.float32(total - radius), np.float32(total + radius)
    if np.float64(low) > total - radius:
        low = value_of(key_of(low) - 1)
    if np.float64(high) < total + radius:
        high = value_of(key_of(high) + 1)
    return True, finished(low, goal), finished(high, goal)


@device_function
def _nearest(value: Any, other: Any, goal: Goal) -> np.float32:
    """Return which of two values is nearer to the target in steps of fp32, else the second."""
    target = key_of(goal.target)
    return value if abs(key_of(value) - target) < abs(key_of(other) - target) else other


@device_function
def _draw(
    first: int, stop: int, seed: int, key: int, cores: Integers, goal: Goal, scratch: Scratch
) -> tuple[bool, float]:
    """Try the random orders first..stop; return whether one was found, and the nearest value."""
    nearest = np.float32(np.nan)
    for draw in range(first, stop):
        arrival(RANDOM, (seed, draw), key, cores, scratch.rows, scratch.lines[2:], scratch.trail)
        total = np.float32(goal.initial)
        for place in scratch.trail[: cores.size]:
            total = total + scratch.terms[place]
        value = finished(total, goal)
        nearest = value if draw == first else _nearest(value, nearest, goal)
        if key_of(value) == key_of(goal.target):
            return True, nearest
    return False, nearest


@device_function
def _merge(sums: Keys, begin: int, end: int, first: int, stop: int, term: Any, merged: Keys) -> int:
    """Add a term to the sums first..stop and merge them into begin..end; return the new end.

    Rounded addition of a finite or infinite term is monotonic, so that the new sums are ascending;
    nan comes last and stays distinct.
    """
    left, out, has_nan = begin, 0, False
    for position in range(first, stop):
        key = key_of(value_of(sums[position]) + term)
        if key == NAN_KEY:
            has_nan = True
            continue
        while left < end and sums[left] < key:
            merged[out] = sums[left]
            left, out = left + 1, out + 1
        if left < end and sums[left] == key:
            left += 1
        if out == 0 or merged[out - 1] != key:
            merged[out] = key
            out += 1
    while left < end:
        merged[out] = sums[left]
        left, out = left + 1, out + 1
    if has_nan and (out == 0 or merged[out - 1] != NAN_KEY):
        merged[out] = NAN_KEY
        out += 1
    for position in range(out):
        sums[begin + position] = merged[position]
    return begin + out


@device_function
def _enumerate(count: int, initial: Any, scratch: Scratch) -> tuple[int, int]:
    """Write the partial sums of every state; return the numbers of states and partial sums.

    Beyond the budget, the number of states is 0.

    A state counts the contributions of each core that have arrived: a number with a digit per core.
    """
    terms, lines, sums, merged, offsets = (
        scratch.terms,
        scratch.lines,
        scratch.sums,
        scratch.merged,
        scratch.offsets,
    )
    budget, states = merged.size, 1
    for line in range(count):
        lines[3, line] = states
        states *= lines[1, line] + 1
        if states > budget:
            return 0, 0
    sums[0], offsets[0], offsets[1] = key_of(initial), 0, 1
    for state in range(1, states):
        begin = offsets[state]
        end = begin
        for line in range(count):
            digit = state // lines[3, line] % (lines[1, line] + 1)
            if digit == 0:
                continue
            before = state - lines[3, line]
            first, stop = offsets[before], offsets[before + 1]
            if end + stop - first > budget:
                return 0, end
            end = _merge(sums, begin, end, first, stop, terms[lines[0, line] + digit - 1], merged)
        offsets[state + 1] = end
    return states, offsets[states]


@device_function
def _walk_back(states: int, key: int, count: int, scratch: Scratch) -> None:
    """Write the order that leads to a final sum."""
    terms, lines, sums, offsets = scratch.terms, scratch.lines, scratch.sums, scratch.offsets
    state = states - 1
    for step in range(terms.size - 1, -1, -1):
        found = False
        for line in range(count):
            digit = state // lines[3, line] % (lines[1, line] + 1)
            if found or digit == 0:
                continue
            before, place = state - lines[3, line], lines[0, line] + digit - 1
            for at in range(offsets[before], offsets[before + 1]):
                if not found and key_of(value_of(sums[at]) + terms[place]) == key:
                    scratch.trail[step], key, found = place, np.int64(sums[at]), True
                    state_before = before
        state = state_before


@device_function
def _write_trail(width: int, count: int, entry: int, scratch: Scratch) -> None:
    """Write the order of an entry of the beam, which took all contributions."""
    lines, at = scratch.lines, entry
    for line in range(count):
        lines[2, line] = lines[1, line]
    for step in range(scratch.terms.size - 1, -1, -1):
        line = scratch.steps[1, step * width + at]
        lines[2, line] -= 1
        scratch.trail[step] = lines[0, line] + lines[2, line]
        at = scratch.steps[0, step * width + at]


@device_function
def _is_listed(pairs: NDArray[np.float64], total: np.float64, exact: np.float64) -> bool:
    """Return whether a partial sum and its exact sum are among the pairs of a line."""
    for first in range(0, pairs.size, 2):
        if pairs[first] == total and pairs[first + 1] == exact:
            return True
    return False


@device_function
def _beam(width: int, count: int, goal: Goal, scratch: Scratch) -> tuple[bool, float]:
    """Search with several partial sums at a time; return: found, nearest value.

    The error of a partial sum is its distance from the exact sum of the same contributions. Those
    candidates remain whose error is nearest to the error that the target needs.
    """
    terms, lines, beam, taken = scratch.terms, scratch.lines, scratch.beam, scratch.taken
    initial = np.float64(goal.initial)
    exact = initial
    for term in terms:
        exact += np.float64(term)
    needed = np.float64(goal.target) / np.float64(goal.factor) - exact
    kept, old = 1, 0
    beam[0, 0], beam[1, 0] = initial, initial
    taken[0, :count] = 0
    for step in range(terms.size):
        for entry in range(kept):
            for line in range(count):
                place = entry * count + line
                done = taken[old, place]
                if done == lines[1, line]:
                    beam[3, place] = np.inf
                    continue
                term = terms[lines[0, line] + done]
                total = np.float64(np.float32(beam[0, entry]) + term)
                distance = abs(total - (beam[1, entry] + np.float64(term)) - needed)
                beam[3, place] = distance if distance == distance else LARGEST
        new = 0
        while new < width:
            best = 0
            for place in range(1, kept * count):
                if beam[3, place] < beam[3, best]:
                    best = place
            if beam[3, best] == np.inf:
                break
            entry, line = best // count, best % count
            beam[3, best] = np.inf
            term = terms[lines[0, line] + taken[old, best]]
            total = np.float64(np.float32(beam[0, entry]) + term)
            sum_of = beam[1, entry] + np.float64(term)
            if _is_listed(beam[2, : 2 * new], total, sum_of):  # of equal sums one is enough
                continue
            beam[2, 2 * new], beam[2, 2 * new + 1] = total, sum_of
            for core in range(count):
                taken[1 - old, new * count + core] = taken[old, entry * count + core]
            taken[1 - old, new * count + line] += 1
            scratch.steps[0, step * width + new] = entry
            scratch.steps[1, step * width + new] = line
            new += 1
        for entry in range(new):
            beam[0, entry], beam[1, entry] = beam[2, 2 * entry], beam[2, 2 * entry + 1]
        kept, old = new, 1 - old
    nearest = finished(beam[0, 0], goal)
    for entry in range(kept):
        value = finished(beam[0, entry], goal)
        nearest = _nearest(value, nearest, goal)
        if key_of(value) == key_of(goal.target):
            _write_trail(width, count, entry, scratch)
            return True, value
    return False, nearest


@device_function
def _examine_all(
    states: int, count: int, goal: Goal, found: bool, scratch: Scratch, outcome: Found, element: int
) -> bool:
    """Compare the target with all enumerated results, and write their number and extremes.

    Returns whether an order gives the target. The trail becomes that order, unless one was found
    before.
    """
    values, last = 0, np.int64(0)
    for at in range(scratch.offsets[states - 1], scratch.offsets[states]):
        value = finished(value_of(scratch.sums[at]), goal)
        key = key_of(value)
        if values == 0:
            outcome.low[element], outcome.high[element] = value, value
        if values == 0 or key != last:
            values, last = values + 1, key
        if key != NAN_KEY:
            outcome.high[element] = value
        outcome.nearest[element] = (
            value if values == 1 else _nearest(value, outcome.nearest[element], goal)
        )
        if key == key_of(goal.target) and not found:
            found = True
            _walk_back(states, np.int64(scratch.sums[at]), count, scratch)
    outcome.values[element] = values
    return found


@device_function
def _decide(
    cores: Integers,
    goal: Goal,
    draws: tuple[int, int],
    stops_early: bool,
    scratch: Scratch,
    outcome: Found,
    element: int,
) -> int:
    """Return how the search of an element ended, and write the rest of its outcome.

    - ``draws``: seed and key of its random orders.
    - ``stops_early``: whether an order that was found, or a value outside the interval, ends the
      search.
    """
    seed, key = draws
    bounded, low, high = interval(scratch.terms, goal)
    outside = bounded and not (key_of(low) <= key_of(goal.target) <= key_of(high))
    outcome.low[element], outcome.high[element] = low, high
    outcome.nearest[element] = np.float32(np.nan)
    outcome.values[element], outcome.spent[element] = 0, cores.size
    if outside and stops_early:
        return EXCLUDED_BY_INTERVAL
    count, budget = open_lines(cores, scratch.lines[0], scratch.lines[1]), scratch.merged.size
    found, outcome.nearest[element] = _draw(0, FIRST_DRAWS, seed, key, cores, goal, scratch)
    outcome.spent[element] = FIRST_DRAWS * cores.size
    if found and stops_early:
        return REACHED
    states, sums = _enumerate(count, goal.initial, scratch)
    outcome.spent[element] += sums
    if states > 0:
        if _examine_all(states, count, goal, found, scratch, outcome, element):
            return REACHED
        return EXCLUDED_BY_ALL
    if found:
        return REACHED
    if outside:
        return EXCLUDED_BY_INTERVAL
    width = min(BEAM_WIDTH, budget // (2 * cores.size * count))
    if width > 0:
        found, value = _beam(width, count, goal, scratch)
        outcome.nearest[element] = _nearest(value, outcome.nearest[element], goal)
        outcome.spent[element] += width * cores.size * count
        if found:
            return REACHED
        budget -= width * cores.size * count
    stop = max(FIRST_DRAWS + 1, budget // cores.size)
    found, value = _draw(FIRST_DRAWS, stop, seed, key, cores, goal, scratch)
    outcome.spent[element] += stop * cores.size
    outcome.nearest[element] = _nearest(value, outcome.nearest[element], goal)
    return REACHED if found else NOT_FOUND


@long_kernel
def _search_chunk(
    chunk: int,
    contributions: Contributions,
    places: Integers,
    goals: Goal,
    search_for: tuple[int, bool],
    scratch: Scratch,
    outcome: Found,
) -> None:
    """Search for the elements of a chunk: one of as many as there are chunks.

    - ``goals``: goals of all elements, with arrays for numbers.
    - ``search_for``: ``seed`` and ``stops_early`` of :func:`search`.
    """
    values, starts, cores, keys, _ = contributions
    seed, stops_early = search_for
    for element in range(chunk, places.shape[0], len(scratch.terms)):
        part, column = places[element, 0], places[element, 1]
        begin, stop = starts[part], starts[part + 1]
        scratch_arrays = Scratch(
            values[begin:stop],
            scratch.terms[chunk, : stop - begin],
            scratch.lines[chunk],
            scratch.trail[chunk, : stop - begin],
            scratch.sums[chunk],
            scratch.merged[chunk],
            scratch.offsets[chunk],
            scratch.beam[chunk],
            scratch.taken[chunk],
            scratch.steps[chunk],
        )
        for position in range(stop - begin):
            scratch_arrays.terms[position] = values[begin + position, column]
        goal = Goal(goals.target[element], goals.factor[part], goals.initial[element], goals.finish)
        key = keys[part] * values.shape[1] + column
        outcome.how[element] = _decide(
            cores[begin:stop], goal, (seed, key), stops_early, scratch_arrays, outcome, element
        )


def _scratch(contributions: Contributions, most: int, budget: int, threads: int) -> Scratch:
    """Return memory for some threads, in which every array has one more axis in front.

    - ``most``: largest number of contributions of an element.
    """
    size = max(budget, most)
    # The beam is used where contributions times cores are at most half the budget.
    cores = min(most, math.isqrt(budget)) + 1
    return Scratch(
        contributions.values,
        thread_scratch(threads, most),
        thread_scratch(threads, 4, most, dtype=np.int64),
        thread_scratch(threads, most, dtype=np.int64),
        thread_scratch(threads, size, dtype=np.int32),
        np.empty((threads, size), np.int32),
        thread_scratch(threads, size + 1, dtype=np.int64),
        thread_scratch(threads, 4, BEAM_WIDTH * cores, dtype=np.float64),
        thread_scratch(threads, 2, BEAM_WIDTH * cores, dtype=np.int64),
        thread_scratch(threads, 2, size, dtype=np.int64),
    )


def search(
    contributions: Contributions,
    places: Integers,
    targets: Floats,
    finish: Finish,
    effort: Effort,
    stops_early: bool = True,
    initial: Floats | None = None,
) -> tuple[Found, Integers]:
    """Search for orders that give some elements their measured values.

    Parameters
    ----------
    contributions
        Contributions of the parts; an element has three or more, of two cores or more.
    places : int64 (elements, 2)
        Part and column of every element.
    targets : float32 (elements,)
        Their measured values.
    finish
        Conversion of sums to the output.
    effort
        Effort for every element.
    stops_early
        Whether to end at an order that was found, and at a value outside the interval, without a
        nearest value; otherwise all orders are enumerated where the budget allows it.
    initial : float32 (elements,), optional
        Values to which the contributions are added; zeros when None.

    Returns
    -------
    Found
        How every search ended. It does not depend on the number of threads.
    int64 (contributions,)
        With one element that was reached: the order, as places among the part's contributions.
    """
    elements, threads = len(targets), min(thread_count(), len(targets))
    # Of all parts: the effort for an element must not depend on those searched with it.
    most = int(np.diff(contributions.starts).max(initial=1))
    scratch = _scratch(contributions, most, effort.sums, threads)
    outcome = Found(
        np.empty(elements, np.uint8),
        *(np.empty(elements, np.float32) for _ in range(3)),
        *(np.empty(elements, np.int64) for _ in range(2)),
    )
    initial = np.zeros(elements, np.float32) if initial is None else initial
    goals = Goal(targets, contributions.factors, initial, finish)
    _search_chunk.over(
        threads, contributions, places, goals, (effort.seed, stops_early), scratch, outcome
    )
    return outcome, scratch.trail[0, :most]
