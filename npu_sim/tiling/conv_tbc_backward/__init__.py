"""Tiling of ConvTbcBackward: the route of gradWeight, and the tiling of both gradients.

Source: specification page ``conv_tbc_backward``. gradInput, and gradWeight in default mode, are
planned by a model (:mod:`~npu_sim.tiling.conv_tbc_backward.cube_tiling`), gradWeight in
deterministic mode on A2 and A3 by the product's published rule
(:mod:`~npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic`). Numba compiles these functions
as they are, except :func:`plan_published`.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_TRAIN, Device
from npu_sim.numbers.formats import ORDERED_ADDITIONS, itemsize
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward import cube_tiling as model
from npu_sim.tiling.conv_tbc_backward import grad_weight_deterministic as published
from npu_sim.tiling.conv_tbc_backward.cube_tiling import (
    CubeTiling,
    plan_grad_input,
    plan_grad_weight,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    DeterministicTiling,
    plan_grad_weight_deterministic,
)
from npu_sim.tiling.conv_tbc_backward.problem import (
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    ConvTbcProblem,
    bias_rows,
    grad_weight_route,
    output_time,
)
from npu_sim.tiling.fields import SUCCESS, Field, Part, Raw, Run, Structure, nothing, vendor_fields

COMPUTE_DTYPES = ("none", "float16", "bfloat16", "float32", "hf32")
"""Dtypes of the cube unit by code; ``none`` if the product refuses the combination."""
LAST_16_BIT = COMPUTE_DTYPES.index("bfloat16")
COMPUTE_BITS = 3
"""Bits of a code in ``rules.compute``, which has a code for every dtype and cubeMathType."""
FP32 = 0
"""Code of the tensors' dtype."""
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


NO_CUBE: Cube = nothing(Cube)


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
        Field("rows of self, time and batch, that such a core takes", "B * (T + 2 * pad + 512)"),
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
    input_tiling, weight, planner = model.NO_TILING, model.NO_TILING, published.NO_TILING
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
    core_rows = max(bias_rows(rows, device.vector_cores) if shares_bias(row, device) else rows, 1)
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


def shares_bias(row: Any, device: Device) -> bool:
    """Return whether several cores add to gradBias: fp32, Atlas training series, default mode."""
    return device.npu_arch != NPU_ARCH_A2_A3 and row.dtype == FP32 and row.deterministic == 0


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
            Run("uint64_t", "batchDim", "params"),
            Run("uint32_t", "groupDim mDim kDim nDim dkDim totalL1Size", "params"),
            Run(
                "uint32_t",
                "batch cin cout cin1G cout1G dout ho wo di hi wi dk hk wk group strideD strideH "
                "strideW padFront padBack padUp padDown padLeft padRight dilationD dilationH "
                "dilationW channelSize al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer bl1Pbuffer "
                "baseM baseK baseN m0 k0 n0 stepM stepN stepKa stepKb iterateOrder bl1Bound "
                "hf32Flag singleCoreDk singleCoreGroup singleCoreCout singleCoreHo",
                "dwTiling",
            ),
            Run("uint64_t", "singleCoreBatch singleCoreCin", "dwTiling"),
            Run(
                "uint32_t", "coreBindOrder usedCoreNum singleCoreM singleCoreN", "basicBlockTiling"
            ),
            Run("uint64_t", "singleCoreK", "basicBlockTiling"),
            Run("uint32_t", "streamKType coreStreamK", "basicBlockTiling", since="9.1"),
        ),
    ),
    Structure(
        "Conv3DBackpropInputV2",
        "8.5",
        (
            Run("uint32_t", "batchDim groupDim mDim kDim nDim dDim", "params"),
            Run("uint64_t", "coreNum", "params"),
            Run(
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
            Run("int32_t", "hf32Flag initOutputFlag reserved", "conv3DDxTiling"),
            Run("uint64_t", "singleCoreBatch singleCoreM singleCoreCin", "conv3DDxTiling"),
        ),
    ),
)
"""Tiling structures of gradWeight and gradInput as bytes (page ``tiling_bytes``); planners know
some of their fields only."""
