"""Calls of RotaryPositionEmbedding and its gradient in dumps."""

import numpy as np

from npu_sim.operators.shared.rotations.declaration import MODES
from npu_sim.operators.shared.study import Function, WrappedCall

FP64 = np.dtype(np.float64)


def attributes_of(wrapped: WrappedCall) -> dict[str, object]:
    """Return the mode of a dumped call of torch_npu."""
    mode = wrapped.pick("rotary_mode", rotary_mode="half")["rotary_mode"]
    return {"mode": MODES.get(str(mode), mode)}


ROTARY_MUL = Function(
    ("npu_rotary_mul",), ("input", "r1", "r2", "rotary_mode"), ("input", "r1", "r2")
)
