"""Bounds of fp32 sums whose order of additions is not known."""

import numpy as np

from npu_sim.numbers.formats import canonical_dtype
from npu_sim.orders.claims import OpenRule

LARGEST = float(np.finfo(np.float32).max)


def any_order(
    name: str,
    output: np.ndarray,
    sums: tuple[np.ndarray, np.ndarray],
    terms: int,
    reason: str,
    saturate: bool,
) -> OpenRule:
    """Return the rule that the fp32 sums of an output are taken in any order.

    With m operations of relative error u = 2^-24, a result lies within m*u / (1 - m*u) of the sum
    of magnitudes from the exact sum; rounding to the dtype of the output is monotonic. Where fp32
    may overflow, every value is possible.

    - ``name``, ``output``: the output, of which only the dtype matters.
    - ``sums``: exact sums and sums of magnitudes, in fp64 and in the shape of the output.
    - ``terms``: largest number of rounded operations of an element.
    - ``reason``: reason of the rule.
    - ``saturate``: whether the product saturates results.
    """
    from npu_sim.kernels.elementwise import narrow_array

    exact, magnitudes = sums
    error = terms * 2.0**-24
    safe = magnitudes * (1 + 2 * error) < LARGEST
    if error >= 0.5:
        safe = np.zeros_like(safe)
    # The exact sums are rounded to fp64.
    radius = np.where(safe, magnitudes * (error / (1 - error) + terms * 2.0**-51), np.inf)
    exact, dtype = np.where(safe, exact, 0.0), canonical_dtype(output.dtype)
    low, high = (
        narrow_array((exact + side).astype(np.float32), dtype, saturate=saturate).astype(np.float64)
        for side in (-radius, radius)
    )
    return OpenRule(name, low, high, reason)
