"""Verdicts on the outputs of one call on one device.

Elements whose bits depend on the order of arrival are searched by :class:`MeasuredOutput`: for an
order that gives the measured value, or for a proof that there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.describing import RELEASE_INFERRED
from npu_sim.framework.execution import Result
from npu_sim.framework.operator import OPEN_RULES, PARTS, WRITES
from npu_sim.kernels.shared import arrival_search
from npu_sim.kernels.shared.arrival_orders import (
    OUTPUT_DTYPES,
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    Contributions,
    arrival_of,
)
from npu_sim.kernels.shared.arrival_search import ELEMENTS_TOGETHER, Effort, Finish
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Dtype, Index
from npu_sim.numbers.formats import FORMATS, canonical_dtype
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import LastWrites, OpenRule, Parts, Step
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError
from npu_sim.verdicts.answers import (
    REACHABLE,
    UNDECIDED,
    UNREACHABLE,
    Examined,
    OutputVerdict,
    allows,
    bits_of,
    equal_bits,
)


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


def rounded_to(dtype: Dtype, values: Array) -> Array:
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
    given: Array
    budget: Budget
    initial: Array | None = None

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

    def examine(self, indices: Sequence[Index]) -> dict[Index, Examined]:
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
            order: Array | None = trail[: stop - begin]
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

    def _examine_writes(self, indices: Sequence[Index]) -> dict[Index, Examined]:
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
        """Return what several cores write to a place, in the dtype of the measured values."""
        return (
            written._replace(values=rounded_to(self.given.dtype, written.values))
            for written in self.call.operator.hook(WRITES)(self.call, self.result, self.name)
        )

    def _parts(self) -> Iterator[tuple[Parts, Array]]:
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
    ) -> tuple[Any, Array]:
        """Search for the measured values at some places (part, column) of the contributions.

        - ``positions``: flat indices of the same elements.
        """
        dtype, initial = canonical_dtype(self.given.dtype), self.initial
        few = stops_early and self.budget.is_spent
        sums = min(self.budget.sums, FEW_SUMS) if few else self.budget.sums
        return arrival_search.search(
            Contributions(parts.values, parts.starts, parts.cores, parts.keys, parts.factors),
            places,
            widen_array(self.given.reshape(-1)[positions]),
            Finish(
                OUTPUT_DTYPES.index(dtype),
                FORMATS[dtype].largest_finite if self.call.profile.saturates else 0.0,
            ),
            Effort(sums, self.budget.seed),
            stops_early=stops_early,
            initial=None if initial is None else initial.reshape(-1)[positions],
        )


def _examined_writes(
    writes: Array, given: Any, cores: Sequence[int], names: Sequence[str]
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


def _named_arrival(parts: Parts, part: int, column: int, given: Any) -> Array | None:
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


NAMED_ORDERS = ("reverse", "round_robin")
"""Orders that a whole output is compared with, besides the sequential one."""


def measured_as(name: str, array: Array, output: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return a measured array in the dtype of an output, and which values do not fit that dtype.

    Values that do not fit are rounded. Those of an fp32 output that is given in 16 bits stay: such
    a result was rounded afterwards, by autograd for instance, and computed values are rounded
    likewise.

    Raises
    ------
    UsageError
        When the shape differs, or an integer output is given as something else.
    """
    if array.shape != output.shape:
        raise UsageError(
            name,
            "{name} has the shape {given}, the result {shape}",
            "give the output of the same call",
            name=name,
            given=str(array.shape),
            shape=str(output.shape),
        )
    if array.dtype == output.dtype:
        return array, np.broadcast_to(np.False_, array.shape)
    if (array.dtype.kind in "iub") != (output.dtype.kind in "iu"):
        raise UsageError(
            name,
            "{name} is {given}",
            "the result is {dtype}",
            name=name,
            given=str(array.dtype),
            dtype=str(output.dtype),
        )
    if output.dtype.kind in "iu":
        given = array.astype(output.dtype)
        return given, given != array
    if array.dtype.itemsize < output.dtype.itemsize:
        return array, np.broadcast_to(np.False_, array.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype(np.float32)
    given = narrow_array(single, canonical_dtype(output.dtype))
    wide, values = given.astype(np.float64), array.astype(np.float64)
    return given, (wide != values) & ~(np.isnan(wide) & np.isnan(values))


def judge(
    call: StudyCall,
    measured: Mapping[str, Array],
    budget: Budget,
    report: Progress = silent,
    search: bool = True,
    among: NDArray[np.bool_] | None = None,
    initial: NDArray[np.float32] | None = None,
) -> dict[str, OutputVerdict]:
    """Return the verdicts on measured outputs of a call.

    Without ``search``, elements that depend on timing and differ from the named orders stay
    undecided; with ``among``, those outside this mask do. With ``initial``, contributions are added
    to these values of the output's shape and not to 0.
    """
    call = call.with_options(core_order="sequential", seed=0)
    result = call.run()
    named: dict[str, Mapping[str, Array]] = {}
    verdicts = {}
    for name, array in measured.items():
        if name not in result.outputs:
            raise UsageError(
                name, "{name} is given, but this call does not write it", "leave it out", name=name
            )
        computed = result.outputs[name]
        given, misfits = measured_as(name, array, computed)
        expected = rounded_to(given.dtype, computed if initial is None else computed + initial)
        output = MeasuredOutput(call, result, name, given, budget, initial)
        timing = order_dependent(result, name)
        codes = np.zeros(expected.shape, np.uint8)
        cut_short = np.zeros(expected.shape, np.bool_)
        order, rules = "", tuple[OpenRule, ...]()
        race = result.order_dependent[name].race if timing.any() else ""
        if array.dtype == expected.dtype and np.array_equal(bits_of(array), bits_of(expected)):
            order = "sequential" if timing.any() and not race else ""
        else:
            same = equal_bits(given, expected) & ~misfits
            if timing.any() and not race and (same | timing).all() and not misfits.any():
                order = "sequential" if same.all() else _named_order(output, named)
            if not order:
                unsettled = _settle(same, timing, misfits, codes)
                wanted = unsettled if among is None else unsettled & among
                if search and wanted.any():
                    cut_short = output.decide(wanted, codes, report)
            if initial is None:
                rules = _apply_rules(output, misfits, codes)
        verdicts[name] = OutputVerdict(
            output=name,
            elements=codes,
            given=given,
            expected=expected,
            order_dependent=timing,
            misfits=misfits,
            order=order,
            rules=rules,
            cut_short=cut_short,
            examine=output.examine,
            race=race,
            rounded_from="" if given.dtype == computed.dtype else canonical_dtype(computed.dtype),
        )
    return verdicts


def _settle(
    same: NDArray[np.bool_],
    timing: NDArray[np.bool_],
    misfits: NDArray[np.bool_],
    codes: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """Write the verdicts that need no search; return which elements need one."""
    unsettled = timing & ~same & ~misfits
    codes[~same] = UNREACHABLE
    codes[timing & same] = REACHABLE
    codes[unsettled] = UNDECIDED
    return unsettled


def _named_order(output: MeasuredOutput, runs: dict[str, Mapping[str, Array]]) -> str:
    """Return the order of ``NAMED_ORDERS`` that gives all bits of an output; empty without one.

    ``runs`` keeps the outputs in these orders for the other outputs of the call.
    """
    for order in NAMED_ORDERS if output.initial is None else ():
        if order not in runs:
            runs[order] = output.call.with_options(core_order=order).run().outputs
        expected = rounded_to(output.given.dtype, runs[order][output.name])
        if equal_bits(output.given, expected).all():
            return order
    return ""


def order_dependent(result: Result, name: str) -> NDArray[np.bool_]:
    """Return which elements of an output depend on the order of arrival, as a read-only view."""
    output, mask = result.outputs[name], result.order_dependent[name].mask.reshape(-1, 1)
    if mask.size == 0:
        return np.zeros(output.shape, np.bool_)
    return np.broadcast_to(mask, (mask.size, output.size // mask.size)).reshape(output.shape)


def _apply_rules(
    output: MeasuredOutput, misfits: NDArray[np.bool_], codes: NDArray[np.uint8]
) -> tuple[OpenRule, ...]:
    """Make elements undecided that a part of the rule allows which is not published.

    Returns these parts; none when no element needs them.
    """
    doubtful = (codes >= UNDECIDED) & ~misfits
    if not doubtful.any():
        return ()
    with np.errstate(all="ignore"):
        open_rules = open_rules_of(output.call, output.result)
        rules = tuple(rule for rule in open_rules if rule.output == output.name)
        if output.given.dtype != output.result.outputs[output.name].dtype:
            rules = tuple(  # rounding is monotonic
                replace(
                    rule,
                    lowest=rounded_to(output.given.dtype, rule.lowest),
                    highest=rounded_to(output.given.dtype, rule.highest),
                )
                for rule in rules
            )
    if rules:
        allowed = np.logical_or.reduce([allows(rule, output.given) for rule in rules])
        codes[doubtful & allowed] = UNDECIDED
    return rules


EVERYTHING = np.array(-np.inf), np.array(np.inf)
"""Bounds of a rule that allows every value."""


def open_rules_of(call: StudyCall, result: Result) -> list[OpenRule]:
    """Return the parts of a call's rule that are not published, not modelled or inferred."""
    rules = [
        OpenRule(name, *EVERYTHING, caveat.message, caveat.code == RELEASE_INFERRED)
        for caveat in (*result.caveats, *result.plan.caveats)
        for name in result.outputs
        if {"*", name} & {*caveat.not_modelled.split()}
    ]
    product = call.profile.product
    if product.evidence != "exact":
        reason = Text(
            "the rules of {product_title} are a model: {source}",
            product_title=product.title,
            source=product.rules_source,
        )
        rules += [OpenRule(name, *EVERYTHING, reason, True) for name in result.outputs]
    if call.operator.has_hook(OPEN_RULES):
        return [*call.operator.hook(OPEN_RULES)(call, result), *rules]
    return rules
