"""Bounds of steps that are a model, for the hook ``open_rules`` of operators.

The uncertainty is that of fp32 where it arises; from there on every operation, and the rounding to
the output's dtype, is monotonic and applies to both ends.
"""

from collections.abc import Callable

import numpy as np

from npu_sim.framework.vocabulary import Array, Result, canonical_dtype
from npu_sim.orders import OpenRule

NOTHING_OPEN = np.inf, -np.inf
"""An empty interval: every step of the element is exact."""
ANYTHING = -np.inf, np.inf
LARGEST_FP32 = float(np.finfo(np.float32).max)
Narrow = Callable[[Array], Array]
"""Rounds fp32 values to the dtype of an output, as the kernel stores them."""


def _chosen(
    output: str, ends: tuple[Array, Array], is_open: Array, unknown: Array, reason: str
) -> OpenRule:
    """Return a rule: nothing where no step is open, anything where it is unknown, else its ends."""
    lowest, highest = (
        np.where(is_open, np.where(unknown, anything, side), nothing)
        for side, anything, nothing in zip(ends, ANYTHING, NOTHING_OPEN, strict=True)
    )
    return OpenRule(output, lowest, highest, reason)


def open_rule(result: Result, output: str, exact: Array, radius: Array, reason: str) -> OpenRule:
    """Return the rule of an output that allows all values within a radius, rounded to its dtype.

    Elements with radius 0 have no step that is open.
    """
    from npu_sim.kernels.shared.elementwise import narrow_array

    dtype, tiny = canonical_dtype(result.outputs[output].dtype), 2.0**-149
    low, high = (
        narrow_array((exact + side).astype(np.float32), dtype).astype(np.float64)
        for side in (-radius - tiny, radius + tiny)
    )
    unknown = ~np.isfinite(low) | ~np.isfinite(high)
    return _chosen(output, (low, high), radius != 0, unknown, reason)


def between(
    result: Result,
    output: str,
    ends: tuple[Array, Array],
    reason: str,
    narrow: Narrow | None = None,
) -> OpenRule:
    """Return the rule of an output that lies between two fp32 values before it is rounded.

    Where both ends have equal bits, no step of the element is open; where one is nan, every value
    is possible.

    Parameters
    ----------
    result, output
        Result of the call, and the name of the output.
    ends : fp32 arrays of as many elements as the output
        Results of the last operation at both ends of what the open steps can give, in any order.
    reason
        The steps, and the bound that is documented for them.
    narrow
        How the kernel rounds; None for nearest even.
    """
    from npu_sim.kernels.shared.elementwise import narrow_array

    dtype, shape = result.outputs[output].dtype, result.outputs[output].shape
    rounds = narrow or (lambda values: narrow_array(values, canonical_dtype(dtype)))
    first, second = (np.asarray(end, np.float32).reshape(shape) for end in ends)
    is_open = first.view(np.uint32) != second.view(np.uint32)
    unknown = np.isnan(first) | np.isnan(second)
    low, high = (
        rounds(choose(first, second)).astype(np.float64) for choose in (np.minimum, np.maximum)
    )
    return _chosen(output, (low, high), is_open, unknown, reason)


def moved(values: Array, units: int) -> Array:
    """Return fp32 values so many units in the last place away; zeros and infinities stay."""
    target, found = np.float32(np.inf if units > 0 else -np.inf), values
    for _ in range(abs(units)):
        found = np.nextafter(found, target)
    return np.where((values == 0) | np.isinf(values), values, found)


def any_order(
    name: str,
    output: Array,
    sums: tuple[Array, Array],
    terms: int | Array,
    reason: str,
    saturate: bool,
) -> OpenRule:
    """Return the rule that the fp32 sums of an output are taken in any order.

    With m operations of relative error u = 2^-24, a result lies within m*u / (1 - m*u) of the sum
    of magnitudes from the exact sum; rounding to the dtype of the output is monotonic. Where fp32
    may overflow, every value is possible.

    - ``name``, ``output``: the output, of which only the dtype matters.
    - ``sums``: exact sums and sums of magnitudes, in fp64 and in the shape of the output.
    - ``terms``: largest number of rounded operations, or that of every element; 0 where the result
      is the same in every order.
    - ``reason``: reason of the rule.
    - ``saturate``: whether the product saturates results.
    """
    from npu_sim.kernels.shared.elementwise import narrow_array

    exact, magnitudes = sums
    operations = np.broadcast_to(np.asarray(terms), exact.shape)
    error = operations * 2.0**-24
    safe = (magnitudes * (1 + 2 * error) < LARGEST_FP32) & (error < 0.5)
    error = np.where(safe, error, 0.0)
    # The exact sums are rounded to fp64.
    radius = np.where(safe, magnitudes * (error / (1 - error) + operations * 2.0**-51), np.inf)
    exact, dtype = np.where(safe, exact, 0.0), canonical_dtype(output.dtype)
    low, high = (
        narrow_array((exact + side).astype(np.float32), dtype, saturate=saturate).astype(np.float64)
        for side in (-radius, radius)
    )
    # A sum of zeros may be +0 or -0.
    ends = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    return _chosen(name, ends, operations > 0, np.zeros(exact.shape, np.bool_), reason)
