"""Kernels of EmbeddingDenseBackward."""

from npu_sim.kernels.embedding_dense_backward.chunks import Cut
from npu_sim.kernels.embedding_dense_backward.gradient import (
    EXACT_COUNT,
    NO_SCRATCH,
    Grouped,
    Scratch,
    core_sum,
    embedding_dense_backward,
    order_dependent_rows,
)

__all__ = [
    "EXACT_COUNT",
    "NO_SCRATCH",
    "Cut",
    "Grouped",
    "Scratch",
    "core_sum",
    "embedding_dense_backward",
    "order_dependent_rows",
]
