"""ConvTbcBackward: gradBias, the sum of self over time and batch, in the dtype of self."""

import numpy as np

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
def _add_group(group: int, grad: Stored, groups: Floats) -> None:
    """Add the rows of one group."""
    clear(groups[group])
    for row in range(group * ROWS, min((group + 1) * ROWS, grad.shape[0])):
        _add_row(grad[row], groups[group])


@kernel
def _add_groups(block: int, groups: Floats, out: Stored) -> None:
    """Add a block of columns of all groups to that of the first, and round."""
    start, stop = block * COLUMNS, min((block + 1) * COLUMNS, out.size)
    sums, target = groups[0, start:stop], out[start:stop]
    for group in range(1, groups.shape[0]):
        _add_row(groups[group, start:stop], sums)
    for column in range(sums.size):
        target[column] = narrow(sums[column], target)


def grad_bias(grad: Stored, out: Stored) -> None:
    """Sum self (To, B, Cout), C-contiguous, over its first two axes: in fp32, in a fixed order, rounded once."""
    rows = grad.reshape(-1, grad.shape[2])
    groups = np.empty((-(-rows.shape[0] // ROWS), rows.shape[1]), np.float32)
    _add_group.over(len(groups), rows, groups)
    _add_groups.over(-(-out.size // COLUMNS), groups, out)
