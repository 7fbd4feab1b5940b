"""Tiling of ConvTbcBackward: the route of gradWeight, and the tiling of both gradients.

A model plans gradInput, and gradWeight in default mode; the product's published rule plans
gradWeight in deterministic mode on A2 and A3
(:mod:`~npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic`). The model has three steps: the
base block that fits L0A, L0B, L0C and L1 of one core (:func:`choose_base`), the split of the output
over cores (:func:`split_output`), and the resulting tiling. The product's own planner for these is
not published. Buffer sizes come from the Device; the page's 32768 is half of L0A and of L0B.

Source: specification page ``conv_tbc_backward``, "Tiling model". Pure integer functions that Numba
compiles as they are, except :func:`plan_published`.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_TRAIN, Device
from npu_sim.numbers.formats import ORDERED_ADDITIONS, itemsize
from npu_sim.tiling.common import (
    FAILED,
    FP32,
    SUCCESS,
    Field,
    FieldRun,
    Part,
    Raw,
    Structure,
    align,
    align_down,
    ceil_div,
    chunk_range,
    nothing,
    vendor_fields,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    ACCUMULATOR_BYTES,
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    L0_BUFFERS,
    LONG_EDGE,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    SHORT_EDGE,
    ConvTbcProblem,
    DeterministicTiling,
    bias_rows,
    grad_weight_route,
    is_plannable,
    output_time,
    plan_grad_weight_deterministic,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import NO_TILING as NO_PUBLISHED

BUFFER_NONE, BUFFER_L0A, BUFFER_L0B, BUFFER_L0C, BUFFER_L1 = 0, 1, 2, 3, 4
BUFFER_NAMES = ("", "L0A", "L0B", "L0C", "L1")
"""Names of the ``BUFFER_*`` codes, in their order."""


class CubeProduct(NamedTuple):
    """One gradient as a matrix product of M x N with a reduction, in elements of the cube layout.

    ``is_grad_weight`` is 1 for gradWeight (reduction = output time of one sample), 0 for gradInput
    (reduction = taps x output channels, in blocks of C0 output channels, each with all taps).
    ``halo`` is that of :class:`CubeTiling`.
    """

    is_grad_weight: int
    taps: int
    element_bytes: int
    channel_block: int
    m: int
    n: int
    reduction: int
    halo: int


class CubeBase(NamedTuple):
    """A base block, and the contents of the buffers of one core.

    ``l1_length`` is the part of the reduction in one buffer of L1. ``shortage`` is a ``BUFFER_*``
    code: the first buffer that is too small, with the bytes it needs and has.
    """

    m: int
    n: int
    k: int
    l0c_buffers: int
    l1_length: int
    l1_buffers: int
    shortage: int
    bytes_needed: int
    bytes_available: int


def grad_input_product(problem: ConvTbcProblem) -> CubeProduct:
    """Return gradInput of one sample: rows are input time, columns input channels."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    return CubeProduct(
        is_grad_weight=0,
        taps=problem.taps,
        element_bytes=problem.element_bytes,
        channel_block=channel_block,
        m=problem.time,
        n=align(problem.in_channels, CUBE_EDGE),
        reduction=problem.taps * ceil_div(problem.out_channels, channel_block) * channel_block,
        halo=problem.taps - 1 - problem.pad,
    )


def grad_weight_product(problem: ConvTbcProblem) -> CubeProduct:
    """Return gradWeight of one sample: rows are output channels, columns taps x input channels."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    return CubeProduct(
        is_grad_weight=1,
        taps=problem.taps,
        element_bytes=problem.element_bytes,
        channel_block=channel_block,
        m=align(problem.out_channels, CUBE_EDGE),
        n=problem.taps * align(problem.in_channels, channel_block),
        reduction=align(output_time(problem), channel_block),
        halo=0,
    )


def self_bytes(product: CubeProduct, base_m: int, length: int) -> int:
    """Return the bytes of self in one buffer of L1: rows with halo (gradInput) or a tile."""
    if product.is_grad_weight:
        return base_m * length * product.element_bytes
    return (
        (length // (product.taps * product.channel_block))
        * (base_m - 1 + product.taps)
        * CHANNEL_BLOCK_BYTES
    )


def other_bytes(product: CubeProduct, base_n: int, length: int) -> int:
    """Return the bytes of weight (gradInput) or x with its halo (gradWeight) in a buffer of L1."""
    if product.is_grad_weight:
        channel_blocks = ceil_div(base_n, product.taps * product.channel_block)
        return (length - 1 + product.taps) * channel_blocks * CHANNEL_BLOCK_BYTES
    return length * base_n * product.element_bytes


def content_bytes(product: CubeProduct, base_m: int, base_n: int, length: int) -> int:
    """Return the bytes of ``length`` of the reduction in one buffer of L1."""
    return self_bytes(product, base_m, length) + other_bytes(product, base_n, length)


def longest_content(
    product: CubeProduct, base_m: int, base_n: int, unit: int, room_bytes: int
) -> int:
    """Return the longest reduction, in whole units, that fits ``room_bytes``; 0 when none does."""
    # The content grows by the same bytes with every unit.
    first_bytes = content_bytes(product, base_m, base_n, unit)
    if first_bytes > room_bytes:
        return 0
    further_bytes = content_bytes(product, base_m, base_n, 2 * unit) - first_bytes
    units = 1 + (room_bytes - first_bytes) // further_bytes
    return unit * min(units, ceil_div(product.reduction, unit))


def base_block(product: CubeProduct, device: Device, base_m: int, base_n: int) -> CubeBase:
    """Return the base block of given edges, with the first buffer that is too small."""
    element_bytes = product.element_bytes
    room_k = min(
        device.l0a_bytes // L0_BUFFERS // (element_bytes * base_m),
        device.l0b_bytes // L0_BUFFERS // (element_bytes * base_n),
    )
    base_k = min(
        max(align_down(room_k, product.channel_block), product.channel_block), product.reduction
    )
    tile_bytes = ACCUMULATOR_BYTES * base_m * base_n
    l0c_buffers = 2 if 2 * tile_bytes <= device.l0c_bytes else 1
    # A slice of gradInput is C0 channels with all taps; gradWeight takes whole base blocks of time.
    unit = base_k if product.is_grad_weight else product.taps * product.channel_block
    l1_length, l1_buffers = fill_l1(product, device, base_m, base_n, unit)
    if l1_length == 0 and product.is_grad_weight and base_m == CUBE_EDGE and base_n == CUBE_EDGE:
        # The smallest tile: shorten the base block before reporting a shortage.
        unit = product.channel_block
        l1_length, l1_buffers = fill_l1(product, device, base_m, base_n, unit)
    base_k = min(base_k, max(l1_length, product.channel_block))
    step_bytes = L0_BUFFERS * base_k * element_bytes
    shortage, needed, available = BUFFER_NONE, 0, 0
    for buffer, used_bytes, buffer_bytes in (
        (BUFFER_L0C, tile_bytes, device.l0c_bytes),
        (BUFFER_L0A, step_bytes * base_m, device.l0a_bytes),
        (BUFFER_L0B, step_bytes * base_n, device.l0b_bytes),
        (BUFFER_L1, content_bytes(product, base_m, base_n, unit), device.l1_bytes),
    ):
        if used_bytes > buffer_bytes and shortage == BUFFER_NONE:
            shortage, needed, available = buffer, used_bytes, buffer_bytes
    return CubeBase(
        base_m, base_n, base_k, l0c_buffers, l1_length, l1_buffers, shortage, needed, available
    )


def fill_l1(
    product: CubeProduct, device: Device, base_m: int, base_n: int, unit: int
) -> tuple[int, int]:
    """Return the reduction in one buffer of L1, and the buffers: two if a unit fits both."""
    length = longest_content(product, base_m, base_n, unit, device.l1_bytes // 2)
    if length > 0:
        return length, 2
    return longest_content(product, base_m, base_n, unit, device.l1_bytes), 1


def halved(edge: int) -> int:
    """Return half of an edge, rounded down to a multiple of 16, at least 16."""
    return max(align_down(edge // 2, CUBE_EDGE), CUBE_EDGE)


def choose_base(product: CubeProduct, device: Device) -> CubeBase:
    """Return the largest base block that fits; with a shortage only if 16 x 16 does not fit."""
    long_m = product.m > SHORT_EDGE
    base_m = min(LONG_EDGE if long_m else SHORT_EDGE, align(product.m, CUBE_EDGE))
    base_n = min(SHORT_EDGE if long_m else LONG_EDGE, align(product.n, CUBE_EDGE))
    base = base_block(product, device, base_m, base_n)
    while base.shortage != BUFFER_NONE and (base_m > CUBE_EDGE or base_n > CUBE_EDGE):
        if base.shortage == BUFFER_L0A and base_m > CUBE_EDGE:
            base_m = halved(base_m)
        elif base.shortage == BUFFER_L0B and base_n > CUBE_EDGE:
            base_n = halved(base_n)
        elif base_m >= base_n:
            base_m = halved(base_m)
        else:
            base_n = halved(base_n)
        base = base_block(product, device, base_m, base_n)
    return base


def next_split(tiles: int, blocks: int) -> int:
    """Return the next larger number of even blocks of ``tiles``; 0 when there is none."""
    tiles_per_block = ceil_div(tiles, blocks)
    return ceil_div(tiles, tiles_per_block - 1) if tiles_per_block > 1 else 0


def split_output(m_tiles: int, n_tiles: int, samples: int, cores: int) -> tuple[int, int]:
    """Return the blocks along M and along N with the fewest idle cores in the last round.

    Maximises blocks / (ceil(blocks, cores) * cores), with ``samples`` separate outputs of M x N.
    Ties go to fewer blocks, then to the larger single-core block, then to the longer M. Blocks are
    even: a larger single size with as many blocks would only make the last one shorter.
    """
    best = (1, 1)
    best_blocks = samples
    best_rounds = ceil_div(samples, cores)
    best_area = m_tiles * n_tiles
    m_blocks = 1
    while m_blocks > 0:
        n_blocks = 1
        while n_blocks > 0:
            blocks = samples * m_blocks * n_blocks
            if blocks > best_blocks and best_blocks == best_rounds * cores:
                break  # no core is idle already, and more blocks are smaller blocks
            rounds = ceil_div(blocks, cores)
            area = ceil_div(m_tiles, m_blocks) * ceil_div(n_tiles, n_blocks)
            # Compare the idle fractions idle / (rounds * cores) crosswise, exact in integers.
            idle, best_idle = rounds * cores - blocks, best_rounds * cores - best_blocks
            gain = best_idle * rounds - idle * best_rounds
            smaller = blocks < best_blocks or (blocks == best_blocks and area > best_area)
            if gain > 0 or (gain == 0 and smaller):
                best = (m_blocks, n_blocks)
                best_blocks, best_rounds, best_area = blocks, rounds, area
            n_blocks = next_split(n_tiles, n_blocks)
        m_blocks = next_split(m_tiles, m_blocks)
        if samples * m_blocks > best_blocks and best_blocks == best_rounds * cores:
            break
    return best


class CubeTiling(NamedTuple):
    """Tiling of one gradient by the model, in elements of the cube layout, ``*_bytes`` in bytes.

    Attributes
    ----------
    status
        0, or 1 if not even a 16 x 16 block fits (561103): then only the next three fields are set.
        Also 1, without a shortage, for a call without elements, which never reaches a planner.
    shortage, bytes_needed, bytes_available
        ``BUFFER_*`` code of the buffer that is too small, and the bytes that it needs and has.
    m, n, reduction, samples
        Extents. gradInput: input time x aligned input channels, reduction taps x aligned output
        channels. gradWeight: aligned output channels x taps x aligned input channels, reduction
        aligned output time.
    halo
        Time steps of self before those of a block that gradInput reads, K - 1 - pad; negative if
        the first pad - K + 1 steps are skipped. 0 for gradWeight.
    base_m, base_n, base_k
        Block of one L0 load.
    single_m, single_n, single_samples, single_reduction
        Extents of one block of a core: multiples of the base block, number of samples, part of the
        reduction of each sample.
    steps_l1, slices_l1, length_l1
        Base blocks along the reduction, slices of C0 output channels (0 for gradWeight) and length
        of the reduction in one buffer of L1.
    l0a_buffers, l0b_buffers, l0c_buffers, l1_buffers
        Buffers in each memory.
    l0a_bytes, l0b_bytes, l0c_bytes, l1_bytes
        Bytes used, all buffers together.
    m_blocks, n_blocks, sample_blocks, time_blocks, blocks
        Blocks along each axis, and their product. For gradInput ``sample_blocks`` counts separate
        outputs; for gradWeight every output element is the sum of ``sample_blocks * time_blocks``
        partial sums.
    cores, block_dim, blocks_per_core, idle_cores
        All cores, cores that work, most blocks of one core, cores without a block.
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


NO_MODEL = nothing(CubeTiling)


class BlockRange(NamedTuple):
    """Half-open ranges of one block; ``reduction`` is time, for gradInput taps x channels."""

    samples: tuple[int, int]
    m: tuple[int, int]
    n: tuple[int, int]
    reduction: tuple[int, int]


def plan_grad_input(problem: ConvTbcProblem, device: Device) -> CubeTiling:
    """Plan gradInput: every sample is a separate output, and the reduction is not split."""
    if not is_plannable(problem):
        return NO_MODEL
    product = grad_input_product(problem)
    base = choose_base(product, device)
    if base.shortage != BUFFER_NONE:
        return failed(base)
    split = split_output(
        ceil_div(product.m, base.m), ceil_div(product.n, base.n), problem.batch, device.cube_cores
    )
    return complete_tiling(
        product, base, split, problem.batch, 1, product.reduction, device.cube_cores
    )


def plan_grad_weight(problem: ConvTbcProblem, device: Device, split_reduction: bool) -> CubeTiling:
    """Plan gradWeight by the model.

    Parameters
    ----------
    problem, device
        The call and the SoC.
    split_reduction
        Whether several cores may add partial sums to an output block atomically: True in default
        mode, False in deterministic mode (Atlas training series, or the gate of the published
        planner failed).
    """
    if not is_plannable(problem):
        return NO_MODEL
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
        cores_per_block = device.cube_cores // (split[0] * split[1])
        if cores_per_block > 1:
            single_samples = ceil_div(problem.batch, min(cores_per_block, problem.batch))
            cores_per_block //= ceil_div(problem.batch, single_samples)
        if cores_per_block > 1:
            steps = align(ceil_div(output_time(problem), cores_per_block), CUBE_EDGE)
            single_time = min(steps, product.reduction)
    return complete_tiling(
        product, base, split, problem.batch, single_samples, single_time, device.cube_cores
    )


def complete_tiling(
    product: CubeProduct,
    base: CubeBase,
    split: tuple[int, int],
    samples: int,
    single_samples: int,
    single_reduction: int,
    cores: int,
) -> CubeTiling:
    """Return the tiling of a base block and a split over cores."""
    m_blocks, n_blocks = split
    # A core with a part of the time axis loads, and stores in L1, no more than that.
    base_k = min(base.k, align(single_reduction, product.channel_block))
    length = min(base.l1_length, align(single_reduction, base_k))
    slices = 0 if product.is_grad_weight else length // (product.taps * product.channel_block)
    sample_blocks = ceil_div(samples, single_samples)
    time_blocks = ceil_div(product.reduction, single_reduction)
    blocks = m_blocks * n_blocks * sample_blocks * time_blocks
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
        halo=product.halo,
        base_m=base.m,
        base_n=base.n,
        base_k=base_k,
        single_m=base.m * ceil_div(ceil_div(product.m, base.m), m_blocks),
        single_n=base.n * ceil_div(ceil_div(product.n, base.n), n_blocks),
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
        m_blocks=m_blocks,
        n_blocks=n_blocks,
        sample_blocks=sample_blocks,
        time_blocks=time_blocks,
        blocks=blocks,
        cores=cores,
        block_dim=block_dim,
        blocks_per_core=ceil_div(blocks, cores),
        idle_cores=cores - block_dim,
    )


def failed(base: CubeBase) -> CubeTiling:
    """Return the tiling of a call for which no base block fits."""
    return CubeTiling(FAILED, base.shortage, base.bytes_needed, base.bytes_available, *NO_MODEL[4:])


def block_range(tiling: CubeTiling, block: int) -> BlockRange:
    """Return the ranges of a block; N varies fastest, then M, time and samples.

    Core ``block % block_dim`` computes the block (round robin), one after the other.
    """
    n_index, others = block % tiling.n_blocks, block // tiling.n_blocks
    m_index, others = others % tiling.m_blocks, others // tiling.m_blocks
    time_index, sample_index = others % tiling.time_blocks, others // tiling.time_blocks
    return BlockRange(
        samples=chunk_range(sample_index, tiling.single_samples, tiling.samples),
        m=chunk_range(m_index, tiling.single_m, tiling.m),
        n=chunk_range(n_index, tiling.single_n, tiling.n),
        reduction=chunk_range(time_index, tiling.single_reduction, tiling.reduction),
    )


COMPUTE_DTYPES = ("none", "float16", "bfloat16", "float32", "hf32")
"""Dtypes of the cube unit by code; ``none`` if the product refuses the combination."""
LAST_16_BIT = COMPUTE_DTYPES.index("bfloat16")
COMPUTE_BITS = 3
"""Bits of a code in ``rules.compute``, which has a code for every dtype and cubeMathType."""
MATH_TYPES = 4
"""Number of values of cubeMathType."""
TRAINING_SERIES_UNKNOWN, TRAINING_SERIES_REFUSES = 0, 1
"""Behaviour of a release for pad 0 and K = T on the Atlas training series (other values: it runs),
see ``configs/releases.yaml``."""

_WIDEST = "(T + 2 * pad + 512) * (K + 1) * (max(Cin, Cout) + 512)"
EXTENT = f"max(64 * {_WIDEST}, 8 * l1_bytes, (B + 1) * {_WIDEST} // 16)"
"""Bound of the numbers of a tiling: elements of a whole matrix, aligned, in bytes and a few
buffers."""


class Cube(NamedTuple):
    """Tiling of one gradient by either planner; sizes in elements of the cube layout."""

    block_dim: Annotated[int, Field("cores that work", "cube_cores")]
    m: Annotated[int, Field("rows of the output", EXTENT)]
    n: Annotated[int, Field("columns of the output", EXTENT)]
    base_m: Annotated[int, Field("rows of one L0 load", EXTENT)]
    base_n: Annotated[int, Field("columns of one L0 load", EXTENT)]
    base_k: Annotated[int, Field("reduction of one L0 load", EXTENT)]
    single_m: Annotated[int, Field("rows of one block of a core", EXTENT)]
    single_n: Annotated[int, Field("columns of one block of a core", EXTENT)]
    blocks: Annotated[int, Field("blocks of all cores", EXTENT)]
    splits: Annotated[int, Field("cores that share one output tile", EXTENT)]
    l0a_bytes: Annotated[int, Field("L0A used, all buffers", EXTENT)]
    l0b_bytes: Annotated[int, Field("L0B used, all buffers", EXTENT)]
    l0c_bytes: Annotated[int, Field("L0C used, all buffers", EXTENT)]
    l1_bytes: Annotated[int, Field("L1 used, all buffers", EXTENT)]


NO_CUBE = nothing(Cube)


class Tiling(NamedTuple):
    """Result of the planner: the fields of sweeps, then the tilings of the planners in full.

    No tiling is published for the matrix products. Of ``weight_model`` and ``published``, only the
    one that plans gradWeight is filled.
    """

    status: int
    route: Annotated[int, Field("how gradWeight is planned", "4", words=ROUTE_NAMES)]
    compute: Annotated[int, Field("dtype of the cube unit", "4", words=COMPUTE_DTYPES)]
    block_dim: Annotated[int, Field("cores that work", "cube_cores")]
    tiling_key: Annotated[int, Field("tiling key of the published planner", "4")]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the published planner's kernel; those of the others are not published",
            EXTENT,
        ),
    ]
    exceeds: Annotated[
        int, Field("where the published planner exceeds the chip: 1 L0A, 2 L0B, 4 L0C, 8 L1", "15")
    ]
    bias_cores: Annotated[
        int,
        Field(
            "cores that add to every element of gradBias atomically, 1 where none share it",
            "vector_cores",
        ),
    ]
    bias_rows: Annotated[
        int,
        Field(
            "rows of grad_output, time and batch, that such a core takes", "B * (T + 2 * pad + 512)"
        ),
    ]
    grad_input: Annotated[Cube, Part(help=" of gradInput")]
    grad_weight: Annotated[Cube, Part(help=" of gradWeight")]
    input_model: CubeTiling
    weight_model: CubeTiling
    published: DeterministicTiling


def compute_code(row: Any, rules: Any) -> int:
    """Return the code of the cube unit's dtype; 0 if the combination is refused."""
    shift = COMPUTE_BITS * (MATH_TYPES * row.dtype + row.cube_math_type)
    code: int = (rules.compute >> shift) & ((1 << COMPUTE_BITS) - 1)
    return code


def takes_math_type(row: Any, device: Device, rules: Any) -> bool:
    """Return whether the cube unit has a dtype for the tensors' dtype and cubeMathType."""
    return compute_code(row, rules) != 0


def takes_matrix_shape(row: Any, device: Device, rules: Any) -> bool:
    """Return whether the product accepts pad 0 and K = T (page ``releases``)."""
    refuses = (
        rules.training_series_matrix == TRAINING_SERIES_REFUSES
        and device.npu_arch == NPU_ARCH_ATLAS_TRAIN
    )
    return not (refuses and row.pad == 0 and row.K == row.T)


def problem_of(row: Any, rules: Any) -> ConvTbcProblem:
    """Return the problem of a call given as integers."""
    element_bytes = 2 if compute_code(row, rules) <= LAST_16_BIT else 4
    return ConvTbcProblem(row.T, row.B, row.Cin, row.Cout, row.K, row.pad, element_bytes)


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given as integers; ``status`` is 1 if no tile of a gradient fits."""
    problem = problem_of(row, rules)
    route = grad_weight_route(problem, device, row.deterministic == 1, rules)
    input_tiling, weight, planner = NO_MODEL, NO_MODEL, NO_PUBLISHED
    if route == ROUTE_MATMUL:
        grad_input, grad_weight, cores, status = NO_CUBE, NO_CUBE, device.cube_cores, SUCCESS
    else:
        input_tiling = plan_grad_input(problem, device)
        grad_input, status = cube_of(input_tiling, input_tiling.blocks, 1), input_tiling.status
        if route == ROUTE_PLANNER:
            planner = plan_grad_weight_deterministic(problem, device)
            grad_weight = cube_of(planner, planner.tiles, max(planner.stream_k_cores, 1))
        else:
            weight = plan_grad_weight(problem, device, row.deterministic == 0)
            grad_weight = cube_of(weight, weight.blocks, weight.sample_blocks * weight.time_blocks)
            status = max(status, weight.status)
        cores = max(grad_input.block_dim, grad_weight.block_dim)
    rows = problem.batch * output_time(problem)
    # Several cores may add to gradBias: fp32, Atlas training series, default mode.
    shares = device.npu_arch != NPU_ARCH_A2_A3 and row.dtype == FP32 and row.deterministic == 0
    core_rows = max(bias_rows(rows, device.vector_cores) if shares else rows, 1)
    return Tiling(
        status=status,
        route=route,
        compute=compute_code(row, rules),
        block_dim=cores,
        tiling_key=planner.tiling_key,
        workspace_bytes=planner.workspace_bytes,
        exceeds=planner.exceeds_l0a
        + 2 * planner.exceeds_l0b
        + 4 * planner.exceeds_l0c
        + 8 * planner.exceeds_l1,
        bias_cores=ceil_div(rows, core_rows),
        bias_rows=core_rows,
        grad_input=grad_input,
        grad_weight=grad_weight,
        input_model=input_tiling,
        weight_model=weight,
        published=planner,
    )


def cube_of(tiling: CubeTiling | DeterministicTiling, blocks: int, splits: int) -> Cube:
    """Return the fields of a gradient's tiling that sweeps record."""
    return Cube(
        block_dim=tiling.block_dim,
        m=tiling.m,
        n=tiling.n,
        base_m=tiling.base_m,
        base_n=tiling.base_n,
        base_k=tiling.base_k,
        single_m=tiling.single_m,
        single_n=tiling.single_n,
        blocks=blocks,
        splits=splits,
        l0a_bytes=tiling.l0a_bytes,
        l0b_bytes=tiling.l0b_bytes,
        l0c_bytes=tiling.l0c_bytes,
        l1_bytes=tiling.l1_bytes,
    )


def is_split(tiling: Tiling) -> bool:
    """Return whether several cores add to one element of gradWeight atomically."""
    return tiling.route == ROUTE_MODEL and tiling.grad_weight.splits > 1


def weight_additions(row: Any, tiling: Tiling, tap: int) -> int:
    """Return the number of atomic additions to an element of gradWeight at one tap.

    Each core that reduces a tile adds its sum once. A core whose part of the time axis has no term
    for the tap (only padding) adds 0, which changes no sum and does not count.
    """
    model, shift = tiling.weight_model, tap - row.pad
    blocks = 0
    for block in range(model.time_blocks):
        begin = block * model.single_reduction
        stop = min(begin + model.single_reduction, row.To, row.T - shift)
        blocks += stop > max(begin, -shift)
    return blocks * model.sample_blocks


def weight_depends_on_arrival(row: Any, tiling: Tiling) -> bool:
    """Return whether bits of gradWeight depend on the order of the cores' additions."""
    if not is_split(tiling) or tiling.grad_weight.splits < ORDERED_ADDITIONS:
        return False
    return any(weight_additions(row, tiling, tap) >= ORDERED_ADDITIONS for tap in range(row.K))


def plan_published(inputs: Raw, device: Device, rules: Any) -> Raw:
    """Plan gradWeight in deterministic mode, for :func:`npu_sim.tiling.plan_kernel`.

    Parameters
    ----------
    inputs
        ``T``, ``B``, ``Cin``, ``Cout``, ``K``, ``pad`` and ``dtype``, the compute dtype.
    device, rules
        The SoC and the switches of the release.

    Returns
    -------
    dict
        ``route``: "planner", "matmul", "gate_failed", or "model" on a product or at a release
        without the published planner. For "planner" also status, tiling key, block_dim, workspace
        bytes and tiling fields.
    """
    sizes = [inputs[name] for name in ("T", "B", "Cin", "Cout", "K", "pad")]
    problem = ConvTbcProblem(*[*sizes, itemsize(inputs["dtype"])])
    route = grad_weight_route(problem, device, True, rules)
    if route != ROUTE_PLANNER:
        return {"route": ROUTE_NAMES[route]}
    tiling = plan_grad_weight_deterministic(problem, device)
    return {
        "route": ROUTE_NAMES[route],
        "status": "success",
        "tiling_key": tiling.tiling_key,
        "block_dim": tiling.block_dim,
        "workspace_bytes": tiling.workspace_bytes,
        "tiling": vendor_fields(tiling),
    }


KERNELS = {"conv_tbc_grad_weight_deterministic": plan_published}
"""The only published planner of the operator."""

STRUCTURES = (
    Structure(
        "Conv3DBackpropFilterV2",
        "8.5",
        (
            FieldRun("uint64_t", "batchDim", "params"),
            FieldRun("uint32_t", "groupDim mDim kDim nDim dkDim totalL1Size", "params"),
            FieldRun(
                "uint32_t",
                "batch cin cout cin1G cout1G dout ho wo di hi wi dk hk wk group strideD strideH "
                "strideW padFront padBack padUp padDown padLeft padRight dilationD dilationH "
                "dilationW channelSize al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer bl1Pbuffer "
                "baseM baseK baseN m0 k0 n0 stepM stepN stepKa stepKb iterateOrder bl1Bound "
                "hf32Flag singleCoreDk singleCoreGroup singleCoreCout singleCoreHo",
                "dwTiling",
            ),
            FieldRun("uint64_t", "singleCoreBatch singleCoreCin", "dwTiling"),
            FieldRun(
                "uint32_t", "coreBindOrder usedCoreNum singleCoreM singleCoreN", "basicBlockTiling"
            ),
            FieldRun("uint64_t", "singleCoreK", "basicBlockTiling"),
            FieldRun("uint32_t", "streamKType coreStreamK", "basicBlockTiling", since="9.1"),
        ),
    ),
    Structure(
        "Conv3DBackpropInputV2",
        "8.5",
        (
            FieldRun("uint32_t", "batchDim groupDim mDim kDim nDim dDim", "params"),
            FieldRun("uint64_t", "coreNum", "params"),
            FieldRun(
                "uint32_t",
                "batch cin cout cout1 cin1 cout1G cin1G c0 c0Bits dout ho wo di hi wi dk hk wk "
                "group strideD strideH strideW padFront padBack padUp padDown padLeft padRight "
                "backpropPadTail backpropPadUp backpropPadDown backpropPadLeft backpropPadRight "
                "dilationD dilationH dilationW al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer "
                "bl1Pbuffer singleCoreGroup singleCoreCout singleCoreCout1 singleCoreCin1 "
                "singleCoreDin singleCoreHo baseM baseK baseN baseD baseBatch baseGroup stepM "
                "stepN stepKa stepKb stepBatch stepGroup iterateOrder",
                "conv3DDxTiling",
            ),
            FieldRun("int32_t", "hf32Flag initOutputFlag reserved", "conv3DDxTiling"),
            FieldRun("uint64_t", "singleCoreBatch singleCoreM singleCoreCin", "conv3DDxTiling"),
        ),
    ),
)
"""Tiling structures of gradWeight and gradInput as bytes (page ``tiling_bytes``); planners know
some of their fields only."""
