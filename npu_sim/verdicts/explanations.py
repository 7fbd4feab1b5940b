"""Alternatives that may explain unreachable elements: each is simulated, and its bits compared."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework import hooks
from npu_sim.kernels.elementwise import narrow_array, round_to_hf32, widen_array
from npu_sim.language import Text
from npu_sim.operators.shared.study import StudyCall
from npu_sim.releases import release_names
from npu_sim.status import NO_PLAN, NpuSimError
from npu_sim.verdicts.answers import REACHABLE, UNREACHABLE, Explanation, OutputVerdict
from npu_sim.verdicts.arrivals import Budget, Report
from npu_sim.verdicts.judging import judge

MOST_EXPLANATIONS = 5
"""Explanations that are listed."""
MOST_SUMS = 1 << 14
"""Partial sums for an element of an alternative, at most."""
ROUNDED_TO = ("bfloat16", "float16", "hf32")
"""Formats that inputs may have been rounded to."""

Alternatives = Iterator[tuple[str, StudyCall]]


def explained(
    call: StudyCall,
    verdict: OutputVerdict,
    array: NDArray[Any],
    tried: Collection[Any],
    budget: Budget,
    report: Report,
) -> tuple[Explanation, ...]:
    """Return the alternatives that can have produced at least half of the unreachable elements.

    Parameters
    ----------
    call
        The call, on the device of the verdict.
    verdict, array
        Verdict on one output, and that output as it was given.
    tried
        Keys of the calls that were compared already; see :func:`computation_key`.
    budget, report
        As for :func:`npu_sim.verdicts.judging.judge`.
    """
    total = verdict.counts["unreachable"]
    if not total:
        return ()
    name, unreachable = verdict.output, verdict.elements == UNREACHABLE
    found: dict[str, Explanation] = {}
    smaller = Budget(min(budget.sums, MOST_SUMS), budget.seed)
    for text, changed in alternatives(call, verdict, tried):
        report(text, 0.0)
        try:
            other = judge(changed, {name: array}, smaller, report)[name]
        except NpuSimError:  # refused, or of another shape
            continue
        count = int(np.count_nonzero(other.elements[unreachable] <= REACHABLE))
        if 2 * count >= total and text not in found:
            whole = bool((other.elements <= REACHABLE).all())
            found[text] = Explanation(text, count, total, whole)
    best = sorted(
        found.values(), key=lambda explanation: (-explanation.whole, -explanation.explained)
    )
    return tuple(best[:MOST_EXPLANATIONS])


def computation_key(call: StudyCall) -> Any:
    """Return what the bits of a call depend on besides its data and order."""
    case = call.case
    profile = case.profile
    return case.tiling, case.rules, profile.saturates, profile.npu_arch, case.deterministic


def alternatives(call: StudyCall, verdict: OutputVerdict, tried: Collection[Any]) -> Alternatives:
    """Yield name and call of every alternative."""
    yield from _devices(call, tried)
    if verdict.misfits.any():
        yield from _kept_in_fp32(call)
    yield from _rounded_inputs(call)
    yield from _attributes(call)
    if call.operator.has_hook(hooks.MISCOUNTED):
        index = next(at for at in verdict.worst if verdict.elements[at] == UNREACHABLE)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = verdict.given.astype(np.float64) - verdict.expected.astype(np.float64)
        yield from call.operator.hook(hooks.MISCOUNTED)(call, verdict.output, index, difference)


def _devices(call: StudyCall, tried: Collection[Any]) -> Alternatives:
    """Yield the call in the other mode, at other releases and on other SoCs of the product."""
    profile, mode = call.profile, not call.options["deterministic"]
    switched = call.with_options(deterministic=mode)
    for key, (changed, _) in _by_key({"": switched}).items():
        if key not in tried:
            yield (
                "deterministic computation on" if mode else "deterministic computation off",
                changed,
            )
    releases = {
        name: replace(call, profile=profile.with_release(name))
        for name in reversed(release_names())
    }
    socs = {name: replace(call, profile=profile.with_soc(name)) for name in profile.product.socs}
    for template, calls in (("release {names}", releases), ("SoC {names}", socs)):
        for key, (changed, names) in _by_key(calls).items():
            if key not in tried:
                yield Text(template, names=", ".join(names)), changed


def _by_key(calls: Mapping[str, StudyCall]) -> dict[Any, tuple[StudyCall, list[str]]]:
    """Return calls that compute differently with the names of all that compute alike.

    Calls without a plan are left out.
    """
    found: dict[Any, tuple[StudyCall, list[str]]] = {}
    for name, call in calls.items():
        try:
            found.setdefault(computation_key(call), (call, []))[1].append(name)
        except NO_PLAN:
            continue
    return found


def _floating(call: StudyCall) -> dict[str, NDArray[Any]]:
    """Return the floating-point inputs."""
    names = [name for name in call.operator.floating if name in call.tensors]
    return {name: call.tensors[name] for name in names}


def _kept_in_fp32(call: StudyCall) -> Alternatives:
    """Yield the call with 16-bit inputs as fp32, so that results are not rounded to 16 bits."""
    wide = {
        name: array.astype(np.float32)
        for name, array in _floating(call).items()
        if array.dtype.itemsize == 2
    }
    if wide:
        yield "fp32 results that were not rounded to 16 bits", call.with_tensors(**wide)


def _rounded_inputs(call: StudyCall) -> Alternatives:
    """Yield the call with fp32 inputs that were rounded to another format before."""
    single = {n: array for n, array in _floating(call).items() if array.dtype == np.float32}
    for name in ROUNDED_TO if single else ():
        rounded = {
            tensor: round_to_hf32(array)
            if name == "hf32"
            else widen_array(narrow_array(array, name))
            for tensor, array in single.items()
        }
        yield Text("inputs rounded to {dtype} before", dtype=name), call.with_tensors(**rounded)


def _attributes(call: StudyCall) -> Alternatives:
    """Yield the call with an attribute ignored, and with the other math types."""
    for attribute in call.operator.attributes:
        given = call.attributes.get(attribute.name, attribute.default)
        if not attribute.required and given != attribute.default:
            changed = call.with_attributes(**{attribute.name: attribute.default})
            yield Text("{attribute} ignored", attribute=attribute.name), changed
    if call.operator.has_hook(hooks.VARIANTS):
        for name, _, changed in call.operator.hook(hooks.VARIANTS)(call):
            yield name, changed
