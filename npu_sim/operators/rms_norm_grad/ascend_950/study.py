"""Studies of RmsNormGrad on Ascend 950.

Source: specification page ``rms_norm_grad_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Case, align
from npu_sim.operators.rms_norm_grad.ascend_950.timeline import PIECE_COLUMNS
from npu_sim.operators.rms_norm_grad.study import dgamma_claim, mean_claim
from npu_sim.operators.shared.study import Claim, StudyCall, trees
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a column of dgamma, and that of the mean in dx.

    Where the product leaves the last column out of the mean, there is no second one.
    """
    case, columns = call.case, call.case.row.col
    if case.row.row == 0:
        return
    yield dgamma_claim(call, range(columns), dgamma_tree(case))
    if columns > 2 and (case.tiling.dx.body == 0 or 2 * case.tiling.dx.body >= columns):
        yield mean_claim(call, mean_tree(case))


def dgamma_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the rows of one column."""
    rows = list(range(case.row.row))
    if not tiler.is_big(case.tiling):
        return trees.ntree(trees.fold(rows, trees.largest_power(len(rows))))
    split, begin = case.tiling.row_blocks, 0
    cores: list[trees.Tree | None] = []
    for core in range(split.cores):
        blocks = split.main if core < split.longer else split.other
        block_rows, begin = rows[begin : begin + blocks.rows], begin + blocks.rows
        cores.append(core_tree(block_rows, blocks.folded, split.piece))
    return _rows_sum(cores, split.merge_columns)


def core_tree(rows: trees.Values, folded: int, width: int) -> trees.Tree | None:
    """Return the tree of the rows of one core on key 9000; ``folded`` are its blocks, 0 for one."""
    if folded == 0:
        return _rows_sum(rows, width)
    front = trees.fold(rows, tiler.BLOCK_ROWS * folded)
    blocks = (front[at : at + tiler.BLOCK_ROWS] for at in range(0, len(front), tiler.BLOCK_ROWS))
    return trees.ntree([_rows_sum(block, width) for block in blocks])


def _rows_sum(rows: trees.Values, width: int) -> trees.Tree | None:
    return trees.rows_sum([[row] for row in rows], width)[0]


def mean_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the products of a row."""
    columns, body = list(range(case.row.col)), case.tiling.dx.body
    if body == 0:
        return trees.cols_sum(trees.padded(columns, align(len(columns), 128)))
    slots = []
    for begin in range(0, body, PIECE_COLUMNS):
        piece = columns[begin : begin + PIECE_COLUMNS]
        piece = piece + columns[body + begin : body + begin + PIECE_COLUMNS]
        count = align(len(piece), 128)
        power = PIECE_COLUMNS if count < 2 * PIECE_COLUMNS else 2 * PIECE_COLUMNS
        slots.append(trees.paired(piece, count, power))
    return trees.level(slots)
