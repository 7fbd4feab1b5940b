"""What frameworks compute in several kernels, for the hook ``unfused``: both ends of an output.

Between two roundings a framework computes in fp32, in an order of its own; that part is bounded,
not reproduced. Narrowing is monotonic and applies to both ends.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import FORMATS, Array, Dtype, Shape, canonical_dtype

Ends = tuple[Array, Array]
"""Smallest and largest values of an output, in its dtype."""
Formulas = Iterator[tuple[str, Callable[[], Ends]]]
FP64 = np.dtype(np.float64)
UNITS = 2.0**-21
"""Relative error of a few operations in fp32."""


def short(dtype: Dtype) -> str:
    """Return the short name of a dtype: ``bf16``."""
    return FORMATS[canonical_dtype(dtype)].short_name


def is_16_bit(array: Array) -> bool:
    """Return whether a framework rounds between its kernels."""
    return bool(array.dtype.itemsize == 2)


def rounded(values: Array, dtype: Dtype) -> Array:
    """Return values in fp64 after rounding to fp32 and to a dtype."""
    from npu_sim.kernels.shared.elementwise import narrow_array

    return narrow_array(values.astype(np.float32), canonical_dtype(dtype)).astype(FP64)


def ends_of(values: Array, sizes: Array, dtype: Dtype, units: float = UNITS) -> Ends:
    """Return both ends of results in fp32, rounded to a dtype.

    - ``values``: the results in fp64.
    - ``sizes``: sums of the magnitudes of their terms; ``units``: relative error of these.
    """
    from npu_sim.kernels.shared.elementwise import narrow_array

    low, high = (
        narrow_array((values + side).astype(np.float32), canonical_dtype(dtype))
        for side in (-units * sizes, units * sizes)
    )
    return low, high


def folded_in(dtype: Dtype, shape: Shape, terms: Iterable[tuple[Any, Array]]) -> Ends:
    """Return sums of rows that are rounded to a dtype after every addition, as by index_add.

    - ``terms``: indices of rows, each at most once, and what is added to them.
    """
    from npu_sim.kernels.shared.elementwise import narrow_array

    total = np.zeros(shape, np.float32)
    for rows, values in terms:
        sums = total[rows] + values.astype(np.float32)
        total[rows] = narrow_array(sums, canonical_dtype(dtype)).astype(np.float32)
    result = narrow_array(total, canonical_dtype(dtype))
    return result, result
