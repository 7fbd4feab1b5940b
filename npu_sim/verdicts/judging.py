"""Verdicts on the outputs of one call on one device."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.execution import Result
from npu_sim.framework.operator import OPEN_RULES
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.language import Text
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import OpenRule
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError
from npu_sim.verdicts.answers import (
    REACHABLE,
    UNDECIDED,
    UNREACHABLE,
    OutputVerdict,
    allows,
    bits_of,
    equal_bits,
)
from npu_sim.verdicts.arrivals import Budget, MeasuredOutput, rounded_to, silent

NAMED_ORDERS = ("reverse", "round_robin")
"""Orders that a whole output is compared with, besides the sequential one."""


def measured_as(
    name: str, array: NDArray[Any], output: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
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
            Text(
                "{name} has the shape {given}, the result {shape}",
                name=name,
                given=str(array.shape),
                shape=str(output.shape),
            ),
            "give the output of the same call",
        )
    if array.dtype == output.dtype:
        return array, np.broadcast_to(np.False_, array.shape)
    if (array.dtype.kind in "iub") != (output.dtype.kind in "iu"):
        raise UsageError(
            name,
            Text("{name} is {dtype}", name=name, dtype=str(array.dtype)),
            Text("the result is {dtype}", dtype=str(output.dtype)),
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
    measured: Mapping[str, NDArray[Any]],
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
    named: dict[str, Mapping[str, NDArray[Any]]] = {}
    verdicts = {}
    for name, array in measured.items():
        if name not in result.outputs:
            raise UsageError(
                name,
                Text("{name} is given, but this call does not write it", name=name),
                "leave it out",
            )
        computed = result.outputs[name]
        given, misfits = measured_as(name, array, computed)
        expected = rounded_to(given.dtype, computed if initial is None else computed + initial)
        output = MeasuredOutput(call, result, name, given, budget, initial)
        timing = order_dependent(result, name)
        codes = np.zeros(expected.shape, np.uint8)
        cut_short = np.zeros(expected.shape, np.bool_)
        order, rules = "", tuple[OpenRule, ...]()
        if _same_bytes(array, expected):
            order = "sequential" if result.order_dependent[name].count else ""
        else:
            same = equal_bits(given, expected) & ~misfits
            if timing.any() and (same | timing).all() and not misfits.any():
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


def _same_bytes(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays of a shape have the same dtype and bytes."""
    if array.dtype != other.dtype:
        return False
    first, second = (bits_of(side) for side in (array, other))
    return np.array_equal(first, second)


def _named_order(output: MeasuredOutput, runs: dict[str, Mapping[str, NDArray[Any]]]) -> str:
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
        open_rules = _open_rules(output.call, output.result)
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


def _open_rules(call: StudyCall, result: Result) -> list[OpenRule]:
    """Return the parts of a call's rule that are not published or not modelled."""
    rules: list[OpenRule] = []
    if call.operator.has_hook(OPEN_RULES):
        rules += call.operator.hook(OPEN_RULES)(call, result)
    return rules + [
        OpenRule(name, np.array(-np.inf), np.array(np.inf), caveat.message)
        for caveat in (*result.caveats, *result.plan.caveats)
        for name in result.outputs
        if caveat.not_modelled in ("*", name)
    ]
