"""Kernels of EmbeddingDenseBackward."""

from npu_sim.kernels.embedding_dense_backward.gradient import (
    EXACT_COUNT,
    Grouped,
    embedding_dense_backward,
    order_dependent_rows,
)
from npu_sim.kernels.embedding_dense_backward.grouping import Cut

__all__ = ["EXACT_COUNT", "Cut", "Grouped", "embedding_dense_backward", "order_dependent_rows"]
