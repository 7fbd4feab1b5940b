"""What the order of atomic additions does to a result: many legal orders of one call, without computing it again for each.

Only the parts of the output that the mask calls order-dependent are added up again, from contributions computed once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from npu_sim.kernels import order_study
from npu_sim.kernels.random_order import RANDOM, REVERSE, ROUND_ROBIN, SEQUENTIAL, seed_words
from npu_sim.kernels.ulp import ulp_distance
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.numbers.storage import storage_view
from npu_sim.operators import run
from npu_sim.operators.contract.results import Result
from npu_sim.operators.contract.study import StudyCall, study_call
from npu_sim.orders.parts import Parts

ORDERS_TOGETHER = 16
"""Orders tried between two reports of progress."""
FIXED_ORDERS = {"sequential": SEQUENTIAL, "reverse": REVERSE, "round robin": ROUND_ROBIN}
ADVERSARIAL_ORDERS = {
    "smallest first": order_study.SMALLEST_FIRST,
    "largest first": order_study.LARGEST_FIRST,
    "positive first": order_study.POSITIVE_FIRST,
}


@dataclass(frozen=True)
class Step:
    """One contribution in an order of arrival, and the running sum after it."""

    core: int
    contribution: str
    value: float
    sum_after: float


@dataclass(frozen=True)
class WorstElement:
    """The element that moved most, with its contributions in the orders that give its extremes."""

    index: tuple[int, ...]
    lowest: float
    highest: float
    spread_ulp: int
    lowest_order: str
    highest_order: str
    steps_to_lowest: tuple[Step, ...]
    steps_to_highest: tuple[Step, ...]
    deterministic: float


@dataclass(frozen=True)
class OutputStudy:
    """What many orders do to one output.

    Attributes
    ----------
    output
        Its name.
    orders
        The orders that were tried.
    distinct_results
        How many different results they gave, by hash of all bits.
    elements, order_dependent, moved
        Elements of the output; those the mask says can differ; those that did.
    max_spread, max_spread_ulp
        Largest difference between two orders, absolute and in ulp of the output's dtype.
    differs_from_deterministic
        Elements whose deterministic result differs from the sequential one: another kernel, other chunks.
    worst
        The element that moved most in ulp; None when none moved.
    """

    output: str
    orders: tuple[str, ...]
    distinct_results: int
    elements: int
    order_dependent: int
    moved: int
    max_spread: float
    max_spread_ulp: int
    differs_from_deterministic: int
    worst: WorstElement | None


@dataclass(frozen=True)
class DeterminismStudy:
    """The study of one call."""

    operator: str
    product: str
    soc: str
    path: str
    outputs: tuple[OutputStudy, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return asdict(self)


def study_determinism(
    operator: str,
    *,
    random_orders: int = 32,
    seed: int = 0,
    adversarial: bool = True,
    progress: Callable[[str, float], None] | None = None,
    **call: Any,
) -> DeterminismStudy:
    """Try many legal orders of one call.

    Parameters
    ----------
    operator
        Name of the operator.
    random_orders, seed
        How many random orders, and the seed of the first.
    adversarial
        Also try orders chosen to hurt: smallest, largest and positive contributions first.
    progress
        Called with the stage and the share done.
    **call
        The call as for :func:`npu_sim.run`, without ``core_order`` and ``deterministic``.

    Raises
    ------
    AclnnError
        As the run itself.
    """
    first = run(operator, **call)
    fixed = run(operator, deterministic=True, **call)
    described, orders = study_call(operator, call), _orders(random_orders, seed, adversarial)
    outputs = []
    for name in first.outputs:
        mask = first.order_dependent.get(name)
        parts: Iterator[Parts] = iter(()) if mask is None or mask.count == 0 else _parts(described, first, name)
        outputs.append(_study_output(name, first, fixed, orders, parts, progress))
    return DeterminismStudy(described.operator.name, first.plan.product, first.plan.soc, first.plan.path, tuple(outputs))


def _orders(random_orders: int, seed: int, adversarial: bool) -> dict[str, tuple[int, tuple[int, int]]]:
    """Return every order by its name: its code and the key words of its seed."""
    orders: dict[str, tuple[int, tuple[int, int]]] = {name: (code, (0, 0)) for name, code in FIXED_ORDERS.items()}
    if adversarial:
        orders |= {name: (code, (0, 0)) for name, code in ADVERSARIAL_ORDERS.items()}
    return orders | {f"random, seed {seed + draw}": (RANDOM, seed_words(seed + draw)) for draw in range(random_orders)}


def _parts(call: StudyCall, first: Result, output: str) -> Iterator[Parts]:
    """Ask the operator for the contributions of an output's order-dependent parts."""
    parts: Iterator[Parts] = call.operator.hook("parts")(call, first, output)
    return parts


def _study_output(
    name: str,
    first: Result,
    fixed: Result,
    orders: Mapping[str, tuple[int, tuple[int, int]]],
    batches: Iterator[Parts],
    progress: Callable[[str, float], None] | None,
) -> OutputStudy:
    output = first.outputs[name]
    dtype = canonical_dtype(output.dtype)
    codes = np.array([code for code, _ in orders.values()], np.int64)
    seeds = np.array([words for _, words in orders.values()], np.int64)
    hashes, moved, done = np.zeros(codes.size, np.uint64), 0, 0
    spread, spread_ulp, worst = 0.0, 0, None
    mask = first.order_dependent.get(name)
    dependent = 0 if mask is None or mask.mask.size == 0 else mask.count * (output.size // mask.mask.size)
    for parts in batches:
        shape = (parts.count, parts.values.shape[1])
        lowest, highest = np.empty(shape, np.float32), np.empty(shape, np.float32)
        own_hashes = np.empty((parts.count, codes.size), np.uint64)
        stored = storage_view(np.empty(0, output.dtype))
        for begin in range(0, codes.size, ORDERS_TOGETHER):
            tried = slice(begin, begin + ORDERS_TOGETHER)
            least, most, found = np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty_like(own_hashes[:, tried], order="C")
            order_study.study_orders(
                parts.values,
                parts.starts,
                parts.cores,
                parts.keys,
                parts.factors,
                codes[tried],
                seeds[tried],
                parts.columns_together,
                stored,
                least,
                most,
                found,
            )
            own_hashes[:, tried] = found
            np.copyto(lowest, least, where=(least < lowest) | (begin == 0))
            np.copyto(highest, most, where=(most > highest) | (begin == 0))
            if progress is not None and dependent:
                share = min(begin + ORDERS_TOGETHER, codes.size) / codes.size
                progress(name, min(1.0, (done + parts.count * share) * shape[1] / dependent))
        # Parts are told apart by an odd factor each, so that two parts that swap results do not hide each other.
        places = (2 * (done + np.arange(parts.count, dtype=np.uint64)) + 1) * np.uint64(0x9E3779B97F4A7C15)
        hashes += (own_hashes * places[:, None]).sum(axis=0, dtype=np.uint64)
        ulps = ulp_distance(lowest.astype(output.dtype), highest.astype(output.dtype), dtype)
        moved += int(np.count_nonzero(ulps))
        spread = max(spread, float(np.max(highest - lowest, initial=0.0)))
        if ulps.size and int(ulps.max()) > spread_ulp:
            spread_ulp = int(ulps.max())
            part, column = (int(place) for place in np.unravel_index(int(ulps.argmax()), shape))
            worst = _worst(parts, part, column, orders, stored, spread_ulp, fixed.outputs[name])
        done += parts.count
    different = _different(output, fixed.outputs[name])
    distinct = len(set(hashes.tolist())) if done else 1
    return OutputStudy(name, tuple(orders), distinct, output.size, dependent, moved, spread, spread_ulp, different, worst)


def _different(one: np.ndarray, other: np.ndarray) -> int:
    """Count the elements that differ; whole numbers have no ulp."""
    if one.dtype.kind in "iu":
        return int(np.count_nonzero(one != other))
    return int(np.count_nonzero(ulp_distance(one, other, canonical_dtype(one.dtype))))


def _worst(
    parts: Parts,
    part: int,
    column: int,
    orders: Mapping[str, tuple[int, tuple[int, int]]],
    stored: np.ndarray,
    spread_ulp: int,
    deterministic: np.ndarray,
) -> WorstElement:
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
    return WorstElement(
        index, results[low][0], results[high][0], spread_ulp, low, high, results[low][1], results[high][1], float(deterministic[index])
    )
