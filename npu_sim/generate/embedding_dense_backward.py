"""Data for EmbeddingDenseBackward: normal gradients of tokens that occur as often as words do."""

import numpy as np

from npu_sim.formats import FORMATS, TensorSpec, numpy_dtype
from npu_sim.generate.values import normal, zipf
from npu_sim.ops.embedding_dense_backward import Arguments


def generate(arguments: Arguments, seed: int) -> dict[str, np.ndarray]:
    """Return the gradient and Zipf-distributed indices, frequent ones small as in most vocabularies."""
    grad, indices = arguments.grad, arguments.indices
    assert grad is not None
    assert indices is not None
    random = np.random.default_rng(seed)
    gradient = normal(random, grad)
    words = max(min(arguments.num_weights, _countable(indices)), 1)
    return {"grad": gradient, "indices": zipf(random, indices.numel, words).reshape(indices.shape).astype(numpy_dtype(indices.dtype))}


def _countable(spec: TensorSpec) -> int:
    """Return how many whole numbers from 0 on a dtype holds without a gap."""
    if spec.dtype == "bool":
        return 2
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max) + 1
    mantissa_bits = FORMATS[spec.dtype].mantissa_bits if spec.dtype in FORMATS else np.finfo(dtype).nmant
    return int(2 ** (mantissa_bits + 1)) + 1
