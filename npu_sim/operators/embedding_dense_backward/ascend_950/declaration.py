"""EmbeddingDenseBackward on Ascend 950: own planner and kernels; no bound on embeddingDim.

Source: specification page ``embedding_dense_backward_950``.
"""

from typing import Any

from npu_sim.framework.operator import Assumed
from npu_sim.operators.embedding_dense_backward.ascend_950 import planner
from npu_sim.operators.embedding_dense_backward.ascend_950.compute import compute
from npu_sim.operators.embedding_dense_backward.ascend_950.plan import describe
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.embedding_dense_backward.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.embedding_dense_backward import study as shared
    from npu_sim.operators.embedding_dense_backward.ascend_950 import study

    return {
        "claims": study.claims,
        "miscounted": shared.miscounted,
        "terms": shared.terms,
        "causes": study.causes,
        "changes": study.CHANGES,
    }


FIELDS: dict[str, Any] = {
    "tiling": planner.CallTiling,
    "tile": planner.tile_row,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page embedding_dense_backward_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "bounds": {},
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
