"""Study of RmsNormGrad on Ascend 950: trees of a column of dgamma and of the mean in dx."""

from collections.abc import Iterator
from functools import partial

from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.operators.rms_norm_grad.study import dgamma_outside, mean_outside
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders import ascend_950 as sums
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler
from npu_sim.tiling.common import align

PIECE_COLUMNS = 4096


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a column of dgamma, and that of the mean in dx.

    Where the product leaves the last column out of the mean, there is no second one.
    """
    case = call.case
    rows, columns = case.row.row, case.row.col
    if rows == 0:
        return
    yield Claim(
        output="dgamma",
        element=tuple(0 for _ in call.tensors["gamma"].shape),
        elements=columns,
        terms=tuple(Text("dy*xh of row {row}", row=row) for row in range(rows)),
        tree=_required(dgamma_tree(case)),
        outside=partial(dgamma_outside, call, case, 0, columns),
    )
    if columns > 2 and (case.tiling.dx.body == 0 or 2 * case.tiling.dx.body >= columns):
        yield Claim(
            output="dx",
            element=tuple(0 for _ in call.tensors["x"].shape),
            elements=rows * columns,
            terms=tuple(
                Text("dy*gamma*xh of column {column}", column=column) for column in range(columns)
            ),
            tree=_required(mean_tree(case)),
            outside=partial(mean_outside, call, case),
        )


def _required(tree: trees.Tree | None) -> trees.Tree:
    assert tree is not None
    return tree


def dgamma_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the rows of one column."""
    rows = list(range(case.row.row))
    if not tiler.is_big(case.tiling):
        return sums.ntree(sums.fold(rows, sums.largest_power(len(rows))))
    split, begin = case.tiling.row_blocks, 0
    cores: list[trees.Tree | None] = []
    for core in range(split.cores):
        blocks = split.main if core < split.longer else split.other
        block_rows, begin = rows[begin : begin + blocks.rows], begin + blocks.rows
        cores.append(core_tree(block_rows, blocks.folded, split.piece))
    return _rows_sum(cores, split.merge_columns)


def core_tree(rows: sums.Values, folded: int, width: int) -> trees.Tree | None:
    """Return the tree of the rows of one core on key 9000; ``folded`` are its blocks, 0 for one."""
    if folded == 0:
        return _rows_sum(rows, width)
    front = sums.fold(rows, tiler.BLOCK_ROWS * folded)
    blocks = (front[at : at + tiler.BLOCK_ROWS] for at in range(0, len(front), tiler.BLOCK_ROWS))
    return sums.ntree([_rows_sum(block, width) for block in blocks])


def _rows_sum(rows: sums.Values, width: int) -> trees.Tree | None:
    return sums.rows_sum([[row] for row in rows], width)[0]


def mean_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the products of a row."""
    columns, body = list(range(case.row.col)), case.tiling.dx.body
    if body == 0:
        return sums.cols_sum(sums.padded(columns, align(len(columns), 128)))
    slots = []
    for begin in range(0, body, PIECE_COLUMNS):
        piece = columns[begin : begin + PIECE_COLUMNS]
        piece = piece + columns[body + begin : body + begin + PIECE_COLUMNS]
        count = align(len(piece), 128)
        power = PIECE_COLUMNS if count < 2 * PIECE_COLUMNS else 2 * PIECE_COLUMNS
        slots.append(sums.paired(piece, count, power))
    return sums.level(slots)
