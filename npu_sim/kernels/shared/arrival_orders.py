"""Orders in which the atomic additions of several cores arrive, and results in many of them.

The additions of one core keep their order; the order between cores is open. A random order depends
only on the seed and on a key (an output row, a piece of columns), so it is the same for any number
of threads.

A *part* is a set of output elements whose contributions arrive together: a row of an embedding
gradient, a piece of dgamma, a row of gradWeight. For a study its contributions are given once, in
fp32, in the program order of every core; only their order of arrival differs.

Source: specification page ``numerics``, "Atomic addition to global memory". Besides the page's four
orders there are three adversarial ones, chosen for every part (or column by column). These are
legal merges that take, of all contributions that could come next, the smallest, the largest, or a
positive one first.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import (
    device_function,
    long_kernel,
    thread_count,
    thread_scratch,
)
from npu_sim.kernels.vectors.lanes import ONE, ZERO, Floats, Integers
from npu_sim.numbers.scalars import bf16_to_fp32, fp16_to_fp32, fp32_to_bf16, fp32_to_fp16

SEQUENTIAL = 0
REVERSE = 1
ROUND_ROBIN = 2
RANDOM = 3
SMALLEST_FIRST = 4
LARGEST_FIRST = 5
POSITIVE_FIRST = 6

FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""FNV-1a, 64 bits: results are identified by hash."""

OUTPUT_DTYPES = ("float32", "float16", "bfloat16")
"""Dtypes of outputs. Kernels take the position of a dtype here, so that one compilation serves all;
an array of the dtype would need one each."""
FP16, BF16 = map(OUTPUT_DTYPES.index, ("float16", "bfloat16"))


# Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds on
# four 32-bit words of counter and two of key. 32-bit words in uint64, so that no product overflows,
# compiled or not.
_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


class ArrivalOrder(NamedTuple):
    """Order in which contributions of several cores arrive."""

    code: int = SEQUENTIAL
    seed: int = 0
    """Seed of RANDOM; other orders ignore it."""


IN_CORE_ORDER = ArrivalOrder()
"""One core after the other."""


def seed_words(seed: int) -> tuple[int, int]:
    """Return the two 32-bit words of a seed's key; seeds that differ by 2^64 are the same."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


@device_function
def philox(counter_0, counter_1, counter_2, counter_3, key_0, key_1):
    """Return the four 32-bit words of Philox4x32-10, as uint64; so are the arguments."""
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


class Contributions(NamedTuple):
    """Contributions of all parts, in the program order of every core."""

    values: Any
    """float32 (contributions, columns)"""
    starts: Any
    """int64 (parts + 1,): first contribution of every part."""
    cores: Any
    """int64 (contributions,): core of each, ascending within a part."""
    keys: Any
    """int64 (parts,): keys of the random orders."""
    factors: Any
    """float32 (parts,): factor of each sum before it is rounded."""


class Orders(NamedTuple):
    """Orders of arrival."""

    codes: Any
    """int64 (orders,)"""
    seeds: Any
    """int64 (orders, 2): keys of random orders, two 32-bit words each."""
    columns_together: int
    """Number of columns with one adversarial order."""


class Spread(NamedTuple):
    """Results over all orders, to be filled in."""

    lowest: Any
    """float32 (parts, columns): smallest result of every element."""
    highest: Any
    """float32 (parts, columns): largest result of every element."""
    hashes: Any
    """uint64 (parts, orders): hash of every result's bits."""


@device_function
def open_lines(cores: Integers, first: Integers, left: Integers) -> int:
    """Return the number of cores; write the first contribution of each, and how many it has."""
    count = 0
    for position in range(cores.size):
        if position == 0 or cores[position] != cores[position - 1]:
            first[count], left[count] = position, 0
            count += 1
        left[count - 1] += 1
    return count


@device_function
def next_core(
    code: int, seed: tuple[int, int], key: int, step: int, remaining: int, left: Integers, last: int
) -> int:
    """Return the core whose next contribution arrives; not for adversarial orders.

    Parameters
    ----------
    code, seed, key
        Code of the order, and the key of a random one.
    step
        Number of contributions that have arrived.
    remaining, left
        Contributions that are left, at least one in all, and those of every core.
    last
        Core of the previous contribution; -1 for the first.
    """
    core = 0
    if code == RANDOM:
        # Every merge is equally likely when the probability of a core is proportional to the
        # number of its remaining contributions.
        drawn = draw_below(remaining, seed, key, step)
        while drawn >= left[core]:
            drawn -= left[core]
            core += 1
        return core
    if last < 0:
        core = left.size - 1 if code == REVERSE else 0
    else:
        core = (last + 1) % left.size if code == ROUND_ROBIN else last
    while left[core] == 0:
        core = (core - 1 if code == REVERSE else core + 1) % left.size
    return core


@device_function
def _score(code: int, contribution: Floats) -> float:
    """Return the score of a contribution; an adversarial order takes the highest score next."""
    total, signed = 0.0, 0.0
    for column in range(contribution.size):
        total += abs(contribution[column])
        signed += contribution[column]
    if code == SMALLEST_FIRST:
        return -total
    return total if code == LARGEST_FIRST else signed


@device_function
def arrival(
    code: int,
    seed: tuple[int, int],
    key: int,
    cores: Integers,
    values: Floats,
    lines: Integers,
    order: Integers,
) -> None:
    """Write the contributions of a part to ``order``, as they arrive.

    ``values`` (contributions, columns) decide adversarial orders. ``lines`` (2, contributions or
    more) is scratch.
    """
    first, left = lines[0], lines[1]
    count = open_lines(cores, first, left)
    line = -1
    for step in range(cores.size):
        if code >= SMALLEST_FIRST:
            best = -np.inf
            for candidate in range(count):
                if left[candidate] > 0:
                    score = _score(code, values[first[candidate]])
                    if score > best or best == -np.inf:
                        best, line = score, candidate
        else:
            line = next_core(code, seed, key, step, cores.size - step, left[:count], line)
        order[step] = first[line]
        first[line] += 1
        left[line] -= 1


@device_function
def _add_up(values: Floats, order: Integers, begin: int, end: int, sums: Floats) -> None:
    total = sums[begin:end]
    for column in range(total.size):
        total[column] = ZERO
    for step in range(order.size):
        term = values[order[step], begin:end]
        for column in range(total.size):
            total[column] = total[column] + term[column]


@device_function
def rounded(value: Any, dtype: int) -> np.float32:
    """Return an fp32 value as the output has it; ``dtype``: a position in OUTPUT_DTYPES."""
    if dtype == FP16:
        return fp16_to_fp32(fp32_to_fp16(value))
    if dtype == BF16:
        return bf16_to_fp32(fp32_to_bf16(value))
    return value


@long_kernel
def _study_chunk(
    chunk: int,
    contributions: Contributions,
    orders: Orders,
    dtype: int,
    spread: Spread,
    places: Integers,
    totals: Floats,
) -> None:
    """Study a chunk of the parts: one of as many as there are chunks.

    ``places`` (chunks, 3, contributions) and ``totals`` (chunks, columns) are scratch.
    """
    values, starts, cores, keys, factors = contributions
    codes, seeds, columns_together = orders
    lowest, highest, hashes = spread
    columns, sums = values.shape[1], totals[chunk]
    for part in range(chunk, keys.size, len(totals)):
        part_values = values[starts[part] : starts[part + 1]]
        own_cores = cores[starts[part] : starts[part + 1]]
        lines, order = places[chunk, :2], places[chunk, 2, : own_cores.size]
        for position in range(codes.size):
            code, seed = codes[position], (seeds[position, 0], seeds[position, 1])
            together = columns_together if code >= SMALLEST_FIRST else columns
            for begin in range(0, columns, together):
                end = min(columns, begin + together)
                arrival(code, seed, keys[part], own_cores, part_values[:, begin:end], lines, order)
                _add_up(part_values, order, begin, end, sums)
            digest = FNV_OFFSET
            for column in range(columns):
                total = sums[column]
                if factors[part] != ONE:
                    total = total * factors[part]
                result = rounded(total, dtype)
                digest = (digest ^ np.uint64(np.float32(result).view(np.uint32))) * FNV_PRIME
                if position == 0 or result < lowest[part, column]:
                    lowest[part, column] = result
                if position == 0 or result > highest[part, column]:
                    highest[part, column] = result
            hashes[part, position] = digest


def study_orders(contributions: Contributions, orders: Orders, dtype: int, spread: Spread) -> None:
    """Add up every part in every order, and fill in ``spread``.

    ``dtype``: position of the output's dtype in OUTPUT_DTYPES.
    """
    threads, most = thread_count(), int(np.diff(contributions.starts).max(initial=0))
    places = thread_scratch(threads, 3, most, dtype=np.int64)
    totals = thread_scratch(threads, contributions.values.shape[1])
    _study_chunk.over(threads, contributions, orders, dtype, spread, places, totals)


@long_kernel
def _arrive(
    row: int,
    order: tuple[int, tuple[int, int]],
    keys: Integers,
    cores: Integers,
    values: Floats,
    lines: Integers,
    orders: Integers,
) -> None:
    arrival(order[0], order[1], keys[row], cores, values, lines[row], orders[row])


def _arrived(
    code: int, seed: tuple[int, int], keys: Integers, cores: Integers, values: Floats
) -> Integers:
    """Return the order of arrival (keys, contributions) for every key."""
    orders = np.empty((keys.size, cores.size), np.int64)
    lines = np.empty((keys.size, 2, cores.size), np.int64)
    _arrive.over(keys.size, (code, seed), keys, cores, values, lines, orders)
    return orders


def arrivals(counts: NDArray[np.int64], order: ArrivalOrder, draws: int = 1) -> NDArray[np.int64]:
    """Return orders of arrival of all contributions, numbered core by core.

    Parameters
    ----------
    counts
        Contributions of every core.
    draws
        Number of random orders to draw; the other orders do not differ.

    Returns
    -------
    int64 (draws or 1, contributions)
        ``draws`` rows for RANDOM with two cores or more.
    """
    if order.code == SEQUENTIAL:
        return np.arange(counts.sum())[np.newaxis]
    cores = np.repeat(np.arange(counts.size), counts)
    keys = np.arange(draws if order.code == RANDOM and counts.size > 1 else 1)
    values = np.empty((cores.size, 0), np.float32)
    return _arrived(order.code, seed_words(order.seed), keys, cores, values)


def arrival_of(
    code: int,
    seed: tuple[int, int],
    key: int,
    cores: Integers,
    values: Floats,
    begin: int,
    end: int,
) -> Integers:
    """Return the order of arrival of one part's contributions.

    Arguments as in :class:`Contributions` and :class:`Orders`; the columns begin..end decide
    adversarial orders.
    """
    return _arrived(code, seed, np.array([key]), cores, values[:, begin:end])[0]
