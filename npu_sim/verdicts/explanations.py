"""What impossible elements have in common, and alternatives that may explain them.

Common properties are, among others, places, bits, a ratio or a format. An alternative is simulated,
and its bits are compared.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.cores import all_socs, release_names, shipped_products
from npu_sim.framework.operator import MISCOUNTED, PARTS, UNFUSED, VARIANTS
from npu_sim.kernels.shared.elementwise import narrow_array, round_to_hf32, widen_array
from npu_sim.language import Text, joined
from npu_sim.numbers.arrays import Array, Dtype
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.study import StudyCall
from npu_sim.operators.shared.unfused import Ends
from npu_sim.plans.answers import Progress
from npu_sim.status import NO_PLAN, NpuSimError
from npu_sim.verdicts.answers import (
    REACHABLE,
    UNDECIDED,
    UNREACHABLE,
    Explanation,
    OutputVerdict,
    bits_of,
    equal_bits,
)
from npu_sim.verdicts.judging import Budget, judge, order_dependent, rounded_to
from npu_sim.verdicts.mistakes import mistaken_calls

LEAST_ELEMENTS = 4
"""Elements from which a common ratio, offset or format is no coincidence."""
MOST_PLACES = 5
"""Rows, columns or cores that are named."""
MOST_OF_ALL = 0.25
"""Part of all rows, columns or cores up to which the elements are said to lie in some of them."""
MOST_EXCEPTIONS = 0.05
"""Part of the elements that a common ratio or offset may not hold for: sums that cancel."""
PLACES = (
    "all in {count} of {total} rows: {places}; {elements} of their {all} elements",
    "all in {count} of {total} columns: {places}; {elements} of their {all} elements",
)
"""Sentences on rows and columns."""
TOLERANCE = {"float32": 2.0**-17, "float16": 2.0**-8, "bfloat16": 2.0**-5}
"""Relative error within which ratios and offsets are common; another order changes less."""


def patterns(call: StudyCall, verdict: OutputVerdict) -> tuple[str, ...]:
    """Return the common properties of the impossible elements of an output, as sentences."""
    wrong = verdict.elements == UNREACHABLE
    if not wrong.any() or verdict.given.ndim == 0:
        return ()
    found = list(_places(call, verdict, wrong))
    if verdict.given.dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            found += _values(verdict, wrong)
    return tuple(found)


def _places(call: StudyCall, verdict: OutputVerdict, wrong: NDArray[np.bool_]) -> Iterator[str]:
    """Yield the few rows, columns or cores that have all impossible elements."""
    table = wrong.reshape(-1, wrong.shape[-1])
    for axis, text in enumerate(PLACES):
        counts = table.sum(axis=1 - axis)
        hit = np.flatnonzero(counts)
        least = hit.size * min(LEAST_ELEMENTS, table.shape[1 - axis])
        if _is_few(hit.size, counts.size) and counts.sum() >= max(2, least):
            yield Text(
                text,
                count=hit.size,
                total=counts.size,
                places=some_of(hit.tolist()),
                elements=int(counts.sum()),
                all=hit.size * table.shape[1 - axis],
            )
    yield from _cores(call, verdict, table)


def _cores(call: StudyCall, verdict: OutputVerdict, table: NDArray[np.bool_]) -> Iterator[str]:
    """Yield the few cores that compute all impossible elements: cores take ranges of samples."""
    if samples_of(call, verdict) != 0 or verdict.order_dependent.any():
        return
    work = call.run().plan.cores
    stops = [stop for core in work for _, stop in list(core.ranges.values())[:1]]
    rows = np.flatnonzero(table.any(axis=1))
    if not work or max(stops, default=0) != len(table) or rows.size < 2:
        return
    cores = np.unique(np.searchsorted(stops, rows, side="right"))
    if _is_few(cores.size, len(work)):
        yield Text(
            "all in rows of {count} of {total} cores: {places}",
            count=cores.size,
            total=len(work),
            places=some_of(cores.tolist()),
        )


def samples_of(call: StudyCall, verdict: OutputVerdict) -> int | None:
    """Return the axis along which samples lie in an output; None if it is a sum over them."""
    outputs = {output.output: output for output in call.operator.outputs}
    return outputs[verdict.output].sample_axis(call.arguments)


def _is_few(count: int, total: int) -> bool:
    return 0 < count <= max(1, int(total * MOST_OF_ALL)) and total > 1


def some_of(names: Sequence[object], most: int = MOST_PLACES) -> str:
    """Return at most ``most`` names, and the number of the others."""
    named, more = joined(map(str, names[:most]), ", "), len(names) - most
    return named if more <= 0 else Text("{named} and {more} more", named=named, more=more)


def _values(verdict: OutputVerdict, wrong: NDArray[np.bool_]) -> Iterator[str]:
    """Yield the common properties of the values of impossible elements."""
    given, expected = verdict.given[wrong], verdict.expected[wrong]
    bits = np.unique(bits_of(given) ^ bits_of(expected))
    if bits.size == 1 and int(bits[0]).bit_count() == 1:
        position = int(bits[0]).bit_length() - 1
        yield Text("one bit differs from the computed value: bit {bit}", bit=position)
    if given.size < LEAST_ELEMENTS:
        return
    if equal_bits(given, np.broadcast_to(given[0], given.shape)).all():
        yield Text("all have one value: {value}", value=str(given[0]))
        return
    yield from _relation(given.astype(np.float64), expected.astype(np.float64), given.dtype)
    if given.dtype == np.float32 and np.isfinite(given).all():
        for name in ("bfloat16", "float16"):
            if representable(given, name) and not representable(expected, name):
                yield Text("all are values of {dtype}; not the computed ones", dtype=name)
                return


def representable(values: Array, dtype: str) -> bool:
    """Return whether fp32 values are all representable in a 16-bit dtype."""
    return bool(equal_bits(narrow_array(values, dtype).astype(np.float32), values).all())


def _relation(
    given: NDArray[np.float64], expected: NDArray[np.float64], dtype: Dtype
) -> Iterator[str]:
    """Yield a ratio, or else an offset, that nearly all values have to the computed ones."""
    tolerance = TOLERANCE[canonical_dtype(dtype)]
    size = np.abs(given) + np.abs(expected)
    ratio = ratio_of(given, expected)
    held = _held(given, ratio * expected, tolerance * size)
    if held and abs(ratio - 1) > 4 * tolerance:
        yield Text(
            "{held} are {ratio} times the computed values", held=held, ratio=_ratio_text(ratio)
        )
        return
    offset = finite_median(given - expected)
    held = _held(given, expected + offset, tolerance * (size + abs(offset)))
    if held and abs(offset) > 16 * tolerance * finite_median(size):
        yield Text(
            "{held} are {offset} beside the computed values", held=held, offset=f"{offset:+.6g}"
        )


def ratio_of(given: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the median ratio of values to the computed ones; 1 without any."""
    ratio = finite_median(given / np.where(expected == 0, np.nan, expected))
    return 1.0 if np.isnan(ratio) else ratio


def finite_median(values: NDArray[np.float64]) -> float:
    """Return the median of the finite values; nan without any."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _held(
    given: NDArray[np.float64], predicted: NDArray[np.float64], radius: NDArray[np.float64]
) -> str:
    """Return the number of values near the predicted ones as text; empty for too few."""
    near = int((np.abs(given - predicted) <= radius).sum())
    if given.size < LEAST_ELEMENTS or near < (1 - MOST_EXCEPTIONS) * given.size:
        return ""
    if near == given.size:
        return Text("all")
    return Text("{near} of {count}", near=near, count=given.size)


def _ratio_text(ratio: float) -> str:
    inverse = 1 / ratio if ratio else 0.0
    if abs(inverse) > 1.5 and abs(inverse - round(inverse)) < 1e-3 * abs(inverse):
        return f"1/{round(inverse)}"
    return f"{ratio:.6g}"


MOST_EXPLANATIONS = 5
"""Explanations that are listed."""
MOST_SUMS = 1 << 14
"""Partial sums for an element of an alternative, at most."""
PART_OF_BUDGET = 16
"""Part of the budget of the whole call that one alternative may take."""
SAMPLE = 48
"""Elements that are searched first: as many impossible as possible ones."""
ROUNDED_TO = ("bfloat16", "float16", "hf32")
"""Formats that inputs may have been rounded to."""
MOST_RATIO = 1 << 16
"""Largest number that a result is divided or multiplied by."""
HALF_ORDERS = 12
"""Orders that are tried of each half of a batch; every pair is compared."""
NAMED_SOCS = 3
"""SoCs that an alternative names."""

Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_] | None


class Alternative(NamedTuple):
    """What may have happened instead.

    Attributes
    ----------
    text
        What differs from the call.
    judged
        ``judged(among)`` returns the codes of the output's elements there; elements outside the
        mask that need a search may stay undecided. Raises NpuSimError for a call that is refused.
    """

    text: str
    judged: Callable[[Mask], Codes]


Alternatives = Iterator[Alternative]


class _Question(NamedTuple):
    """An output with unreachable elements.

    Attributes
    ----------
    call
        The call, on the device of the verdict.
    verdict, array
        Verdict on the output, and the output as it was given.
    tried
        Keys of the calls that were compared already; see :func:`computation_key`.
    """

    call: StudyCall
    verdict: OutputVerdict
    array: Array
    tried: Collection[Any]
    budget: Budget

    @property
    def unreachable(self) -> NDArray[np.bool_]:
        """The elements to explain."""
        mask: NDArray[np.bool_] = self.verdict.elements == UNREACHABLE
        return mask

    def alternative(
        self,
        text: str,
        call: StudyCall | None = None,
        results: Sequence[Array] = (),
        initial: NDArray[np.float32] | None = None,
    ) -> Alternative:
        """Return an alternative: another call, results of which one became the output, or both.

        - ``initial``: what the memory held to which cores added.
        """
        judged = partial(self._codes, call or self.call, results or [self.array], initial)
        return Alternative(text, judged)

    def _codes(
        self,
        call: StudyCall,
        results: Sequence[Array],
        initial: NDArray[np.float32] | None,
        among: Mask,
    ) -> Codes:
        name, budget = self.verdict.output, self.budget.part(PART_OF_BUDGET, MOST_SUMS)
        codes: Codes = np.minimum.reduce(
            [
                judge(call, {name: array}, budget, among=among, initial=initial)[name].elements
                for array in results
            ]
        )
        return codes


def explained(
    call: StudyCall,
    verdict: OutputVerdict,
    array: Array,
    tried: Collection[Any],
    budget: Budget,
    report: Progress,
) -> tuple[Explanation, ...]:
    """Return the alternatives that can have produced at least half of the unreachable elements.

    One that makes as many other elements impossible explains nothing; where one gives the whole
    output, those that do not are left out. A sample of the elements is searched first, all of them
    where half of the sample is explained.

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
    if verdict.possible:
        return ()
    question = _Question(call, verdict, array, tried, budget)
    sample = _sample(verdict)
    found: dict[str, Explanation] = {}
    for number, alternative in enumerate(_alternatives(question)):
        report(alternative.text, number / (number + 10))  # how many follow is not known
        try:
            explanation = _explanation(alternative, verdict, sample)
            if explanation is not None:
                explanation = _explanation(alternative, verdict, None)
        except NpuSimError:  # refused, or of another shape
            continue
        if explanation is not None:
            found.setdefault(alternative.text, explanation)
    whole = [explained for explained in found.values() if explained.whole]
    best = whole or sorted(
        found.values(), key=lambda explained: explained.impossible - explained.explained
    )
    return tuple(best[:MOST_EXPLANATIONS])


def _sample(verdict: OutputVerdict) -> NDArray[np.bool_]:
    """Return a mask of SAMPLE impossible elements and of as many others that depend on timing."""
    unreachable = verdict.elements == UNREACHABLE
    sample = np.zeros(verdict.elements.size, np.bool_)
    for mask in (unreachable, verdict.order_dependent & ~unreachable):
        places = np.flatnonzero(mask)
        chosen = np.linspace(0, max(0, places.size - 1), min(SAMPLE, places.size))
        sample[places[chosen.astype(np.int64)]] = True
    return sample.reshape(verdict.elements.shape)


def _explanation(
    alternative: Alternative, verdict: OutputVerdict, among: Mask
) -> Explanation | None:
    """Return what an alternative explains of the elements in a mask; None if too little."""
    with np.errstate(all="ignore"):
        codes = alternative.judged(among)
    unreachable = verdict.elements == UNREACHABLE
    asked = unreachable if among is None else unreachable & among
    count, of = int((codes[asked] <= REACHABLE).sum()), int(asked.sum())
    # In a sample, others are searched as well, in another proportion.
    others = ~unreachable if among is None else ~unreachable & among
    impossible = int((codes[others] == UNREACHABLE).sum())
    if 2 * count < of or (among is None and impossible >= count):
        return None
    whole = among is None and bool((codes <= REACHABLE).all())
    return Explanation(alternative.text, count, of, whole, impossible)


def computation_key(call: StudyCall) -> Any:
    """Return what the bits of a call depend on besides its data and order."""
    case = call.case
    profile = case.profile
    return case.tiling, case.rules, profile.saturates, profile.npu_arch, case.deterministic


def _alternatives(question: _Question) -> Alternatives:
    """Yield what may have happened: to the call, to its inputs, and to its result."""
    call, verdict = question.call, question.verdict
    mistakes = mistaken_calls(call, verdict)
    changes = (_devices(question), _formats(question), _inputs(call), mistakes, _variants(call))
    for text, changed in chain(*changes, _miscounted(question)):
        yield question.alternative(text, changed)
    yield from _unfused(question)
    if verdict.given.dtype.kind not in "iu":
        yield from _rounded_results(question)
        yield from _scaled_results(question)
        yield from _halves(question)
        yield from _memory_not_cleared(question)


def _miscounted(question: _Question) -> Iterator[tuple[str, StudyCall]]:
    """Yield the call with a sample added twice, or missing."""
    call, verdict = question.call, question.verdict
    if call.operator.has_hook(MISCOUNTED):
        index = next(at for at in verdict.worst if verdict.elements[at] == UNREACHABLE)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = verdict.given.astype(np.float64) - verdict.expected.astype(np.float64)
        yield from call.operator.hook(MISCOUNTED)(call, verdict.output, index, difference)


def _devices(question: _Question) -> Iterator[tuple[str, StudyCall]]:
    """Yield the call in the other mode, at other releases, on other SoCs and other products."""
    call, tried = question.call, question.tried
    profile, mode = call.profile, not call.options["deterministic"]
    name = "deterministic computation on" if mode else "deterministic computation off"
    switched = {name: call.with_options(deterministic=mode)}
    releases = {
        name: replace(call, profile=profile.with_release(name))
        for name in reversed(release_names())
    }
    socs = {name: replace(call, profile=profile.with_soc(name)) for name in profile.product.socs}
    for product in shipped_products():
        if product != profile.name:
            socs |= _on_product(call, product)
    kinds = (("{names}", switched), ("release {names}", releases), ("SoC {names}", socs))
    for template, calls in kinds:
        for key, (changed, names) in _by_key(calls).items():
            if key not in tried:
                yield Text(template, names=some_of(names, NAMED_SOCS)), changed


def _on_product(call: StudyCall, product: str) -> dict[str, StudyCall]:
    """Return the call on every SoC of another product; none if it does not have the operator."""
    found = {}
    for profile in all_socs(product):
        profile = profile.with_release(call.profile.release)
        try:
            operator = load_operator(call.operator.name).on(profile)
        except NO_PLAN:
            continue
        found[profile.soc] = replace(call, operator=operator, profile=profile)
    return found


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


def _floating(call: StudyCall) -> dict[str, Array]:
    """Return the floating-point inputs."""
    return {name: call.tensors[name] for name in call.operator.floating if name in call.tensors}


def _formats(question: _Question) -> Iterator[tuple[str, StudyCall]]:
    """Yield the call on inputs of another width: fp32 for 16 bits, or 16 bits stored as fp32."""
    call, floating = question.call, _floating(question.call)
    wide = {name: a.astype(np.float32) for name, a in floating.items() if a.dtype.itemsize == 2}
    if wide and question.verdict.misfits.any():
        yield "fp32 results that were not rounded to 16 bits", call.with_tensors(**wide)
    single = {name: array for name, array in floating.items() if array.dtype == np.float32}
    for dtype, short in (("bfloat16", "bf16"), ("float16", "fp16")):
        stored = {
            name: narrow_array(array, dtype)
            for name, array in single.items()
            if representable(array, dtype)
        }
        if stored:
            text = "{dtype} numbers stored as fp32 ({names}): give all files as FILE.npy:{short}"
            names = ", ".join(stored)
            yield Text(text, names=names, dtype=dtype, short=short), call.with_tensors(**stored)


def _inputs(call: StudyCall) -> Iterator[tuple[str, StudyCall]]:
    """Yield the call with fp32 inputs that were rounded before, and without optional inputs."""
    single = {name: a for name, a in call.tensors.items() if a.dtype == np.float32}
    for dtype in ROUNDED_TO:
        rounded = {
            name: round_to_hf32(array)
            if dtype == "hf32"
            else widen_array(narrow_array(array, dtype))
            for name, array in single.items()
        }
        together = {name: rounded[name] for name in _floating(call) if name in rounded}
        if together:
            text = Text("inputs rounded to {dtype} before", dtype=dtype)
            yield text, call.with_tensors(**together)
        for name in rounded if len(rounded) > 1 or not together else ():
            text = Text("{tensor} rounded to {dtype} before", tensor=name, dtype=dtype)
            yield text, call.with_tensors(**{name: rounded[name]})
    optional = [tensor.name for tensor in call.operator.inputs if tensor.optional]
    for name in optional:
        if name in call.tensors:
            rest = {other: array for other, array in call.tensors.items() if other != name}
            yield Text("{attribute} ignored", attribute=name), replace(call, tensors=rest)


def _variants(call: StudyCall) -> Iterator[tuple[str, StudyCall]]:
    """Yield the call with the other math types."""
    if call.operator.has_hook(VARIANTS):
        for name, _, changed in call.operator.hook(VARIANTS)(call):
            yield name, changed


def _unfused(question: _Question) -> Alternatives:
    """Yield the formulas of frameworks, which round where their kernels do."""
    call, verdict = question.call, question.verdict
    if call.operator.has_hook(UNFUSED) and not call.case.empty:
        for text, ends in call.operator.hook(UNFUSED)(call, verdict.output):
            yield Alternative(text, partial(_codes_between, ends, verdict))


def _codes_between(ends: Callable[[], Ends], verdict: OutputVerdict, among: Mask) -> Codes:
    """Return which elements lie between both ends of what a formula can give."""
    low, high = (rounded_to(verdict.given.dtype, end) for end in ends())
    given, least, most = (side.astype(np.float64) for side in (verdict.given, low, high))
    found = ((given >= least) & (given <= most)) | (np.isnan(given) & np.isnan(least))
    return np.where(found & ~verdict.misfits, np.uint8(REACHABLE), np.uint8(UNREACHABLE))


def _rounded_results(question: _Question) -> Alternatives:
    """Yield an fp32 result that was rounded to 16 bits and stored as fp32 again."""
    given = question.verdict.given
    if given.dtype != np.float32:
        return
    for dtype in ("bfloat16", "float16"):
        if representable(given, dtype):
            text = Text("result rounded to {dtype} and stored as fp32", dtype=dtype)
            yield question.alternative(text, results=[narrow_array(given, dtype)])


def _scaled_results(question: _Question) -> Alternatives:
    """Yield a result that was divided or multiplied by an integer: the size of a world."""
    verdict = question.verdict
    given, expected = (
        side[question.unreachable].astype(np.float64) for side in (verdict.given, verdict.expected)
    )
    with np.errstate(all="ignore"):
        ratio = abs(ratio_of(given, expected))
    if not 0 < ratio < np.inf:
        return
    number = round(max(ratio, 1 / ratio))
    if not 2 <= number <= MOST_RATIO:
        return
    text = "result multiplied by {number}" if ratio > 1 else "result divided by {number}"
    results = _unscaled(verdict.given, number, ratio > 1)
    yield question.alternative(Text(text, number=number), results=results)


def _unscaled(given: Array, number: int, multiplied: bool) -> list[Array]:
    """Return results that give some values when they are multiplied, or divided, by a number.

    The nearest three are tried; those that do not are nan.
    """
    dtype, single = given.dtype, np.float32(number)
    with np.errstate(all="ignore"):
        wide = given.astype(np.float32)
        nearest = rounded_to(dtype, wide / single if multiplied else wide * single)
        found = []
        for step in (0, 1, -1):
            bits = nearest.view(f"i{nearest.itemsize}") + np.array(step, f"i{nearest.itemsize}")
            result = bits.view(dtype)
            before = result.astype(np.float32)
            again = rounded_to(dtype, before * single if multiplied else before / single)
            found.append(np.where(equal_bits(again, given), result, np.array(np.nan, dtype)))
    return found


def _halves(question: _Question) -> Alternatives:
    """Yield the sum of the results of both halves of a batch: two micro-batches."""
    call = question.call
    sampled = {
        tensor.name: axis
        for tensor in call.operator.inputs
        if (axis := tensor.sample_axis(call.arguments)) is not None and tensor.name in call.tensors
    }
    if samples_of(call, question.verdict) is not None or not sampled:
        return
    sizes = {call.tensors[name].shape[axis] for name, axis in sampled.items()}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return
    halves = [
        call.with_tensors(
            **{
                name: np.ascontiguousarray(np.take(call.tensors[name], part, axis=axis))
                for name, axis in sampled.items()
            }
        )
        for part in np.split(np.arange(size), [size // 2])
    ]
    text = "the results of both halves of the batch, added (micro-batches)"
    yield Alternative(text, partial(_codes_of_sum, halves, question))


def _codes_of_sum(halves: Sequence[StudyCall], question: _Question, among: Mask) -> Codes:
    """Return which elements are sums of results of both halves, in some orders of arrival.

    That no pair of orders was found is a proof only where nothing depends on the order.
    """
    name, given = question.verdict.output, question.verdict.given
    results: list[list[Array]] = []
    timing = np.zeros(given.shape, np.bool_)
    for half in halves:
        runs = [half.run()]
        depends = order_dependent(runs[0], name)
        if depends.any():
            timing |= depends
            runs += [
                half.with_options(core_order="random", seed=seed).run()
                for seed in range(HALF_ORDERS - 1)
            ]
        results.append([run.outputs[name].astype(np.float32) for run in runs])
    codes: Codes = np.where(timing, np.uint8(UNDECIDED), np.uint8(UNREACHABLE))
    for first in results[0]:
        for second in results[1]:
            codes[equal_bits(rounded_to(given.dtype, first + second), given)] = REACHABLE
    return codes


def _memory_not_cleared(question: _Question) -> Alternatives:
    """Yield the result added to what the memory held: a constant, or the result of a call before.

    Only outputs to which cores add are written so.
    """
    verdict, call = question.verdict, question.call
    if (
        verdict.given.dtype != np.float32
        or not call.operator.has_hook(PARTS)
        or samples_of(call, verdict) is not None
    ):
        return
    held: dict[str, NDArray[np.float32]] = {
        "added to the result of an equal call: memory was not cleared": verdict.expected
    }
    for value in _common_offsets(question):
        name = Text("added to {value} in memory that was not cleared", value=f"{value:g}")
        held.setdefault(name, np.full(verdict.given.shape, value, np.float32))
    for text, initial in held.items():
        yield question.alternative(text, initial=initial)


def _common_offsets(question: _Question) -> list[np.float32]:
    """Return the median offset of the unreachable elements, and before it the same in 3 digits.

    Of a few elements, any offset would be the median of some; equal values need no offset.
    """
    given, expected = (
        side[question.unreachable].astype(np.float64)
        for side in (question.verdict.given, question.verdict.expected)
    )
    with np.errstate(all="ignore"):
        offset = finite_median(given - expected)
    if given.size < LEAST_ELEMENTS or np.ptp(given) == 0 or not offset or np.isnan(offset):
        return []
    return [np.float32(f"{offset:.3g}"), np.float32(offset)]
