"""RmsNormGrad on Ascend 950: own planner, kernels and checks of sizes.

Source: specification page ``rms_norm_grad_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Assumed
from npu_sim.language import Text
from npu_sim.operators.rms_norm_grad import contract
from npu_sim.operators.rms_norm_grad.ascend_950.compute import compute
from npu_sim.operators.rms_norm_grad.ascend_950.plan import describe
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling.ascend_950 import rms_norm_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES

MOST_ROWS = 2**31 - 1
"""More rows overflow fields of 32 bits (page, "Contract differences")."""


def check_shapes(call: Inspection) -> None:
    """Check the shapes in the order of the product's planner; tensors may have no rows."""
    contract.check_shapes(call, takes_no_rows=True)


def _rows_message(call: Inspection) -> tuple[str, str]:
    message = Text(
        "row = {size}: fields of 32 bits overflow, what the product does then is not described",
        size=call.size("row"),
    )
    return message, f"row <= {MOST_ROWS}"


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.rms_norm_grad.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.rms_norm_grad import study as shared
    from npu_sim.operators.rms_norm_grad.ascend_950 import study

    return {"claims": study.claims, "miscounted": shared.miscounted, "terms": shared.terms}


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Contiguous(),
        checks.DtypeTable("dy x rstd gamma dx dgamma", contract.dtype_rows),
        checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
        check_shapes,
        checks.Ranks("rstd", 0, status=TILING_FAILURE),
        checks.Holds("col >= 1", "gamma"),
        checks.Holds(f"row <= {MOST_ROWS}", "x", _rows_message),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page rms_norm_grad_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
