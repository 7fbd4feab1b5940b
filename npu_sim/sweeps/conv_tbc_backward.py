"""What a sweep of ConvTbcBackward can vary, and the plan of one row in whole numbers."""

from typing import Any, NamedTuple

from npu_sim.cores import Device, Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops.conv_tbc_backward import NAME, Arguments
from npu_sim.planning.conv_tbc_backward_decisions import compute_dtype
from npu_sim.sweeps.common import DOCUMENTED, DTYPES, HARDWARE_LIMIT, REFUSED, dtype_mask, has_dtype, status_bound
from npu_sim.sweeps.declaration import Column, Declaration, Number, Values, Word
from npu_sim.tiling import conv_tbc_backward as model
from npu_sim.tiling import conv_tbc_grad_weight_deterministic as published
from npu_sim.tiling.conv_tbc_problem import (
    ROUTE_MATMUL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    ConvTbcProblem,
    grad_weight_route,
)

COMPUTE_DTYPES = ("none", "float16", "bfloat16", "float32", "hf32")
"""Dtypes of the cube unit; codes are positions, 0 where the product refuses the combination."""
LAST_16_BIT = COMPUTE_DTYPES.index("bfloat16")
COMPUTE_BITS = 3
EXCEEDS_ALL = 15
MATH_TYPES = 4
ROUTES = ("none", *ROUTE_NAMES)
"""How gradWeight is planned; codes are positions."""

AXES = (
    Word("dtype", "dtype of all tensors", DTYPES, "float16"),
    Word("cube_math_type", "cubeMathType", tuple(map(str, range(MATH_TYPES))), "1", aliases=("cubeMathType",)),
    Number("pad", "pad", 0, unit="padded step"),
    Number("K", "taps, first axis of weight", 3, unit="tap", aliases=("taps", "kernel_width")),
    Number("Cout", "output channels, last axis of weight", 64, unit="output channel", aliases=("out_channels",)),
    Number("Cin", "input channels, last axis of input", 64, unit="input channel", aliases=("in_channels",)),
    Number("B", "batch, second axis of input", 8, unit="sample", aliases=("batch",)),
    Number("T", "time steps, first axis of input", 128, unit="time step", aliases=("time",)),
)


class Row(NamedTuple):
    """Codes of the axes."""

    dtype: int
    cube_math_type: int
    pad: int
    K: int
    Cout: int
    Cin: int
    B: int
    T: int
    limits: int
    deterministic: int


class Rules(NamedTuple):
    """What the contract needs of a profile.

    Attributes
    ----------
    supported, dtypes
        Whether it has the operator, and its dtypes.
    compute
        Code of the cube unit's dtype for every dtype and cubeMathType, three bits each.
    dim_at_most, taps_at_most, pad_at_most
        Documented ranges; -1 for none.
    """

    supported: int
    dtypes: int
    compute: int
    dim_at_most: int
    taps_at_most: int
    pad_at_most: int


class Cube(NamedTuple):
    """How one gradient is tiled, by the model or by the published planner; sizes in elements of the cube layout.

    Attributes
    ----------
    block_dim
        Cores that work.
    m, n
        Extents of the output.
    base_m, base_n, base_k
        Block of one L0 load.
    single_m, single_n
        What one block of a core covers.
    blocks
        Blocks of all cores.
    splits
        Cores that share one output tile.
    l0a_bytes, l0b_bytes, l0c_bytes, l1_bytes
        Bytes used, all buffers together.
    """

    block_dim: int
    m: int
    n: int
    base_m: int
    base_n: int
    base_k: int
    single_m: int
    single_n: int
    blocks: int
    splits: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    l1_bytes: int


class Record(NamedTuple):
    """Plan of one row.

    ``route`` is the position in ``ROUTES`` of how gradWeight is planned; for the matrix products no tiling is published. ``exceeds``
    tells where the published planner asks for more than there is: 1 L0A, 2 L0B, 4 L0C, 8 L1, added up.
    """

    status: int
    route: int
    compute: int
    block_dim: int
    tiling_key: int
    workspace_bytes: int
    exceeds: int
    grad_input: Cube
    grad_weight: Cube


def compute_code(row: Row, rules: Rules) -> int:
    """Return the position in ``COMPUTE_DTYPES`` of the cube unit's dtype; 0 when the combination is refused."""
    return (rules.compute >> (COMPUTE_BITS * (MATH_TYPES * row.dtype + row.cube_math_type))) & ((1 << COMPUTE_BITS) - 1)


def contract_status(row: Row, rules: Rules) -> int:
    """Return the status of the first check that fails before tiling, 0 when none does; every failure has the same one."""
    steps_out = row.T + 2 * row.pad - row.K + 1
    if rules.supported == 0 or not has_dtype(rules.dtypes, row.dtype):
        return REFUSED
    if steps_out <= 0 or row.B == 0 or row.Cout == 0:
        return REFUSED
    if row.limits == DOCUMENTED:
        longest = max(max(row.T, row.B, row.Cin), max(row.Cout, row.K, steps_out))
        if rules.dim_at_most >= 0 and longest > rules.dim_at_most:
            return REFUSED
        if rules.taps_at_most >= 0 and rules.taps_at_most < row.K:
            return REFUSED
        if rules.pad_at_most >= 0 and row.pad > rules.pad_at_most:
            return REFUSED
    return REFUSED if compute_code(row, rules) == 0 else 0


def no_cube() -> Cube:
    """Return the tiling of a gradient that no kernel computes, or whose tiling is not published."""
    return Cube(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def cube_of_model(tiling: model.CubeTiling, splits: int) -> Cube:
    """Return what is kept of a tiling of the model."""
    return Cube(
        tiling.block_dim,
        tiling.m,
        tiling.n,
        tiling.base_m,
        tiling.base_n,
        tiling.base_k,
        tiling.single_m,
        tiling.single_n,
        tiling.blocks,
        splits,
        tiling.l0a_bytes,
        tiling.l0b_bytes,
        tiling.l0c_bytes,
        tiling.l1_bytes,
    )


def cube_of_planner(tiling: published.DeterministicTiling) -> Cube:
    """Return what is kept of a tiling of the published planner."""
    return Cube(
        tiling.block_dim,
        tiling.m,
        tiling.n,
        tiling.base_m,
        tiling.base_n,
        tiling.base_k,
        tiling.single_m,
        tiling.single_n,
        tiling.tiles,
        max(tiling.stream_k_cores, 1),
        tiling.l0a_bytes,
        tiling.l0b_bytes,
        tiling.l0c_bytes,
        tiling.l1_bytes,
    )


def nothing(status: int) -> Record:
    """Return the record of a call that runs no kernel."""
    return Record(status, 0, 0, 0, 0, 0, 0, no_cube(), no_cube())


def plan_row(row: Row, device: Device, rules: Rules) -> Record:
    """Plan one row."""
    status = contract_status(row, rules)
    if status != 0 or row.T == 0 or row.Cin == 0 or row.K == 0:
        return nothing(status)
    compute = compute_code(row, rules)
    problem = ConvTbcProblem(row.T, row.B, row.Cin, row.Cout, row.K, row.pad, 2 if compute <= LAST_16_BIT else 4)
    route = grad_weight_route(problem, device, row.deterministic == 1)
    if route == ROUTE_MATMUL:
        return Record(0, 1 + route, compute, device.cube_cores, 0, 0, 0, no_cube(), no_cube())
    own = model.plan_grad_input(problem, device)
    if own.status != 0:
        return nothing(HARDWARE_LIMIT)
    grad_input = cube_of_model(own, 1)
    if route == ROUTE_PLANNER:
        planner = published.plan_grad_weight_deterministic(problem, device)
        exceeds = planner.exceeds_l0a + 2 * planner.exceeds_l0b + 4 * planner.exceeds_l0c + 8 * planner.exceeds_l1
        cores = max(grad_input.block_dim, planner.block_dim)
        grad_weight = cube_of_planner(planner)
        return Record(0, 1 + route, compute, cores, planner.tiling_key, planner.workspace_bytes, exceeds, grad_input, grad_weight)
    weight = model.plan_grad_weight(problem, device, row.deterministic == 0)
    if weight.status != 0:
        return nothing(HARDWARE_LIMIT)
    cores = max(grad_input.block_dim, weight.block_dim)
    return Record(0, 1 + route, compute, cores, 0, 0, 0, grad_input, cube_of_model(weight, weight.sample_blocks * weight.time_blocks))


def call(values: Values) -> dict[str, Any]:
    """Return the arguments of a call with these sizes and dtypes."""
    dtype, taps, pad = str(values["dtype"]), int(values["K"]), int(values["pad"])
    time, batch, inner, outer = (int(values[name]) for name in ("T", "B", "Cin", "Cout"))
    return {
        "grad_output": TensorSpec((max(time + 2 * pad - taps + 1, 0), batch, outer), dtype),
        "input": TensorSpec((time, batch, inner), dtype),
        "weight": TensorSpec((taps, inner, outer), dtype),
        "bias": TensorSpec((outer,), dtype),
        "pad": pad,
        "cube_math_type": int(values["cube_math_type"]),
    }


def read(arguments: Arguments) -> Values:
    """Return the sizes and dtypes of given arguments."""
    values: Values = {"pad": arguments.pad, "cube_math_type": str(arguments.cube_math_type)}
    if arguments.input is not None and arguments.input.rank == 3:
        values |= {"dtype": arguments.input.dtype, **dict(zip(("T", "B", "Cin"), arguments.input.shape, strict=True))}
    if arguments.weight is not None and arguments.weight.rank == 3:
        taps, _, outer = arguments.weight.shape
        values |= {"K": taps, "Cout": outer}
    return values


def rules(profile: Profile) -> Rules:
    """Return what the contract needs of a profile."""
    cube, limits = profile.product.cube_dtypes, profile.limits
    mask = dtype_mask(profile)
    if "bfloat16" not in cube:
        mask &= ~(1 << DTYPES.index("bfloat16"))
    compute = 0
    for code, dtype in enumerate(DTYPES):
        for math_type in range(MATH_TYPES):
            found = compute_dtype(dtype, math_type, cube)
            compute |= (COMPUTE_DTYPES.index(found) if found else 0) << (COMPUTE_BITS * (MATH_TYPES * code + math_type))
    stated = (limits.conv_dim_at_most, limits.conv_kernel_width_at_most, limits.conv_pad_at_most)
    return Rules(int(NAME in profile.product.operators), mask, compute, *(-1 if one is None else one for one in stated))


def _cube_cores(most: Any) -> int:
    return int(most.cube_cores)


def _extent(most: Any) -> int:
    """Largest number of the tilings: elements of a whole matrix, aligned, in bytes and a few buffers."""
    widest = (most.T + 2 * most.pad + 512) * (most.K + 1) * (max(most.Cin, most.Cout) + 512)
    return int(max(64 * widest, most.l1_bytes * 8, (most.B + 1) * widest // 16))


def _cube_columns(part: str, title: str) -> tuple[Column, ...]:
    """Return the columns of one gradient's tiling; what they are is said at :class:`Cube`."""
    small = {"block_dim": _cube_cores}
    return tuple(Column(f"{part}.{name}", small.get(name, _extent), f"{title}: {name.replace('_', ' ')}") for name in Cube._fields)


COLUMNS = (
    Column("status", status_bound, "aclnn status; 0 when the call runs"),
    Column("route", lambda most: len(ROUTES), "how gradWeight is planned", ROUTES),
    Column("compute", lambda most: len(COMPUTE_DTYPES), "dtype of the cube unit", COMPUTE_DTYPES),
    Column("block_dim", _cube_cores, "cores that work"),
    Column("tiling_key", lambda most: published.TILING_KEY, "tiling key of the published planner"),
    Column("workspace_bytes", _extent, "workspace of the published planner's kernel; those of the others are not published"),
    Column("exceeds", lambda most: EXCEEDS_ALL, "where the published planner exceeds the chip: 1 L0A, 2 L0B, 4 L0C, 8 L1"),
    *_cube_columns("grad_input", "gradInput"),
    *_cube_columns("grad_weight", "gradWeight"),
)

DECLARATION = Declaration(
    operator=NAME,
    axes=AXES,
    call=call,
    read=read,
    row=Row,
    rules=rules,
    plan_row=plan_row,
    columns=COLUMNS,
    inline=False,
)
