"""Studies of MoeTokenUnpermuteGrad on Ascend 950.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from collections.abc import Iterator, Sequence

from npu_sim.framework.vocabulary import Result
from npu_sim.operators.moe_token_unpermute_grad.study import row_writes, sum_claim
from npu_sim.operators.shared.study import Claim, LastWrites, StudyCall, trees
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a gradient of probs; the other gradient is not a sum."""
    if "probs" in call.tensors:
        tiling = call.case.tiling
        yield sum_claim(call, row_tree(tiling.hidden, tiling.cut))


def row_tree(hidden: int, cut: tiler.Cut) -> trees.Tree | None:
    """Return the tree of the products of a row; ``cut`` has no blocks for one that is not cut."""
    columns = range(hidden)
    if not cut.main_blocks:
        return block_tree(columns)
    main, half = cut.main_columns, cut.columns
    behind, added = main * cut.main_blocks, cut.blocks + cut.tail_blocks
    slots = [
        block_tree(
            [
                *columns[number * half : (number + 1) * half],
                *columns[behind + number * half : behind + (number + 1) * half],
            ]
        )
        for number in range(added)
    ]
    if added % 2:
        slots.append(block_tree(columns[added * half : (added + 1) * half]))
    first = (added + 1) // 2
    slots += [
        block_tree(columns[number * main : (number + 1) * main])
        for number in range(first, cut.main_blocks)
    ]
    whole = len(slots) // trees.SLOTS * trees.SLOTS
    full = [_cross(slots[begin : begin + trees.SLOTS]) for begin in range(0, whole, trees.SLOTS)]
    return trees.join(_cross(slots[whole:]), _cross(full))


def block_tree(terms: Sequence[trees.Tree]) -> trees.Tree | None:
    """Return the tree of the products of one block (page, ``qsum``)."""
    if len(terms) < trees.LANES:
        return trees.tree64(terms)
    registers = trees.registers(trees.fold(terms, trees.largest_power(len(terms))))
    sums = [trees.tree64(register) for register in registers]
    return trees.tree64(trees.halve(trees.registers(sums)))


def _cross(slots: trees.Values) -> trees.Tree | None:
    """Return the sum of up to 256 slots (page, ``cross``)."""
    first, second, third, fourth = trees.registers(trees.padded(slots, trees.SLOTS))
    return trees.tree64(trees.added(trees.added(first, third), trees.added(second, fourth)))


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows that several cores write, and of every core the row that it writes last."""
    tiling = call.case.tiling
    stops = [tiler.core_range(tiling, core)[1] for core in range(tiling.block_dim)]
    yield from row_writes(call, result, output, stops)
