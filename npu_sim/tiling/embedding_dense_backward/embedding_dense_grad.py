"""Tiling of EmbeddingDenseGrad: pure integer functions.

This kernel runs on the Atlas training series, and on A2 and A3 beyond INT32_MAX.

Source: specification page ``embedding_dense_backward``, sections "Documented limits" and "Atlas
training series kernel". The split of a row that is too long for the Unified Buffer is a model.
"""

from typing import Annotated, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    FP32_BYTES,
    FP32_PER_BLOCK,
    Field,
    Range,
    align_down,
    ceil_div,
    chunk_range,
    equal_parts,
    nothing,
)

UB_RESERVED_BYTES = 16384
"""Bytes the kernel keeps free of the Unified Buffer (page, "Where it comes from")."""
SHORT_SHARE_ELEMENTS = 8
"""Below this many elements per core a single core works (page, "scale off")."""
SHARE_BOUND = "older * (max(rows, num_weights) + 1)"


class Problem(NamedTuple):
    """One call: fp32 rows, int32 or int64 indices."""

    rows: int
    dim: int
    num_weights: int
    index_bytes: int
    scale_grad_by_freq: bool
    deterministic: bool


class Tiling(NamedTuple):
    """Result of the planner; ``older`` in bounds is 1 where the kernel can run."""

    block_dim: int
    splits_weights: Annotated[
        int,
        Field(
            "1 when weight rows are split over cores (scale on), 0 when gradient rows are", "older"
        ),
    ]
    share: Annotated[int, Field("rows of one core", SHARE_BOUND)]
    batch_rows: Annotated[int, Field("rows in the Unified Buffer at a time", "older * ub_bytes")]
    dim_piece: Annotated[int, Field("columns of a piece of a row", "older * dim")]
    dim_pieces: Annotated[int, Field("pieces of a row", "older * dim")]
    counters: Annotated[int, Field("counters of a core", SHARE_BOUND)]
    counters_fit: Annotated[int, Field("whether they fit the Unified Buffer", "older")]


NO_TILING = nothing(Tiling)


def counts_size(num_weights: int, cores: int) -> int:
    """Return the counters of a core (product document, "countsSize")."""
    return num_weights // cores + num_weights % cores


def indices_per_block(index_bytes: int) -> int:
    """Return the indices of one 32-byte block: 8 int32, 4 int64."""
    return BLOCK_BYTES // index_bytes


def bytes_per_column(index_bytes: int) -> int:
    """Return the Unified Buffer bytes of one column: a block of rows and the accumulator.

    36 for int32 indices, 20 for int64.
    """
    return FP32_BYTES * (indices_per_block(index_bytes) + 1)


def scale_bytes(dim: int, num_weights: int, index_bytes: int, cores: int) -> int:
    """Return the left side of the documented bound.

    ``36*dim + 4*countsSize`` for int32 indices, ``20*dim + 8*countsSize`` for int64.
    """
    return bytes_per_column(index_bytes) * dim + index_bytes * counts_size(num_weights, cores)


def largest_scale_dim(num_weights: int, index_bytes: int, cores: int, most_bytes: int) -> int:
    """Return the largest dim with ``scale_bytes <= most_bytes``; below 0 if dim 0 is too large."""
    counter_bytes = index_bytes * counts_size(num_weights, cores)
    return (most_bytes - counter_bytes) // bytes_per_column(index_bytes)


def usable_scale_bytes(ub_bytes: int) -> int:
    """Return the bytes of the Unified Buffer that ``scale_bytes`` may take."""
    return ub_bytes - UB_RESERVED_BYTES - BLOCK_BYTES


def tile(problem: Problem, device: Device) -> Tiling:
    """Plan one call; rows, dim and (with scale) num_weights are above 0."""
    cores = device.vector_cores
    block = indices_per_block(problem.index_bytes)
    if problem.scale_grad_by_freq:
        block_dim, share, _ = equal_parts(problem.num_weights, cores)
        counters = counts_size(problem.num_weights, cores)
    else:
        block_dim, share, _ = equal_parts(problem.rows, cores)
        counters = 0
        if (
            problem.deterministic
            or (problem.rows // block_dim) * problem.dim < SHORT_SHARE_ELEMENTS
        ):
            share, block_dim = problem.rows, 1
    budget = device.ub_bytes - UB_RESERVED_BYTES
    accumulator_bytes = FP32_BYTES * problem.dim if problem.scale_grad_by_freq else 0
    counter_bytes = problem.index_bytes * counters
    smallest = (
        block * (FP32_BYTES * FP32_PER_BLOCK + problem.index_bytes) + FP32_BYTES * FP32_PER_BLOCK
    )
    counters_fit = 1 if counter_bytes + smallest <= budget else 0
    budget -= counter_bytes * counters_fit
    row_bytes = FP32_BYTES * problem.dim + problem.index_bytes
    batch_rows = (
        align_down((budget - accumulator_bytes) // row_bytes, block)
        if budget > accumulator_bytes
        else 0
    )
    dim_piece = problem.dim
    if batch_rows == 0:
        batch_rows = block
        columns = block + 1 if problem.scale_grad_by_freq else block
        free = budget - block * problem.index_bytes
        dim_piece = max(align_down(free // (FP32_BYTES * columns), FP32_PER_BLOCK), 1)
    return Tiling(
        block_dim=block_dim,
        splits_weights=1 if problem.scale_grad_by_freq else 0,
        share=share,
        batch_rows=batch_rows,
        dim_piece=dim_piece,
        dim_pieces=ceil_div(problem.dim, dim_piece),
        counters=counters,
        counters_fit=counters_fit,
    )


def split_range(tiling: Tiling, total: int, core: int) -> Range:
    """Return the half-open range of gradient rows (or weight rows) that a core takes."""
    return chunk_range(core, tiling.share, total)
