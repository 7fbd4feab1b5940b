"""Tiling of the cube kernels of ConvTbcBackward: gradInput, and gradWeight outside the published planner.

Evidence: model. Source: the page, "Tiling model"; base blocks are chosen in ``conv_tbc_cube_model``. Pure integer
functions that Numba compiles as they are.
"""

from typing import TYPE_CHECKING, NamedTuple

from npu_sim.tiling.conv_tbc_backward.core_split import OutputSplit, split_output
from npu_sim.tiling.conv_tbc_backward.cube_model import (
    ACCUMULATOR_BYTES,
    BUFFER_NONE,
    L0_BUFFERS,
    CubeBase,
    CubeProduct,
    choose_base,
    content_bytes,
    grad_input_product,
    grad_weight_product,
    no_base,
)
from npu_sim.tiling.conv_tbc_backward.problem import (
    CUBE_EDGE,
    ConvTbcProblem,
    is_plannable,
    output_time,
)
from npu_sim.tiling.fields import FAILED, SUCCESS, nothing
from npu_sim.tiling.integers import align, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device


class CubeTiling(NamedTuple):
    """Tiling of one gradient by the model; sizes in elements of the cube layout, ``*_bytes`` in bytes.

    Attributes
    ----------
    status
        0, or 1 when not even a 16 x 16 block fits (561103): then only the next three fields are set. Also 1, with
        no shortage, for a call without elements, which the contract answers before any planner.
    shortage, bytes_needed, bytes_available
        ``BUFFER_*`` code of the buffer that is too small, the bytes it would need and has.
    m, n, reduction, samples
        Extents. gradInput: input time x aligned input channels, reduction taps x aligned output channels.
        gradWeight: aligned output channels x taps x aligned input channels, reduction aligned output time.
    halo
        Time steps of self to the left of a block's own that gradInput reads, K - 1 - pad; negative when the
        first pad - K + 1 steps are skipped. 0 for gradWeight.
    base_m, base_n, base_k
        Block of one L0 load.
    single_m, single_n, single_samples, single_reduction
        What one block covers: multiples of the base block, samples it takes, part of each sample's reduction.
    steps_l1, slices_l1, length_l1
        Base blocks along the reduction, slices of C0 output channels (0 for gradWeight) and length of the
        reduction in one buffer of L1.
    l0a_buffers, l0b_buffers, l0c_buffers, l1_buffers
        Buffers in each memory.
    l0a_bytes, l0b_bytes, l0c_bytes, l1_bytes
        Bytes used, all buffers together.
    m_blocks, n_blocks, sample_blocks, time_blocks, blocks
        Blocks along each axis, and their product. For gradInput ``sample_blocks`` counts separate outputs; for
        gradWeight ``sample_blocks * time_blocks`` partial sums meet in every output element.
    cores, block_dim, blocks_per_core, idle_cores
        Cores there are, cores that work, most blocks of one core, cores without a block.
    """

    status: int
    shortage: int
    bytes_needed: int
    bytes_available: int
    m: int
    n: int
    reduction: int
    samples: int
    halo: int
    base_m: int
    base_n: int
    base_k: int
    single_m: int
    single_n: int
    single_samples: int
    single_reduction: int
    steps_l1: int
    slices_l1: int
    length_l1: int
    l0a_buffers: int
    l0b_buffers: int
    l0c_buffers: int
    l1_buffers: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    l1_bytes: int
    m_blocks: int
    n_blocks: int
    sample_blocks: int
    time_blocks: int
    blocks: int
    cores: int
    block_dim: int
    blocks_per_core: int
    idle_cores: int


NO_TILING: CubeTiling = nothing(CubeTiling)


class BlockRange(NamedTuple):
    """Half-open ranges of one block; ``reduction`` is time for gradWeight, taps x channels for gradInput."""

    sample_start: int
    sample_stop: int
    m_start: int
    m_stop: int
    n_start: int
    n_stop: int
    reduction_start: int
    reduction_stop: int


def plan_grad_input(problem: ConvTbcProblem, device: "Device") -> CubeTiling:
    """Plan gradInput, all products: every sample is its own output, nothing is split along the reduction."""
    if not is_plannable(problem):
        return failed(no_base())
    product = grad_input_product(problem)
    base = choose_base(product, device)
    if base.shortage != BUFFER_NONE:
        return failed(base)
    m_tiles = ceil_div(product.m, base.m)
    n_tiles = ceil_div(product.n, base.n)
    split = split_output(m_tiles, n_tiles, problem.batch, device.cube_cores)
    halo = problem.taps - 1 - problem.pad
    return filled(
        product, base, split, problem.batch, 1, product.reduction, halo, device.cube_cores
    )


def plan_grad_weight(
    problem: ConvTbcProblem, device: "Device", split_reduction: bool
) -> CubeTiling:
    """Plan gradWeight by the model.

    Parameters
    ----------
    problem, device
        The call and the SoC.
    split_reduction
        Whether cores may share an output block, adding partial sums atomically: True in default mode, False in
        deterministic mode (Atlas training, or the gate of the published planner failed).
    """
    if not is_plannable(problem):
        return failed(no_base())
    product = grad_weight_product(problem)
    base = choose_base(product, device)
    if base.shortage != BUFFER_NONE:
        return failed(base)
    split = split_output(
        ceil_div(product.m, base.m), ceil_div(product.n, base.n), 1, device.cube_cores
    )
    single_samples = problem.batch
    single_time = product.reduction
    if split_reduction:
        share = device.cube_cores // (split.m_blocks * split.n_blocks)
        if share > 1:
            single_samples = ceil_div(problem.batch, min(share, problem.batch))
            share //= ceil_div(problem.batch, single_samples)
        if share > 1:
            single_time = min(
                align(ceil_div(output_time(problem), share), CUBE_EDGE), product.reduction
            )
    return filled(
        product, base, split, problem.batch, single_samples, single_time, 0, device.cube_cores
    )


def filled(
    product: CubeProduct,
    base: CubeBase,
    split: OutputSplit,
    samples: int,
    single_samples: int,
    single_reduction: int,
    halo: int,
    cores: int,
) -> CubeTiling:
    """Put the result together from the base block and the split over cores."""
    # A core that takes only a part of the time axis loads, and keeps in L1, no more than that.
    base_k = min(base.k, align(single_reduction, product.channel_block))
    length = min(base.l1_length, align(single_reduction, base_k))
    slices = 0 if product.is_grad_weight else length // (product.taps * product.channel_block)
    sample_blocks = ceil_div(samples, single_samples)
    time_blocks = ceil_div(product.reduction, single_reduction)
    blocks = split.m_blocks * split.n_blocks * sample_blocks * time_blocks
    block_dim = min(blocks, cores)
    return CubeTiling(
        status=SUCCESS,
        shortage=BUFFER_NONE,
        bytes_needed=0,
        bytes_available=0,
        m=product.m,
        n=product.n,
        reduction=product.reduction,
        samples=samples,
        halo=halo,
        base_m=base.m,
        base_n=base.n,
        base_k=base_k,
        single_m=base.m * ceil_div(ceil_div(product.m, base.m), split.m_blocks),
        single_n=base.n * ceil_div(ceil_div(product.n, base.n), split.n_blocks),
        single_samples=single_samples,
        single_reduction=single_reduction,
        steps_l1=ceil_div(length, base_k),
        slices_l1=slices,
        length_l1=length,
        l0a_buffers=L0_BUFFERS,
        l0b_buffers=L0_BUFFERS,
        l0c_buffers=base.l0c_buffers,
        l1_buffers=base.l1_buffers,
        l0a_bytes=L0_BUFFERS * base.m * base_k * product.element_bytes,
        l0b_bytes=L0_BUFFERS * base.n * base_k * product.element_bytes,
        l0c_bytes=base.l0c_buffers * ACCUMULATOR_BYTES * base.m * base.n,
        l1_bytes=base.l1_buffers * content_bytes(product, base.m, base.n, length),
        m_blocks=split.m_blocks,
        n_blocks=split.n_blocks,
        sample_blocks=sample_blocks,
        time_blocks=time_blocks,
        blocks=blocks,
        cores=cores,
        block_dim=block_dim,
        blocks_per_core=ceil_div(blocks, cores),
        idle_cores=cores - block_dim,
    )


def failed(base: CubeBase) -> CubeTiling:
    """Not even a 16 x 16 block fits: the buffer, what it would need and what it has."""
    return CubeTiling(
        FAILED, base.shortage, base.bytes_needed, base.bytes_available, *NO_TILING[4:]
    )


def block_range(tiling: CubeTiling, block: int) -> BlockRange:
    """Ranges of one block, 0 <= block < tiling.blocks; N runs fastest, then M, time, samples.

    Core ``block % block_dim`` computes the block (round robin), one after the other.
    """
    n_index = block % tiling.n_blocks
    m_index = block // tiling.n_blocks % tiling.m_blocks
    time_index = block // (tiling.n_blocks * tiling.m_blocks) % tiling.time_blocks
    sample_index = block // (tiling.n_blocks * tiling.m_blocks * tiling.time_blocks)
    return BlockRange(
        sample_index * tiling.single_samples,
        min((sample_index + 1) * tiling.single_samples, tiling.samples),
        m_index * tiling.single_m,
        min((m_index + 1) * tiling.single_m, tiling.m),
        n_index * tiling.single_n,
        min((n_index + 1) * tiling.single_n, tiling.n),
        time_index * tiling.single_reduction,
        min((time_index + 1) * tiling.single_reduction, tiling.reduction),
    )
