"""EmbeddingDenseBackward on Ascend 950: own kernels; no bound on embeddingDim.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``embedding_dense_backward_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import system_workspace
from npu_sim.operators.embedding_dense_backward.ascend_950.declaration import CallTiling, tile_row

DIFFERENCES = Differences(
    tiling=CallTiling,
    tile=tile_row,
    assumed=(system_workspace("embedding_dense_backward_950, Tiling"),),
    bounds={},
    absent=("parts",),  # no sum depends on the order in which cores finish
)
