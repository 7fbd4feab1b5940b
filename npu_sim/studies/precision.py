"""Accuracy of every dtype and math type of a product, and the error of each cause alone.

The golden value is the operator's formula in float64 on inputs that are already rounded to the
dtype (specification page ``precision``). The second implementation of the dual benchmark is the
same formula in float32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.framework import hooks
from npu_sim.kernels.elementwise import narrow_array, ulp_distance, ulp_error
from npu_sim.language import Text
from npu_sim.numbers.formats import FORMATS, canonical_dtype, numpy_dtype
from npu_sim.operators.shared.study import StudyCall, formula_results, study_call
from npu_sim.plans.answers import Printed
from npu_sim.status import AclnnError, without_internal_frames
from npu_sim.studies import verdicts
from npu_sim.studies.worst_element import Term, terms_of

AGAINST_ROUNDED = (
    "errors and verdicts are relative to the formula in float64 on inputs rounded to the "
    "dtype, as the acceptance standards require"
)
AGAINST_GIVEN = (
    "errors of given inputs are relative to the formula in float64 on the inputs as given, and "
    "include the error of rounding them"
)
HISTOGRAM_EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1024.0, float("inf"))
"""Upper edges of the ulp histogram; the first bin counts exact results."""
PLAIN_FIELDS = (
    "variant",
    "output",
    "dtype",
    "max_ulp",
    "mean_ulp",
    "max_ulp_of_given",
    "worst_actual",
    "worst_golden",
)
"""Fields of an output's accuracy that are plain data."""
WORST_TERMS = 8
"""Number of terms listed for the worst element."""


@dataclass(frozen=True)
class Variant:
    """One dtype or math type: its name, the dtype of its verdict, and the call."""

    label: str
    compute: str
    call: StudyCall


@dataclass(frozen=True)
class Cause:
    """Largest error of one cause alone, in ulp of the output's dtype."""

    name: str
    max_ulp: float
    note: str


@dataclass(frozen=True)
class OutputPrecision:
    """Accuracy of one output in one variant.

    ``max_ulp``, ``mean_ulp``, histogram and verdicts compare with the formula in float64 on inputs
    rounded to the dtype, ``max_ulp_of_given`` with the formula on the given inputs.
    """

    variant: str
    output: str
    dtype: str
    max_ulp: float
    mean_ulp: float
    max_ulp_of_given: float
    histogram: tuple[tuple[float, int], ...]
    verdicts: tuple[verdicts.Verdict, ...]
    worst_index: tuple[int, ...]
    worst_actual: float
    worst_golden: float
    worst_terms: tuple[Term, ...]
    causes: tuple[Cause, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data; the last edge of the histogram is None."""
        data = {name: getattr(self, name) for name in PLAIN_FIELDS}
        return {
            **data,
            "histogram": [
                {"up_to_ulp": None if np.isinf(edge) else edge, "elements": count}
                for edge, count in self.histogram
            ],
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "worst_index": list(self.worst_index),
            "worst_terms": [term._asdict() for term in self.worst_terms],
            "causes": [vars(cause) for cause in self.causes],
        }


@dataclass(frozen=True, repr=False)
class PrecisionStudy(Printed):
    """Precision study of one call on one SoC."""

    operator: str
    product: str
    soc: str
    outputs: tuple[OutputPrecision, ...]
    refused: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return {
            "operator": self.operator,
            "product": self.product,
            "soc": self.soc,
            "outputs": [output.as_dict() for output in self.outputs],
            "refused": self.refused,
            "against": {"max_ulp": AGAINST_ROUNDED, "max_ulp_of_given": AGAINST_GIVEN},
            "standards": dict(verdicts.MEANINGS),
        }


@without_internal_frames
def study_precision(
    operator: str, *, progress: Callable[[str, float], None] | None = None, **call: Any
) -> PrecisionStudy:
    """Return the accuracy of every dtype and math type of the product on the given data.

    Parameters
    ----------
    operator
        Name of the operator.
    progress
        Called with the variant and the fraction done.
    **call
        The call as for :func:`npu_sim.run`; its floating tensors are rounded to every dtype.
    """
    base = study_call(operator, call)
    base.operator.hook(hooks.FORMULA)  # raises a UsageError without a formula
    outputs: list[OutputPrecision] = []
    refused: dict[str, str] = {}
    all_variants = list(variants(base))
    for position, variant in enumerate(all_variants):
        if progress is not None:
            progress(variant.label, position / len(all_variants))
        try:
            outputs += measure(variant, base)
        except AclnnError as error:
            refused[variant.label] = error.message
    return PrecisionStudy(
        base.operator.name, base.profile.name, base.profile.soc, tuple(outputs), refused
    )


def variants(base: StudyCall) -> Iterator[Variant]:
    """Yield the variants: every dtype of the product with every math type of the operator."""
    floating = [name for name in base.operator.floating if name in base.tensors]
    for dtype in base.profile.product.dtypes:
        call = base.with_tensors(**{name: _rounded(base.tensors[name], dtype) for name in floating})
        if not base.operator.has_hook(hooks.VARIANTS):
            yield Variant(dtype, dtype, call)
        else:
            for label, compute, typed in base.operator.hook(hooks.VARIANTS)(call):
                yield Variant(Text("{dtype}, {label}", dtype=dtype, label=label), compute, typed)


def _rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    if canonical_dtype(values.dtype) == dtype:
        return values
    return narrow_array(np.asarray(values, np.float32), dtype)


def measure(variant: Variant, base: StudyCall) -> list[OutputPrecision]:
    """Return the accuracy of one variant; integer outputs are exact and not included."""
    call = variant.call
    result = call.run()
    golden = formula_results(call.operator.name, call.arguments, call.tensors)
    second = formula_results(call.operator.name, call.arguments, call.tensors, np.float32)
    original = formula_results(call.operator.name, base.arguments, base.tensors)
    measured = []
    floating = {
        name: values for name, values in result.outputs.items() if values.dtype.kind not in "iu"
    }
    for name, actual in floating.items():
        dtype = canonical_dtype(actual.dtype)
        judged = variant.compute if variant.compute == "hf32" or dtype == "float32" else dtype
        errors = np.where(np.isfinite(golden[name]), ulp_error(actual, golden[name], dtype), 0.0)
        worst: tuple[int, ...] = ()
        if errors.size:
            worst = tuple(map(int, np.unravel_index(int(np.argmax(errors)), errors.shape)))
        rounded_second = second[name].astype(numpy_dtype(dtype))
        measured.append(
            OutputPrecision(
                variant=variant.label,
                output=name,
                dtype=dtype,
                max_ulp=float(errors.max(initial=0.0)),
                mean_ulp=float(errors.mean()) if errors.size else 0.0,
                max_ulp_of_given=_max_ulp(actual, original[name], dtype),
                histogram=_histogram(errors),
                verdicts=(
                    verdicts.mixed_tolerance(actual, golden[name], judged),
                    verdicts.single_benchmark(actual, golden[name], judged),
                    verdicts.dual_benchmark(actual, rounded_second, golden[name], judged),
                ),
                worst_index=worst,
                worst_actual=float(actual[worst]) if errors.size else 0.0,
                worst_golden=float(golden[name][worst]) if errors.size else 0.0,
                worst_terms=terms_of(call, name, worst)[:WORST_TERMS] if errors.size else (),
                causes=_causes(call, name, dtype, golden[name], original[name]),
            )
        )
    return measured


def _histogram(errors: np.ndarray) -> tuple[tuple[float, int], ...]:
    """Return the number of elements up to each edge of the ulp histogram."""
    edges = (-1.0, *(np.nextafter(edge, np.inf) for edge in HISTOGRAM_EDGES))
    counts = np.histogram(errors, edges)[0]
    return tuple(zip(HISTOGRAM_EDGES, counts.tolist(), strict=True))


def _causes(
    call: StudyCall, output: str, dtype: str, golden: np.ndarray, original: np.ndarray
) -> tuple[Cause, ...]:
    """Return the error of one cause at a time."""
    rounded = narrow_array(golden.astype(np.float32), dtype)
    inputs, result = _max_ulp(golden, original, dtype), _max_ulp(rounded, golden, dtype)
    causes = [
        Cause(
            "input rounding", inputs, "the formula in float64 on rounded against original inputs"
        ),
        Cause("final rounding", result, "the float64 result rounded once"),
    ]
    floating = [name for name in call.operator.floating if name in call.tensors]
    is_narrow = canonical_dtype(call.tensors[floating[0]].dtype) != "float32"
    if is_narrow and not call.operator.has_hook(hooks.VARIANTS):
        exact = {name: np.asarray(call.tensors[name], np.float32) for name in floating}
        accumulated = _max_ulp(call.outputs(**exact)[output], golden, dtype)
        note = "fp32 sums and products on the rounded inputs, not rounded again"
        causes.append(Cause("fp32 arithmetic", accumulated, note))
    first = call.with_options(deterministic=False, core_order="sequential").run()
    if output in first.order_dependent and first.order_dependent[output].count:
        other = call.with_options(deterministic=False, core_order="reverse").run().outputs[output]
        distance = float(ulp_distance(first.outputs[output], other, dtype).max(initial=0))
        note = "sequential against reverse arrival of the cores"
        causes.append(Cause("accumulation order", distance, note))
    if call.operator.has_hook(hooks.CAUSES):
        causes += [Cause(*cause) for cause in call.operator.hook(hooks.CAUSES)(call, dtype, golden)]
    if call.profile.saturates:
        count = int(np.count_nonzero(~np.isfinite(rounded.astype(np.float64))))
        note = Text("{count} results beyond the range become the largest finite value", count=count)
        causes.append(Cause("saturation", 0.0, note))
    return tuple(causes)


def _max_ulp(actual: np.ndarray, golden: np.ndarray, dtype: str) -> float:
    """Return the largest error of finite values in ulp of a dtype."""
    finite = np.isfinite(golden) & np.isfinite(actual.astype(np.float64))
    if not finite.any():
        return 0.0
    return float(np.max(_ulp_of(actual.astype(np.float64)[finite], golden[finite], dtype)))


def _ulp_of(actual: np.ndarray, golden: np.ndarray, dtype: str) -> np.ndarray:
    """Return |actual - golden| in ulp of ``dtype``; ``actual`` may have more precision."""
    form = FORMATS[dtype]
    exponent = np.floor(np.log2(np.maximum(np.abs(golden), form.smallest_normal)))
    unit = np.exp2(exponent) * form.epsilon
    distance: np.ndarray = np.abs(actual - golden) / unit
    return distance
