from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.questions.limits import EXHAUSTIVE, legal_ranges


def inside(ranges, number):
    return any(first <= number <= last for first, last in ranges)


@given(st.sets(st.integers(-50, 60)))
def test_small_domains_are_searched_exhaustively(legal):
    ranges = legal_ranges(legal.__contains__, -50, 60)
    assert {number for number in range(-50, 61) if inside(ranges, number)} == legal
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_single_wide_range_is_found_exactly(first_end, second_end):
    first, last = sorted((first_end, second_end))
    last = max(last, first * 5 // 4 + EXHAUSTIVE)
    assert legal_ranges(lambda number: first <= number <= last, 0, 2**41) == [(first, last)]


@pytest.mark.parametrize("landmark", [123456789, 5 * 10**11 + 7])
def test_a_single_number_is_found_at_a_landmark(landmark):
    assert legal_ranges(lambda number: number == landmark, 0, 2**40, [landmark]) == [
        (landmark, landmark)
    ]


@pytest.mark.parametrize("cores", [30, 48])
@pytest.mark.parametrize("bound", [1000, 40000])
def test_ends_that_depend_on_remainders_are_exact(cores, bound):
    def legal(number):
        return number // cores + number % cores < bound

    ranges = legal_ranges(legal, 0, 2**40, window=2 * cores)
    near_the_end = range((bound - 3 * cores) * cores, (bound + 2) * cores)
    assert [inside(ranges, number) for number in near_the_end] == [
        legal(number) for number in near_the_end
    ]
    assert len(ranges) > 20


@pytest.mark.parametrize("step", [2, 16])
def test_multiples_of_a_number_are_not_followed_without_end(step):
    tested = []

    def legal(number):
        tested.append(number)
        assert len(tested) < 1 << 17
        return number % step == 0

    ranges = legal_ranges(legal, 1, 2**40, window=16)
    assert [first for first, _ in ranges[:4]] == [step, 2 * step, 3 * step, 4 * step]


@pytest.mark.parametrize(("low", "high"), [(0, 2**40), (-(2**63), 2**64)])
@pytest.mark.parametrize("answer", [True, False])
def test_all_or_nothing(low, high, answer):
    assert legal_ranges(lambda number: answer, low, high) == ([(low, high)] if answer else [])


def test_negative_numbers_are_searched_like_positive_ones():
    assert legal_ranges(lambda number: -(10**12) <= number < 7, -(2**63), 2**63) == [(-(10**12), 6)]
