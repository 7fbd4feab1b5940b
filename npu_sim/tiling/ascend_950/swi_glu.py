"""Tiling of SwiGlu on Ascend 950: that of A2 and A3, and the raw planner of an empty x.

Source: specification page ``swi_glu_950``, section "aclnnSwiGlu".
"""

from npu_sim.cores import Device
from npu_sim.tiling import swi_glu
from npu_sim.tiling.common import RAW_FAILURE, Raw

KEY_EMPTY = 100
"""Tiling key of an empty x; the call does not get there."""


def _plan(inputs: Raw, device: Device, rules: object) -> Raw:
    if 0 not in inputs["x_shape"]:
        return swi_glu.KERNELS["swi_glu"](inputs, device, rules)
    if 0 not in inputs["y_shape"]:
        return RAW_FAILURE
    return {
        "status": "success",
        "block_dim": device.vector_cores,
        "tiling_key": KEY_EMPTY,
        "workspace_bytes": 0,
        "schedule_mode": None,
        "tiling": {},
    }


KERNELS = {"swi_glu": _plan}
