"""The search for orders of arrival against brute force over all interleavings."""

import itertools

import numpy as np
import pytest

from npu_sim.kernels.shared import arrival_search
from npu_sim.kernels.shared.arrival_orders import OUTPUT_DTYPES, Contributions
from npu_sim.kernels.shared.arrival_search import (
    EXCLUDED_BY_INTERVAL,
    NOT_FOUND,
    REACHED,
    Effort,
    Finish,
)

FP32 = Finish(OUTPUT_DTYPES.index("float32"), 0.0)


def searched(values, cores, targets, finish=FP32, factor=1.0, budget=1 << 20, **more):
    """The outcome for one part with one column, once for every target."""
    contributions = Contributions(
        np.asarray(values, np.float32).reshape(-1, 1),
        np.array([0, len(values)]),
        np.asarray(cores, np.int64),
        np.zeros(1, np.int64),
        np.array([factor], np.float32),
    )
    places = np.zeros((len(targets), 2), np.int64)
    targets = np.asarray(targets, np.float32)
    return arrival_search.search(contributions, places, targets, finish, Effort(budget, 0), **more)


def brute_force(values, cores):
    """Bits of the sums of all interleavings that keep each core's own order; one for all nan."""
    lines = [
        [v for v, own in zip(values, cores, strict=True) if own == core] for core in set(cores)
    ]
    found = set()

    def extend(taken, total):
        steps = [line for line, own in enumerate(lines) if taken[line] < len(own)]
        if not steps:
            found.add("nan" if np.isnan(total) else int(total.view(np.uint32)))
        for line in steps:
            after = tuple(count + (other == line) for other, count in enumerate(taken))
            with np.errstate(over="ignore", invalid="ignore"):
                extend(after, np.float32(total + lines[line][taken[line]]))

    extend((0,) * len(lines), np.float32(0))
    return found


def drawn(seed):
    """2 to 6 contributions of several magnitudes; some seeds have overflow, inf, nan and zeros."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 7))
    cores = np.sort(random.integers(0, count, count))
    values = (random.standard_normal(count) * 10.0 ** random.integers(-4, 5, count)).astype("f4")
    special = {1: 3e38, 2: np.inf, 3: np.nan, 4: -0.0, 5: 1e-44}.get(seed % 12)
    if special is not None:
        values[random.integers(0, count, 2)] = [special, -special]
    return values, cores.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_verdicts_are_those_of_brute_force(seed):
    values, cores = drawn(seed)
    sums = brute_force(values, cores)
    centre = next((bits for bits in sums if bits != "nan"), 0)
    around = np.arange(centre - 8, centre + 9) & 0xFFFFFFFF
    targets = around.astype(np.uint32).view(np.float32)
    targets = np.append(targets, np.array([np.nan, 0.0, -0.0, np.inf], np.float32))
    for stops_early in (True, False):
        how = searched(values, cores, targets, stops_early=stops_early)[0].how
        for target, found in zip(targets, how, strict=True):
            key = "nan" if np.isnan(target) else int(target.view(np.uint32))
            assert found != NOT_FOUND
            assert (found == REACHED) == (key in sums), (target, values, cores)


@pytest.mark.parametrize("count", [5, 12, 40, 300])
def test_an_order_that_was_found_gives_the_target(count):
    random = np.random.default_rng(count)
    values = random.standard_normal(count).astype(np.float32)
    cores = np.sort(random.integers(0, 8, count))
    places = [np.flatnonzero(cores == core).tolist() for core in set(cores.tolist())]
    total = np.float32(0)
    while any(places):
        line = places[random.choice([n for n, own in enumerate(places) if own])]
        total = np.float32(total + values[line.pop(0)])
    outcome, trail = searched(values, cores, [total])
    assert outcome.how[0] == REACHED
    assert sorted(trail.tolist()) == list(range(count))
    assert all(np.all(np.diff(trail[cores[trail] == core]) > 0) for core in set(cores.tolist()))
    again = np.float32(0)
    for place in trail:
        again = np.float32(again + values[place])
    assert again == total


@pytest.mark.parametrize("count", [3, 40, 5000])
@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_values_outside_the_interval_are_excluded(count, dtype):
    random = np.random.default_rng(count)
    values = random.standard_normal(count).astype(np.float32)
    cores = np.sort(random.integers(0, 8, count))
    finish = Finish(OUTPUT_DTYPES.index(dtype), 0.0)
    exact, size = float(values.astype(np.float64).sum()), float(np.abs(values).sum())
    outside = [exact - size * 2.0**-6 - 1, exact + size * 2.0**-6 + 1]
    outcome = searched(values, cores, outside, finish, budget=1 << 10)[0]
    assert (outcome.how == EXCLUDED_BY_INTERVAL).all()
    assert (outcome.low <= exact + 1e-2 * abs(exact)).all()
    assert (outcome.low <= outcome.high).all()


def test_scaled_and_saturated_sums():
    finish = Finish(OUTPUT_DTYPES.index("float16"), 65504.0)
    how = searched([60000, 60000, 60000], [0, 1, 2], [65504.0, np.inf], finish)[0].how
    assert how.tolist()[0] == REACHED
    assert how.tolist()[1] != REACHED
    third = np.float32(np.float32(10) * np.float32(1 / 3))
    how = searched([3, 3, 4], [0, 1, 2], [third, 10], factor=1 / 3)[0].how
    assert how.tolist()[0] == REACHED
    assert how.tolist()[1] != REACHED


def test_the_seed_and_nothing_else_changes_the_search():
    random = np.random.default_rng(1)
    values, cores = random.standard_normal(60), np.arange(60)
    total = np.float32(values.astype(np.float32).sum())
    targets = [total, np.nextafter(total, np.float32(9)), total * np.float32(1.00001)]
    first = searched(values, cores, targets, budget=1 << 12)[0]
    again = searched(values, cores, targets, budget=1 << 12)[0]
    for one, other in zip(first, again, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("seed", range(0, 60, 4))
@pytest.mark.parametrize("initial", [0.0, 0.3, -1e4])
def test_number_and_extremes_of_the_values_are_those_of_brute_force(seed, initial):
    """An initial value is a contribution that arrives before all others."""
    values, cores = drawn(seed)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = brute_force_on(initial, values, cores)
    outcome, _ = searched(
        *(values, cores, [0.1]), stops_early=False, initial=np.array([initial], np.float32)
    )
    numbers = [np.uint32(bits).view(np.float32) for bits in sums if bits != "nan"]
    assert outcome.values[0] == len(sums)
    if numbers:
        assert (outcome.low[0], outcome.high[0]) == (min(numbers), max(numbers))
    assert 0 < outcome.spent[0] <= 1 << 20


def brute_force_on(initial, values, cores):
    """Like brute_force, for contributions that are added to an initial value."""
    first = np.float32(initial)
    count = len(values)
    found = set()
    for order in itertools.permutations(range(count)):
        lines = [[place for place in order if cores[place] == core] for core in set(cores)]
        if all(line == sorted(line) for line in lines):
            total = first
            for place in order:
                total = np.float32(total + values[place])
            found.add("nan" if np.isnan(total) else int(total.view(np.uint32)))
    return found
