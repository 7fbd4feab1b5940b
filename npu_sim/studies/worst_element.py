"""The terms of an element, and its contributions in the orders of its extremes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npu_sim.framework import hooks
from npu_sim.kernels import arrival_orders
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Parts, Step


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    value: float


def terms_of(call: StudyCall, output: str, index: tuple[int, ...]) -> tuple[Term, ...]:
    """Return the terms of an output element, largest magnitude first; none without the hook."""
    if not call.operator.has_hook(hooks.TERMS):
        return ()
    terms = call.operator.hook(hooks.TERMS)(call, output, index)
    ordered = sorted(terms, key=lambda term: -abs(term[1]))
    return tuple(Term(name, float(value)) for name, value in ordered)


Orders = Mapping[str, tuple[int, tuple[int, int]]]
"""Orders by name: code, and the key words of the seed."""


@dataclass(frozen=True)
class WorstElement:
    """The element with the largest spread in ulp."""

    index: tuple[int, ...]
    """Index in the output."""
    lowest: float
    """Lowest result: the last sum of the steps times ``factor``, rounded to the output's dtype."""
    highest: float
    """Highest result, likewise."""
    factor: float
    """Factor that the kernel applies to the sum; 1 without one."""
    spread: float
    """Difference of the extremes."""
    spread_ulp: int
    """The same in ulp of the output's dtype."""
    lowest_order: str
    """Order that gives the lowest result."""
    highest_order: str
    """Order that gives the highest result."""
    steps_to_lowest: tuple[Step, ...]
    """Additions in the order of the lowest result."""
    steps_to_highest: tuple[Step, ...]
    """Additions in the order of the highest result."""
    deterministic_result: float
    """Value with deterministic computation."""


def worst_element(
    parts: Parts,
    part: int,
    column: int,
    orders: Orders,
    results: tuple[float, float],
    spread_ulp: int,
    deterministic: np.ndarray,
) -> WorstElement:
    """Return the steps of one element in its extreme orders.

    ``results`` are its extremes, ``spread_ulp`` their distance.
    """
    begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
    values, cores = parts.values[begin:stop], parts.cores[begin:stop]
    together = parts.columns_together
    first = column // together * together
    sums: dict[str, tuple[float, tuple[Step, ...]]] = {}
    for name, (code, seed) in orders.items():
        last = min(first + together, values.shape[1])
        order = arrival_orders.arrival_of(
            code, seed, int(parts.keys[part]), cores, values, first, last
        )
        steps = parts.steps(part, column, order)
        sums[name] = (steps[-1].sum_after, steps)
    low = min(sums, key=lambda name: sums[name][0])
    high = max(sums, key=lambda name: sums[name][0])
    index = parts.locate(part, column)
    lowest, highest = results
    return WorstElement(
        index=index,
        lowest=lowest,
        highest=highest,
        factor=float(parts.factors[part]),
        spread=highest - lowest,
        spread_ulp=spread_ulp,
        lowest_order=low,
        highest_order=high,
        steps_to_lowest=sums[low][1],
        steps_to_highest=sums[high][1],
        deterministic_result=float(deterministic[index]),
    )
