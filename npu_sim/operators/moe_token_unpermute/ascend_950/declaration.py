"""MoeTokenUnpermute on Ascend 950: own planner, and checks of sizes.

Source: specification page ``moe_token_unpermute_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.axes import FLOAT_DTYPES
from npu_sim.framework.operator import Assumed
from npu_sim.operators.moe_token_unpermute.ascend_950.compute import compute
from npu_sim.operators.moe_token_unpermute.ascend_950.plan import describe
from npu_sim.operators.shared.token_sums import check_padding
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute import study as shared
    from npu_sim.operators.moe_token_unpermute.ascend_950 import study

    return {
        "claims": study.claims,
        "terms": study.terms,
        "changes": shared.CHANGES,
        "open_rules": study.open_rules,
    }


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Attributes("padded_mode restore_shape"),
        check_padding,
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_tokens", lambda profile: profile.product.dtypes),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs", FLOAT_DTYPES),
        checks.SameDtype("out", "permuted_tokens"),
        checks.Formats(checks.ND),
        checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0 or hidden == 0"),
        checks.Holds("top_k >= 1", "probs"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_unpermute_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "empty": "empty: no tokens or no columns, nothing runs",
    "planner_message": None,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
