"""Tiling of ApplyAdamWV2 on Atlas A2 and A3.

Every tile has 2432 elements, whatever the dtypes, and cores take tiles in turn.

Source: specification page ``apply_adam_w_v2``, section "Tiling".
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BF16,
    DTYPE_CODES,
    FP32,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    FieldRun,
    Raw,
    Structure,
    WorkspaceBytes,
    ceil_div,
    nothing,
    raw_planner,
    to_fp32,
    vendor_fields,
)

TILE_ELEMENTS = 2432
"""Elements of a tile."""
STEP_CODES = {"float32": 0, "int64": 1}
"""Codes of the dtype of step."""
STATE = ("var", "m", "v", "max_grad_norm")
"""The tensors that a step updates, of the shape of grad; the last is optional."""
FLOATS = {
    "lr": "lr",
    "beta1": "beta1",
    "beta2": "beta2",
    "weightDecay": "weight_decay",
    "eps": "eps",
}
"""Arguments in the tiling structure by the vendor's name; both products name them so."""
FP32_KEY = 105
"""Key of fp32 tensors with an fp32 step; an int64 step adds 1. Keys of 16-bit dtypes are 2 and 4
lower; where only the gradient has that dtype, 2 and 4 higher."""
NATIVE, MIXED, CAST = 0, 1, 2
"""Paths: one dtype; 16-bit gradients of an fp32 state; Cast of all that is not fp32."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads; the dtypes are codes."""

    elements: int
    dtype: int
    m_dtype: int
    v_dtype: int
    grad_dtype: int
    norm_dtype: int
    step_dtype: int
    with_norm: int
    amsgrad: int
    maximize: int


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: dtypes, and whether step is int64", "110", "tilingKey")
    ]
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "usedCoreNum")]
    workspace_bytes: WorkspaceBytes
    cores: Annotated[int, Field("cores of the SoC", "vector_cores", "totalCoreNum")]
    longer_cores: Annotated[
        int, Field("cores with one tile more", "vector_cores", "handleExtraLoopCoreNum")
    ]
    tile_elements: Annotated[
        int, Field("elements of a tile", str(TILE_ELEMENTS), vendor="numPerLoop")
    ]
    tiles_per_core: Annotated[int, Field("tiles of the other cores", "elements", "loopNumPerCore")]
    last_elements: Annotated[
        int, Field("elements of the last tile", str(TILE_ELEMENTS), "numLastLoop")
    ]
    is_bf16: Annotated[int, Field("1 where grad is bf16", "1", "isBfloat16")]
    amsgrad: Annotated[int, Field("the argument", vendor="amsgrad")]
    maximize: Annotated[int, Field("the argument", vendor="maximize")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def has_one_dtype(row: Any) -> bool:
    """Return whether all tensors but step have one dtype."""
    return bool(
        row.dtype == row.m_dtype == row.v_dtype == row.grad_dtype
        and (row.with_norm == 0 or row.norm_dtype == row.dtype)
    )


def path_of(row: Any) -> int:
    """Return the path on which the call plans its kernel (page, "Contract")."""
    if has_one_dtype(row):
        return NATIVE
    wide = row.dtype == FP32 and row.m_dtype == FP32 and row.v_dtype == FP32
    norm_fits = row.with_norm == 0 or row.norm_dtype == row.grad_dtype
    return MIXED if wide and norm_fits else CAST


def tile(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan one call, with Casts where its dtypes need them."""
    return tile_path(row, path_of(row), device) if device.vector_cores > 0 else NO_TILING


def tile_path(row: Any, path: int, device: Device) -> Tiling:
    """Plan the kernel of a path; the raw planner leaves the key unset for a mixed fp32 grad."""
    cores, grad = device.vector_cores, FP32 if path == CAST else row.grad_dtype
    tiles = ceil_div(row.elements, TILE_ELEMENTS)
    tiles_per_core = (tiles - 1) // cores
    key = FP32_KEY + (2 if path == MIXED else -2) * grad + row.step_dtype
    return Tiling(
        status=SUCCESS,
        tiling_key=0 if path == MIXED and grad == FP32 else key,
        block_dim=min(tiles, cores),
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        cores=cores,
        longer_cores=min(tiles - tiles_per_core * cores, tiles),  # 0 of an empty var
        tile_elements=TILE_ELEMENTS,
        tiles_per_core=tiles_per_core,
        last_elements=row.elements - (tiles - 1) * TILE_ELEMENTS,
        is_bf16=int(grad == BF16),
        amsgrad=row.amsgrad,
        maximize=row.maximize,
    )


def tile_raw(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan the kernel as the raw planner does, which knows no Casts."""
    return tile_path(row, NATIVE if has_one_dtype(row) else MIXED, device)


def row_of(inputs: Raw, rules: Any) -> Any:
    """Return the raw planner's inputs as the row of a call; None where it refuses them."""
    step, with_norm = inputs["step_shape"], inputs["max_grad_norm_shape"] is not None
    if step is None or prod(step) != 1 or (len(step) != 1 and rules.takes_any_step_shape == 0):
        return None
    given = ("grad", *(STATE if with_norm else STATE[:-1]))
    shapes = [inputs[f"{name}_shape"] for name in given]
    if shapes.count(shapes[0]) < len(shapes) or shapes[0] is None or inputs["amsgrad"] > with_norm:
        return None
    return row_of_dtypes(inputs, given)


def row_of_dtypes(inputs: Raw, given: tuple[str, ...]) -> Problem | None:
    """Return the row of tensors that agree in shape; None for a dtype that is not taken."""
    dtypes = {name: inputs[f"{name}_dtype"] for name in given}
    if not DTYPE_CODES.keys() >= set(dtypes.values()) or inputs["step_dtype"] not in STEP_CODES:
        return None
    grad, var, m, v, *norm = (DTYPE_CODES[dtype] for dtype in dtypes.values())
    return Problem(
        elements=prod(inputs["var_shape"]),
        dtype=var,
        m_dtype=m,
        v_dtype=v,
        grad_dtype=grad,
        norm_dtype=norm[0] if norm else FP32,
        step_dtype=STEP_CODES[inputs["step_dtype"]],
        with_norm=len(norm),
        amsgrad=int(inputs["amsgrad"]),
        maximize=int(inputs["maximize"]),
    )


def vendor_structure(tiling: Any, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names, with the floats of the call in 9 digits."""
    floats = {vendor: float(f"{to_fp32(arguments[name]):.9g}") for vendor, name in FLOATS.items()}
    return {**vendor_fields(tiling, rules), **floats}


KERNELS = {"apply_adam_w_v2": raw_planner(row_of, tile_raw, vendor_structure)}


def buffers(tiling_key: int) -> dict[str, int]:
    """Return the bytes in the Unified Buffer of one core, in the order of allocation.

    max_grad_norm has a buffer with and without amsgrad.
    """
    wide, narrow = 4 * TILE_ELEMENTS, 2 * TILE_ELEMENTS
    powers = {"power1": 32, "power2": 32}
    if tiling_key < FP32_KEY:
        return {
            "inputs": 2 * 5 * narrow,
            "outputs": 2 * 4 * narrow,
            "inputs_fp32": 5 * wide,
            "outputs_fp32": 4 * wide,
            **powers,
        }
    if tiling_key <= FP32_KEY + 1:
        return {"inputs": 2 * 5 * wide, "outputs": 2 * 4 * wide, **powers}
    return {
        "state": 2 * 3 * wide,
        "grad and max_grad_norm": 2 * 2 * narrow,
        "outputs": 2 * 3 * wide,
        "max_grad_norm out": 2 * narrow,
        "scratch": 2 * 2 * wide,
        **powers,
    }


STRUCTURES = (
    Structure(
        "ApplyAdamWV2",
        "8.3",
        (
            FieldRun(
                "int64_t",
                "totalCoreNum handleExtraLoopCoreNum usedCoreNum numPerLoop loopNumPerCore"
                " numLastLoop isBfloat16",
            ),
            FieldRun("float", " ".join(FLOATS)),
            FieldRun("int64_t", "amsgrad maximize tilingKey"),
        ),
    ),
)
