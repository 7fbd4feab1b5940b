"""Timeline of RotaryPositionEmbedding on A2 and A3.

The places of the operands of interleave are not published: it has a bound only.

Source: specification page ``rotary_position_embedding``, "Instructions of a tile".
"""

from collections.abc import Iterator
from functools import cache

from npu_sim.framework.vocabulary import FP32_BYTES, Plan
from npu_sim.operators.shared.rotations.timeline import (
    BACK,
    CAST,
    MOVED,
    Lists,
    Steps,
    cut,
    lists_of,
    program_of,
    sizes_of,
)
from npu_sim.tiling.rotary_position_embedding import B1SD, NO_BROADCAST, ONE_ROW
from npu_sim.timelines import InstructionLists, Program

HALF_FP32 = Lists(
    (("muls_half",),),
    (MOVED, MOVED, ("mul", "x", "cos"), ("mul", "y", "sin"), ("add", "y", "x")),
    (),
    ("x",),
    ("out",),
)
HALF_16_BIT = HALF_FP32._replace(
    before=(CAST, CAST, ("muls_half",)),
    piece=(
        CAST,
        MOVED,
        MOVED,
        ("mul", "x_fp32", "cos_fp32"),
        ("mul", "rotated_fp32", "sin_fp32"),
        ("add", "rotated_fp32", "x_fp32"),
        BACK,
    ),
)


def interleaved_lists(is_fp32: bool) -> Lists:
    """Return the instructions of interleave, whose operands have no known places."""
    cast, back = ((), ()) if is_fp32 else ((CAST,), (BACK,))
    products = (*cast, ("mul",), ("gather",), *cast, ("mul",), ("muls",), ("add",))
    return Lists((), (*cast, *products, *back), (), ("x",), ("out",))


def steps_of_half(plan: Plan, rows: int) -> Iterator[Steps]:
    """Yield the steps of half of a core with so many rows of cos."""
    fields = plan.tiling
    mode, first, second = (
        fields[name] for name in ("tilingMode", "broadcastFirstDim", "broadcastSecondDim")
    )
    repeats = first if mode == B1SD else 1
    pieces = {NO_BROADCAST: 1, ONE_ROW: 1, B1SD: second}.get(mode, first * second)
    most = fields["storeSLines"]
    for size, count in cut(rows, most):
        yield Steps(size, size, pieces, count * repeats)


def steps_of_interleave(plan: Plan, positions: int) -> Iterator[Steps]:
    """Yield the steps of interleave of a core with so many positions."""
    fields = plan.tiling
    batches, heads = fields["batchSize"], fields["numHeads"]
    if most := fields["ubCalcNNum"]:
        yield from _cut(heads, most, 1, positions * batches)
    elif most := fields["ubCalcBNum"]:
        yield from _cut(batches, most, heads, positions)
    else:
        is_tail = positions == fields["coreCalcTail"] and fields["tailCoreNum"]
        most = fields["ubCalcTailNum" if is_tail else "ubCalcNum"]
        for size, count in cut(positions, most):
            yield Steps(size, size * batches * heads, 1, count)


def _cut(items: int, most: int, rows: int, count: int) -> Iterator[Steps]:
    """Yield steps of one row of cos: pieces of ``most`` items of so many rows, and the rest."""
    for size, number in cut(items, most):
        yield Steps(1, size * rows, 1, number * count)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    is_fp32 = sizes_of(plan, "x").itemsize == FP32_BYTES
    if "tilingMode" not in plan.tiling:
        steps = cache(lambda rows: tuple(steps_of_interleave(plan, rows)))
        return program_of(plan, "x", interleaved_lists(is_fp32), steps, buffers=1)
    lists = HALF_FP32 if is_fp32 else HALF_16_BIT
    return program_of(plan, "x", lists, cache(lambda rows: tuple(steps_of_half(plan, rows))), 2)


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; bf16 was compared with a device."""
    if "tilingMode" not in plan.tiling:
        return InstructionLists({}, False)
    is_fp32 = sizes_of(plan, "x").itemsize == FP32_BYTES
    lists = HALF_FP32 if is_fp32 else HALF_16_BIT
    return lists_of(plan, "x", lists, lambda rows: tuple(steps_of_half(plan, rows)))
