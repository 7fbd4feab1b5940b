"""Orders of arrival that give measured values: search and proof for the elements of one output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.execution import Result
from npu_sim.framework.operator import PARTS, WRITES
from npu_sim.kernels import arrival_search
from npu_sim.kernels.arrival_orders import (
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    Contributions,
    arrival_of,
)
from npu_sim.kernels.arrival_search import ELEMENTS_TOGETHER, Effort, Finish
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.numbers.formats import FORMATS, canonical_dtype
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import LastWrites, Parts, Step
from npu_sim.plans.answers import Progress
from npu_sim.verdicts.answers import REACHABLE, UNDECIDED, UNREACHABLE, Examined, equal_bits


def silent(stage: str, fraction: float) -> None:
    """Show no progress."""


VERDICT_OF = np.array([REACHABLE, UNREACHABLE, UNREACHABLE, UNDECIDED], np.uint8)
"""Verdict on an element by how its search ended: found, excluded by all orders or by an interval,
or none of these."""
FEW_SUMS = 1 << 10
"""Partial sums for an element when those of the whole call are spent."""


@dataclass
class Budget:
    """Effort of a search, counted over all elements of a call.

    Attributes
    ----------
    sums
        Partial sums for each element.
    seed
        Seed of random orders.
    whole
        Partial sums for the whole call; when they are spent, intervals and FEW_SUMS partial sums
        decide the elements that remain.
    spent
        Partial sums that were computed.
    """

    sums: int
    seed: int
    whole: int
    spent: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether the partial sums of the whole call are spent."""
        return self.spent >= self.whole

    def part(self, fraction: int, sums: int) -> "Budget":
        """Return a budget of its own: a fraction of the whole, at most ``sums`` for an element."""
        return Budget(min(self.sums, sums), self.seed, max(1, self.whole // fraction))


def rounded_to(dtype: np.dtype[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return computed values in the dtype in which an output is given."""
    if values.dtype == dtype:
        return values
    return narrow_array(values.astype(np.float32), canonical_dtype(dtype))


@dataclass(frozen=True)
class MeasuredOutput:
    """A measured output of a call, whose elements depend on the order of arrival.

    Attributes
    ----------
    result
        Result in the sequential order.
    given
        The measured values.
    initial
        fp32 values of the shape of the output to which contributions are added; None for zeros.
    """

    call: StudyCall
    result: Result
    name: str
    given: NDArray[Any]
    budget: Budget
    initial: NDArray[Any] | None = None

    def decide(
        self, wanted: NDArray[np.bool_], codes: NDArray[np.uint8], report: Progress
    ) -> NDArray[np.bool_]:
        """Write the verdicts on the wanted elements into ``codes``.

        Returns which of them remain undecided because the budget of the whole call was spent.
        """
        cut_short = np.zeros(codes.size, np.bool_)
        if self.call.operator.has_hook(WRITES):
            for rows, values, _, _ in self._writes():
                measured = np.broadcast_to(self.given[rows], values.shape)
                found = np.where(equal_bits(values, measured).any(axis=0), REACHABLE, UNREACHABLE)
                codes[rows] = np.where(wanted[rows], found, codes[rows])
            return cut_short.reshape(codes.shape)
        flat, total, done = codes.reshape(-1), int(np.count_nonzero(wanted)), 0
        for parts, firsts in self._parts():
            places = firsts[:, None] + np.arange(parts.values.shape[1])
            chosen = np.argwhere(wanted.reshape(-1)[places])
            for begin in range(0, len(chosen), ELEMENTS_TOGETHER):
                batch = np.ascontiguousarray(chosen[begin : begin + ELEMENTS_TOGETHER])
                positions = places[batch[:, 0], batch[:, 1]]
                is_spent = self.budget.is_spent
                outcome, _ = self._search(parts, batch, positions)
                self.budget.spent += int(outcome.spent.sum())
                flat[positions] = VERDICT_OF[outcome.how]
                cut_short[positions] = is_spent & (flat[positions] == UNDECIDED)
                done += len(batch)
                report(self.name, done / total)
        return cut_short.reshape(codes.shape)

    def examine(self, indices: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Examined]:
        """Return what is known of some order-dependent elements; none without contributions."""
        if self.call.operator.has_hook(WRITES):
            return self._examine_writes(indices)
        found = {}
        flat = {int(np.ravel_multi_index(index, self.given.shape)): index for index in indices}
        for parts, firsts in self._parts():
            columns = parts.values.shape[1]
            for position, index in flat.items():
                holding = np.flatnonzero((firsts <= position) & (position < firsts + columns))
                if holding.size:
                    part = int(holding[0])
                    column = position - int(firsts[part])
                    found[index] = self._examined(parts, part, column, position)
        return found

    def _examined(self, parts: Parts, part: int, column: int, position: int) -> Examined:
        place, given = np.array([[part, column]], np.int64), self.given.reshape(-1)[position]
        outcome, trail = self._search(parts, place, np.array([position]), stops_early=False)
        begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
        how = int(outcome.how[0])
        if how == arrival_search.REACHED:
            order: NDArray[Any] | None = trail[: stop - begin]
        elif (order := _named_arrival(parts, part, column, given)) is not None:
            how = arrival_search.REACHED
        return Examined(
            how=how,
            nearest=float(outcome.nearest[0]),
            low=float(outcome.low[0]),
            high=float(outcome.high[0]),
            values=int(outcome.values[0]),
            contributions=stop - begin,
            cores=len(set(parts.cores[begin:stop].tolist())),
            steps=() if order is None else parts.steps(part, column, order),
        )

    def _examine_writes(
        self, indices: Sequence[tuple[int, ...]]
    ) -> dict[tuple[int, ...], Examined]:
        """Return what is known of elements of which the last write survives."""
        found = {}
        for rows, values, cores, names in self._writes():
            for index in indices:
                if rows == index[: len(rows)]:
                    place: Any = (slice(None), *index[len(rows) :])
                    writes = values[place]
                    found[index] = _examined_writes(writes, self.given[index], cores, names)
        return found

    def _writes(self) -> Iterator[LastWrites]:
        """Yield what several cores write to a place, in the dtype of the measured values."""
        writes = self.call.operator.hook(WRITES)
        for written in writes(self.call, self.result, self.name):
            yield written._replace(values=rounded_to(self.given.dtype, written.values))

    def _parts(self) -> Iterator[tuple[Parts, NDArray[Any]]]:
        """Yield the contributions, with the flat index of each part's first element."""
        if not self.call.operator.has_hook(PARTS):
            return
        for parts in self.call.operator.hook(PARTS)(self.call, self.result, self.name):
            places = (parts.locate(part, 0) for part in range(parts.count))
            firsts = [int(np.ravel_multi_index(place, self.given.shape)) for place in places]
            yield parts, np.array(firsts, np.int64)

    def _search(
        self,
        parts: Parts,
        places: NDArray[np.int64],
        positions: NDArray[np.int64],
        stops_early: bool = True,
    ) -> tuple[Any, NDArray[Any]]:
        """Search for the measured values at some places (part, column) of the contributions.

        - ``positions``: flat indices of the same elements.
        """
        dtype, initial = self.given.dtype, self.initial
        largest = float(FORMATS[canonical_dtype(dtype)].largest_finite)
        few = stops_early and self.budget.is_spent
        sums = min(self.budget.sums, FEW_SUMS) if few else self.budget.sums
        return arrival_search.search(
            Contributions(parts.values, parts.starts, parts.cores, parts.keys, parts.factors),
            places,
            widen_array(self.given.reshape(-1)[positions]),
            Finish(
                storage_view(np.empty(0, dtype)), largest if self.call.profile.saturates else 0.0
            ),
            Effort(sums, self.budget.seed),
            stops_early=stops_early,
            initial=None if initial is None else initial.reshape(-1)[positions],
        )


def _examined_writes(
    writes: NDArray[Any], given: Any, cores: Sequence[int], names: Sequence[str]
) -> Examined:
    """Return what is known of an element of which one of several writes survives."""
    numbers = writes.astype(np.float64)
    same = np.flatnonzero(equal_bits(writes, np.broadcast_to(given, writes.shape)))
    steps: tuple[Step, ...] = ()
    if same.size:
        last = int(same[0])
        order = [core for core in range(len(cores)) if core != last] + [last]
        steps = tuple(
            Step(cores[core], names[core], numbers[core], numbers[core]) for core in order
        )
    return Examined(
        how=None,
        nearest=float(numbers[np.argmin(np.abs(numbers - float(given)))]),
        low=float(numbers.min()),
        high=float(numbers.max()),
        values=len(np.unique(numbers)),
        contributions=len(writes),
        cores=len(writes),
        steps=steps,
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
