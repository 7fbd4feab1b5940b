"""Many orders of arrival of the same contributions: what the sums become, without computing the contributions again.

A *part* is a set of output elements whose contributions arrive together: a row of an embedding gradient, a piece of dgamma, a row of
gradWeight. Its contributions are given once, in fp32, in the program order of every core; only their arrival differs.

Source: specification page ``numerics``, "Atomic addition to global memory". Besides the page's four orders there are three
adversarial ones, chosen for every part (or column by column): legal merges that take, of all the contributions that could come
next, the smallest, the largest, or a positive one first.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, long_kernel
from npu_sim.kernels.engine.scratch import thread_scratch
from npu_sim.kernels.engine.threads import thread_count
from npu_sim.kernels.random_order import RANDOM, REVERSE, ROUND_ROBIN, draw_below
from npu_sim.numbers.scalars import narrow, widen

SMALLEST_FIRST = 4
LARGEST_FIRST = 5
POSITIVE_FIRST = 6

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
ONE = np.float32(1)
ZERO = np.float32(0)
FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""FNV-1a, 64 bits: results are told apart by their hash."""


@device_function
def _open_lines(cores: Integers, first: Integers, left: Integers) -> int:
    """Find the contributions of each core: ``first[line]`` and how many, ``left[line]``; return the number of cores."""
    count = 0
    for place in range(cores.size):
        if place == 0 or cores[place] != cores[place - 1]:
            first[count], left[count] = place, 0
            count += 1
        left[count - 1] += 1
    return count


@device_function
def _score(code: int, values: Floats, place: int, begin: int, end: int) -> float:
    """Return how much an adversarial order wants a contribution next; the highest score wins."""
    total, signed = 0.0, 0.0
    for column in range(begin, end):
        total += abs(values[place, column])
        signed += values[place, column]
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
    begin: int,
    end: int,
    lines: Integers,
    order: Integers,
) -> None:
    """Write the places of a part's contributions in their order of arrival; columns begin..end decide adversarial orders.

    ``lines`` (2, contributions or more) is scratch.
    """
    first, left = lines[0], lines[1]
    count = _open_lines(cores, first, left)
    line = count - 1 if code == REVERSE else 0
    for step in range(cores.size):
        if code == RANDOM:
            line, drawn = 0, draw_below(cores.size - step, seed, key, step)
            while drawn >= left[line]:
                drawn -= left[line]
                line += 1
        elif code >= SMALLEST_FIRST:
            best = -np.inf
            for candidate in range(count):
                if left[candidate] > 0:
                    score = _score(code, values, first[candidate], begin, end)
                    if score > best or best == -np.inf:
                        best, line = score, candidate
        else:
            if code == ROUND_ROBIN and step > 0:
                line = (line + 1) % count
            while left[line] == 0:
                line = (line - 1 if code == REVERSE else line + 1) % count
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


@long_kernel
def _study_share(
    share: int,
    shares: int,
    values: Floats,
    starts: Integers,
    cores: Integers,
    keys: Integers,
    factors: Floats,
    codes: Integers,
    seeds: Integers,
    columns_together: int,
    stored,
    lowest: Floats,
    highest: Floats,
    hashes: NDArray[np.uint64],
    places: Integers,
    totals: Floats,
) -> None:
    """Study every part of a share: every ``shares``-th. ``places`` (shares, 3, contributions) and ``totals`` are scratch."""
    columns, sums = values.shape[1], totals[share]
    for part in range(share, keys.size, shares):
        own, own_cores = (
            values[starts[part] : starts[part + 1]],
            cores[starts[part] : starts[part + 1]],
        )
        lines, order = places[share, :2], places[share, 2, : own_cores.size]
        for which in range(codes.size):
            adversarial = codes[which] >= SMALLEST_FIRST
            together = columns_together if adversarial else columns
            for begin in range(0, columns, together):
                end = min(columns, begin + together)
                arrival(
                    codes[which],
                    (seeds[which, 0], seeds[which, 1]),
                    keys[part],
                    own_cores,
                    own,
                    begin,
                    end,
                    lines,
                    order,
                )
                _add_up(own, order, begin, end, sums)
            digest = FNV_OFFSET
            for column in range(columns):
                result = widen(
                    narrow(
                        sums[column] * factors[part] if factors[part] != ONE else sums[column],
                        stored,
                    )
                )
                digest = (digest ^ np.uint64(np.float32(result).view(np.uint32))) * FNV_PRIME
                if which == 0 or result < lowest[part, column]:
                    lowest[part, column] = result
                if which == 0 or result > highest[part, column]:
                    highest[part, column] = result
            hashes[part, which] = digest


def study_orders(
    values: Floats,
    starts: Integers,
    cores: Integers,
    keys: Integers,
    factors: Floats,
    codes: Integers,
    seeds: Integers,
    columns_together: int,
    stored: NDArray[Any],
    lowest: Floats,
    highest: Floats,
    hashes: NDArray[np.uint64],
) -> None:
    """Add up every part in every order.

    Parameters
    ----------
    values : float32 (contributions, columns)
    starts : int64 (parts + 1,)
        The contributions of a part.
    cores : int64 (contributions,)
        Core of each, ascending within a part.
    keys : int64 (parts,)
        What random orders are drawn for.
    factors : float32 (parts,)
        What the sum is multiplied with before it is rounded.
    codes : int64 (orders,), seeds : int64 (orders, 2)
        The orders, and the key words of random ones.
    columns_together
        Columns that share an adversarial order.
    stored : empty array of the output's storage dtype
        Decides the final rounding.
    lowest, highest : float32 (parts, columns)
        Receive the smallest and the largest result of every element.
    hashes : uint64 (parts, orders)
        Receive a hash of every result's bits.
    """
    threads, most = thread_count(), int(np.diff(starts).max(initial=0))
    places, totals = (
        thread_scratch(threads, 3, most, dtype=np.int64),
        thread_scratch(threads, values.shape[1]),
    )
    _study_share.over(
        threads,
        threads,
        values,
        starts,
        cores,
        keys,
        factors,
        codes,
        seeds,
        columns_together,
        stored,
        lowest,
        highest,
        hashes,
        places,
        totals,
    )


@kernel
def _one_arrival(
    share: int,
    code: int,
    seed: tuple[int, int],
    key: int,
    cores: Integers,
    values: Floats,
    begin: int,
    end: int,
    lines: Integers,
    order: Integers,
) -> None:
    arrival(code, seed, key, cores, values, begin, end, lines, order)


def arrival_of(
    code: int,
    seed: tuple[int, int],
    key: int,
    cores: Integers,
    values: Floats,
    begin: int,
    end: int,
) -> Integers:
    """Return the order of arrival of one part's contributions; arguments as in :func:`study_orders`."""
    order: Any = np.empty(cores.size, np.int64)
    _one_arrival.over(
        1, code, seed, key, cores, values, begin, end, np.empty((2, cores.size), np.int64), order
    )
    return order
