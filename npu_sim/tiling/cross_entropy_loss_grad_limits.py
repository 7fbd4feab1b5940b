"""The largest calls of CrossEntropyLossGrad that fit: what refusals and decisions name.

Source: specification page ``cross_entropy_loss_grad``, section "The limit".
"""

from typing import Any

from npu_sim.cores import Device
from npu_sim.tiling.cross_entropy_loss_grad import Problem, fits, tile, unit_columns

ALL_BUFFERS = -1
"""Instead of a number of columns: the buffers of the whole call."""


def leaves_room(problem: Problem, columns: int, device: Device, rules: Any) -> bool:
    """Whether so many columns fit beside the row buffers."""
    tiling = tile(problem, device, rules)
    return tiling.wraps == 0 and tiling.column_budget >= columns


def largest_rows(problem: Problem, device: Device, rules: Any, columns: int = ALL_BUFFERS) -> int:
    """Return the largest N whose buffers fit, or that leaves room for so many columns beside the row buffers; 0 when none does.

    Only the rows of the fullest core count, and the buffers never shrink when these grow: they are bisected.
    """
    low, high = 0, device.ub_bytes
    while low < high:
        middle = (low + high + 1) // 2
        tried = Problem(
            middle * device.vector_cores,
            problem.columns,
            problem.dtype_code,
            problem.weighted,
            problem.reduction,
        )
        if (
            fits(tried, device, rules)
            if columns == ALL_BUFFERS
            else leaves_room(tried, columns, device, rules)
        ):
            low = middle
        else:
            high = middle - 1
    return low * device.vector_cores


def largest_rows_before_wrap(problem: Problem, device: Device, rules: Any) -> int:
    """Return the largest N whose row buffers alone do not exceed the Unified Buffer: beyond, the product claims that any row fits."""
    return largest_rows(problem, device, rules, 0)


def largest_short_row(problem: Problem, device: Device, rules: Any) -> int:
    """Return the largest C below one unit that fits with these rows; 0 when none does."""
    columns = unit_columns(problem.dtype_code) - 1
    while columns > 0 and not fits(problem._replace(columns=columns), device, rules):
        columns -= 1
    return columns
