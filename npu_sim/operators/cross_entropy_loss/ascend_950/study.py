"""Studies of CrossEntropyLoss on Ascend 950, where a row depends on nothing but itself.

Source: specification page ``cross_entropy_loss_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Case, Result, align
from npu_sim.operators.cross_entropy_loss.ascend_950.compute import setting_of
from npu_sim.operators.cross_entropy_loss.study import claims_of, rules_of
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    OpenRule,
    StudyCall,
    any_number_of_rows,
    trees,
)
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler

CHANGES = Changes(row_counts=any_number_of_rows)
RUNNING_SUMS = 8
"""Sums over the cores that run side by side (page, "Over cores")."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the trees of the sum of exp over a row, and of the losses over the rows."""
    case = call.case
    if tiler.schedule_of(case.tiling) == tiler.EMPTY:
        return
    is_whole = tiler.schedule_of(case.tiling) == tiler.WHOLE_ROWS
    row = _whole_tree(case) if is_whole else _cut_tree(case)
    yield from claims_of(call, setting_of, row, _rows_tree(case, is_whole=is_whole))


def _whole_tree(case: Case) -> trees.Tree | None:
    """Return the tree ``rn`` of the page."""
    columns = case.tiling.blocks.columns
    values = trees.padded(range(case.row.C), columns)
    if columns <= trees.LANES:
        return trees.row_sum(values)
    power = trees.largest_power(columns - 1)
    whole = (columns - power) // trees.LANES * trees.LANES
    front = trees.added(values[:whole], values[power : power + whole]) + values[whole:power]
    behind = values[power + whole :]
    front[: len(behind)] = trees.added(front[: len(behind)], behind)
    return trees.tree64(trees.groups16(trees.registers(front)))


def _cut_tree(case: Case) -> trees.Tree | None:
    """Return the tree of a row in blocks."""
    blocks, columns = case.tiling.blocks, range(case.row.C)
    step = blocks.columns
    pieces = [columns[at : at + step] for at in range(0, len(columns), step)]
    sums = []
    for number, piece in enumerate(pieces[: blocks.sums]):
        values: trees.Values = piece
        if number + blocks.sums < len(pieces):
            other = pieces[number + blocks.sums]
            values = trees.added(values, trees.padded(other, len(values)))
        sums.append(trees.row_sum(trees.padded(values, align(len(values), 8))))
    return trees.ntree(sums)


def _rows_tree(case: Case, *, is_whole: bool) -> trees.Tree | None:
    """Return the tree of the losses: passes of each core, then the cores, eight side by side."""
    step = case.tiling.passes.rows if is_whole else tiler.PASS_ROWS
    add = trees.row_sum if is_whole else trees.tree64
    cores = []
    for core in range(case.tiling.block_dim):
        rows = range(*tiler.row_range(case.tiling, core))
        passes = [add(rows[at : at + step]) for at in range(0, len(rows), step)]
        cores.append(trees.left_fold(passes))
    running = [trees.left_fold(cores[at::RUNNING_SUMS]) for at in range(RUNNING_SUMS)]
    return trees.ntree(running)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of log_prob and of the loss."""
    yield from rules_of(call, result, setting_of)
