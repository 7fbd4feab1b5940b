from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.kernels.shared.arrival_orders import (
    RANDOM,
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    ArrivalOrder,
    arrivals,
    philox,
    seed_words,
)

counts_of_cores = st.lists(st.integers(0, 6), min_size=1, max_size=9).filter(any)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        # Known answers published with the generator (Random123, "kat_vectors").
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_gives_the_published_words(counter, key, words):
    assert (
        tuple(int(word) for word in philox(*(np.uint64(word) for word in (*counter, *key))))
        == words
    )


def test_a_seed_is_two_words():
    assert seed_words(0x0123456789ABCDEF) == (0x89ABCDEF, 0x01234567)


@given(
    counts_of_cores,
    st.sampled_from((SEQUENTIAL, REVERSE, ROUND_ROBIN, RANDOM)),
    st.integers(0, 2**64 - 1),
)
def test_every_core_keeps_its_own_order(counts, order, seed):
    cores = np.repeat(np.arange(len(counts)), counts)
    for arrived in arrivals(np.array(counts, np.int64), ArrivalOrder(order, seed), 3):
        assert sorted(arrived) == list(range(cores.size))
        for core in range(len(counts)):
            own = [contribution for contribution in arrived if cores[contribution] == core]
            assert own == sorted(own)


@pytest.mark.parametrize(
    ("order", "arrived"),
    [
        (SEQUENTIAL, [0, 1, 2, 3, 4, 5]),
        (REVERSE, [3, 4, 5, 2, 0, 1]),
        (ROUND_ROBIN, [0, 2, 3, 1, 4, 5]),
    ],
)
def test_fixed_orders(order, arrived):
    assert arrivals(np.array([2, 1, 3], np.int64), ArrivalOrder(order), 5).tolist() == [arrived]


def test_a_drawn_order_depends_on_the_seed_and_on_what_it_is_drawn_for():
    counts = np.full(10, 4, np.int64)
    drawn = arrivals(counts, ArrivalOrder(RANDOM, 7), 20)
    assert len({tuple(one) for one in drawn.tolist()}) == 20
    assert np.array_equal(drawn[:5], arrivals(counts, ArrivalOrder(RANDOM, 7), 5))
    assert not np.array_equal(drawn[0], arrivals(counts, ArrivalOrder(RANDOM, 8))[0])
    assert not np.array_equal(drawn[0], arrivals(counts, ArrivalOrder(RANDOM, 7 + 2**32))[0])


def test_all_merges_are_equally_likely():
    counts, draws = np.array([2, 1, 2], np.int64), 30000
    seen = Counter(map(tuple, arrivals(counts, ArrivalOrder(RANDOM, 1), draws).tolist()))
    merges = comb(5, 2) * comb(3, 1)
    assert len(seen) == merges
    expected = draws / merges
    chi_square = sum((count - expected) ** 2 / expected for count in seen.values())
    # 29 degrees of freedom: a fair generator exceeds 59 once in a thousand seeds, and this seed is
    # fixed.
    assert chi_square < 59
