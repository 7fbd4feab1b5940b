"""Checks, weights and generated data of labels, and rows of classes in blocks.

Source: specification pages ``cross_entropy_loss`` and ``cross_entropy_loss_grad``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    AclnnError,
    Array,
    Arrays,
    Case,
    Dtype,
    Shape,
    Text,
    runtime_failure,
)

IGNORED_FRACTION = 0.1
"""Fraction of generated labels equal to ignore_index, if it is a valid label: typical padding."""
WEIGHTS = (0.5, 1.5)
"""Range of generated weights, around 1."""
BLOCK_ELEMENTS = 1 << 22
"""Elements drawn, or computed by the formula, at a time; limits the size of temporaries."""


def row_blocks(shape: Shape) -> Iterator[slice]:
    """Yield the rows of a shape (N, C), block by block."""
    step = max(1, BLOCK_ELEMENTS // shape[1])
    for begin in range(0, shape[0], step):
        yield slice(begin, begin + step)


def class_weights(tensors: Arrays, columns: int, precision: Dtype) -> Array:
    """Return the weight of every class; 1 in a call without weight."""
    weight = tensors.get("weight")
    return np.ones(columns, precision) if weight is None else weight.astype(precision)


def row_weights(
    arguments: Any, tensors: Arrays, columns: int, precision: Dtype
) -> tuple[Array, Array, Array]:
    """Return which rows count, a label in [0, C) for each, and its weight; 0 for other rows."""
    target = tensors["target"]
    counted = target != arguments.ignore_index
    inside = np.where((target >= 0) & (target < columns), target, 0)
    weights = class_weights(tensors, columns, precision)[inside]
    return counted, inside, np.where(counted, weights, 0).astype(precision)


def label_failure(case: Case, target: Array, place: int, hint: str = "") -> AclnnError:
    """Return the error of the first label outside [0, C); without hint it is not ignore_index."""
    columns = case.row.C
    if not hint:
        hint = Text(
            "0 <= label < {columns}, or ignore_index = {ignored}; nothing was written",
            columns=columns,
            ignored=case.arguments.ignore_index,
        )
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
