"""Base block of the published deterministic gradWeight planner: steps 1 to 4 of the page.

The matrix product is M x N x KD with M = output channels, N = taps x input channels, KD = output
time, all in the cube layout. L1 holds a piece of self (operand A) and a piece of x (operand B). The
product's sizes (524288, 131072, 65536 bytes on the page) come from the Device, so that a user-made
chip is planned for what it has.
"""

from typing import TYPE_CHECKING, NamedTuple

from npu_sim.tiling.conv_tbc_backward.problem import (
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    ConvTbcProblem,
    output_time,
)
from npu_sim.tiling.integers import align, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device

LONG_EDGE = 256
SHORT_EDGE = 128
"""Edges of the first base block (page, step 1)."""
DEEPEST = 16
"""Most base blocks, counted over both buffers, that L1 is tried with (page, step 3)."""


class Extents(NamedTuple):
    """What does not change while the planner works.

    ``m``, ``n``, ``k`` are mValue, nValue, kValue in elements; ``k_limit`` is aK, the largest base
    k; ``l0_bytes`` the smaller of L0A and L0B.
    """

    time: int
    output_time: int
    batch: int
    taps: int
    element_bytes: int
    channel_block: int
    in_blocks: int
    m: int
    n: int
    k: int
    k_limit: int
    cores: int
    l1_bytes: int
    l0_bytes: int
    l0c_bytes: int


class BaseBlock(NamedTuple):
    """Base block in elements, and what L1 holds of it.

    ``steps`` is step_ka and step_kb (base blocks along k in one buffer), ``buffers`` is dbA and
    dbB: the planner always sets both operands alike. ``depth`` is the d of step 3 the steps came
    from.
    """

    m: int
    n: int
    k: int
    steps: int
    buffers: int
    depth: int


def extents_of(problem: ConvTbcProblem, device: "Device") -> Extents:
    """Extents of the matrix product in the cube layout (page, paragraph before step 1)."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    in_blocks = ceil_div(problem.in_channels, channel_block)
    k = align(output_time(problem), channel_block)
    return Extents(
        time=problem.time,
        output_time=output_time(problem),
        batch=problem.batch,
        taps=problem.taps,
        element_bytes=problem.element_bytes,
        channel_block=channel_block,
        in_blocks=in_blocks,
        # cout1 * C0 is the output channels aligned to 16 for both sizes of C0.
        m=align(problem.out_channels, CUBE_EDGE),
        n=problem.taps * in_blocks * channel_block,
        k=k,
        k_limit=align(k, CUBE_EDGE),
        cores=device.cube_cores,
        l1_bytes=device.l1_bytes,
        l0_bytes=min(device.l0a_bytes, device.l0b_bytes),
        l0c_bytes=device.l0c_bytes,
    )


def resized(block: BaseBlock, m: int, n: int, k: int) -> BaseBlock:
    """The block with other edges, same content of L1."""
    return BaseBlock(m, n, k, block.steps, block.buffers, block.depth)


def x_column_blocks(width: int, taps: int, channel_block: int) -> int:
    """Blocks of C0 input channels that ``width`` columns of N can touch; c(v) of step 2."""
    blocks = ceil_div(width, channel_block)
    straddles = (taps > blocks and taps % blocks != 0) or (2 * blocks) % taps != 0
    return ceil_div(blocks, taps) + (1 if straddles else 0)


def x_samples(extents: Extents, block: BaseBlock) -> int:
    """Samples one buffer of x touches; rows of step 2."""
    length = block.k * block.steps
    if length % extents.output_time == 0 or extents.output_time % length == 0:
        return ceil_div(length, extents.output_time)
    if length > extents.output_time:
        return length // extents.output_time + 2
    return 2


def x_elements(extents: Extents, block: BaseBlock) -> int:
    """Elements of x in one buffer of L1, whole time axes of whole channel blocks; BL1 of step 2."""
    columns = x_column_blocks(block.n, extents.taps, extents.channel_block)
    return x_samples(extents, block) * extents.time * columns * extents.channel_block


def l1_bytes_used(extents: Extents, block: BaseBlock) -> int:
    """Bytes of L1 for both operands and all buffers; the left side of F in step 2."""
    self_elements = block.steps * block.k * block.m
    return (self_elements + x_elements(extents, block)) * extents.element_bytes * block.buffers


def fits_l1(extents: Extents, block: BaseBlock) -> bool:
    """The fit test F of step 2."""
    return l1_bytes_used(extents, block) <= extents.l1_bytes


def first_block(extents: Extents) -> BaseBlock:
    """Step 1: edges from the size of M, k from half of L0A and L0B."""
    m = LONG_EDGE if extents.m > SHORT_EDGE else SHORT_EDGE
    n = SHORT_EDGE if extents.m > SHORT_EDGE else LONG_EDGE
    k = extents.l0_bytes // 2 // LONG_EDGE // extents.element_bytes
    self_elements = k * m
    x_tile_elements = k * n
    m = min(m, align(extents.m, CUBE_EDGE))
    n = min(n, align(extents.n, CUBE_EDGE))
    if extents.k_limit < k:
        k = extents.k_limit
    else:
        k = min(whole_edges(self_elements // m), whole_edges(x_tile_elements // n), extents.k_limit)
        k = whole_output_times(extents, k)
    return BaseBlock(m, n, k, 1, 2, 1)


def whole_edges(value: int) -> int:
    """``value`` rounded down to a multiple of 16, at least 16."""
    return CUBE_EDGE * max(value // CUBE_EDGE, 1)


def whole_output_times(extents: Extents, k: int) -> int:
    """Round k down to whole samples when a sample is shorter and a multiple of 16 (steps 1 and 4c)."""
    if extents.output_time < k and extents.output_time % CUBE_EDGE == 0:
        return k // extents.output_time * extents.output_time
    return k


def with_depth(extents: Extents, block: BaseBlock, depth: int) -> BaseBlock:
    """Steps and buffers for one depth d of step 3."""
    buffers = 1 if depth == 1 else 2
    steps = max(min(depth // buffers, ceil_div(extents.k, block.k)), 1)
    return BaseBlock(block.m, block.n, block.k, steps, buffers, depth)


def choose_base_block(extents: Extents) -> BaseBlock:
    """Steps 1 to 4: the deepest content of L1 that fits, else a smaller base block."""
    block = first_block(extents)
    depth = DEEPEST
    while depth >= 1:
        block = with_depth(extents, block, depth)
        if fits_l1(extents, block):
            return block
        depth = 1 if depth == 2 else depth - 2
    return shrink(extents, block)


def missing_bytes(extents: Extents, block: BaseBlock) -> int:
    """How much more than L1 the block needs with one step and one buffer; gap of step 4."""
    return max(0, l1_bytes_used(extents, block) - extents.l1_bytes)


def shrink(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4: ``block`` does not fit with one step and one buffer."""
    columns = x_column_blocks(block.n, extents.taps, extents.channel_block)
    edge_bytes = CUBE_EDGE * extents.element_bytes
    x_bytes = ceil_div(
        columns * extents.channel_block * extents.time * edge_bytes, extents.output_time
    )
    edges = ceil_div(missing_bytes(extents, block), edge_bytes * block.m + x_bytes)
    shorter = block.k - CUBE_EDGE * edges
    if shorter >= CUBE_EDGE:
        block = shrink_k(extents, resized(block, block.m, block.n, shorter))
        if fits_l1(extents, block):
            return block
    else:
        # The product goes on to shrink m and n here without looking whether k = 16 already fits.
        block = resized(block, block.m, block.n, CUBE_EDGE)
    block = shrink_edges(extents, block)
    return regrow(extents, block)


def shrink_k(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4a: 16s off k until it fits, or until k suits the length of a sample."""
    steps_out = extents.output_time
    while block.k > CUBE_EDGE and not fits_l1(extents, block):
        block = resized(block, block.m, block.n, block.k - CUBE_EDGE)
        if block.k <= steps_out and (steps_out % block.k == 0 or steps_out % CUBE_EDGE != 0):
            break
    return block


def shrink_edges(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4b: first the longer edge down to the other one, then both together."""
    while block.m > CUBE_EDGE and block.m > block.n and not fits_l1(extents, block):
        block = resized(block, block.m - CUBE_EDGE, block.n, block.k)
    while block.n > CUBE_EDGE and block.n > block.m and not fits_l1(extents, block):
        block = resized(block, block.m, block.n - CUBE_EDGE, block.k)
    if fits_l1(extents, block):
        return block
    edge_bytes = CUBE_EDGE * extents.element_bytes
    x_bytes = ceil_div(x_samples(extents, block) * extents.time * edge_bytes, extents.taps)
    edges = ceil_div(missing_bytes(extents, block), block.k * edge_bytes + x_bytes)
    if block.m < CUBE_EDGE * (edges + 1):
        return resized(block, CUBE_EDGE, CUBE_EDGE, block.k)
    edge = block.m - CUBE_EDGE * edges
    block = resized(block, edge, edge, block.k)
    while block.m > CUBE_EDGE and not fits_l1(extents, block):
        if x_column_blocks(block.m, extents.taps, extents.channel_block) < x_column_blocks(
            block.n, extents.taps, extents.channel_block
        ):
            block = resized(block, block.m, block.m, block.k)
        else:
            block = resized(block, block.m - CUBE_EDGE, block.n, block.k)
    return block


def regrow(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4c: spend what 4b left free, first on m, then on k."""
    free = extents.l1_bytes - l1_bytes_used(extents, block)
    # The product subtracts in unsigned 64 bits: a negative rest wraps to a huge one, which never is
    # the minimum.
    room = (
        extents.m
        if free < 0
        else CUBE_EDGE * (free // (block.k * CUBE_EDGE * extents.element_bytes))
    )
    l0c_share = whole_edges(extents.l0c_bytes // extents.element_bytes // 2 // block.m)
    block = resized(block, min(l0c_share, block.m + room, extents.m), block.n, block.k)
    longer = resized(block, block.m, block.n, block.k + CUBE_EDGE)
    while fits_l1(extents, block) and fits_l1(extents, longer):
        block = longer
        longer = resized(block, block.m, block.n, block.k + CUBE_EDGE)
    if block.k > extents.k_limit:
        # Nothing more: the bound of L0A and L0B is not applied on this path, a defect of the
        # product.
        k = extents.k_limit
    else:
        l0_share = extents.l0_bytes // extents.element_bytes // 2
        k = min(
            block.k,
            extents.k_limit,
            whole_edges(l0_share // block.m),
            whole_edges(l0_share // block.n),
        )
        k = whole_output_times(extents, k)
    return with_depth(extents, resized(block, block.m, block.n, k), block.depth)
