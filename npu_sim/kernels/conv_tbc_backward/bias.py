"""ConvTbcBackward: gradBias.

gradBias is the sum of grad (the product's argument ``self``) over time and batch, in its dtype.
Order of accumulation: fp32, rows in groups of ROWS, added in order within a group, then the groups
in order; rounded once. Where several cores reduce the rows (Atlas training series, fp32), each core
adds its sum to the zeroed output atomically, in any order.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Source: specification page ``conv_tbc_backward``, "Arithmetic".
"""

import numpy as np

from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.shared.arrival_orders import IN_CORE_ORDER, ArrivalOrder, arrivals
from npu_sim.kernels.shared.elementwise import narrow_array
from npu_sim.kernels.vectors.lanes import Floats, Stored
from npu_sim.kernels.vectors.row_sums import clear
from npu_sim.numbers.formats import FORMAT_OF_STORAGE
from npu_sim.numbers.scalars import widen

ROWS = 256
"""Rows of a group (evidence: model)."""


@kernel
def _add_group(group: int, grad: Stored, groups: Floats) -> None:
    """Add the rows of one group."""
    sums = groups[group]
    clear(sums)
    for number in range(group * ROWS, min((group + 1) * ROWS, len(grad))):
        row = grad[number]
        for column in range(row.size):
            sums[column] = sums[column] + widen(row[column])


def core_sums(grad: Stored, core_rows: int) -> Floats:
    """Return each core's sum (cores, Cout) of ``core_rows`` rows of grad (To, B, Cout)."""
    rows = grad.reshape(-1, grad.shape[2])
    sums = np.empty((-(-len(rows) // core_rows), rows.shape[1]), np.float32)
    for core, total in enumerate(sums):
        rows_of_core = rows[core * core_rows : (core + 1) * core_rows]
        groups = np.empty((-(-len(rows_of_core) // ROWS), rows.shape[1]), np.float32)
        _add_group.over(len(groups), rows_of_core, groups)
        _add_in_order(groups, total)
    return sums


def _add_in_order(parts: Floats, total: Floats) -> None:
    # Few rows are left, so NumPy is fast enough; it adds them in this order.
    total[...] = parts[0]
    for part in parts[1:]:
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(total, part, out=total)


def grad_bias(
    grad: Stored, out: Stored, core_rows: int = 0, order: ArrivalOrder = IN_CORE_ORDER
) -> None:
    """Sum grad over its first two axes: in fp32, rounded once.

    Parameters
    ----------
    grad, out : (To, B, Cout), (Cout,)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits), both the same. ``grad``, the
        product's argument ``self``, is C-contiguous; no axis is empty.
    core_rows : int
        Rows (time and batch) of each core; 0 if one core adds all.
    order
        Order in which the sums of the cores arrive.
    """
    sums = core_sums(grad, core_rows or grad.shape[0] * grad.shape[1])
    total = sums[0]
    if len(sums) > 1:
        arrived = arrivals(np.ones(len(sums), np.int64), order)[0]
        total = np.empty(sums.shape[1], np.float32)
        _add_in_order(sums[arrived], total)
    narrow_array(total, FORMAT_OF_STORAGE[out.dtype], out=out)
