"""Common properties of the impossible elements of an output: places, bits, ratio, format ..."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.elementwise import narrow_array
from npu_sim.language import Text, joined
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators.shared.study import StudyCall
from npu_sim.verdicts.answers import UNREACHABLE, OutputVerdict, bits_of, equal_bits

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


def representable(values: NDArray[Any], dtype: str) -> bool:
    """Return whether fp32 values are all representable in a 16-bit dtype."""
    return bool(equal_bits(narrow_array(values, dtype).astype(np.float32), values).all())


def _relation(
    given: NDArray[np.float64], expected: NDArray[np.float64], dtype: np.dtype[Any]
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
    """Return how many values are near the predicted ones, in words; empty for too few of them."""
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
