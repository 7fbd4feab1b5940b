"""Orders of arrival that give measured values: search and proof for the elements of one output."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework import hooks
from npu_sim.framework.execution import Result
from npu_sim.kernels import arrival_search
from npu_sim.kernels.arrival_orders import (
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    Contributions,
    arrival_of,
)
from npu_sim.kernels.arrival_search import ELEMENTS_TOGETHER, Finish
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.numbers.formats import FORMATS, canonical_dtype
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Parts
from npu_sim.verdicts.answers import REACHABLE, UNDECIDED, UNREACHABLE, Examined

Report = Callable[[str, float], None]
VERDICT_OF = {
    arrival_search.REACHED: REACHABLE,
    arrival_search.EXCLUDED_BY_ALL: UNREACHABLE,
    arrival_search.EXCLUDED_BY_INTERVAL: UNREACHABLE,
    arrival_search.NOT_FOUND: UNDECIDED,
}
"""Verdict on an element by how its search ended."""


@dataclass(frozen=True)
class Budget:
    """Effort of a search: partial sums for each element, and the seed of random orders."""

    sums: int
    seed: int


def rounded_to(dtype: np.dtype[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return computed values in the dtype in which an output is given."""
    if values.dtype == dtype:
        return values
    return narrow_array(values.astype(np.float32), canonical_dtype(dtype))


def equal_bits(array: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where two arrays of a dtype have equal bits; every nan equals every nan."""
    if array.dtype.kind in "iu":
        integers: NDArray[np.bool_] = array == other
        return integers
    same: NDArray[np.bool_] = bits_of(array) == bits_of(other)
    if not same.all():
        same |= np.isnan(array) & np.isnan(other)
    return same.reshape(array.shape)


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of an array as unsigned integers."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


@dataclass(frozen=True)
class MeasuredOutput:
    """A measured output of a call, whose elements depend on the order of arrival."""

    call: StudyCall
    result: Result
    """Result in the sequential order."""
    name: str
    given: NDArray[Any]
    """The measured values."""
    budget: Budget

    def decide(
        self, wanted: NDArray[np.bool_], elements: NDArray[np.uint8], report: Report
    ) -> None:
        """Write the verdicts on the wanted elements into ``elements``."""
        if self.call.operator.has_hook(hooks.WRITES):
            for rows, values in self._writes():
                measured = np.broadcast_to(self.given[rows], values.shape)
                found = np.where(equal_bits(values, measured).any(axis=0), REACHABLE, UNREACHABLE)
                elements[rows] = np.where(wanted[rows], found, elements[rows])
            return
        flat, total, done = elements.reshape(-1), int(np.count_nonzero(wanted)), 0
        verdict_of = np.array([VERDICT_OF[how] for how in range(len(VERDICT_OF))], np.uint8)
        for parts, firsts in self._parts():
            places = firsts[:, None] + np.arange(parts.values.shape[1])
            chosen = np.argwhere(wanted.reshape(-1)[places])
            for begin in range(0, len(chosen), ELEMENTS_TOGETHER):
                batch = np.ascontiguousarray(chosen[begin : begin + ELEMENTS_TOGETHER])
                positions = places[batch[:, 0], batch[:, 1]]
                outcome, _ = self._search(parts, batch, self.given.reshape(-1)[positions])
                flat[positions] = verdict_of[outcome.how]
                done += len(batch)
                report(self.name, done / total)

    def examine(self, index: tuple[int, ...]) -> Examined | None:
        """Return what is known of one order-dependent element; None without contributions."""
        if self.call.operator.has_hook(hooks.WRITES):
            return self._examine_writes(index)
        flat, given = int(np.ravel_multi_index(index, self.given.shape)), self.given[index]
        for parts, firsts in self._parts():
            columns = parts.values.shape[1]
            holding = np.flatnonzero((firsts <= flat) & (flat < firsts + columns))
            if holding.size == 0:
                continue
            part = int(holding[0])
            column = flat - int(firsts[part])
            place = np.array([[part, column]], np.int64)
            outcome, trail = self._search(parts, place, given.reshape(1), prove=False)
            begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
            how = int(outcome.how[0])
            if how == arrival_search.REACHED:
                order: NDArray[Any] | None = trail[: stop - begin]
            elif (order := _named_arrival(parts, part, column, given)) is not None:
                how = arrival_search.REACHED
            return Examined(
                how,
                float(outcome.nearest[0]),
                float(outcome.low[0]),
                float(outcome.high[0]),
                stop - begin,
                len(set(parts.cores[begin:stop].tolist())),
                () if order is None else parts.steps(part, column, order),
            )
        return None

    def _examine_writes(self, index: tuple[int, ...]) -> Examined | None:
        """Return what is known of an element of which the last write survives."""
        for rows, values in self._writes():
            if rows != index[: len(rows)]:
                continue
            writes = values[(slice(None), *index[len(rows) :])].astype(np.float64)
            nearest = writes[np.argmin(np.abs(writes - float(self.given[index])))]
            low, high = float(writes.min()), float(writes.max())
            return Examined(None, float(nearest), low, high, len(writes), len(writes), ())
        return None

    def _writes(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield places to which several cores write, with the values that each writes."""
        writes = self.call.operator.hook(hooks.WRITES)
        for rows, values in writes(self.call, self.result, self.name):
            yield rows, rounded_to(self.given.dtype, values)

    def _parts(self) -> Iterator[tuple[Parts, NDArray[Any]]]:
        """Yield the contributions, with the flat index of each part's first element."""
        if not self.call.operator.has_hook(hooks.PARTS):
            return
        for parts in self.call.operator.hook(hooks.PARTS)(self.call, self.result, self.name):
            places = (parts.locate(part, 0) for part in range(parts.count))
            firsts = [int(np.ravel_multi_index(place, self.given.shape)) for place in places]
            yield parts, np.array(firsts, np.int64)

    def _search(
        self, parts: Parts, places: NDArray[np.int64], given: NDArray[Any], prove: bool = True
    ) -> tuple[Any, NDArray[Any]]:
        """Search for the given values at some places (part, column) of the contributions."""
        largest = float(FORMATS[canonical_dtype(given.dtype)].largest_finite)
        stored = storage_view(np.empty(0, given.dtype))
        return arrival_search.search(
            Contributions(parts.values, parts.starts, parts.cores, parts.keys, parts.factors),
            places,
            widen_array(given),
            Finish(stored, largest if self.call.profile.saturates else 0.0),
            self.budget.sums,
            self.budget.seed,
            prove=prove,
        )


def _named_arrival(parts: Parts, part: int, column: int, given: Any) -> NDArray[Any] | None:
    """Return the arrival of a named order that gives the bits of an element; None without one."""
    begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
    cores, values, factor = parts.cores[begin:stop], parts.values[begin:stop], parts.factors[part]
    for code in (SEQUENTIAL, REVERSE, ROUND_ROBIN):
        arrived = arrival_of(code, (0, 0), 0, cores, values, column, column + 1)
        total = np.float32(parts.steps(part, column, arrived)[-1].sum_after)
        scaled = total * factor if factor != 1 else total
        value = narrow_array(np.array([scaled], np.float32), canonical_dtype(given.dtype))
        if equal_bits(value, given.reshape(1)).all():
            return arrived
    return None
