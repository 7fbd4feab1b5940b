"""Accuracy of every dtype and math type of a product, and the error of each cause alone.

The golden value is the operator's formula in float64 on inputs that are already rounded to the
dtype (specification page ``precision``). The second implementation of the dual benchmark is the
same formula in float32. Verdicts follow the vendor's acceptance standards (same page): where the
golden value is inf or nan, the result must have the same value, and these elements are not part of
any mean.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import log2
from typing import Any, NamedTuple

import numpy as np

from npu_sim.framework.inference import require_given
from npu_sim.framework.operator import CAUSES, FORMULA, VARIANTS
from npu_sim.kernels.shared.elementwise import narrow_array, round_to_hf32, ulp_distance, ulp_error
from npu_sim.language import Text
from npu_sim.numbers.arrays import Index
from npu_sim.numbers.formats import FORMATS, canonical_dtype, numpy_dtype
from npu_sim.operators.shared.study import StudyCall, formula_results, study_call
from npu_sim.plans.answers import Printed
from npu_sim.status import AclnnError, without_internal_frames
from npu_sim.studies.determinism import Term, terms_of


class Limits(NamedTuple):
    """Limits of one dtype."""

    rtol: float
    atol: float
    limit: float
    """``rtol``, ``atol``, ``limit``: mixed tolerance (page, table 1)."""
    threshold: float
    """T of the single benchmark (page, 2)."""
    small: float
    """Golden magnitudes below this are counted separately (page, 3); half of T."""
    small_error: float
    """Absolute error above which a small value counts (page, 3)."""


LIMITS: dict[str, Limits] = {
    "float16": Limits(2.0**-9, 2.0**-9, 0.1, 2.0**-10, 2.0**-11, 2.0**-16),
    "bfloat16": Limits(2.0**-6, 2.0**-6, 1.0, 2.0**-7, 2.0**-8, 2.0**-16),
    "float32": Limits(2.0**-10, 2.0**-16, 0.01, 2.0**-13, 2.0**-14, 2.0**-30),
    "hf32": Limits(2.0**-9, 2.0**-10, 0.1, 2.0**-11, 2.0**-12, 2.0**-30),
}
"""Limits by dtype. The page has no small magnitude for hf32, which gets half of its T."""
MIXED_SHARE = 0.99
"""Fraction of elements that must be within the tolerance."""
MIXED_ULP = 32
"""An error beyond the limit passes when it is within this many ulp."""
RELATIVE_OFFSET = 1e-7
"""Added to the golden magnitude in relative errors (page, 2)."""
SMALL_RATIO = 2.0
"""Largest ratio of the counts of small values with a large error (page, 3)."""


class Ratios(NamedTuple):
    """Largest ratios of the dual benchmark for one level (page, 3)."""

    mare: float
    mere: float
    rmse: float


LEVELS: dict[str, Ratios] = {
    "L0": Ratios(10, 2, 2),
    "L1": Ratios(5, 1.5, 1.5),
    "L2": Ratios(2, 1.2, 1.2),
}


MEANINGS = {
    "mixed tolerance": Text(
        "passes when {mixed_share} of the elements lie within atol + rtol*|golden| and no "
        "error is beyond both the limit of the dtype and {mixed_ulp} ulp",
        mixed_share=f"{100 * MIXED_SHARE:.0f} %",
        mixed_ulp=MIXED_ULP,
    ),
    "single benchmark": Text(
        "passes when the relative error |result - golden| / (|golden| + 1e-7) is below T on "
        "average and below 10 T everywhere, so one sum that cancels to almost 0 can fail it; "
        "T: {powers}",
        powers=", ".join(
            f"{dtype} 2^{log2(limits.threshold):g}" for dtype, limits in LIMITS.items()
        ),
    ),
    "dual benchmark": Text(
        "passes when largest, mean and RMS error are at most {mare}, {mere} and {rmse} times "
        "those of a second implementation, the formula in float32 rounded once (level L0)",
        mare=f"{LEVELS['L0'].mare:g}",
        mere=f"{LEVELS['L0'].mere:g}",
        rmse=f"{LEVELS['L0'].rmse:g}",
    ),
}
"""Meaning of the verdict of every standard (page, 1 to 3)."""


@dataclass(frozen=True)
class Errors:
    """Errors of one implementation against the golden value."""

    mare: float
    """Largest relative error, ``|a - g| / (|g| + 1e-7)``."""
    mere: float
    """Mean of these relative errors."""
    rmse: float
    """Root of the mean squared absolute error."""
    max_absolute: float
    """Largest absolute error."""
    small_count: int
    """Small golden values whose absolute error is above the limit of the dtype."""


@dataclass(frozen=True)
class Verdict:
    """Verdict of one standard, with the numbers it is based on."""

    standard: str
    passed: bool
    numbers: dict[str, float | int | str]

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return asdict(self)


def errors_of(actual: np.ndarray, golden: np.ndarray, dtype: str, *, apart: bool = False) -> Errors:
    """Return the errors of ``actual`` against ``golden`` (float64).

    With ``apart``, small values do not count in the relative errors.
    """
    values, finite = actual.astype(np.float64), np.isfinite(golden)
    absolute, size = np.abs(values[finite] - golden[finite]), np.abs(golden[finite])
    small = size < LIMITS[dtype].small
    counted = ~small if apart else np.ones_like(small)
    relative = absolute[counted] / (size[counted] + RELATIVE_OFFSET)
    return Errors(
        mare=float(relative.max(initial=0.0)),
        mere=float(relative.mean()) if relative.size else 0.0,
        rmse=float(np.sqrt(np.mean(absolute[counted] ** 2))) if relative.size else 0.0,
        max_absolute=float(absolute.max(initial=0.0)),
        small_count=int(np.count_nonzero(absolute[small] > LIMITS[dtype].small_error)),
    )


def special_values_agree(actual: np.ndarray, golden: np.ndarray, dtype: str) -> bool:
    """Return whether inf and nan are where the golden value, rounded to the dtype, has them."""
    single = golden.astype(np.float32)
    rounded = round_to_hf32(single) if dtype == "hf32" else narrow_array(single, dtype)
    expected, values = rounded.astype(np.float64), actual.astype(np.float64)
    special = ~np.isfinite(expected) | ~np.isfinite(values)
    return bool(np.array_equal(values[special], expected[special], equal_nan=True))


def mixed_tolerance(actual: np.ndarray, golden: np.ndarray, dtype: str) -> Verdict:
    """Return verdict 1: 99 % within ``atol + rtol*|g|``, no error beyond the limit and 32 ulp."""
    rtol, atol, limit, *_ = LIMITS[dtype]
    values, finite = actual.astype(np.float64), np.isfinite(golden)
    absolute = np.abs(values[finite] - golden[finite])
    within = (
        float(np.mean(absolute <= atol + rtol * np.abs(golden[finite]))) if absolute.size else 1.0
    )
    beyond = absolute > limit
    ulps = (
        ulp_error(actual[finite][beyond], golden[finite][beyond], dtype)
        if beyond.any()
        else np.zeros(0)
    )
    worst_ulp = float(np.max(ulps, initial=0.0))
    passed = (
        within >= MIXED_SHARE
        and worst_ulp <= MIXED_ULP
        and special_values_agree(actual, golden, dtype)
    )
    numbers: dict[str, float | int | str] = {
        "rtol": rtol,
        "atol": atol,
        "limit": limit,
        "share_within": within,
        "max_absolute": float(absolute.max(initial=0.0)),
        "max_ulp_beyond_limit": worst_ulp,
    }
    return Verdict("mixed tolerance", passed, numbers)


def single_benchmark(actual: np.ndarray, golden: np.ndarray, dtype: str) -> Verdict:
    """Return verdict 2: mean relative error below T and largest below 10 T."""
    threshold, errors = LIMITS[dtype].threshold, errors_of(actual, golden, dtype)
    passed = (
        errors.mere < threshold
        and errors.mare < 10 * threshold
        and special_values_agree(actual, golden, dtype)
    )
    return Verdict(
        "single benchmark",
        passed,
        {"threshold": threshold, "mere": errors.mere, "mare": errors.mare},
    )


def dual_benchmark(
    actual: np.ndarray, second: np.ndarray, golden: np.ndarray, dtype: str, level: str = "L0"
) -> Verdict:
    """Return verdict 3: errors within a factor of those of a second implementation."""
    ours, theirs = (errors_of(values, golden, dtype, apart=True) for values in (actual, second))
    small = _ratio(ours.small_count, theirs.small_count)
    passed = small <= SMALL_RATIO and special_values_agree(actual, golden, dtype)
    numbers: dict[str, float | int | str] = {
        "level": level,
        "small_ratio": small,
        "small_count": ours.small_count,
    }
    for name, largest in LEVELS[level]._asdict().items():
        error, other = getattr(ours, name), getattr(theirs, name)
        ratio = _ratio(error, other)
        passed = passed and ratio <= largest
        numbers |= {f"{name}_ratio": ratio, name: error, f"second_{name}": other}
    return Verdict("dual benchmark", passed, numbers)


def _ratio(ours: float, theirs: float) -> float:
    """Return the ratio of two errors; 0 if the first is 0."""
    if ours == 0:
        return 0.0
    return ours / theirs if theirs > 0 else float("inf")


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
    """One dtype, in one form of the operator that has several."""

    dtype: str
    """dtype of the floating inputs."""
    form: str
    """What it computes with, such as a math type; empty for an operator of one form."""
    compute: str
    """dtype of its verdict."""
    call: StudyCall

    @property
    def label(self) -> str:
        """Name of the variant."""
        return variant_label(self.dtype, self.form)


def variant_label(dtype: str, form: str) -> str:
    """Return the name of a dtype in a form."""
    return Text("{dtype}, {form}", dtype=dtype, form=form) if form else dtype


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

    input_dtype: str
    form: str
    output: str
    dtype: str
    max_ulp: float
    mean_ulp: float
    max_ulp_of_given: float
    histogram: tuple[tuple[float, int], ...]
    verdicts: tuple[Verdict, ...]
    worst_index: Index
    worst_actual: float
    worst_golden: float
    worst_terms: tuple[Term, ...]
    causes: tuple[Cause, ...]

    @property
    def elements(self) -> int:
        """Number of elements; an output without any has no verdicts and no causes."""
        return sum(count for _, count in self.histogram)

    @property
    def variant(self) -> str:
        """Name of the variant."""
        return variant_label(self.input_dtype, self.form)

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
            "standards": dict(MEANINGS),
        }


@without_internal_frames
@np.errstate(all="ignore")  # inf and nan are results like others
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
    base.operator.hook(FORMULA)  # raises a UsageError without a formula
    require_given(base.operator, base.tensors)
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
        if not base.operator.has_hook(VARIANTS):
            yield Variant(dtype, "", dtype, call)
        else:
            for form, compute, typed in base.operator.hook(VARIANTS)(call):
                yield Variant(dtype, form, compute, typed)


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
        worst: Index = (
            tuple(map(int, np.unravel_index(int(np.argmax(errors)), errors.shape)))
            if errors.size
            else ()
        )
        rounded_second = second[name].astype(numpy_dtype(dtype))
        measured.append(
            OutputPrecision(
                input_dtype=variant.dtype,
                form=variant.form,
                output=name,
                dtype=dtype,
                max_ulp=float(errors.max(initial=0.0)),
                mean_ulp=float(errors.mean()) if errors.size else 0.0,
                max_ulp_of_given=_max_ulp(actual, original[name], dtype),
                histogram=_histogram(errors),
                verdicts=(
                    mixed_tolerance(actual, golden[name], judged),
                    single_benchmark(actual, golden[name], judged),
                    dual_benchmark(actual, rounded_second, golden[name], judged),
                )
                if errors.size
                else (),
                worst_index=worst,
                worst_actual=float(actual[worst]) if errors.size else 0.0,
                worst_golden=float(golden[name][worst]) if errors.size else 0.0,
                worst_terms=terms_of(call, name, worst)[:WORST_TERMS] if errors.size else (),
                causes=_causes(call, name, dtype, golden[name], original[name])
                if errors.size
                else (),
            )
        )
    return measured


def _histogram(errors: np.ndarray) -> tuple[tuple[float, int], ...]:
    """Return the number of elements up to each edge of the ulp histogram."""
    edges = (-1.0, *(np.nextafter(edge, np.inf) for edge in HISTOGRAM_EDGES))
    return tuple(zip(HISTOGRAM_EDGES, np.histogram(errors, edges)[0].tolist(), strict=True))


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
    if is_narrow and not call.operator.has_hook(VARIANTS):
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
    if call.operator.has_hook(CAUSES):
        causes += [Cause(*cause) for cause in call.operator.hook(CAUSES)(call, dtype, golden)]
    if call.profile.saturates:
        note = Text(
            "{count} results beyond the range become the largest finite value",
            count=int(np.count_nonzero(~np.isfinite(rounded.astype(np.float64)))),
        )
        causes.append(Cause("saturation", 0.0, note))
    elif beyond := int(np.count_nonzero(np.isfinite(golden) & ~np.isfinite(rounded))):
        note = Text(
            "{count} results beyond the range become infinite, which the rule of rounding counts "
            "as no error and the standards as a failure",
            count=beyond,
        )
        causes.append(Cause("overflow", 0.0, note))
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
