"""Input data of CrossEntropyLossGrad: log-softmax of normal logits, uniform labels."""

from typing import Any

import numpy as np

from npu_sim.formats import TensorSpec, numpy_dtype

IGNORED_SHARE = 0.1
"""Share of the labels that are ignore_index, when that is a label at all: about what padding is."""
WEIGHTS = (0.5, 1.5)
"""Range of the weights, around 1."""
BLOCK_ELEMENTS = 1 << 22
"""Elements drawn at a time, so that temporaries stay small."""


def generate(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """See :func:`npu_sim.generate.generate`."""
    rng = np.random.default_rng(seed)
    grad_loss, columns = arguments.grad_loss, arguments.log_prob.shape[1]
    per_row = grad_loss.rank > 0
    gradients = rng.standard_normal(grad_loss.shape, np.float32) if per_row else np.ones((), np.float32)
    data = {
        "grad_loss": np.asarray(gradients, numpy_dtype(grad_loss.dtype)),
        "log_prob": log_probabilities(arguments.log_prob, rng),
        "target": labels(arguments.target, columns, arguments.ignore_index, rng),
    }
    if arguments.weight is not None:
        data["weight"] = rng.uniform(*WEIGHTS, arguments.weight.shape).astype(np.float32)
    return data


def log_probabilities(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Return the log-softmax of normal logits, row by row."""
    out = np.empty(spec.shape, numpy_dtype(spec.dtype))
    step = max(1, BLOCK_ELEMENTS // spec.shape[1])
    for begin in range(0, spec.shape[0], step):
        logits = rng.standard_normal(out[begin : begin + step].shape, np.float32)
        out[begin : begin + step] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return out


def labels(spec: TensorSpec, columns: int, ignore_index: int, rng: np.random.Generator) -> np.ndarray:
    """Draw labels in [0, C), some of them ignored where ignore_index is one."""
    drawn = rng.integers(0, columns, spec.shape, np.int64)
    if 0 <= ignore_index < columns:
        drawn[rng.random(spec.shape) < IGNORED_SHARE] = ignore_index
    return drawn
