"""Data for MoeTokenPermuteGrad: normal gradients, and tokens that went to experts at random."""

import numpy as np

from npu_sim.generate.values import normal
from npu_sim.ops.moe_token_permute_grad import Arguments


def generate(arguments: Arguments, seed: int) -> dict[str, np.ndarray]:
    """Return the gradient, and a random permutation of the rows: which of them are dropped, when some are, is random too."""
    grad, indices = arguments.permuted_output_grad, arguments.sorted_indices
    assert grad is not None
    assert indices is not None
    random = np.random.default_rng(seed)
    return {
        "permuted_output_grad": normal(random, grad),
        "sorted_indices": random.permutation(np.arange(indices.numel, dtype=np.int32)).reshape(indices.shape),
    }
