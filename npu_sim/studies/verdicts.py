"""Precision verdicts by the vendor's acceptance standards.

Source: specification page ``precision``. Every verdict compares with a float64 golden whose inputs
are already rounded to the operator's input dtype. Where the golden value is inf or nan, the
result must have the same value; these elements are not part of any mean.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log2
from typing import Any, NamedTuple

import numpy as np

from npu_sim.kernels.elementwise import narrow_array, round_to_hf32, ulp_error
from npu_sim.language import Text


class Tolerance(NamedTuple):
    """Limits of the mixed tolerance (page, table 1)."""

    rtol: float
    atol: float
    limit: float


MIXED: dict[str, Tolerance] = {
    "float16": Tolerance(2.0**-9, 2.0**-9, 0.1),
    "bfloat16": Tolerance(2.0**-6, 2.0**-6, 1.0),
    "float32": Tolerance(2.0**-10, 2.0**-16, 0.01),
    "hf32": Tolerance(2.0**-9, 2.0**-10, 0.1),
}
MIXED_SHARE = 0.99
"""Fraction of elements that must be within the tolerance."""
MIXED_ULP = 32
"""An error beyond the limit passes when it is within this many ulp."""

SINGLE: dict[str, float] = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-13,
    "hf32": 2.0**-11,
}
"""T of the single benchmark (page, 2)."""
RELATIVE_OFFSET = 1e-7
"""Added to the golden magnitude in relative errors (page, 2)."""

SMALL: dict[str, float] = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-14,
    "hf32": 2.0**-12,
}
"""Golden magnitudes below this are counted separately (page, 3). hf32 is not in the page's list and
has half of its T."""
SMALL_ERROR: dict[str, float] = {
    "float16": 2.0**-16,
    "bfloat16": 2.0**-16,
    "float32": 2.0**-30,
    "hf32": 2.0**-30,
}
"""Absolute error above which a small value counts (page, 3)."""
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


def _powers(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{dtype} 2^{log2(limit):g}" for dtype, limit in limits.items())


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
        powers=_powers(SINGLE),
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
    small = size < SMALL[dtype]
    counted = ~small if apart else np.ones_like(small)
    relative = absolute[counted] / (size[counted] + RELATIVE_OFFSET)
    return Errors(
        mare=float(relative.max(initial=0.0)),
        mere=float(relative.mean()) if relative.size else 0.0,
        rmse=float(np.sqrt(np.mean(absolute[counted] ** 2))) if relative.size else 0.0,
        max_absolute=float(absolute.max(initial=0.0)),
        small_count=int(np.count_nonzero(absolute[small] > SMALL_ERROR[dtype])),
    )


def special_values_agree(actual: np.ndarray, golden: np.ndarray, dtype: str) -> bool:
    """Return whether inf and nan are where the golden value, rounded to the dtype, has them."""
    rounded = (
        round_to_hf32(golden.astype(np.float32))
        if dtype == "hf32"
        else narrow_array(golden.astype(np.float32), dtype)
    )
    expected, values = rounded.astype(np.float64), actual.astype(np.float64)
    special = ~np.isfinite(expected) | ~np.isfinite(values)
    return bool(np.array_equal(values[special], expected[special], equal_nan=True))


def mixed_tolerance(actual: np.ndarray, golden: np.ndarray, dtype: str) -> Verdict:
    """Return verdict 1: 99 % within ``atol + rtol*|g|``, no error beyond the limit and 32 ulp."""
    rtol, atol, limit = MIXED[dtype]
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
    threshold, errors = SINGLE[dtype], errors_of(actual, golden, dtype)
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
    ours, theirs = (
        errors_of(actual, golden, dtype, apart=True),
        errors_of(second, golden, dtype, apart=True),
    )
    largest = LEVELS[level]
    ratios = {name: _ratio(getattr(ours, name), getattr(theirs, name)) for name in Ratios._fields}
    small = _ratio(ours.small_count, theirs.small_count)
    passed = (
        all(ratios[name] <= getattr(largest, name) for name in Ratios._fields)
        and small <= SMALL_RATIO
    )
    numbers: dict[str, float | int | str] = {
        "level": level,
        "small_ratio": small,
        "small_count": ours.small_count,
    }
    for name in Ratios._fields:
        numbers |= {
            f"{name}_ratio": ratios[name],
            name: getattr(ours, name),
            f"second_{name}": getattr(theirs, name),
        }
    return Verdict(
        "dual benchmark", passed and special_values_agree(actual, golden, dtype), numbers
    )


def _ratio(ours: float, theirs: float) -> float:
    """Return the ratio of two errors; 0 if the first is 0."""
    if ours == 0:
        return 0.0
    return ours / theirs if theirs > 0 else float("inf")
