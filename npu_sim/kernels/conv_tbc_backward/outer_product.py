"""ConvTbcBackward: outer products, for which the vendor runs its plain Mul on the vector unit.

Source: specification page ``conv_tbc_backward``, "What runs".
"""

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import TO_FP16, TO_FP16_SATURATED
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.kernels.vectors.lanes import Stored
from npu_sim.numbers.formats import FORMAT_OF_STORAGE

PRODUCTS_AT_A_TIME = 1 << 20
"""Elements of an outer product computed at a time; limits the memory for them in fp32."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Compute the outer product out[r, c] = rows[r] * columns[c].

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits).
    rounding : int
        With TO_FP16 and TO_FP16_SATURATED, operands and products are rounded to fp16; then the
        result is rounded once more, to the dtype of ``out``. Other codes multiply in fp32 and round
        once, to the dtype of ``out``: the vector unit has no hf32.
    """
    row_values, column_values = (
        _rounded(widen_array(operand), rounding) for operand in (rows, columns)
    )
    step = max(PRODUCTS_AT_A_TIME // max(column_values.size, 1), 1)
    for first in range(0, row_values.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(row_values[first : first + step], column_values)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))
