"""Orders in which the atomic additions of several cores arrive: their codes, and random ones.

The additions of one core keep their order; the order between cores is open. A random order depends
only on the seed and on a key (an output row, a piece of columns), so it is the same for any number
of threads.

Source: specification page ``numerics``, "Atomic addition to global memory".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, long_kernel

SEQUENTIAL = 0
REVERSE = 1
ROUND_ROBIN = 2
RANDOM = 3

Integers = NDArray[Any]

# Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds on
# four 32-bit words of counter and two of key. 32-bit words in uint64, so that no product overflows,
# compiled or not.
_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def seed_words(seed: int) -> tuple[int, int]:
    """Return the two key words of a seed; seeds that differ by 2^64 are the same."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


@device_function
def philox(counter_0, counter_1, counter_2, counter_3, key_0, key_1):
    """Return the four words of Philox4x32-10; arguments and results are uint64 below 2^32."""
    for _ in range(_ROUNDS):
        product_0, product_1 = _MULTIPLIER_0 * counter_0, _MULTIPLIER_1 * counter_2
        counter_0 = (product_1 >> _WORD) ^ counter_1 ^ key_0
        counter_2 = (product_0 >> _WORD) ^ counter_3 ^ key_1
        counter_1, counter_3 = product_1 & _LOW, product_0 & _LOW
        key_0, key_1 = (key_0 + _WEYL_0) & _LOW, (key_1 + _WEYL_1) & _LOW
    return counter_0, counter_1, counter_2, counter_3


@device_function
def draw_below(bound: int, seed: tuple[int, int], row: int, step: int) -> int:
    """Draw an integer in 0..bound-1, keyed on the seed, the output row and the number of the draw.

    64 random bits modulo the bound: no value is favoured by more than bound / 2^64.
    """
    wide_row, wide_step = np.uint64(row), np.uint64(step)
    word_0, word_1, _, _ = philox(
        wide_step & _LOW,
        wide_step >> _WORD,
        wide_row & _LOW,
        wide_row >> _WORD,
        np.uint64(seed[0]),
        np.uint64(seed[1]),
    )
    return np.int64((word_0 | (word_1 << _WORD)) % np.uint64(bound))


@device_function
def draw_arrival(
    counts: Integers, seed: tuple[int, int], row: int, left: Integers, drawn: Integers
) -> None:
    """Draw the order of arrival for one output row.

    The order is a merge of the cores' sequences; all merges are equally likely. ``counts`` has the
    number of contributions of every core, ``left`` is scratch of the same size; ``drawn`` receives
    contributions, numbered core by core.
    """
    for core in range(counts.size):
        left[core] = counts[core]
    for step in range(drawn.size):
        # Every merge is equally likely when the probability of a core is proportional to the
        # number of its remaining contributions.
        remaining, core, first = draw_below(drawn.size - step, seed, row, step), 0, 0
        while remaining >= left[core]:
            remaining -= left[core]
            first += counts[core]
            core += 1
        drawn[step] = first + counts[core] - left[core]
        left[core] -= 1


@long_kernel
def _draw_all(
    row: int, counts: Integers, seed: tuple[int, int], left: Integers, drawn: Integers
) -> None:
    draw_arrival(counts, seed, row, left[row], drawn[row])


def arrivals(counts: NDArray[np.int64], order: int, seed: int, draws: int) -> NDArray[np.int64]:
    """Return orders of arrival of all contributions, numbered core by core.

    Parameters
    ----------
    counts
        Contributions of every core.
    order, seed
        Code of the order; the seed matters for RANDOM.
    draws
        Number of random orders to draw; the other orders do not differ.

    Returns
    -------
    int64 (draws or 1, contributions)
        ``draws`` rows for RANDOM with two cores or more.
    """
    if order == SEQUENTIAL:
        return np.arange(counts.sum())[np.newaxis]
    cores = np.repeat(np.arange(counts.size), counts)
    if order == RANDOM and counts.size > 1:
        drawn = np.empty((draws, cores.size), np.int64)
        _draw_all.over(
            draws, counts, seed_words(seed), np.empty((draws, counts.size), np.int64), drawn
        )
        return drawn
    turns = np.arange(cores.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.lexsort((turns, -cores) if order == REVERSE else (cores, turns))[np.newaxis]
