"""ConvTbcBackward: gradBias, the sum of grad over time and batch, in its dtype.

The product names this argument ``self``.

Order of accumulation: fp32, rows in groups of ROWS, added in order within a group, then the groups
in order; rounded once. Where several cores reduce the rows (Atlas training series, fp32), each core
adds its sum to the zeroed output atomically, in any order.

Source: specification page ``conv_tbc_backward``, "Execution".
"""

import numpy as np

from npu_sim.kernels.conv_tbc_backward.operands import Stored, clear
from npu_sim.kernels.conv_tbc_backward.tile import Floats
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.random_order import SEQUENTIAL, arrivals
from npu_sim.numbers.scalars import widen
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

ROWS = 256
"""Rows of a group (evidence: model)."""


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


def core_sums(grad: Stored, core_rows: int) -> Floats:
    """Return each core's sum (cores, Cout) of ``core_rows`` rows of grad (To, B, Cout)."""
    rows = grad.reshape(-1, grad.shape[2])
    sums = np.empty((-(-len(rows) // core_rows), rows.shape[1]), np.float32)
    for core, total in enumerate(sums):
        rows_of_core = rows[core * core_rows : (core + 1) * core_rows]
        count = -(-len(rows_of_core) // ROWS)
        groups = sums[core : core + 1]  # a single group is summed directly into the core's row
        if count > 1:
            groups = np.empty((count, rows.shape[1]), np.float32)
        _add_group.over(count, rows_of_core, groups)
        if count > 1:
            _add_in_order(groups, total)
    return sums


def _add_in_order(parts: Floats, total: Floats) -> None:
    # Few rows are left, so NumPy is fast enough; it adds them in this order.
    total[...] = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            np.add(total, part, out=total)


def grad_bias(
    grad: Stored, out: Stored, core_rows: int = 0, core_order: int = SEQUENTIAL, seed: int = 0
) -> None:
    """Sum grad over its first two axes: in fp32, rounded once.

    Parameters
    ----------
    grad, out : (To, B, Cout), (Cout,)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits), both the same. ``grad``, the
        product's argument ``self``, is C-contiguous; no axis is empty.
    core_rows : int
        Rows (time and batch) of each core; 0 if one core adds all.
    core_order, seed : int
        Code and seed of the order in which the sums of the cores arrive.
    """
    sums = core_sums(grad, core_rows or grad.shape[0] * grad.shape[1])
    total = sums[0]
    if len(sums) > 1:
        order = arrivals(np.ones(len(sums), np.int64), core_order, seed, 1)[0]
        total = np.empty(sums.shape[1], np.float32)
        _add_in_order(sums[order], total)
    narrow_array(total, FORMAT_OF_STORAGE[out.dtype], out=out)
