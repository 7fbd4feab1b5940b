"""Tiling of ApplyAdamWV2 on Ascend 950: the vendor's planner of elementwise kernels.

Every core has consecutive elements, in tiles from the left.

Source: specification page ``apply_adam_w_v2_950``, section "Tiling".
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling import apply_adam_w_v2 as base
from npu_sim.tiling.common import (
    FP32,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Raw,
    WorkspaceBytes,
    align,
    align_down,
    ceil_div,
    nothing,
    raw_planner,
)

SLOTS, AMSGRAD_SLOTS = 22, 26
"""Buffers of a tile in the Unified Buffer."""
TILE_STEP_BYTES = 256
"""Granularity of a tile."""
CORE_BYTES, TENSORS = 32768, 8
"""A core is used for every 32 KiB of eight tensors."""
CORE_STEP = 512
"""Granularity of the elements of a core."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[int, Field("tiling key: 2 with amsgrad, else 0", "2")]
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "blockNum")]
    workspace_bytes: WorkspaceBytes
    elements: Annotated[int, Field("elements", vendor="dim0")]
    wanted_cores: Annotated[
        int, Field("cores before the elements of a core are rounded up", "vector_cores", "coreNum")
    ]
    tile_elements: Annotated[int, Field("elements of a tile", "ub_bytes", "ubFormer elemNum")]
    core_elements: Annotated[
        int, Field("elements of a core", "elements + 512", vendor="blockFormer")
    ]
    tiles: Annotated[int, Field("tiles of a core", "elements + 512", "ubLoopOfFormerBlock")]
    last_core_tiles: Annotated[
        int, Field("tiles of the last core", "elements + 512", "ubLoopOfTailBlock")
    ]
    last_tile: Annotated[
        int, Field("elements of the last tile of a core", "ub_bytes", "ubTailOfFormerBlock")
    ]
    last_core_last_tile: Annotated[
        int, Field("elements of the last tile of the last core", "ub_bytes", "ubTailOfTailBlock")
    ]
    always_1: Annotated[int, Field("schedule of the vendor's library", "1", "scheMode")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


def narrow_bytes(row: Any, path: int) -> int:
    """Return the bytes of an element by which the planner counts on a path."""
    is_fp32 = row.dtype == FP32 and row.grad_dtype == FP32
    return 4 if is_fp32 or path == base.CAST else 2


def elements_for_all(row: Any, cores: int) -> int:
    """Return the elements from which on the planner wants all cores."""
    return cores * CORE_BYTES // (TENSORS * narrow_bytes(row, base.path_of(row)))


def pool_bytes(row: Any, tiling: Any) -> int:
    """Return the bytes in the Unified Buffer of one core: one pool of all buffers of a tile."""
    slots = AMSGRAD_SLOTS if row.amsgrad else SLOTS
    return int(slots * (8 if row.step_dtype else 4) * tiling.tile_elements)


def tile_elements(row: Any, narrow: int, ub_bytes: int) -> int:
    """Return the elements of a tile; 0 where the Unified Buffer is too small."""
    slots = AMSGRAD_SLOTS if row.amsgrad else SLOTS
    wide = 8 if row.step_dtype else 4
    return align_down(ub_bytes // (slots * wide), TILE_STEP_BYTES // narrow)


def tile_kernel(row: Any, narrow: int, device: Device) -> Tiling:
    """Plan the kernel, given the bytes of an element by which it counts."""
    elements, size = row.elements, tile_elements(row, narrow, device.ub_bytes)
    if elements <= 0 or size <= 0 or device.vector_cores <= 0:
        return NO_TILING
    wanted = ceil_div(TENSORS * narrow * elements, CORE_BYTES)
    cores = min(device.vector_cores, wanted)
    share = align(ceil_div(elements, cores), CORE_STEP)
    used = ceil_div(elements, share)
    tail = elements - (used - 1) * share
    tiles, tail_tiles = ceil_div(share, size), ceil_div(tail, size)
    return Tiling(
        status=SUCCESS,
        tiling_key=2 * row.amsgrad,
        block_dim=used,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        elements=elements,
        wanted_cores=cores,
        tile_elements=size,
        core_elements=share,
        tiles=tiles,
        last_core_tiles=tail_tiles,
        last_tile=share - (tiles - 1) * size,
        last_core_last_tile=tail - (tail_tiles - 1) * size,
        always_1=1,
    )


def tile(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan one call, with Casts where its dtypes need them."""
    return tile_kernel(row, narrow_bytes(row, base.path_of(row)), device)


def tile_raw(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan the kernel as the raw planner does, which knows no Casts."""
    return tile_kernel(row, narrow_bytes(row, base.NATIVE), device)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names, with the floats of the call."""
    sign = -1.0 if arguments["maximize"] else 1.0
    return {**base.vendor_structure(tiling, arguments, rules), "gt": sign}


def row_of(inputs: Raw, rules: Any) -> Any:
    """Return the raw planner's inputs as the row of a call; None where it refuses them.

    It does not look at the dtype of max_grad_norm, nor whether it is there.
    """
    shapes = {name: inputs[f"{name}_shape"] for name in ("grad", *base.STATE, "step")}
    var, norm = shapes["var"], shapes.pop("max_grad_norm")
    if None in shapes.values() or prod(shapes.pop("step")) != 1:
        return None
    if any(shape != var for shape in shapes.values()):
        return None
    if not inputs["var_dtype"] == inputs["m_dtype"] == inputs["v_dtype"]:
        return None
    if norm is not None and norm != var and 1 not in (prod(norm), prod(var)):
        return None
    row = base.row_of_dtypes(inputs, ("grad", *base.STATE[:-1]))
    if row is None or norm is None:
        return row
    return row._replace(elements=max(row.elements, prod(norm)))


KERNELS = {"apply_adam_w_v2": raw_planner(row_of, tile_raw, vendor_structure)}


def range_of_core(tiling: Any, core: int) -> range:
    """Return the elements of a core."""
    start = core * tiling.core_elements
    return range(start, min(start + tiling.core_elements, tiling.elements))
