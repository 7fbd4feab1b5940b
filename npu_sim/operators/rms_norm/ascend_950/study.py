"""Studies of RmsNorm on Ascend 950.

Source: specification page ``rms_norm_950``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Case
from npu_sim.operators.rms_norm.study import row_claim
from npu_sim.operators.shared.study import Claim, StudyCall, trees

ALIGNED_BYTES = 512
"""The squares of a piece are padded to a multiple of this many bytes of x (page, key 2001)."""
Floats = np.ndarray[Any, np.dtype[np.float32]]


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row."""
    case = call.case
    if case.tiling.fold > 0:
        yield row_claim(call, case, whole_tree(case), refined_root)
    else:
        yield row_claim(call, case, pieces_tree(case))


def whole_tree(case: Case) -> trees.Tree | None:
    """Return the tree of key 5000."""
    columns, fold = list(range(case.row.col)), case.tiling.fold
    if fold < trees.LANES:
        return trees.tree64(columns)
    register_sums = [
        trees.tree64(register) for register in trees.registers(trees.fold(columns, fold))
    ]
    first, second = register_sums[: trees.LANES], register_sums[trees.LANES :]
    return trees.tree64(trees.added(first, second) if second else first)


def pieces_tree(case: Case) -> trees.Tree | None:
    """Return the tree of key 2001."""
    columns, tiling = list(range(case.row.col)), case.tiling
    piece, half = tiling.ub_factor, tiling.ub_factor // 2
    step = ALIGNED_BYTES // case.specs["x"].itemsize
    begin = 0

    def taken(count: int, power: int) -> trees.Tree | None:
        nonlocal begin
        piece, begin = columns[begin : begin + count], begin + count
        return trees.paired(piece, -(-count // step) * step, power)

    pairs, tail = divmod(case.row.col - tiling.ub_loop * piece, piece)
    slots = []
    for number in range(tiling.ub_loop):
        if number < pairs:
            slots.append(trees.join(taken(piece, piece), taken(piece, piece)))
        elif number == pairs and tail > half:
            slots.append(trees.join(taken(piece, piece), taken(tail, half)))
        elif number == pairs and tail > 0:
            slots.append(trees.join(taken(half + tail, half), taken(half, half)))
        else:
            slots.append(taken(piece, piece))
    return trees.level(slots)


def refined_root(mean: Floats) -> Floats:
    """Return 1/sqrt(mean) by the fused steps of key 5000, for positive normal means."""
    from npu_sim.kernels.vectors.lanes import fused_multiply_add

    unit = np.float32(1)
    r = unit / mean
    root = np.sqrt(r)
    first = root * fused_multiply_add((mean * np.float32(-0.5)) * root, root, np.float32(1.5))
    error = fused_multiply_add(
        mean, fused_multiply_add(-first, first, r), fused_multiply_add(-mean, r, unit)
    )
    refined: Floats = fused_multiply_add(error * first, np.float32(0.5), first)
    return refined
