"""RmsNorm on Ascend 950: own planner and kernels, the contract of A2 and A3.

Source: specification page ``rms_norm_950``.
"""

from typing import Any

from npu_sim.operators.rms_norm.ascend_950.compute import compute
from npu_sim.operators.rms_norm.ascend_950.plan import describe
from npu_sim.tiling.ascend_950 import rms_norm as tiler


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.rms_norm.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.rms_norm import study as shared
    from npu_sim.operators.rms_norm.ascend_950 import study

    return {"claims": study.claims, "terms": shared.terms}


FIELDS: dict[str, Any] = {
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "describe": describe,
    "compute": compute,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
