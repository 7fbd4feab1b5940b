"""Results of one set of contributions in many orders of arrival; contributions are computed once.

A *part* is a set of output elements whose contributions arrive together: a row of an embedding
gradient, a piece of dgamma, a row of gradWeight. Its contributions are given once, in fp32, in the
program order of every core; only their order of arrival differs.

Source: specification page ``numerics``, "Atomic addition to global memory". Besides the page's four
orders there are three adversarial ones, chosen for every part (or column by column). These are
legal merges that take, of all contributions that could come next, the smallest, the largest, or a
positive one first.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, long_kernel
from npu_sim.kernels.engine.threads import thread_count, thread_scratch
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
"""FNV-1a, 64 bits: results are identified by hash."""


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
    """int64 (orders, 2): key words of random orders."""
    columns_together: int
    """Number of columns that share an adversarial order."""


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
                    score = _score(code, values[first[candidate]])
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
def _study_chunk(
    chunk: int,
    chunks: int,
    contributions: Contributions,
    orders: Orders,
    stored: NDArray[Any],
    spread: Spread,
    places: Integers,
    totals: Floats,
) -> None:
    """Study every ``chunks``-th part.

    ``places`` (chunks, 3, contributions) and ``totals`` are scratch.
    """
    values, starts, cores, keys, factors = contributions
    codes, seeds, columns_together = orders
    lowest, highest, hashes = spread
    columns, sums = values.shape[1], totals[chunk]
    for part in range(chunk, keys.size, chunks):
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
                result = widen(narrow(total, stored))
                digest = (digest ^ np.uint64(np.float32(result).view(np.uint32))) * FNV_PRIME
                if position == 0 or result < lowest[part, column]:
                    lowest[part, column] = result
                if position == 0 or result > highest[part, column]:
                    highest[part, column] = result
            hashes[part, position] = digest


def study_orders(
    contributions: Contributions, orders: Orders, stored: NDArray[Any], spread: Spread
) -> None:
    """Add up every part in every order, and fill in ``spread``.

    ``stored`` is an empty array of the output's storage dtype, which decides the final rounding.
    """
    threads, most = thread_count(), int(np.diff(contributions.starts).max(initial=0))
    places = thread_scratch(threads, 3, most, dtype=np.int64)
    totals = thread_scratch(threads, contributions.values.shape[1])
    _study_chunk.over(threads, threads, contributions, orders, stored, spread, places, totals)


@kernel
def _one_arrival(
    chunk: int,
    code: int,
    seed: tuple[int, int],
    key: int,
    cores: Integers,
    values: Floats,
    lines: Integers,
    order: Integers,
) -> None:
    arrival(code, seed, key, cores, values, lines, order)


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
    order: Any = np.empty(cores.size, np.int64)
    lines = np.empty((2, cores.size), np.int64)
    _one_arrival.over(1, code, seed, key, cores, values[:, begin:end], lines, order)
    return order
