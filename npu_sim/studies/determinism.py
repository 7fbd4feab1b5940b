"""Effect of the order of atomic additions on a result: many legal orders of one call.

Contributions are computed once. For each order only the parts of the output that depend on the
order are added up again. The answer lists the rows, columns or elements that can differ between
runs, and by how much; for the worst element also its contributions in the orders of its extremes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.execution import OrderMask, Result
from npu_sim.framework.operator import PARTS, TERMS, WRITES
from npu_sim.kernels.shared import arrival_orders
from npu_sim.kernels.shared.arrival_orders import (
    RANDOM,
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    seed_words,
)
from npu_sim.kernels.shared.elementwise import ulp_distance
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Index, Shape
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators import run
from npu_sim.operators.shared.study import StudyCall, study_call
from npu_sim.orders.claims import LastWrites, Parts, Step
from npu_sim.plans.answers import Columns, Printed, Progress, Tabular
from npu_sim.status import UsageError, without_internal_frames


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    value: float


def terms_of(call: StudyCall, output: str, index: Index) -> tuple[Term, ...]:
    """Return the terms of an output element, largest magnitude first; none without the hook."""
    if not call.operator.has_hook(TERMS):
        return ()
    terms = call.operator.hook(TERMS)(call, output, index)
    ordered = sorted(terms, key=lambda term: -abs(term[1]))
    return tuple(Term(name, float(value)) for name, value in ordered)


Orders = Mapping[str, tuple[int, tuple[int, int]]]
"""Orders by name: code, and key of the seed, two 32-bit words."""


@dataclass(frozen=True)
class WorstElement:
    """The element with the largest spread in ulp."""

    index: Index
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
    deterministic: Array,
) -> WorstElement:
    """Return the steps of one element in its extreme orders.

    ``results`` are its extremes, ``spread_ulp`` their distance.
    """
    begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
    values, cores = parts.values[begin:stop], parts.cores[begin:stop]
    together = parts.columns_together
    first = column // together * together
    last = min(first + together, values.shape[1])
    key = int(parts.keys[part])
    arrivals = {
        name: arrival_orders.arrival_of(code, seed, key, cores, values, first, last)
        for name, (code, seed) in orders.items()
    }
    steps = {name: parts.steps(part, column, order) for name, order in arrivals.items()}
    low = min(steps, key=lambda name: steps[name][-1].sum_after)
    high = max(steps, key=lambda name: steps[name][-1].sum_after)
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
        steps_to_lowest=steps[low],
        steps_to_highest=steps[high],
        deterministic_result=float(deterministic[index]),
    )


WORST_ROWS = 20
"""Number of rows shown; ``--rows-out`` writes all."""
FIELDS = np.dtype(
    [
        ("place", np.int64),
        ("element", np.int64),
        ("terms", np.int64),
        ("contributions", np.int64),
        ("cores", np.int64),
        ("lowest", np.float64),
        ("highest", np.float64),
        ("spread", np.float64),
        ("spread_ulp", np.int64),
        ("relative", np.float64),
    ]
)


@dataclass(frozen=True)
class VariableRows(Tabular):
    """Every row, column or element of one output that can differ between runs."""

    output: str
    """Name of the output."""
    axis: Literal["row", "column", "element"]
    """Unit of ``place``: ``row``, ``column`` or ``element``."""
    shape: Shape
    """Shape of the output."""
    units: int
    """Number of its rows, columns or elements."""
    table: Array
    """One record per row, column or element: its index ``place``; ``element``, the flat index of
    the element with the largest spread. For that element: the numbers of ``terms``,
    ``contributions`` and ``cores``; the ``lowest`` and ``highest`` result over the tried orders;
    their difference ``spread``, also in ulp of the output's dtype (``spread_ulp``) and ``relative``
    to the sum of the contributions' magnitudes."""

    def mask(self) -> NDArray[np.bool_]:
        """Return a boolean per row, column or element: True where it can differ."""
        mask = np.zeros(self.units, np.bool_)
        mask[self.table["place"]] = True
        return mask

    def worst(self, count: int = WORST_ROWS) -> Array:
        """Return the records with the largest spread in ulp, the largest first."""
        order = np.lexsort(
            (self.table["place"], -self.table["relative"], -self.table["spread_ulp"])
        )
        records: Array = self.table[order[:count]]
        return records

    def index_of(self, record: Any) -> Index:
        """Return the index of a record's element in the output."""
        return tuple(int(at) for at in np.unravel_index(int(record["element"]), self.shape))

    def table_columns(self) -> Columns:
        """Return all records as columns of a table; ``element`` is an index in the output."""
        count, indices = len(self.table), np.unravel_index(self.table["element"], self.shape)
        return {
            "output": [self.output] * count,
            "axis": [self.axis] * count,
            **{name: self.table[name] for name in FIELDS.names or ()},
            "element": np.stack(indices, axis=1).tolist(),
        }

    def as_dicts(self, records: Array | None = None) -> list[dict[str, Any]]:
        """Return records as plain data; the worst ones by default."""
        chosen = self.worst() if records is None else records
        head = {"output": self.output, "axis": self.axis}
        return [
            {
                **head,
                **{name: record[name].item() for name in FIELDS.names or ()},
                "element": list(self.index_of(record)),
            }
            for record in chosen
        ]


NO_ROWS: Array = np.empty(0, FIELDS)
"""Records of an output whose order is fixed."""


WRITE_ORDERS = (Text("every first write remains"), Text("every last write remains"))
"""What is compared where a part of an output holds one of several writes."""
ORDERS_TOGETHER = 16
"""Number of orders between two progress reports."""
FIXED_ORDERS = {"sequential": SEQUENTIAL, "reverse": REVERSE, "round robin": ROUND_ROBIN}
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd factor that spreads the numbers of parts over 64 bits."""
ADVERSARIAL_ORDERS = {
    "smallest first": arrival_orders.SMALLEST_FIRST,
    "largest first": arrival_orders.LARGEST_FIRST,
    "positive first": arrival_orders.POSITIVE_FIRST,
}


@dataclass(frozen=True)
class OutputStudy:
    """Results of many orders for one output."""

    output: str
    """Name of the output."""
    orders: tuple[str, ...]
    """Names of the tried orders."""
    distinct_results: int
    """Number of distinct results, by hash of all bits."""
    elements: int
    """Number of elements."""
    order_dependent: int
    """Number of elements in the order mask."""
    moved: int
    """Number of elements that differed between orders."""
    max_spread: float
    """Largest difference of one element between two orders."""
    max_spread_ulp: int
    """The same in ulp of the output's dtype; usually of another element."""
    differs_from_deterministic: int
    """Number of elements whose deterministic result differs from the sequential one."""
    worst: WorstElement | None
    """Element with the largest spread in ulp; None when none moved."""
    rows: VariableRows
    """Every row, column or element that can differ."""
    race: str = ""
    """Code of the plan's warning on a race that can overwrite the output; else empty."""

    def as_dict(self) -> dict[str, Any]:
        """Return the output as plain data, with the worst rows."""
        worst = asdict(self.worst) if self.worst is not None else None
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return facts | {"orders": list(self.orders), "worst": worst, "rows": self.rows.as_dicts()}


@dataclass(frozen=True, repr=False)
class DeterminismStudy(Printed):
    """Determinism study of one call."""

    operator: str
    product: str
    soc: str
    path: str
    outputs: tuple[OutputStudy, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return vars(self) | {"outputs": [output.as_dict() for output in self.outputs]}


@without_internal_frames
@np.errstate(all="ignore")  # inf and nan are results like others
def study_determinism(
    operator: str,
    *,
    random_orders: int = 32,
    seed: int = 0,
    adversarial: bool = True,
    progress: Callable[[str, float], None] | None = None,
    **call: Any,
) -> DeterminismStudy:
    """Return the results of many legal orders of one call.

    Parameters
    ----------
    operator
        Name of the operator.
    random_orders
        How many random orders to try besides the named ones.
    seed
        Seed of the first random order.
    adversarial
        Also try smallest, largest and positive contributions first.
    progress
        Called with the stage and the fraction done.
    **call
        The call as for :func:`npu_sim.run`, without ``core_order``.

    Raises
    ------
    UsageError
        When ``deterministic`` is True.
    AclnnError
        As for :func:`npu_sim.run`.
    """
    if call.pop("deterministic", False):
        raise UsageError(
            "deterministic",
            "with deterministic computation there is one legal order, and nothing to study",
            "leave it out: the study tells its result apart from the others'",
        )
    first = run(operator, **call)
    fixed = run(operator, deterministic=True, **call)
    described, orders = study_call(operator, call), _orders(random_orders, seed, adversarial)
    outputs = tuple(
        _study_writes(name, first, fixed, _written(described, first, name))
        if _has_writes(described, first, name)
        else _study_output(name, first, fixed, orders, _parts(described, first, name), progress)
        for name in first.outputs
    )
    plan = first.plan
    return DeterminismStudy(described.operator.name, plan.product, plan.soc, plan.path, outputs)


@np.errstate(all="ignore")
def rows_that_can_differ(
    operator: str, result: Result, *, random_orders: int = 32, seed: int = 0, **call: Any
) -> tuple[VariableRows, ...]:
    """Return the rows, columns or elements of every output that can differ between runs.

    - ``operator``, ``random_orders``, ``seed``, ``**call``: as for :func:`study_determinism`, and
      ``deterministic`` of the call.
    - ``result``: result of the call.
    """
    described, orders = study_call(operator, call), _orders(random_orders, seed, adversarial=True)
    answers = []
    for name, output in result.outputs.items():
        mask = result.order_dependent[name]
        if _has_writes(described, result, name):
            tables = [_rows_of_writes(_written(described, result, name), mask, output)]
        else:
            batches = _studied(_parts(described, result, name), orders, output)
            tables = [NO_ROWS, *(_rows_of(batch, mask, output) for batch in batches)]
        answers.append(
            VariableRows(name, mask.axis, output.shape, mask.mask.size, np.concatenate(tables))
        )
    return tuple(answers)


def _orders(random_orders: int, seed: int, adversarial: bool) -> Orders:
    """Return code and split seed of every order by name."""
    named = FIXED_ORDERS | (ADVERSARIAL_ORDERS if adversarial else {})
    return {name: (code, (0, 0)) for name, code in named.items()} | {
        Text("random, seed {seed}", seed=seed + draw): (RANDOM, seed_words(seed + draw))
        for draw in range(random_orders)
    }


def _parts(call: StudyCall, result: Result, output: str) -> Iterator[Parts]:
    """Return the contributions of an output's order-dependent parts, if it has some."""
    dependent = result.order_dependent[output].count
    return call.operator.hook(PARTS)(call, result, output) if dependent else iter(())


def _has_writes(call: StudyCall, result: Result, output: str) -> bool:
    """Return whether parts of an output hold one of several writes, and not a sum."""
    return result.order_dependent[output].count > 0 and call.operator.has_hook(WRITES)


def _written(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Return the writes of which one remains."""
    return call.operator.hook(WRITES)(call, result, output)


def _rows_of_writes(written: Iterator[LastWrites], mask: OrderMask, output: Array) -> Array:
    """Return the records of the parts of an output that hold one of several writes."""
    dtype, columns, records = canonical_dtype(output.dtype), output.size // mask.mask.size, []
    for place, writes, cores, _ in written:
        values = writes.reshape(len(writes), -1)
        lowest, highest = values.min(axis=0), values.max(axis=0)
        ulps = ulp_distance(lowest, highest, dtype)
        column = int(ulps.argmax())
        low, high = float(lowest[column]), float(highest[column])
        magnitude = max(abs(low), abs(high))
        part = int(np.ravel_multi_index(place, output.shape[: len(place)]))
        records.append(
            (
                part,
                part * columns + column,
                1,
                len(writes),
                len(set(cores)),
                low,
                high,
                high - low,
                int(ulps[column]),
                (high - low) / magnitude if magnitude else 0.0,
            )
        )
    return np.array(records, FIELDS)


def _study_writes(
    name: str, result: Result, fixed: Result, written: Iterator[LastWrites]
) -> OutputStudy:
    """Study an output each part of which holds one of several writes."""
    output, mask = result.outputs[name], result.order_dependent[name]
    writes, moved = list(written), 0
    for one in writes:
        values = one.values.reshape(len(one.values), -1)
        moved += int(np.count_nonzero((values != values[0]).any(axis=0)))
    table = _rows_of_writes(iter(writes), mask, output)
    return OutputStudy(
        output=name,
        orders=WRITE_ORDERS,
        distinct_results=2 if moved else 1,
        elements=output.size,
        order_dependent=mask.count * (output.size // mask.mask.size),
        moved=moved,
        max_spread=float(table["spread"].max(initial=0.0)),
        max_spread_ulp=int(table["spread_ulp"].max(initial=0)),
        differs_from_deterministic=_different(output, fixed.outputs[name]),
        worst=None,
        rows=VariableRows(name, mask.axis, output.shape, mask.mask.size, table),
        race=mask.race,
    )


@dataclass(frozen=True)
class _Studied:
    """Extremes of some parts over all orders, their distances, and a hash of each order's bits."""

    parts: Parts
    lowest: Array
    highest: Array
    ulps: Array
    hashes: Array


def _studied(
    batches: Iterator[Parts],
    orders: Orders,
    output: Array,
    progress: Callable[[float], None] | None = None,
) -> Iterator[_Studied]:
    """Yield the parts summed in every order; ``progress`` gets the number of elements done."""
    done, dtype = 0, canonical_dtype(output.dtype)
    codes = np.array([code for code, _ in orders.values()], np.int64)
    seeds = np.array([words for _, words in orders.values()], np.int64)
    for parts in batches:
        shape = (parts.count, parts.values.shape[1])
        lowest, highest = np.empty(shape, np.float32), np.empty(shape, np.float32)
        hashes = np.empty((parts.count, codes.size), np.uint64)
        for begin in range(0, codes.size, ORDERS_TOGETHER):
            tried = slice(begin, begin + ORDERS_TOGETHER)
            least, most = np.empty(shape, np.float32), np.empty(shape, np.float32)
            tried_hashes = np.empty_like(hashes[:, tried], order="C")
            arrival_orders.study_orders(
                arrival_orders.Contributions(
                    parts.values, parts.starts, parts.cores, parts.keys, parts.factors
                ),
                arrival_orders.Orders(codes[tried], seeds[tried], parts.columns_together),
                arrival_orders.OUTPUT_DTYPES.index(dtype),
                arrival_orders.Spread(least, most, tried_hashes),
            )
            hashes[:, tried] = tried_hashes
            np.copyto(lowest, least, where=(least < lowest) | (begin == 0))
            np.copyto(highest, most, where=(most > highest) | (begin == 0))
            if progress is not None:
                fraction = min(begin + ORDERS_TOGETHER, codes.size) / codes.size
                progress((done + parts.count * fraction) * shape[1])
        done += parts.count
        ulps = ulp_distance(lowest.astype(output.dtype), highest.astype(output.dtype), dtype)
        yield _Studied(parts, lowest, highest, ulps, hashes)


def _rows_of(batch: _Studied, mask: OrderMask, output: Array) -> Array:
    """Return the records of some parts of an output that can differ between runs."""
    parts, ulps = batch.parts, batch.ulps
    begins = parts.starts[:-1]
    first = np.array(
        [np.ravel_multi_index(parts.locate(part, 0), output.shape) for part in range(parts.count)],
        np.int64,
    )
    changes = np.concatenate(([True], parts.cores[1:] != parts.cores[:-1]))
    changes[begins] = True
    sums = (
        np.add.reduceat(np.abs(parts.values), begins, axis=0, dtype=np.float64)
        * np.abs(parts.factors.astype(np.float64))[:, None]
    )
    if mask.axis == "row":
        which, columns = np.arange(parts.count), np.argmax(ulps, axis=1)
    else:
        which, columns = (places.ravel() for places in np.indices(ulps.shape))
    table = np.empty(which.size, FIELDS)
    table["element"] = first[which] + columns
    table["place"] = table["element"] // (output.size // mask.mask.size)
    table["terms"] = np.add.reduceat(parts.terms, begins)[which]
    table["contributions"] = np.diff(parts.starts)[which]
    table["cores"] = np.add.reduceat(changes.astype(np.int64), begins)[which]
    table["lowest"] = batch.lowest[which, columns]
    table["highest"] = batch.highest[which, columns]
    table["spread"] = table["highest"] - table["lowest"]
    table["spread_ulp"] = ulps[which, columns]
    magnitude = sums[which, columns]
    table["relative"] = np.divide(
        table["spread"], magnitude, out=np.zeros(which.size), where=magnitude > 0
    )
    return table


def _study_output(
    name: str,
    result: Result,
    fixed: Result,
    orders: Orders,
    batches: Iterator[Parts],
    progress: Progress | None,
) -> OutputStudy:
    output, mask = result.outputs[name], result.order_dependent[name]
    hashes, moved, done = np.zeros(len(orders), np.uint64), 0, 0
    spread, spread_ulp, worst = 0.0, 0, None
    tables = [NO_ROWS]
    dependent = 0 if mask.mask.size == 0 else mask.count * (output.size // mask.mask.size)

    def advance(elements: float) -> None:
        if progress is not None and dependent:
            progress(name, min(1.0, elements / dependent))

    for batch in _studied(batches, orders, output, advance):
        parts, ulps = batch.parts, batch.ulps
        # A distinct odd factor per part: otherwise swapped results of two parts would cancel.
        factors = (2 * (done + np.arange(parts.count, dtype=np.uint64)) + 1) * HASH_FACTOR
        hashes += (batch.hashes * factors[:, None]).sum(axis=0, dtype=np.uint64)
        moved += int(np.count_nonzero(ulps))
        spread = max(spread, float(np.max(batch.highest - batch.lowest, initial=0.0)))
        tables.append(_rows_of(batch, mask, output))
        if ulps.size and int(ulps.max()) > spread_ulp:
            spread_ulp = int(ulps.max())
            part, column = map(int, np.unravel_index(int(ulps.argmax()), ulps.shape))
            extremes = float(batch.lowest[part, column]), float(batch.highest[part, column])
            worst = worst_element(
                parts, part, column, orders, extremes, spread_ulp, fixed.outputs[name]
            )
        done += parts.count
    different = _different(output, fixed.outputs[name])
    distinct = len(set(hashes.tolist())) if done else 1
    return OutputStudy(
        output=name,
        orders=tuple(orders),
        distinct_results=distinct,
        elements=output.size,
        order_dependent=dependent,
        moved=moved,
        max_spread=spread,
        max_spread_ulp=spread_ulp,
        differs_from_deterministic=different,
        worst=worst,
        rows=VariableRows(name, mask.axis, output.shape, mask.mask.size, np.concatenate(tables)),
    )


def _different(first: Array, second: Array) -> int:
    """Return the number of elements that differ; every nan equals every nan."""
    is_number = (first == first) | (second == second)
    return int(np.count_nonzero(is_number & (first != second)))
