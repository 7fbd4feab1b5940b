"""ConvTbcBackward: gradBias, the sum of self over time and batch, in the dtype of self."""

import numpy as np

from npu_sim.kernels.conv_tbc_backward_operands import Stored, clear
from npu_sim.kernels.conv_tbc_backward_tile import Floats
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.numbers.scalars import widen
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

ROWS = 256
"""Rows added one after the other; the sums of such groups are then added in their order (evidence: model)."""


@device_function
def _add_row(row: Stored, sums: Floats) -> None:
    for column in range(row.size):
        sums[column] = sums[column] + widen(row[column])


@kernel
def _add_group(group: int, grad: Stored, groups: Floats) -> None:
    """Add the rows of one group."""
    clear(groups[group])
    for row in range(group * ROWS, min((group + 1) * ROWS, len(grad))):
        _add_row(grad[row], groups[group])


def grad_bias(grad: Stored, out: Stored) -> None:
    """Sum self (To, B, Cout), C-contiguous, over its first two axes: in fp32, in a fixed order, rounded once."""
    rows = grad.reshape(-1, grad.shape[2])
    groups = np.empty((-(-rows.shape[0] // ROWS), rows.shape[1]), np.float32)
    _add_group.over(len(groups), rows, groups)
    # Few rows are left; NumPy adds them in this order too.
    with np.errstate(over="ignore", invalid="ignore"):
        for group in groups[1:]:
            np.add(groups[0], group, out=groups[0])
    narrow_array(groups[0], FORMAT_OF_STORAGE[out.dtype], out=out)
