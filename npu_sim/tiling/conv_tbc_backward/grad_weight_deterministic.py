"""Sizes of a call of ConvTbcBackward, the route of its gradWeight, and the published planner.

Specification page ``conv_tbc_backward`` ("the page"). The published planner plans deterministic
gradWeight on A2 and A3; call it only for ``ROUTE_PLANNER``. Evidence: published rule, checked
against the golden lines field by field. Source: "Planner of deterministic gradWeight", steps 1 to
11; steps 1 to 4 choose the base block.

The matrix product is M x N x KD with M = output channels, N = taps x input channels, KD = output
time, all in the cube layout. L1 holds a piece of self (operand A) and a piece of x (operand B). The
product's sizes (524288, 131072 and 65536 bytes on the page) come from the Device, so that a
user-defined chip is planned with its own sizes. Pure integer functions, safe in int64, that Numba
compiles as they are.
"""

from math import gcd
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import NPU_ARCH_A2_A3, Device
from npu_sim.tiling.common import SUCCESS, Field, align, ceil_div, nothing

CUBE_EDGE = 16
"""Rows and columns of the smallest matrix the cube unit multiplies (page; numerics.md, "Cube
unit")."""

CHANNEL_BLOCK_BYTES = 32
"""A row of the cube layout: C0 channels fill one 32-byte block (page, "What runs")."""

ROUTE_MATMUL = 1
"""A2 and A3, pad 0 and K = T, hence output length 1: both gradients are batched products."""
ROUTE_PLANNER = 2
"""The published planner of deterministic gradWeight; in default mode for the white-listed shape
only."""
ROUTE_GATE_FAILED = 3
"""Deterministic on A2 and A3, but the published planner does not accept it: the model, without
splitting the reduction over cores."""
ROUTE_MODEL = 4
"""The model: default mode except for the white-listed shape, deterministic mode on other products,
and every call at a release without the published planner."""
ROUTE_NAMES = ("none", "matmul", "planner", "gate_failed", "model")
"""Names of the ``ROUTE_*`` codes, as the golden data has them; ``none`` where no kernel runs."""

BIAS_UNIT_ROWS = 256
"""Fewest rows of self per core if several cores add to gradBias (model)."""

PUBLISHED_L0_BYTES, PUBLISHED_L0C_BYTES = 65536, 131072
"""L0A and L0B, and L0C, that the published planner assumes: every A2 and A3 SoC has them. Its first
base block, 256 x 128 in fp32, fills L0C."""


class ConvTbcProblem(NamedTuple):
    """Sizes of one call of ConvTbcBackward, in elements.

    Attributes
    ----------
    time, batch, in_channels
        Shape of input, (T, B, Cin).
    out_channels
        Cout, the last axis of self and weight.
    taps
        K, the first axis of weight, >= 1.
    pad
        Zeros added at both ends of the time axis, >= 0.
    element_bytes
        Bytes of the compute dtype after cubeMathType: 2 (fp16, bf16) or 4 (fp32, hf32).
    """

    time: int
    batch: int
    in_channels: int
    out_channels: int
    taps: int
    pad: int
    element_bytes: int


def output_time(problem: ConvTbcProblem) -> int:
    """To, the time steps of self: T + 2 * pad - K + 1."""
    return problem.time + 2 * problem.pad - problem.taps + 1


def on_white_list(problem: ConvTbcProblem) -> bool:
    """Return whether the deterministic route runs in default mode too (page, "What runs")."""
    sizes = (
        problem.time == 8
        and problem.batch == 1
        and problem.in_channels == 4
        and problem.out_channels == 2
    )
    return problem.element_bytes == 4 and sizes and problem.taps == 4 and problem.pad == 0


def bias_rows(rows: int, cores: int) -> int:
    """Return the rows (time and batch) of self per core if ``cores`` may add to gradBias.

    Evidence: model (the page states only that it may be split): every core gets the same number of
    units of BIAS_UNIT_ROWS rows.
    """
    return ceil_div(ceil_div(rows, BIAS_UNIT_ROWS), cores) * BIAS_UNIT_ROWS


def is_plannable(problem: ConvTbcProblem) -> bool:
    """Return whether a planner can plan the call: no empty axis, and an element size of 2 or 4.

    Other calls never reach a planner.
    """
    if problem.element_bytes != 2 and problem.element_bytes != 4:
        return False
    return (
        problem.batch > 0
        and problem.in_channels > 0
        and problem.out_channels > 0
        and problem.time > 0
        and problem.taps > 0
        and problem.pad >= 0
        and output_time(problem) > 0
    )


def grad_weight_route(
    problem: ConvTbcProblem, device: Device, deterministic: bool, rules: Any
) -> int:
    """Return the route of gradWeight, one of the ``ROUTE_*`` codes.

    Source: the page, "What runs" (matrix product) and "Planner of deterministic gradWeight" (gate);
    page ``releases``, whether that planner is published.
    """
    if device.npu_arch != NPU_ARCH_A2_A3:
        return ROUTE_MODEL
    if problem.pad == 0 and problem.taps == problem.time:
        return ROUTE_MATMUL
    if rules.deterministic_planner == 0:
        return ROUTE_MODEL
    if published_planner_takes(problem, device) and (deterministic or on_white_list(problem)):
        return ROUTE_PLANNER
    return ROUTE_GATE_FAILED if deterministic else ROUTE_MODEL


def published_planner_takes(problem: ConvTbcProblem, device: Device) -> bool:
    """Return whether the published planner accepts: pad < K, and the smallest operands fit L1.

    It also fails on a user-defined chip with less L0A, L0B or L0C than every A2 and A3 SoC has: the
    first base blocks of the published planner would not fit.
    """
    if not is_plannable(problem):
        return False
    if device.l0a_bytes < PUBLISHED_L0_BYTES or device.l0b_bytes < PUBLISHED_L0_BYTES:
        return False
    if device.l0c_bytes < PUBLISHED_L0C_BYTES:
        return False
    return problem.pad < problem.taps and gate_bytes(problem) <= device.l1_bytes


def gate_row_bytes(problem: ConvTbcProblem) -> int:
    """Return the bytes of a row of self or x at the gate."""
    # k0 is C0, q two blocks of 8 for fp32: k0 * e * q is 32 bytes for 16-bit and 64 for fp32.
    return CHANNEL_BLOCK_BYTES * (1 if problem.element_bytes == 2 else 2)


def gate_bytes(problem: ConvTbcProblem) -> int:
    """Return the L1 bytes of the gate: 16 rows of self and their x (a1 + b1 of the page)."""
    steps_out = output_time(problem)
    if steps_out >= CUBE_EDGE:
        x_rows = problem.time * (1 if steps_out % CUBE_EDGE == 0 else 2)
    else:
        samples = ceil_div(CUBE_EDGE, steps_out) + (1 if CUBE_EDGE % steps_out != 0 else 0)
        x_rows = align(samples * problem.time, CUBE_EDGE)
    return (CUBE_EDGE + x_rows) * gate_row_bytes(problem)


LONG_EDGE, SHORT_EDGE = 256, 128
"""Edges of the first base block (page, step 1)."""
DEEPEST = 16
"""Most base blocks in L1, both buffers together, that are tried (page, step 3)."""

LONG_M = 128
"""Above this base m the block that avoids a sliver halves m instead of cutting it (page, step
7)."""
ACCUMULATOR_BYTES = 4
L0_BUFFERS = 2
"""L0A and L0B are always used in two halves (page, step 8)."""


class Extents(NamedTuple):
    """Constants of one run of the planner.

    ``m``, ``n``, ``k`` are mValue, nValue, kValue in elements; ``k_limit`` is aK, the largest base
    k; ``l0_bytes`` the smaller of L0A and L0B.
    """

    problem: ConvTbcProblem
    device: Device
    output_time: int
    channel_block: int
    in_blocks: int
    m: int
    n: int
    k: int
    k_limit: int
    l0_bytes: int


class BaseBlock(NamedTuple):
    """Base block in elements, and the number of base blocks in L1.

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


def extents_of(problem: ConvTbcProblem, device: Device) -> Extents:
    """Extents of the matrix product in the cube layout (page, paragraph before step 1)."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    in_blocks = ceil_div(problem.in_channels, channel_block)
    k = align(output_time(problem), channel_block)
    return Extents(
        problem=problem,
        device=device,
        output_time=output_time(problem),
        channel_block=channel_block,
        in_blocks=in_blocks,
        # cout1 * C0 is the output channels aligned to 16 for both sizes of C0.
        m=align(problem.out_channels, CUBE_EDGE),
        n=problem.taps * in_blocks * channel_block,
        k=k,
        k_limit=align(k, CUBE_EDGE),
        l0_bytes=min(device.l0a_bytes, device.l0b_bytes),
    )


def resized(block: BaseBlock, m: int, n: int, k: int) -> BaseBlock:
    """Return the block with other edges and the same contents of L1."""
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
    return length // extents.output_time + 2


def x_elements(extents: Extents, block: BaseBlock) -> int:
    """Elements of x in one buffer of L1, whole time axes of whole channel blocks; BL1 of step 2."""
    columns = x_column_blocks(block.n, extents.problem.taps, extents.channel_block)
    return x_samples(extents, block) * extents.problem.time * columns * extents.channel_block


def l1_bytes_used(extents: Extents, block: BaseBlock) -> int:
    """Bytes of L1 for both operands and all buffers; the left side of F in step 2."""
    self_elements = block.steps * block.k * block.m
    return (
        (self_elements + x_elements(extents, block)) * extents.problem.element_bytes * block.buffers
    )


def fits_l1(extents: Extents, block: BaseBlock) -> bool:
    """Return whether the fit test F of step 2 passes."""
    return l1_bytes_used(extents, block) <= extents.device.l1_bytes


def first_block(extents: Extents) -> BaseBlock:
    """Step 1: edges from the size of M, k from half of L0A and L0B."""
    longest_m = LONG_EDGE if extents.m > SHORT_EDGE else SHORT_EDGE
    longest_n = SHORT_EDGE if extents.m > SHORT_EDGE else LONG_EDGE
    m = min(longest_m, align(extents.m, CUBE_EDGE))
    n = min(longest_n, align(extents.n, CUBE_EDGE))
    k = extents.l0_bytes // 2 // LONG_EDGE // extents.problem.element_bytes
    if extents.k_limit < k:
        return BaseBlock(m, n, extents.k_limit, 1, 2, 1)
    k = min(whole_edges(k * longest_m // m), whole_edges(k * longest_n // n), extents.k_limit)
    return BaseBlock(m, n, whole_output_times(extents, k), 1, 2, 1)


def whole_edges(value: int) -> int:
    """``value`` rounded down to a multiple of 16, at least 16."""
    return CUBE_EDGE * max(value // CUBE_EDGE, 1)


def whole_output_times(extents: Extents, k: int) -> int:
    """Round k down to whole samples if these are shorter and multiples of 16 (steps 1, 4c)."""
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
    """Return the bytes by which the block exceeds L1; gap of step 4."""
    return max(0, l1_bytes_used(extents, block) - extents.device.l1_bytes)


def shrink(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4: ``block`` does not fit with one step and one buffer."""
    columns = x_column_blocks(block.n, extents.problem.taps, extents.channel_block)
    edge_bytes = CUBE_EDGE * extents.problem.element_bytes
    x_bytes = ceil_div(
        columns * extents.channel_block * extents.problem.time * edge_bytes, extents.output_time
    )
    edges = ceil_div(missing_bytes(extents, block), edge_bytes * block.m + x_bytes)
    shorter = block.k - CUBE_EDGE * edges
    if shorter >= CUBE_EDGE:
        block = shrink_k(extents, resized(block, block.m, block.n, shorter))
        if fits_l1(extents, block):
            return block
    else:
        # The product shrinks m and n here without checking whether k = 16 already fits.
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
    """Step 4b: shorten the longer edge to the other one, then both together."""
    while block.m > CUBE_EDGE and block.m > block.n and not fits_l1(extents, block):
        block = resized(block, block.m - CUBE_EDGE, block.n, block.k)
    while block.n > CUBE_EDGE and block.n > block.m and not fits_l1(extents, block):
        block = resized(block, block.m, block.n - CUBE_EDGE, block.k)
    if fits_l1(extents, block):
        return block
    edge_bytes = CUBE_EDGE * extents.problem.element_bytes
    x_bytes = ceil_div(
        x_samples(extents, block) * extents.problem.time * edge_bytes, extents.problem.taps
    )
    edges = ceil_div(missing_bytes(extents, block), block.k * edge_bytes + x_bytes)
    if block.m < CUBE_EDGE * (edges + 1):
        return resized(block, CUBE_EDGE, CUBE_EDGE, block.k)
    edge = block.m - CUBE_EDGE * edges
    block = resized(block, edge, edge, block.k)
    while block.m > CUBE_EDGE and not fits_l1(extents, block):
        if x_column_blocks(block.m, extents.problem.taps, extents.channel_block) < x_column_blocks(
            block.n, extents.problem.taps, extents.channel_block
        ):
            block = resized(block, block.m, block.m, block.k)
        else:
            block = resized(block, block.m - CUBE_EDGE, block.n, block.k)
    return block


def regrow(extents: Extents, block: BaseBlock) -> BaseBlock:
    """Step 4c: enlarge m, then k, into the space that 4b left free."""
    free = extents.device.l1_bytes - l1_bytes_used(extents, block)
    # The product subtracts in unsigned 64 bits: a negative rest wraps to a huge number, which is
    # never the minimum.
    room = extents.m
    if free >= 0:
        room = CUBE_EDGE * (free // (block.k * CUBE_EDGE * extents.problem.element_bytes))
    l0c_share = whole_edges(
        extents.device.l0c_bytes // extents.problem.element_bytes // 2 // block.m
    )
    block = resized(block, min(l0c_share, block.m + room, extents.m), block.n, block.k)
    longer = resized(block, block.m, block.n, block.k + CUBE_EDGE)
    while fits_l1(extents, block) and fits_l1(extents, longer):
        block = longer
        longer = resized(block, block.m, block.n, block.k + CUBE_EDGE)
    if block.k > extents.k_limit:
        # The bound of L0A and L0B is not applied on this path: a defect of the product.
        k = extents.k_limit
    else:
        l0_share = extents.l0_bytes // extents.problem.element_bytes // 2
        k = min(
            block.k,
            extents.k_limit,
            whole_edges(l0_share // block.m),
            whole_edges(l0_share // block.n),
        )
        k = whole_output_times(extents, k)
    return with_depth(extents, resized(block, block.m, block.n, k), block.depth)


class DeterministicTiling(NamedTuple):
    """Tiling fields of the product, then the buffers; sizes in elements unless in ``*_bytes``."""

    status: int
    tiling_key: int
    workspace_bytes: int
    m: Annotated[int, Field("output channels", vendor="mValue")]
    n: Annotated[int, Field("taps x input channels", vendor="nValue")]
    k: Annotated[int, Field("output time", vendor="kValue")]
    tiles: Annotated[int, Field("tiles of the output", vendor="totalCnt")]
    base_m: Annotated[int, Field("output channels of a base block", vendor="baseM")]
    base_n: Annotated[int, Field("columns of a base block", vendor="baseN")]
    base_k: Annotated[int, Field("output time of a base block", vendor="baseK")]
    step_m: Annotated[int, Field("base blocks along m in one buffer", vendor="stepM")]
    step_n: Annotated[int, Field("base blocks along n in one buffer", vendor="stepN")]
    step_k: Annotated[int, Field("base blocks along k in one buffer", vendor="stepKa stepKb")]
    l0c_buffers: Annotated[int, Field("buffers in L0C", vendor="cl0Pbuffer")]
    l1_buffers: Annotated[
        int, Field("buffers of each operand in L1", vendor="al1Pbuffer bl1Pbuffer")
    ]
    iterate_order: Annotated[int, Field("1 when columns run fastest", vendor="iterateOrder")]
    x_l1_elements: Annotated[int, Field("elements of x in one buffer of L1", vendor="bl1Bound")]
    single_m: Annotated[int, Field("output channels of a tile", vendor="singleCoreM")]
    single_n: Annotated[int, Field("columns of a tile", vendor="singleCoreN")]
    single_k: Annotated[int, Field("output time of a tile", vendor="singleCoreK")]
    block_dim: Annotated[int, Field("cores that work", vendor="usedCoreNum")]
    stream_k: Annotated[
        int,
        Field("1 when the samples of the last tiles are split over cores", vendor="streamKType"),
    ]
    stream_k_cores: Annotated[
        int, Field("cores that share one of those tiles", vendor="coreStreamK")
    ]
    l0a_bytes: Annotated[int, Field("L0A used, both buffers")]
    l0b_bytes: Annotated[int, Field("L0B used, both buffers")]
    l0c_bytes: Annotated[int, Field("L0C used, all buffers")]
    l1_bytes: Annotated[int, Field("L1 used, all buffers")]
    exceeds_l0a: Annotated[
        int, Field('1 if the rule needs more L0A than there is (page, "Known defects")')
    ]
    exceeds_l0b: Annotated[int, Field("1 if the rule needs more L0B than there is")]
    exceeds_l0c: Annotated[int, Field("1 if the rule needs more L0C than there is")]
    exceeds_l1: Annotated[int, Field("1 if the rule needs more L1 than there is")]


NO_TILING = nothing(DeterministicTiling)


def single_columns(extents: Extents, block: BaseBlock) -> int:
    """Step 5: the columns of a tile, whole channel blocks with all their taps, at least one."""
    channel_columns = extents.problem.taps * extents.channel_block
    return max(block.n // channel_columns, 1) * channel_columns


def output_tiles(extents: Extents, block: BaseBlock, single_n: int) -> int:
    """Return the number of tiles of the output, of ``block.m`` rows and ``single_n`` columns."""
    return ceil_div(extents.m, block.m) * ceil_div(extents.n, single_n)


def widened(extents: Extents, single_n: int, rows: int, cores: int) -> int:
    """widen(x) of step 6: the n that leaves about ``cores`` tiles, never below the present one."""
    share = (
        ceil_div(extents.in_blocks, cores // gcd(rows, cores))
        * extents.problem.taps
        * extents.channel_block
    )
    return max(min(share, extents.n), single_n)


def widen_single_n(extents: Extents, block: BaseBlock, single_n: int) -> int:
    """Step 6: widen n until the tiles, or the tiles times a split of the batch, fill the cores."""
    cores, rows = extents.device.cube_cores, ceil_div(extents.m, block.m)
    rest = output_tiles(extents, block, single_n) % cores
    if rest == 0 and single_n == extents.n:
        return single_n
    n = widened(extents, single_n, rows, cores)
    if output_tiles(extents, block, n) % cores == 0:
        return n
    pieces = max(extents.k // block.k, extents.problem.batch)
    if pieces <= 1 or rest + 2 >= cores:
        return single_n
    split = 2
    while split <= min(pieces, cores):
        n = widened(extents, single_n, rows, cores // split)
        rest = output_tiles(extents, block, n) % cores
        if rest * split == cores or rest + 2 >= cores:
            return n
        split += 1
    return single_n


def without_sliver(extents: Extents, block: BaseBlock, single_n: int) -> BaseBlock:
    """Step 7: another base block if the last one along n would be one or two edges wide.

    Its ``m`` is 0 if there is no sliver, or no better block that fits L1.
    """
    edges = block.n // CUBE_EDGE
    sliver = align(single_n, CUBE_EDGE) // CUBE_EDGE % edges
    if sliver < 1 or sliver > 2 or 2 * sliver >= edges:
        return resized(block, 0, block.n, block.k)
    widest = max(edges, CUBE_EDGE)
    groups = ceil_div(edges, extents.problem.taps)
    if groups * extents.problem.taps > widest:
        groups = max(groups - 1, 1)
    if groups * extents.problem.taps > widest:
        return resized(block, 0, block.n, block.k)
    n = CUBE_EDGE * groups * extents.problem.taps
    l0c_m = min(extents.device.l0c_bytes // ACCUMULATOR_BYTES // n, block.m)
    halved_m = block.m // 2 if block.m > LONG_M and l0c_m < block.m else l0c_m
    m = whole_edges(min(l0c_m, halved_m))
    k = whole_edges(extents.l0_bytes // extents.problem.element_bytes // 2 // max(m, n))
    other = resized(block, m, n, k)
    while other.k > CUBE_EDGE and not fits_l1(extents, other):
        other = resized(other, m, n, other.k - CUBE_EDGE)
    if not fits_l1(extents, other):
        return resized(block, 0, block.n, block.k)
    return with_depth(extents, other, block.depth)


def split_cores(tiles: int, batch: int, cores: int) -> tuple[int, int]:
    """Steps 9 and 10: cores used, and those that split a tail tile ("stream-K"), 0 for none."""
    used = tiles if cores // 2 < tiles < cores else cores
    rest = tiles % used
    sample_groups = 1
    if 0 < rest <= used // 2:
        sample_groups = ceil_div(batch, ceil_div(batch, used // rest))
    if rest == tiles:
        used = max(1, min(tiles * sample_groups, cores))
    return used, sample_groups if sample_groups > 1 else 0


def plan_grad_weight_deterministic(problem: ConvTbcProblem, device: Device) -> DeterministicTiling:
    """Plan gradWeight in deterministic mode on A2 and A3 by the product's published rule."""
    if not is_plannable(problem):
        return NO_TILING
    extents = extents_of(problem, device)
    block = choose_base_block(extents)
    single_n = widen_single_n(extents, block, single_columns(extents, block))
    block = resized(block, block.m, min(block.n, align(single_n, CUBE_EDGE)), block.k)
    other = without_sliver(extents, block, single_n)
    if other.m > 0:
        # The product repeats step 5 with the new block, even an equal one, and loses the widening
        # of step 6.
        block, single_n = other, single_columns(extents, other)
    return filled(extents, block, single_n)


def filled(extents: Extents, block: BaseBlock, single_n: int) -> DeterministicTiling:
    """Steps 8 to 11: the fields of the result."""
    device, size = extents.device, extents.problem.element_bytes
    tiles = output_tiles(extents, block, single_n)
    cores, stream_k_cores = split_cores(tiles, extents.problem.batch, device.cube_cores)
    tile_bytes = ACCUMULATOR_BYTES * block.m * block.n
    l0c_buffers = 2 if 2 * tile_bytes <= device.l0c_bytes else 1
    slot_bytes = ACCUMULATOR_BYTES * block.m * single_n * cores * min(stream_k_cores, 1)
    l0a_bytes = L0_BUFFERS * block.m * block.k * size
    l0b_bytes = L0_BUFFERS * block.n * block.k * size
    return DeterministicTiling(
        status=SUCCESS,
        tiling_key=4,
        workspace_bytes=device.system_workspace_bytes + slot_bytes,
        m=extents.m,
        n=extents.n,
        k=extents.k,
        tiles=tiles,
        base_m=block.m,
        base_n=block.n,
        base_k=block.k,
        step_m=1,
        step_n=1,
        step_k=block.steps,
        l0c_buffers=l0c_buffers,
        l1_buffers=block.buffers,
        iterate_order=int(extents.m > extents.n),
        x_l1_elements=x_elements(extents, block),
        single_m=block.m,
        single_n=single_n,
        single_k=extents.k,
        block_dim=cores,
        stream_k=min(stream_k_cores, 1),
        stream_k_cores=stream_k_cores,
        l0a_bytes=l0a_bytes,
        l0b_bytes=l0b_bytes,
        l0c_bytes=tile_bytes * l0c_buffers,
        l1_bytes=l1_bytes_used(extents, block),
        exceeds_l0a=int(l0a_bytes > device.l0a_bytes),
        exceeds_l0b=int(l0b_bytes > device.l0b_bytes),
        exceeds_l0c=int(tile_bytes * l0c_buffers > device.l0c_bytes),
        exceeds_l1=1 - int(fits_l1(extents, block)),
    )


class TailSplit(NamedTuple):
    """Tiles whose samples are split over cores ("stream-K"); sizes in channels.

    The order of tiles is a model: iterateOrder, which is published, is taken as the axis that
    varies fastest.
    """

    slot_samples: int
    first: int
    m_edge: int
    n_edge: int
    m_tiles: int
    n_tiles: int
    m_fastest: int


def tail_split(tiling: DeterministicTiling, problem: ConvTbcProblem) -> TailSplit | None:
    """Return the tiles with private slots; None when there are none."""
    if not tiling.stream_k:
        return None
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    rest = tiling.tiles % tiling.block_dim
    return TailSplit(
        slot_samples=ceil_div(problem.batch, tiling.stream_k_cores),
        first=tiling.tiles - rest if rest else 0,
        m_edge=tiling.single_m,
        n_edge=tiling.single_n // problem.taps // channel_block * channel_block,
        m_tiles=ceil_div(tiling.m, tiling.single_m),
        n_tiles=ceil_div(tiling.n, tiling.single_n),
        m_fastest=1 - tiling.iterate_order,
    )
