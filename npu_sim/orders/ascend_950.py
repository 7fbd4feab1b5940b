"""Summation trees of Ascend 950: the common sums of the kernels.

Values are trees, or None for a zero. Source: specification page ``ascend_950``, "Sums used by
several kernels"; the page writes a register as 64 consecutive values.
"""

from collections.abc import Sequence

from npu_sim.orders.trees import LANES, Tree, join, left_fold, tree64

SLOTS = 256
Values = Sequence[Tree | None]


def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``, which is at least 1."""
    return 1 << (number.bit_length() - 1)


def padded(values: Values, count: int) -> list[Tree | None]:
    """Return ``count`` values, zeros behind the given ones."""
    return [*values, *[None] * (count - len(values))]


def added(first: Values, second: Values) -> list[Tree | None]:
    """Return the sums of two registers, or of two rows of columns, element by element."""
    return [join(left, other) for left, other in zip(first, second, strict=True)]


def fold(values: Values, power: int) -> list[Tree | None]:
    """Return the first ``power`` values; each receives the one that lies ``power`` further on."""
    return added(values[:power], padded(values[power:], power))


def registers(values: Values) -> list[list[Tree | None]]:
    """Cut values into registers."""
    return [list(values[begin : begin + LANES]) for begin in range(0, len(values), LANES)]


def ntree(values: Values) -> Tree | None:
    """Return the tree of neighbours of a power of two of values."""
    level = list(values)
    while len(level) > 1:
        level = [join(left, right) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def fours(values: Values, start: Tree | None) -> Tree | None:
    """Return ``start`` plus every four values as pairs of pairs; those left one by one."""
    whole = len(values) // 4 * 4
    groups = [ntree(values[begin : begin + 4]) for begin in range(0, whole, 4)]
    return left_fold([start, *groups, *values[whole:]])


def halve(rows: Sequence[Values]) -> Values:
    """Add the second half of a power of two of rows to the first, down to one row."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows = [added(left, other) for left, other in zip(rows[:half], rows[half:], strict=True)]
    return rows[0]


def groups16(rows: Sequence[Values]) -> Values:
    """Replace every 16 rows by their `halve` while there are as many; `halve` the others."""
    while len(rows) >= 16:
        rows = [halve(rows[begin : begin + 16]) for begin in range(0, len(rows), 16)]
    return halve(rows)


def rows_sum(rows: Sequence[Values], width: int) -> Values:
    """Return the sum of rows of padded ``width``, which selects the order and nothing else."""
    power = largest_power(len(rows))
    front = [
        added(row, rows[power + position]) if power + position < len(rows) else row
        for position, row in enumerate(rows[:power])
    ]
    return groups16(front) if LANES // 2 < width <= LANES else halve(front)


def cols_sum(values: Values) -> Tree | None:
    """Return the sum of a row whose length is a multiple of 128."""
    return tree64(groups16(registers(fold(values, largest_power(len(values))))))


def row_sum(values: Values) -> Tree | None:
    """Return the sum ``rs(v)`` of page ``cross_entropy_loss_grad_950``: the library's row sum."""
    count = len(values)
    if count in (8, 16, 24):
        total = list(values[:8])
        for begin in range(8, count, 8):
            total = added(total, values[begin : begin + 8])
        return ntree(total)
    if count <= LANES:
        return tree64(values)
    registers_of_row = registers(fold(values, largest_power(count)))
    return tree64(groups16(registers_of_row) if count % 8 == 0 else halve(registers_of_row))


def paired(values: Values, count: int, power: int) -> Tree | None:
    """Return the sum ``paired(v, c, P)`` of the page."""
    registers_of_row = registers(fold(padded(values, count), power))
    pairs = zip(registers_of_row[::2], registers_of_row[1::2], strict=True)
    return tree64([tree64(added(left, other)) for left, other in pairs])


def level(slots: Values) -> Tree | None:
    """Return the sum of a power of two of slots in lists of 256."""
    while True:
        slots = [
            _list_sum(padded(slots[begin : begin + SLOTS], SLOTS))
            for begin in range(0, len(slots), SLOTS)
        ]
        if len(slots) == 1:
            return slots[0]


def _list_sum(slots: Values) -> Tree | None:
    first, second, third, fourth = registers(slots)
    return tree64(added(added(first, second), added(third, fourth)))
