"""ConvTbcBackward: a matrix product whose contraction has length 1, multiplied element by element (the product's plain Mul)."""

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import TO_FP16, TO_FP16_SATURATED, Stored
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

TOGETHER = 1 << 20
"""Products at a time, so that they need little memory beside the result."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Multiply every row element with every column element: out[r, c] = rows[r] * columns[c], rounded once.

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        In storage form.
    rounding : int
        Code of ``conv_tbc_backward_operands``: operands, and the products, are rounded to fp16 first where it says so. There is no
        rounding to hf32: the vector unit multiplies.
    """
    left, right = (_rounded(widen_array(one), rounding) for one in (rows, columns))
    step = max(TOGETHER // max(right.size, 1), 1)
    for first in range(0, left.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(left[first : first + step], right)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))
