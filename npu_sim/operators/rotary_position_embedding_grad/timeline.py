"""Timeline of RotaryPositionEmbeddingGrad: its steps and instructions.

Source: specification page ``rotary_position_embedding_grad``, "Instructions of a tile".
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import FP32_BYTES, Plan
from npu_sim.operators.shared.rotations.timeline import (
    BACK,
    CAST,
    COPIED,
    MOVED,
    Listed,
    Lists,
    Steps,
    cut,
    lists_of,
    program_of,
    sizes_of,
)
from npu_sim.timelines import InstructionLists, Program


def is_half(plan: Plan) -> bool:
    """Return whether a plan is one of half."""
    return "coreData" in plan.tiling


def lists_of_half(is_fp32: bool, has_x: bool) -> Lists:
    """Return the instructions of half; fp32 works on the buffers of its tensors."""
    dy, cos, sin, total = ("dy", "cos", "sin", "dx")
    cast: Listed = ()
    back: Listed = ()
    if not is_fp32:
        dy, cos, sin, total = ("dy_fp32", "cos_fp32", "sin_fp32", "sum_fp32")
        cast, back = (CAST,), (BACK,)
    fill: Listed = (("duplicate",), ("duplicate",)) if has_x else ()
    piece: Listed = (
        *cast,
        ("mul", cos, dy),
        ("mul", sin, dy),
        ("muls",),
        MOVED,
        MOVED,
        ("add", "c", total),
        *back,
    )
    if not has_x:
        return Lists((*fill, *cast, *cast), piece, (), ("dy",), ("dx",))
    sums: Listed = (
        *cast,
        ("mul", "c", dy),
        ("add", total, "dcos_fp32"),
        ("muls",),
        MOVED,
        MOVED,
        ("mul", "b", dy),
        ("add", total, "dsin_fp32"),
    )
    after: Listed = (COPIED, COPIED) if is_fp32 else (BACK, BACK)
    read, results = ("dy", "x"), ("dcos", "dsin")
    return Lists((*fill, *cast, *cast), (*piece, *sums), after, read, ("dx",), results)


def lists_of_interleave(plan: Plan, is_fp32: bool, has_x: bool) -> Lists:
    """Return the instructions of interleave; its adds of sums are at least one a product."""
    cast: Listed = () if is_fp32 else (CAST,)
    back: Listed = () if is_fp32 else (BACK,)
    piece: Listed = (
        *cast,
        *cast,
        *cast,
        ("mul",),
        ("mul",),
        ("gather",),
        ("mul",),
        ("add",),
        *back,
    )
    if not has_x:
        return Lists((), piece, (), ("dy",), ("dx",))
    several = plan.tiling["batchSize"] * plan.tiling["numHeads"] > 1
    adds: Listed = (("add",), ("add",)) if several else ()
    sums: Listed = (*cast, ("mul",), ("gather",), ("mul",), ("mul",), *adds)
    return Lists((), (*piece, *sums), (), ("dy", "x"), ("dx",), ("dcos", "dsin"))


def steps_of_half(plan: Plan, elements: int) -> Iterator[Steps]:
    """Yield the steps of a core with so many elements of cos."""
    fields = plan.tiling
    columns, most = fields["dimD"], fields["calcUbSize"]
    pieces = fields["firstReduce"] * fields["secondReduce"]
    is_by_batch = fields["layout"] == 10 and fields["cosDimB"] != 1
    repeats = fields["cosDimB"] if is_by_batch else 1
    for size, count in cut(elements, most):
        rows = size // columns
        yield Steps(rows, rows, pieces, count * repeats)


def steps_of_interleave(plan: Plan, positions: int) -> Iterator[Steps]:
    """Yield the steps of a core with so many positions."""
    fields = plan.tiling
    batches, heads = fields["batchSize"], fields["numHeads"]
    items, most, count = heads, fields["numHeadsLength"], positions * batches
    if not most:
        items, most, count = batches * heads, fields["batchNumHeadsLength"], positions
    if most:
        for size, number in cut(items, most):
            yield Steps(1, size, 1, number * count)
        return
    is_tail = positions == fields["seqTailLen"] and fields["tailCoreNum"]
    most = fields["seqTailCalcNum" if is_tail else "seqFrontCalcNum"]
    for size, count in cut(positions, most):
        yield Steps(size, size * batches * heads, 1, count)


def cores_of_half(plan: Plan) -> dict[int, int]:
    """Return the elements of cos of every core."""
    last = plan.block_dim - 1
    fields = plan.tiling
    return {
        core: fields["coreLast"] if core == last else fields["coreData"]
        for core in range(plan.block_dim)
    }


def _case(plan: Plan) -> tuple[bool, bool]:
    return sizes_of(plan, "dy").itemsize == FP32_BYTES, "x" in plan.arguments


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    is_fp32, has_x = _case(plan)
    if is_half(plan):
        lists, cores = lists_of_half(is_fp32, has_x), cores_of_half(plan)
        return program_of(
            plan, "dy", lists, lambda rows: tuple(steps_of_half(plan, rows)), 1, cores
        )
    lists = lists_of_interleave(plan, is_fp32, has_x)
    return program_of(
        plan, "dy", lists, lambda rows: tuple(steps_of_interleave(plan, rows)), buffers=2
    )


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; bf16 without x was compared with a device."""
    if not is_half(plan):
        return InstructionLists({}, False)
    is_fp32, has_x = _case(plan)
    lists, cores = lists_of_half(is_fp32, has_x), cores_of_half(plan)
    return lists_of(plan, "dy", lists, lambda rows: tuple(steps_of_half(plan, rows)), cores)
