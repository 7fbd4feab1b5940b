"""Kernels of EmbeddingDenseBackward."""

from npu_sim.kernels.embedding_dense_backward.gradient import (
    EXACT_COUNT,
    Grouped,
    embedding_dense_backward,
    order_dependent_rows,
)
from npu_sim.kernels.embedding_dense_backward.grouping import Cut
from npu_sim.kernels.shared.arrival_orders import ArrivalOrder

__all__ = [
    "EXACT_COUNT",
    "ArrivalOrder",
    "Cut",
    "Grouped",
    "embedding_dense_backward",
    "order_dependent_rows",
]
