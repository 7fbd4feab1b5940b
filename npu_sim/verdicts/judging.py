"""Verdicts on the outputs of one call on one device."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.execution import Result
from npu_sim.framework.operator import Operator
from npu_sim.kernels import arrival_search
from npu_sim.kernels.arrival_search import ELEMENTS_TOGETHER, Finish
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.kernels.order_study import Contributions, arrival_of
from npu_sim.kernels.random_order import REVERSE, ROUND_ROBIN, SEQUENTIAL
from npu_sim.language import Text
from npu_sim.numbers.formats import FORMATS, canonical_dtype
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import OpenRule, Parts
from npu_sim.status import UsageError
from npu_sim.verdicts.answers import (
    REACHABLE,
    UNDECIDED,
    UNREACHABLE,
    Examined,
    OutputVerdict,
    allows,
)

NAMED_ORDERS = {"reverse": REVERSE, "round_robin": ROUND_ROBIN}
"""Orders that a whole output is compared with, besides the sequential one."""
NOT_MODELLED = {
    "buffers_beyond_usable_ub": "",
    "dgamma_merge_overrun": "dgamma",
    "element_offset_wraps": "",
    "inf_or_nan_input": "",
    "offsets_wrap": "",
    "row_offset_wraps": "",
    "rstd_cleared_by_neighbour": "rstd",
    "small_dim_offset_wraps": "",
    "weight_read_out_of_bounds": "",
}
"""Codes of caveats which state that the device may compute something else, and the output that this
concerns; empty for all."""

Outputs = Mapping[str, NDArray[Any]]
Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Budget:
    """Effort of a search: partial sums for each element, and the seed of random orders."""

    sums: int
    seed: int


@dataclass(frozen=True)
class Measured:
    """A measured output.

    Attributes
    ----------
    given
        Values in the dtype of the output, rounded where they do not fit. Those of an fp32 output
        that is given in 16 bits stay: such a result was rounded afterwards, by autograd for
        instance, and computed values are rounded likewise.
    misfits
        Which values were not numbers of the output's dtype.
    """

    given: NDArray[Any]
    misfits: NDArray[np.bool_]


def measured_as(name: str, array: NDArray[Any], output: NDArray[Any]) -> Measured:
    """Return a measured array in the dtype of an output.

    Raises
    ------
    UsageError
        When the shape differs, or an integer output is given as something else.
    """
    if array.shape != output.shape:
        raise UsageError(
            name,
            Text(
                "{name} has the shape {given}, the result {shape}",
                name=name,
                given=str(array.shape),
                shape=str(output.shape),
            ),
            "give the output of the same call",
        )
    if array.dtype == output.dtype:
        return Measured(array, np.broadcast_to(np.False_, array.shape))
    if (array.dtype.kind in "iub") != (output.dtype.kind in "iu"):
        raise UsageError(
            name,
            Text("{name} is {dtype}", name=name, dtype=str(array.dtype)),
            Text("the result is {dtype}", dtype=str(output.dtype)),
        )
    if output.dtype.kind in "iu":
        given = array.astype(output.dtype)
        return Measured(given, given != array)
    if array.dtype.itemsize < output.dtype.itemsize:
        return Measured(array, np.broadcast_to(np.False_, array.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype(np.float32)
    given = narrow_array(single, canonical_dtype(output.dtype))
    wide, values = given.astype(np.float64), array.astype(np.float64)
    return Measured(given, (wide != values) & ~(np.isnan(wide) & np.isnan(values)))


def _rounded_to(dtype: np.dtype[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return computed values in the dtype in which an output is given."""
    if values.dtype == dtype:
        return values
    return narrow_array(values.astype(np.float32), canonical_dtype(dtype))


def equal_bits(array: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where two arrays of a dtype have equal bits; every nan equals every nan."""
    if array.dtype.kind in "iu":
        integers: NDArray[np.bool_] = array == other
        return integers
    same: NDArray[np.bool_] = _bits(array) == _bits(other)
    if not same.all():
        same |= np.isnan(array) & np.isnan(other)
    return same.reshape(array.shape)


def judge(
    call: StudyCall,
    measured: Mapping[str, NDArray[Any]],
    budget: Budget,
    report: Report,
    search: bool = True,
) -> dict[str, OutputVerdict]:
    """Return the verdicts on measured outputs of a call.

    Without ``search``, elements that depend on timing and differ from the named orders stay
    undecided.
    """
    call = call.with_options(core_order="sequential", seed=0)
    result = call.run()
    named: dict[str, Outputs] = {}
    verdicts = {}
    for name, array in measured.items():
        if name not in result.outputs:
            raise UsageError(
                name,
                Text("{name} is given, but this call does not write it", name=name),
                "leave it out",
            )
        output = result.outputs[name]
        measured_output = measured_as(name, array, output)
        expected = _rounded_to(measured_output.given.dtype, output)
        timing = order_dependent(result, name)
        elements = np.zeros(expected.shape, np.uint8)
        order, rules = "", tuple[OpenRule, ...]()
        if _same_bytes(array, expected):
            order = "sequential" if result.order_dependent[name].count else ""
        else:
            same = equal_bits(measured_output.given, expected) & ~measured_output.misfits
            order = _named_order(call, measured_output, same, timing, name, named)
            if not order:
                elements[~same] = UNREACHABLE
                elements[timing & same] = REACHABLE
                unsettled = timing & ~same & ~measured_output.misfits
                elements[unsettled] = UNDECIDED
                if search and unsettled.any():
                    _search(
                        call,
                        result,
                        name,
                        measured_output.given,
                        unsettled,
                        elements,
                        budget,
                        report,
                    )
            rules = _apply_rules(call, result, name, measured_output, elements)
        examine = partial(_examine, call, result, name, measured_output.given, budget)
        rounded_from = "" if expected is output else canonical_dtype(output.dtype)
        verdicts[name] = OutputVerdict(
            output=name,
            elements=elements,
            given=measured_output.given,
            expected=expected,
            order_dependent=timing,
            misfits=measured_output.misfits,
            order=order,
            rules=rules,
            examine=examine,
            rounded_from=rounded_from,
        )
    return verdicts


def _same_bytes(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays of a shape have the same dtype and bytes."""
    if array.dtype != other.dtype:
        return False
    first, second = (_bits(side) for side in (array, other))
    return np.array_equal(first, second)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of an array as unsigned integers."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _named_order(
    call: StudyCall,
    measured_output: Measured,
    same: NDArray[np.bool_],
    timing: NDArray[np.bool_],
    name: str,
    runs: dict[str, Outputs],
) -> str:
    """Return the order of arrival that gives all bits of an output; empty if no named one does.

    ``same`` says which elements have the bits of the sequential order.
    """
    if not timing.any() or not same[~timing].all():
        return ""
    if same.all():
        return "sequential"
    for order in NAMED_ORDERS:
        if order not in runs:
            runs[order] = call.with_options(core_order=order).run().outputs
        expected = _rounded_to(measured_output.given.dtype, runs[order][name])
        if not measured_output.misfits.any() and equal_bits(measured_output.given, expected).all():
            return order
    return ""


def order_dependent(result: Result, name: str) -> NDArray[np.bool_]:
    """Return which elements of an output depend on the order of arrival, as a read-only view."""
    output, mask = result.outputs[name], result.order_dependent[name].mask.reshape(-1, 1)
    if mask.size == 0:
        return np.zeros(output.shape, np.bool_)
    return np.broadcast_to(mask, (mask.size, output.size // mask.size)).reshape(output.shape)


def _apply_rules(
    call: StudyCall,
    result: Result,
    name: str,
    measured_output: Measured,
    elements: NDArray[np.uint8],
) -> tuple[OpenRule, ...]:
    """Make elements undecided that a part of the rule allows which is not published.

    Returns these parts; none when no element needs them.
    """
    doubtful = (elements >= UNDECIDED) & ~measured_output.misfits
    if not doubtful.any():
        return ()
    with np.errstate(all="ignore"):
        rules = tuple(rule for rule in _open_rules(call, result) if rule.output == name)
        if measured_output.given.dtype != result.outputs[name].dtype:
            rules = tuple(_rounded_rule(rule, measured_output.given.dtype) for rule in rules)
    if rules:
        allowed = np.logical_or.reduce([allows(rule, measured_output.given) for rule in rules])
        elements[doubtful & allowed] = UNDECIDED
    return rules


def _rounded_rule(rule: OpenRule, dtype: np.dtype[Any]) -> OpenRule:
    """Return a rule for values that are rounded to a dtype; rounding is monotonic."""
    lowest, highest = _rounded_to(dtype, rule.lowest), _rounded_to(dtype, rule.highest)
    return replace(rule, lowest=lowest, highest=highest)


def _open_rules(call: StudyCall, result: Result) -> list[OpenRule]:
    """Return the parts of a call's rule that are not published or not modelled."""
    rules: list[OpenRule] = []
    if call.operator.has_hook("open_rules"):
        rules += call.operator.hook("open_rules")(call, result)
    return rules + [
        OpenRule(name, np.array(-np.inf), np.array(np.inf), caveat.message)
        for caveat in (*result.caveats, *result.plan.caveats)
        if caveat.code in NOT_MODELLED
        for name in result.outputs
        if NOT_MODELLED[caveat.code] in ("", name)
    ]


def parts_of(call: StudyCall, result: Result, name: str) -> Iterator[tuple[Parts, NDArray[Any]]]:
    """Yield the contributions to an output, with the flat index of each part's first element."""
    if not call.operator.has_hook("parts"):
        return
    shape = result.outputs[name].shape
    for parts in call.operator.hook("parts")(call, result, name):
        firsts = [
            int(np.ravel_multi_index(parts.locate(part, 0), shape)) for part in range(parts.count)
        ]
        yield parts, np.array(firsts, np.int64)


def _contributions(parts: Parts) -> Contributions:
    return Contributions(parts.values, parts.starts, parts.cores, parts.keys, parts.factors)


def _finish(call: StudyCall, output: NDArray[Any]) -> Finish:
    largest = FORMATS[canonical_dtype(output.dtype)].largest_finite
    stored = storage_view(np.empty(0, output.dtype))
    return Finish(stored, float(largest) if call.profile.saturates else 0.0)


VERDICT_OF = {
    arrival_search.REACHED: REACHABLE,
    arrival_search.EXCLUDED_BY_ALL: UNREACHABLE,
    arrival_search.EXCLUDED_BY_INTERVAL: UNREACHABLE,
    arrival_search.NOT_FOUND: UNDECIDED,
}


def _search(
    call: StudyCall,
    result: Result,
    name: str,
    given: NDArray[Any],
    wanted: NDArray[np.bool_],
    elements: NDArray[np.uint8],
    budget: Budget,
    report: Report,
) -> None:
    """Write the verdicts on the wanted elements, which depend on the order of arrival."""
    flat = elements.reshape(-1)
    if call.operator.has_hook("writes"):
        for rows, values in call.operator.hook("writes")(call, result, name):
            values = _rounded_to(given.dtype, values)
            found = equal_bits(values, np.broadcast_to(given[rows], values.shape)).any(axis=0)
            elements[rows] = np.where(
                wanted[rows], np.where(found, REACHABLE, UNREACHABLE), elements[rows]
            )
        return
    finish, total, done = _finish(call, given), int(np.count_nonzero(wanted)), 0
    verdict_of = np.array([VERDICT_OF[how] for how in range(len(VERDICT_OF))], np.uint8)
    for parts, firsts in parts_of(call, result, name):
        places = firsts[:, None] + np.arange(parts.values.shape[1])
        chosen = np.argwhere(wanted.reshape(-1)[places])
        for begin in range(0, len(chosen), ELEMENTS_TOGETHER):
            batch = np.ascontiguousarray(chosen[begin : begin + ELEMENTS_TOGETHER])
            positions = places[batch[:, 0], batch[:, 1]]
            targets = widen_array(given.reshape(-1)[positions])
            outcome, _ = arrival_search.search(
                _contributions(parts), batch, targets, finish, budget.sums, budget.seed
            )
            flat[positions] = verdict_of[outcome.how]
            done += len(batch)
            report(name, done / total)


def _examine(
    call: StudyCall,
    result: Result,
    name: str,
    given: NDArray[Any],
    budget: Budget,
    index: tuple[int, ...],
) -> Examined | None:
    """Return what is known of one order-dependent element; None without contributions."""
    if call.operator.has_hook("writes"):
        return _examine_writes(call.operator, call, result, name, given, index)
    flat = int(np.ravel_multi_index(index, given.shape))
    for parts, firsts in parts_of(call, result, name):
        columns = parts.values.shape[1]
        holding = np.flatnonzero((firsts <= flat) & (flat < firsts + columns))
        if holding.size == 0:
            continue
        part = int(holding[0])
        column, finish = flat - int(firsts[part]), _finish(call, given)
        targets = widen_array(given[index].reshape(1))
        outcome, trail = arrival_search.search(
            _contributions(parts),
            np.array([[part, column]], np.int64),
            targets,
            finish,
            budget.sums,
            budget.seed,
            prove=False,
        )
        begin, stop = int(parts.starts[part]), int(parts.starts[part + 1])
        how = int(outcome.how[0])
        if how == arrival_search.REACHED:
            order: NDArray[Any] | None = trail[: stop - begin]
        elif (order := _named_arrival(parts, part, column, given[index])) is not None:
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


def _examine_writes(
    operator: Operator,
    call: StudyCall,
    result: Result,
    name: str,
    given: NDArray[Any],
    index: tuple[int, ...],
) -> Examined | None:
    """Return what is known of an element of which the last write survives."""
    for rows, values in operator.hook("writes")(call, result, name):
        if rows != index[: len(rows)]:
            continue
        writes = values[(slice(None), *index[len(rows) :])]
        writes = _rounded_to(given.dtype, writes).astype(np.float64)
        nearest = writes[np.argmin(np.abs(writes - float(given[index])))]
        low, high = float(writes.min()), float(writes.max())
        return Examined(None, float(nearest), low, high, len(writes), len(writes), ())
    return None
