"""Published planner of deterministic gradWeight on A2 and A3: steps 5 to 11 of the page, and the whole.

Evidence: published rule, checked against the golden lines field by field. Pure integer functions, see
``conv_tbc_problem``. Call it only for ``ROUTE_PLANNER``.
"""

from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from npu_sim.tiling.conv_tbc_base_block import (
    BaseBlock,
    Extents,
    choose_base_block,
    extents_of,
    fits_l1,
    l1_bytes_used,
    resized,
    whole_edges,
    with_depth,
    x_elements,
)
from npu_sim.tiling.conv_tbc_problem import (
    CUBE_EDGE,
    FAILED,
    SUCCESS,
    ConvTbcProblem,
    is_plannable,
)
from npu_sim.tiling.integers import align, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device

TILING_KEY = 4
LONG_M = 128
"""Above this base m the block that avoids a sliver halves m instead of cutting it (page, step 7)."""
ACCUMULATOR_BYTES = 4
L0_BUFFERS = 2
"""L0A and L0B are always used in two halves (page, step 8)."""


class DeterministicTiling(NamedTuple):
    """The product's tiling fields, then what the plan shows of the buffers.

    Sizes of blocks in elements, ``*_bytes`` in bytes over all buffers (L0A and L0B always have two). ``step_k`` is stepKa and stepKb,
    ``l1_buffers`` is al1Pbuffer and bl1Pbuffer. ``exceeds_*`` is 1 where the published rule asks for more than
    the chip has (the defects named at the end of the page).
    """

    status: int
    tiling_key: int
    block_dim: int
    workspace_bytes: int
    m: int
    n: int
    k: int
    tiles: int
    base_m: int
    base_n: int
    base_k: int
    step_m: int
    step_n: int
    step_k: int
    l0c_buffers: int
    l1_buffers: int
    iterate_order: int
    x_l1_elements: int
    single_m: int
    single_n: int
    single_k: int
    stream_k: int
    stream_k_cores: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    l1_bytes: int
    exceeds_l0a: int
    exceeds_l0b: int
    exceeds_l0c: int
    exceeds_l1: int


class SingleCore(NamedTuple):
    """Output a core owns at a time, in elements, and how many such tiles the output has."""

    m: int
    n: int
    tiles: int


def single_core(extents: Extents, block: BaseBlock) -> SingleCore:
    """Step 5: whole channel blocks with all their taps, at least one."""
    channel_columns = extents.taps * extents.channel_block
    n = max(block.n // channel_columns, 1) * channel_columns
    return SingleCore(block.m, n, ceil_div(extents.m, block.m) * ceil_div(extents.n, n))


def widened(extents: Extents, single: SingleCore, rows: int, cores: int) -> int:
    """widen(x) of step 6: the n that leaves about ``cores`` tiles, never below the present one."""
    share = ceil_div(extents.in_blocks, cores // gcd(rows, cores)) * extents.taps * extents.channel_block
    return max(min(share, extents.n), single.n)


def widen_single_n(extents: Extents, block: BaseBlock, single: SingleCore) -> SingleCore:
    """Step 6: widen n so that the tiles, or the tiles times a split of the batch, fill the cores."""
    cores = extents.cores
    if single.tiles % cores == 0 and single.n == extents.n:
        return single
    rows = ceil_div(extents.m, single.m)
    n = widened(extents, single, rows, cores)
    if rows * ceil_div(extents.n, n) % cores == 0:
        return SingleCore(single.m, n, rows * ceil_div(extents.n, n))
    pieces = max(extents.k // block.k, extents.batch)
    if pieces <= 1 or single.tiles % cores + 2 >= cores:
        return single
    split = 2
    while split <= min(pieces, cores):
        n = widened(extents, single, rows, cores // split)
        rest = rows * ceil_div(extents.n, n) % cores
        if rest * split == cores or rest + 2 >= cores:
            return SingleCore(single.m, n, rows * ceil_div(extents.n, n))
        split += 1
    return single


def without_sliver(extents: Extents, block: BaseBlock, single: SingleCore) -> BaseBlock:
    """Step 7: another base block where the last one along n would be one or two edges wide.

    Its ``m`` is 0 where there is no sliver, or no better block that fits L1.
    """
    edges = block.n // CUBE_EDGE
    sliver = align(single.n, CUBE_EDGE) // CUBE_EDGE % edges
    if sliver < 1 or sliver > 2 or 2 * sliver >= edges:
        return resized(block, 0, block.n, block.k)
    widest = max(edges, CUBE_EDGE)
    groups = ceil_div(edges, extents.taps)
    if groups * extents.taps > widest:
        groups = max(groups - 1, 1)
    if groups * extents.taps > widest:
        return resized(block, 0, block.n, block.k)
    n = CUBE_EDGE * groups * extents.taps
    l0c_m = min(extents.l0c_bytes // ACCUMULATOR_BYTES // n, block.m)
    halved_m = block.m // 2 if block.m > LONG_M and l0c_m < block.m else l0c_m
    m = whole_edges(min(l0c_m, halved_m))
    k = whole_edges(extents.l0_bytes // extents.element_bytes // 2 // max(m, n))
    other = resized(block, m, n, k)
    while other.k > CUBE_EDGE and not fits_l1(extents, other):
        other = resized(other, m, n, other.k - CUBE_EDGE)
    if not fits_l1(extents, other):
        return resized(block, 0, block.n, block.k)
    return with_depth(extents, other, block.depth)


class CoreSplit(NamedTuple):
    """Cores used, and the split of the batch for the tail tiles ("stream-K")."""

    cores: int
    stream_k: int
    stream_k_cores: int


def split_cores(tiles: int, batch: int, cores: int) -> CoreSplit:
    """Steps 9 and 10."""
    used = tiles if cores // 2 < tiles < cores else cores
    rest = tiles % used
    sample_groups = 1
    if 0 < rest <= used // 2:
        sample_groups = ceil_div(batch, ceil_div(batch, used // rest))
    stream_k = 1 if sample_groups > 1 else 0
    if rest == tiles:
        used = max(1, min(tiles * sample_groups, cores))
    return CoreSplit(used, stream_k, sample_groups if stream_k else 0)


def plan_grad_weight_deterministic(problem: ConvTbcProblem, device: "Device") -> DeterministicTiling:
    """Plan gradWeight in deterministic mode on A2 and A3 by the product's published rule."""
    if not is_plannable(problem):
        return failed()
    extents = extents_of(problem, device)
    block = choose_base_block(extents)
    single = widen_single_n(extents, block, single_core(extents, block))
    block = resized(block, block.m, min(block.n, align(single.n, CUBE_EDGE)), block.k)
    other = without_sliver(extents, block, single)
    if other.m > 0:
        # The product redoes step 5 with the new block, even an equal one: the widening of step 6 is lost.
        single = single_core(extents, other)
        block = other
    split = split_cores(single.tiles, extents.batch, extents.cores)
    return filled(extents, block, single, split, device)


def filled(extents: Extents, block: BaseBlock, single: SingleCore, split: CoreSplit, device: "Device") -> DeterministicTiling:
    """Steps 8 and 11: the fields of the result."""
    tile_bytes = ACCUMULATOR_BYTES * block.m * block.n
    l0c_buffers = 2 if 2 * tile_bytes <= extents.l0c_bytes else 1
    slot_bytes = ACCUMULATOR_BYTES * single.m * single.n * split.cores * split.stream_k
    l0a_bytes = L0_BUFFERS * block.m * block.k * extents.element_bytes
    l0b_bytes = L0_BUFFERS * block.n * block.k * extents.element_bytes
    # Conditions stay outside the call below: Numba cannot compile them among this many keyword arguments.
    iterate_order = 1 if extents.m > extents.n else 0
    exceeds_l0a = 1 if l0a_bytes > device.l0a_bytes else 0
    exceeds_l0b = 1 if l0b_bytes > device.l0b_bytes else 0
    exceeds_l0c = 1 if tile_bytes * l0c_buffers > device.l0c_bytes else 0
    exceeds_l1 = 0 if fits_l1(extents, block) else 1
    return DeterministicTiling(
        status=SUCCESS,
        tiling_key=TILING_KEY,
        block_dim=split.cores,
        workspace_bytes=device.system_workspace_bytes + slot_bytes,
        m=extents.m,
        n=extents.n,
        k=extents.k,
        tiles=single.tiles,
        base_m=block.m,
        base_n=block.n,
        base_k=block.k,
        step_m=1,
        step_n=1,
        step_k=block.steps,
        l0c_buffers=l0c_buffers,
        l1_buffers=block.buffers,
        iterate_order=iterate_order,
        x_l1_elements=x_elements(extents, block),
        single_m=single.m,
        single_n=single.n,
        single_k=extents.k,
        stream_k=split.stream_k,
        stream_k_cores=split.stream_k_cores,
        l0a_bytes=l0a_bytes,
        l0b_bytes=l0b_bytes,
        l0c_bytes=tile_bytes * l0c_buffers,
        l1_bytes=l1_bytes_used(extents, block),
        exceeds_l0a=exceeds_l0a,
        exceeds_l0b=exceeds_l0b,
        exceeds_l0c=exceeds_l0c,
        exceeds_l1=exceeds_l1,
    )


def failed() -> DeterministicTiling:
    """The result for a problem the contract should have answered: nothing but the status."""
    return DeterministicTiling(
        FAILED, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip


def vendor_fields(tiling: DeterministicTiling) -> dict[str, int]:
    """Return the tiling data under the vendor's names."""
    return {
        "mValue": tiling.m,
        "nValue": tiling.n,
        "kValue": tiling.k,
        "totalCnt": tiling.tiles,
        "baseM": tiling.base_m,
        "baseN": tiling.base_n,
        "baseK": tiling.base_k,
        "stepM": tiling.step_m,
        "stepN": tiling.step_n,
        "stepKa": tiling.step_k,
        "stepKb": tiling.step_k,
        "cl0Pbuffer": tiling.l0c_buffers,
        "al1Pbuffer": tiling.l1_buffers,
        "bl1Pbuffer": tiling.l1_buffers,
        "iterateOrder": tiling.iterate_order,
        "bl1Bound": tiling.x_l1_elements,
        "singleCoreM": tiling.single_m,
        "singleCoreN": tiling.single_n,
        "singleCoreK": tiling.single_k,
        "usedCoreNum": tiling.block_dim,
        "streamKType": tiling.stream_k,
        "coreStreamK": tiling.stream_k_cores,
    }
