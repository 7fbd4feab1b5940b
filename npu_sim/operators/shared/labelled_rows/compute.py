"""Checks and generated data of labels.

Source: specification pages ``cross_entropy_loss`` and ``cross_entropy_loss_grad``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import AclnnError, Array, Text, runtime_failure

IGNORED_FRACTION = 0.1
"""Fraction of generated labels equal to ignore_index, if it is a valid label: typical padding."""
WEIGHTS = (0.5, 1.5)
"""Range of generated weights, around 1."""
BLOCK_ELEMENTS = 1 << 22
"""Elements drawn, or computed by the formula, at a time; limits the size of temporaries."""


def label_failure(target: Array, place: int, columns: int, hint: str) -> AclnnError:
    """Return the error of the first label outside [0, C)."""
    return runtime_failure(
        "target",
        Text(
            "target[{place}] = {target} is out of range: C = {columns}",
            place=place,
            target=target[place],
            columns=columns,
        ),
        hint,
    )


def draw_labels(arguments: Any, columns: int, rng: "np.random.Generator") -> dict[str, Array]:
    """Return uniform labels, of which some are ignored, and weights of the classes, if given."""
    labels = rng.integers(0, max(1, columns), arguments.target.shape, np.int64)
    drawn = {"target": labels.astype(arguments.target.dtype, copy=False)}
    if 0 <= arguments.ignore_index < columns:
        drawn["target"][rng.random(arguments.target.shape) < IGNORED_FRACTION] = (
            arguments.ignore_index
        )
    if arguments.weight is not None:
        drawn["weight"] = rng.uniform(*WEIGHTS, arguments.weight.shape).astype(np.float32)
    return drawn
