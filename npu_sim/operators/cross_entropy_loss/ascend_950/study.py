"""Studies of CrossEntropyLoss on Ascend 950, where a row depends on nothing but itself.

Source: specification page ``cross_entropy_loss_950``.
"""

from collections.abc import Iterator
from itertools import zip_longest

from npu_sim.framework.vocabulary import Result, align, core_ranges
from npu_sim.operators.cross_entropy_loss.ascend_950.compute import setting_of
from npu_sim.operators.cross_entropy_loss.study import claims_of, rules_of
from npu_sim.operators.shared.labelled_rows.study import sums_in_passes
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    OpenRule,
    StudyCall,
    Tree,
    any_number_of_rows,
    trees,
)
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler
from npu_sim.tiling.common import align_down

CHANGES = Changes(row_counts=any_number_of_rows)
RUNNING_SUMS = 8
"""Sums over the cores that run side by side (page, "Over cores")."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the trees of the sum of exp over a row, and of the losses over the rows."""
    tiling, columns = call.case.tiling, range(call.case.row.C)
    schedule, blocks = tiler.schedule_of(tiling), tiling.blocks
    if schedule == tiler.EMPTY:
        return
    is_whole = schedule == tiler.WHOLE_ROWS
    row = _whole_tree(columns, blocks.columns) if is_whole else _cut_tree(columns, blocks)
    add = trees.row_sum if is_whole else trees.tree64
    cores = sums_in_passes(core_ranges(tiler.row_range, tiling), tiling.passes.rows, add)
    running = [trees.left_fold(cores[at::RUNNING_SUMS]) for at in range(RUNNING_SUMS)]
    yield from claims_of(call, setting_of, row, trees.ntree(running))


def _whole_tree(columns: range, width: int) -> Tree | None:
    """Return the tree ``rn`` of the page."""
    values = trees.padded(columns, width)
    if width <= trees.LANES:
        return trees.row_sum(values)
    power = trees.largest_power(width - 1)
    behind = power + align_down(width - power, trees.LANES)
    front = trees.fold(values[:behind], power)
    front = trees.added(front, trees.padded(values[behind:], power))
    return trees.tree64(trees.groups16(trees.registers(front)))


def _cut_tree(columns: range, blocks: tiler.Blocks) -> Tree | None:
    """Return the tree of a row in blocks."""
    pieces, sums = trees.cut(columns, blocks.columns), []
    pairs = zip_longest(pieces[: blocks.sums], pieces[blocks.sums :], fillvalue=())
    for piece, other in pairs:
        values = trees.added(piece, trees.padded(other, len(piece)))
        sums.append(trees.row_sum(trees.padded(values, align(len(values), 8))))
    return trees.ntree(sums)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of log_prob and of the loss."""
    yield from rules_of(call, result, setting_of)
