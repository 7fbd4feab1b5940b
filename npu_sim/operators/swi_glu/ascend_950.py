"""SwiGlu on Ascend 950: the planner and order of A2 and A3; division loses subnormal results.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``swi_glu_950``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Run
from npu_sim.operators.swi_glu.compute import compute_forward

OVERFLOWS_BELOW = np.float32(-87.33654)
"""Below this, 1 / (1 + exp(-a)) is lost as a subnormal number (page, "Kernel")."""


def compute(run: Run) -> None:
    """Compute out."""
    compute_forward(run, OVERFLOWS_BELOW, flushes=True)


instructions = None
"""No rates of vector instructions are published."""

FIELDS: dict[str, Any] = {}
"""Fields of the declaration that differ on Ascend 950."""
