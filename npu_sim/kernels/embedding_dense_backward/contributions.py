"""EmbeddingDenseBackward: the chunks of marked runs, each summed from zero and kept apart.

For studies of the order in which chunks arrive; the operator itself adds them up at once.
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers
from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.vectors.lanes import Stored
from npu_sim.numbers.scalars import widen


@kernel
def _sum_chunk(
    chunk: int,
    grad: Stored,
    marked: Integers,
    begins: NDArray[np.int64],
    stops: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    sums = values[chunk]
    for column in range(sums.size):
        sums[column] = np.float32(0)
    for slot in range(begins[chunk], stops[chunk]):
        row = grad[max(np.int64(marked[slot]), ~np.int64(marked[slot]))]
        for column in range(sums.size):
            sums[column] = sums[column] + widen(row[column])


def sum_chunks(
    grad: Stored,
    marked: Integers,
    begins: NDArray[np.int64],
    stops: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    """Write the sum of the rows at the slots ``begins[i]..stops[i]`` to ``values[i]``, added one after the other from zero."""
    _sum_chunk.over(begins.size, grad, marked, begins, stops, values)
