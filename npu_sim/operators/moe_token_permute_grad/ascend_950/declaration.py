"""MoeTokenPermuteGrad on Ascend 950: own planner, kernel and checks of sizes.

Source: specification page ``moe_token_permute_grad_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Assumed
from npu_sim.language import Text
from npu_sim.operators.moe_token_permute_grad import contract
from npu_sim.operators.moe_token_permute_grad.ascend_950.compute import compute
from npu_sim.operators.moe_token_permute_grad.ascend_950.plan import describe
from npu_sim.operators.shared.token_sums import check_padding
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling.ascend_950 import moe_token_permute_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES


def check_top_k(call: Inspection) -> None:
    """Check that num_topk is an integer; its planner checks the range."""
    checks.require_integer("num_topk", call.arguments.num_topk)


def _rows_message(call: Inspection) -> tuple[str, str]:
    return (
        Text("permuted_output_grad has no rows: Ascend 950 refuses it"),
        Text("at least 1 row, at most {entries}", entries=call.size("entries")),
    )


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_permute_grad.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_permute_grad import study as shared
    from npu_sim.operators.moe_token_permute_grad.ascend_950 import study

    return {"claims": study.claims, "terms": shared.terms, "changes": shared.CHANGES}


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_output_grad", lambda profile: profile.product.dtypes),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.SameDtype("out", "permuted_output_grad"),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode"),
        check_padding,
        check_top_k,
        checks.Holds("num_topk >= 1", "num_topk"),
        checks.Ranks("permuted_output_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        contract.check_entries,
        checks.Holds("tokens >= 1", "sorted_indices"),
        checks.Holds("grad_rows >= 1", "permuted_output_grad", _rows_message),
        checks.Holds("hidden >= 1", "permuted_output_grad"),
        checks.Shapes("out", TILING_FAILURE),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_permute_grad_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "planner_message": None,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
