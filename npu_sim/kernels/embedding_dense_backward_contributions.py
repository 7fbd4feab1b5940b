"""EmbeddingDenseBackward: the chunks of marked runs, each summed from zero and kept apart.

For studies of the order in which chunks arrive; the operator itself adds them up at once.
"""

import numpy as np
from numba import prange
from numpy.typing import NDArray

from npu_sim.kernels._compile import kernel
from npu_sim.kernels.embedding_dense_backward_blocks import Stored, clear
from npu_sim.kernels.embedding_dense_backward_chunks import Integers
from npu_sim.kernels.embedding_dense_backward_sums import ONE, add_rows


@kernel
def sum_chunks(grad: Stored, marked: Integers, begins: NDArray[np.int64], stops: NDArray[np.int64], values: NDArray[np.float32]) -> None:
    """Write the sum of the rows at the slots ``begins[i]..stops[i]`` to ``values[i]``, added one after the other from zero."""
    for chunk in prange(begins.size):
        sums = values[chunk]
        clear(sums)
        add_rows(sums, ONE, grad, marked, begins[chunk], stops[chunk], 0)
