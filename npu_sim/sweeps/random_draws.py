"""Random numbers of a sample, drawn from the row's number alone; compiled by Numba.

The same as the plain integers of :mod:`npu_sim.sweeps.space`, in wrapping unsigned arithmetic.
"""

from typing import Any

import numpy as np

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
SHIFT_30, SHIFT_27, SHIFT_31, SHIFT_32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
TWO_TO_32 = 1 << 32


def mix(key: Any, row: Any) -> Any:
    """Return the random 64-bit number of a row under a key (splitmix64)."""
    state = np.uint64(key) + np.uint64(row) * STEP
    state = (state ^ (state >> SHIFT_30)) * FIRST
    state = (state ^ (state >> SHIFT_27)) * SECOND
    return state ^ (state >> SHIFT_31)


def scaled(draw: Any, count: Any) -> Any:
    """Map a random number to ``range(count)``."""
    if count <= TWO_TO_32:
        return np.int64(((draw >> SHIFT_32) * np.uint64(count)) >> SHIFT_32)
    return np.int64(draw % np.uint64(count))


def bit_length(number: Any) -> Any:
    """Return how many bits a number of 0 or more has."""
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


def logarithmic(draw: Any, low: Any, high: Any) -> Any:
    """Map a random number to ``low .. high``: first the number of bits, then a number of that many bits."""
    shortest = bit_length(low)
    bits = shortest + scaled(draw, bit_length(high) - shortest + 1)
    least, most = max(low, (1 << bits) >> 1), min(high, (1 << bits) - 1)
    return least + scaled(mix(draw, 1), most - least + 1)
