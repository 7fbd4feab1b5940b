"""RotaryPositionEmbedding: computation, formula and generated data.

Source: specification page ``rotary_position_embedding``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Dtype, Run
from npu_sim.kernels.shared.rotation import Tensors, rotate
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.rotations.compute import angles, four_axes, rotated
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE


def compute(run: Run) -> None:
    """Compute out."""
    with run.watch.stage("compute"):
        x, cos, sin = (four_axes(run.stored(name)) for name in ("x", "cos", "sin"))
        tensors = Tensors(x, cos, sin, run.written("y").reshape(-1))
        rotate(tensors, run.case.row.mode == INTERLEAVE)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return out by its formula (page, "Formula")."""
    x, cos, sin = (tensors[name].astype(precision) for name in ("x", "cos", "sin"))
    return {"y": x * cos + rotated(x, int(arguments.mode)) * sin}


def data(arguments: Any, seed: int) -> Arrays:
    """Return activations of order 1, and cos and sin of growing angles."""
    return {"x": normal(np.random.default_rng(seed), arguments.x), **angles(arguments.cos)}
