"""ConvTbcBackward: gradBias, the sum of self over time and batch, in the dtype of self."""

import numpy as np
from numba import prange

from npu_sim.dtypes import narrow, widen
from npu_sim.kernels._compile import device_function, kernel
from npu_sim.kernels.conv_tbc_backward_operands import Stored, clear
from npu_sim.kernels.conv_tbc_backward_tile import Floats

ROWS = 256
"""Rows added one after the other; the sums of such groups are then added in their order (evidence: model)."""
COLUMNS = 256
"""Columns of one piece of work."""


@device_function
def _add_row(row: Stored, sums: Floats) -> None:
    for column in range(row.size):
        sums[column] = sums[column] + widen(row[column])


@kernel
def _grad_bias(grad: Stored, groups: Floats, out: Stored) -> None:
    rows, columns = grad.shape
    for group in prange(groups.shape[0]):
        clear(groups[group])
        for row in range(group * ROWS, min((group + 1) * ROWS, rows)):
            _add_row(grad[row], groups[group])
    for block in prange((columns + COLUMNS - 1) // COLUMNS):
        start, stop = block * COLUMNS, min((block + 1) * COLUMNS, columns)
        sums = np.zeros(stop - start, np.float32)
        for group in range(groups.shape[0]):
            _add_row(groups[group, start:stop], sums)
        target = out[start:stop]
        for column in range(sums.size):
            target[column] = narrow(sums[column], target)


def grad_bias(grad: Stored, out: Stored) -> None:
    """Sum self (To, B, Cout), C-contiguous, over its first two axes: in fp32, in a fixed order, rounded once."""
    rows = grad.reshape(-1, grad.shape[2])
    _grad_bias(rows, np.empty((-(-rows.shape[0] // ROWS), rows.shape[1]), np.float32), out)
