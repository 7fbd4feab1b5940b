"""The element of an output that moved most, with what is added to it in the orders that give its extremes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from npu_sim.kernels import order_study
from npu_sim.orders.parts import Parts

Orders = Mapping[str, tuple[int, tuple[int, int]]]
"""Orders by name: code, and the key words of the seed."""


@dataclass(frozen=True)
class Step:
    """One contribution in an order of arrival, and the running sum after it."""

    core: int
    contribution: str
    value: float
    sum_after: float


@dataclass(frozen=True)
class WorstElement:
    """The element that moved most in ulp, with its contributions in the orders that give its extremes."""

    index: tuple[int, ...]
    lowest: float
    highest: float
    spread: float
    spread_ulp: int
    lowest_order: str
    highest_order: str
    steps_to_lowest: tuple[Step, ...]
    steps_to_highest: tuple[Step, ...]
    deterministic_result: float


def worst_element(
    parts: Parts,
    part: int,
    column: int,
    orders: Orders,
    spread_ulp: int,
    deterministic: np.ndarray,
) -> WorstElement:
    """Add one element up in every order, step by step; ``spread_ulp`` is how far its results are apart."""
    begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
    values, cores = parts.values[begin:stop], parts.cores[begin:stop]
    together = parts.columns_together
    first = column // together * together
    results: dict[str, tuple[float, tuple[Step, ...]]] = {}
    for name, (code, words) in orders.items():
        last = min(first + together, values.shape[1])
        order = order_study.arrival_of(code, words, int(parts.keys[part]), cores, values, first, last)
        steps, total = [], np.float32(0)
        for place in order:
            total = np.float32(total + values[place, column])
            steps.append(Step(int(cores[place]), parts.describe(begin + int(place)), float(values[place, column]), float(total)))
        results[name] = (float(total), tuple(steps))
    low = min(results, key=lambda name: results[name][0])
    high = max(results, key=lambda name: results[name][0])
    index = parts.index_of(part, column)
    lowest, highest = results[low][0], results[high][0]
    both = (results[low][1], results[high][1])
    return WorstElement(index, lowest, highest, highest - lowest, spread_ulp, low, high, *both, float(deterministic[index]))
