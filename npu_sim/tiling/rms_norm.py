"""Tiling of RmsNorm (Atlas A2, A3, Atlas inference series): pure integer functions.

Source: specification page ``rms_norm``, section "Tiling". The product computes in 64 bits, where
nothing wraps around. All sizes are elements unless the name says bytes. What decides the key is in
`npu_sim.tiling.rms_norm_conditions`.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.cores import NPU_ARCH_ATLAS_TRAIN, Device
from npu_sim.tiling.fields import (
    FP32_VALUE,
    REFUSED,
    SUCCESS,
    Field,
    nothing,
    raw_result,
    vendor_fields,
)
from npu_sim.tiling.integers import align, ceil_div
from npu_sim.tiling.normalised_rows import DTYPE_CODES, SYSTEM_WORKSPACE_BYTES, VECTOR_LANES
from npu_sim.tiling.rms_norm_conditions import (
    INFERENCE_ROW_STEP,
    WIDEST_16_BIT,
    Problem,
    buffer_shape,
    columns_aligned,
    merges_inference_rows,
    spares_broadcasts,
    tiling_key,
)
from npu_sim.tiling.rms_norm_grad_shapes import MAX_RANK, Shape

REPEAT_STRIDE_VALUES = 256
"""dst_rep_stride has 8 bits: it wraps around from 2048 columns on, where nothing reads it (page,
"Fields")."""
BLOCK_ELEMENTS = 8
"""fp32 elements of a 32-byte block, what dst_rep_stride counts in."""

PERFORMANCE_FIELDS = "performance_fields"
"""Switch of the release: whether the tiling has is_performance, and the fields that came with
it."""
UNTOUCHED_BYTES = 256
"""Workspace beside the system's that no kernel touches (page, "Workspace")."""
WORKSPACE_BYTES = SYSTEM_WORKSPACE_BYTES + UNTOUCHED_BYTES
"""Workspace of the kernel, on every SoC and key."""


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int, Field("tiling key: 0 normal, 1 split D, 2 merge N, 3 single row", "3")
    ]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    workspace_bytes: Annotated[int, Field("workspace of the kernel", str(WORKSPACE_BYTES))]
    rows: Annotated[int, Field("rows", vendor="num_row")]
    columns: Annotated[int, Field("columns", vendor="num_col")]
    columns_aligned: Annotated[int, Field("columns of a padded row", "col", vendor="num_col_align")]
    block_factor: Annotated[int, Field("rows of a core", "row", vendor="block_factor")]
    row_factor: Annotated[
        int, Field("rows whose rstd goes out together", "max(ub_bytes, 64)", vendor="row_factor")
    ]
    ub_factor: Annotated[
        int,
        Field(
            "elements of x in the Unified Buffer at a time",
            f"max(ub_bytes, {WIDEST_16_BIT})",
            vendor="ub_factor",
        ),
    ]
    average_factor: Annotated[float, Field("1 / col in fp32", FP32_VALUE, vendor="avg_factor")]
    last_block_factor: Annotated[
        int,
        Field(
            "rows of the last core", "row", vendor="last_block_factor", switch=PERFORMANCE_FIELDS
        ),
    ]
    row_loop: Annotated[
        int, Field("groups of rows of a core", "row", vendor="row_loop", switch=PERFORMANCE_FIELDS)
    ]
    last_block_row_loop: Annotated[
        int,
        Field(
            "groups of rows of the last core",
            "row",
            vendor="last_block_row_loop",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    row_tail: Annotated[
        int,
        Field(
            "rows of the last group of a core", "row", vendor="row_tail", switch=PERFORMANCE_FIELDS
        ),
    ]
    last_block_row_tail: Annotated[
        int,
        Field(
            "rows of the last group of the last core",
            "row",
            vendor="last_block_row_tail",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    whole_repeats: Annotated[
        int,
        Field(
            "whole vector instructions in a padded row",
            "col",
            vendor="mul_loop",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    repeat_tail: Annotated[
        int,
        Field(
            "elements of a padded row that are left for a last one",
            "64",
            vendor="mul_tail",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    repeat_stride: Annotated[
        int,
        Field(
            "blocks from one row of the buffer to the next, modulo 256",
            "255",
            vendor="dst_rep_stride",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    is_performance: Annotated[
        int,
        Field(
            "1 where merged rows are multiplied without broadcasting first",
            "1",
            vendor="is_performance",
            switch=PERFORMANCE_FIELDS,
        ),
    ]
    always_1: Annotated[int, Field("a field that is 1 on these products", vendor="is_nddma")]
    always_0: Annotated[
        int,
        Field(
            "fields that are 0 on these products",
            vendor="reduce_mask left_num last_reduce_mask last_left_num rstd_size ub_loop col_buffer_length multi_n_num is_gemma",
        ),
    ]
    normal_flag: Annotated[
        int, Field("0 on these products", vendor="normal_flag", switch=PERFORMANCE_FIELDS)
    ]


NO_TILING: Tiling = nothing(Tiling)
"""Result of a planner that found no tiling."""


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    Parameters
    ----------
    problem
        What the planner is asked.
    device
        The SoC.
    rules
        What the release decides.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) for no rows, no columns, no core, and a Unified
        Buffer that not even one row or piece fits; also on the Atlas training series, whose planner
        is not described.
    """
    cores = device.vector_cores
    if (
        problem.rows <= 0
        or problem.columns <= 0
        or cores <= 0
        or device.npu_arch == NPU_ARCH_ATLAS_TRAIN
    ):
        return NO_TILING
    key = tiling_key(problem, device, rules)
    buffer = buffer_shape(problem, device, rules, key)
    if buffer.row_factor <= 0 or buffer.ub_factor <= 0:
        return NO_TILING
    wide, factor = columns_aligned(problem), buffer.row_factor
    each = ceil_div(problem.rows, cores)
    if merges_inference_rows(problem, device, rules):
        each = align(each, INFERENCE_ROW_STEP)
    block_dim = ceil_div(problem.rows, each)
    last = problem.rows - (block_dim - 1) * each
    row_loop, last_row_loop = ceil_div(each, factor), ceil_div(last, factor)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=block_dim,
        workspace_bytes=WORKSPACE_BYTES,
        rows=problem.rows,
        columns=problem.columns,
        columns_aligned=wide,
        block_factor=each,
        row_factor=factor,
        ub_factor=buffer.ub_factor,
        average_factor=float(np.float32(1) / np.float32(problem.columns)),
        last_block_factor=last,
        row_loop=row_loop,
        last_block_row_loop=last_row_loop,
        row_tail=each - (row_loop - 1) * factor,
        last_block_row_tail=last - (last_row_loop - 1) * factor,
        whole_repeats=wide // VECTOR_LANES,
        repeat_tail=wide % VECTOR_LANES,
        repeat_stride=wide // BLOCK_ELEMENTS % REPEAT_STRIDE_VALUES,
        is_performance=int(spares_broadcasts(problem, device, rules)),
        always_1=1,
        always_0=0,
        normal_flag=0,
    )


def row_range(tiling: Tiling, core: int) -> tuple[int, int]:
    """Return the half-open range of rows that a core takes."""
    start = core * tiling.block_factor
    return start, min(start + tiling.block_factor, tiling.rows)


def rounded_epsilon(epsilon: float) -> np.float32:
    """Return epsilon as the call rounds it; inf beyond the range of fp32."""
    with np.errstate(over="ignore"):
        return np.float32(epsilon)


def vendor_structure(tiling: Tiling, epsilon: float, rules: Any) -> dict[str, int | float]:
    """Return the tiling data as the release has it, under the vendor's names; epsilon in the nine digits that identify an fp32 value."""
    return {**vendor_fields(tiling, rules), "epsilon": float(f"{rounded_epsilon(epsilon):.9g}")}


def problem_of_row(row: Any) -> Problem:
    """Return what the planner is asked for a call in whole numbers."""
    return Problem(
        rows=row.row,
        columns=row.col,
        dtype_code=row.dtype,
        gamma_dtype_code=row.gamma_dtype,
        x_rank=row.x_rank,
        gamma_rank=row.gamma_rank,
        first_axis=row.first_axis,
        second_axis=row.second_axis,
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given in whole numbers."""
    return tile(problem_of_row(row), device, rules)


def problem_of(x: Sequence[int], gamma: Sequence[int], dtype: str, gamma_dtype: str) -> Problem:
    """Return what the planner is asked for the shapes and dtypes of x and gamma; gamma has at least one axis, and x those of gamma."""
    return Problem(
        rows=prod(x[: len(x) - len(gamma)]),
        columns=prod(gamma),
        dtype_code=DTYPE_CODES[dtype],
        gamma_dtype_code=DTYPE_CODES[gamma_dtype],
        x_rank=len(x),
        gamma_rank=len(gamma),
        first_axis=x[0],
        second_axis=x[1] if len(x) > 1 else 1,
    )


def takes_shapes(x: Shape, gamma: Shape, y: Shape, rstd: Shape) -> bool:
    """Whether the raw planner takes these shapes; laxer than the contract, it lets every axis of rstd be 1 (page, "Contract" 3)."""
    if not 1 <= len(gamma) <= len(x) <= MAX_RANK or gamma != x[len(x) - len(gamma) :] or y != x:
        return False
    if 0 in x or 0 in rstd:
        return False
    longest = x + (1,) * len(rstd)
    return all(given in (1, most) for given, most in zip(rstd, longest, strict=False))


def plan_kernel(
    kernel: str, inputs: dict[str, Any], device: Device, deterministic: bool, rules: Any
) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    x, gamma, y, rstd = (tuple(inputs[f"{name}_shape"]) for name in ("x", "gamma", "y", "rstd"))
    epsilon = inputs["epsilon"]
    if not takes_shapes(x, gamma, y, rstd) or rounded_epsilon(epsilon) < 0:
        return REFUSED
    tiling = tile(problem_of(x, gamma, inputs["x_dtype"], inputs["gamma_dtype"]), device, rules)
    return raw_result(tiling, vendor_structure(tiling, epsilon, rules))
