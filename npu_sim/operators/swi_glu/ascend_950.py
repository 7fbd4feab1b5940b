"""SwiGlu on Ascend 950: the planner and order of A2 and A3; division loses subnormal results.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``swi_glu_950``.
"""

from functools import partial
from typing import Any

from npu_sim.operators.swi_glu.compute import compute as compute_as

compute = partial(compute_as, is_950=True)
instructions = None
"""No rates of vector instructions are published."""

FIELDS: dict[str, Any] = {}
"""Fields of the declaration that differ on Ascend 950."""
