"""SwiGlu on Ascend 950: computation.

Source: specification page ``swi_glu_950``.
"""

from functools import partial

from npu_sim.operators.swi_glu.compute import compute as compute_as

compute = partial(compute_as, flushes=True)
