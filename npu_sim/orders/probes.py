"""Values that make a summation tree visible: a huge one, its negative, and ones."""

import numpy as np

from npu_sim.numbers.formats import numpy_dtype

PROBE_VALUES = {
    "float32": (2.0**60, 1.0),
    "bfloat16": (2.0**60, 1.0),
    "float16": (2.0**15, 2.0**-24),
}
"""Huge and unit by dtype: sums of up to thousands of units are absorbed by the huge value in fp32,
and counts stay exact."""


def probe_terms(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Return the terms of probes: codes 1 and -1 become the huge value and its negative, 0 the unit."""
    huge, unit = PROBE_VALUES[dtype]
    return np.where(codes == 0, unit, codes * huge).astype(numpy_dtype(dtype))


def count_units(results: np.ndarray, dtype: str) -> np.ndarray:
    """Return how many units results hold."""
    return np.rint(results.astype(np.float64) / PROBE_VALUES[dtype][1]).astype(np.int64)
