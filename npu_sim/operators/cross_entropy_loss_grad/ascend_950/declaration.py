"""CrossEntropyLossGrad on Ascend 950: labels of int32 too, own planner and kernels.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.arguments import Tensor
from npu_sim.framework.axes import FLOAT_DTYPES, Word
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Assumed
from npu_sim.language import Text
from npu_sim.operators.cross_entropy_loss_grad import contract
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.compute import compute
from npu_sim.operators.cross_entropy_loss_grad.ascend_950.plan import describe
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES


def check_reduction(call: Inspection) -> None:
    """Refuse an unknown reduction: 561002, by the planner."""
    contract.check_reduction(call, TILING_FAILURE)


def check_loss_dtype(call: Inspection) -> None:
    """Refuse a grad_loss of another dtype than log_prob: 561002, by the planner."""
    found, expected = call.specs["grad_loss"].dtype, call.specs["log_prob"].dtype
    if found != expected:
        message = Text(
            "grad_loss is {dtype}, log_prob is {expected}: they must agree",
            dtype=found,
            expected=expected,
        )
        raise AclnnError(
            TILING_FAILURE, "grad_loss", message, Text("grad_loss: {expected}", expected=expected)
        )


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.cross_entropy_loss_grad.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.cross_entropy_loss_grad import study as shared
    from npu_sim.operators.cross_entropy_loss_grad.ascend_950 import study

    return {"claims": study.claims, "terms": shared.terms}


TARGET = Tensor(
    "target",
    "N",
    "label of every row, (N,), int64 or int32",
    "target_dtype",
    samples=0,
    addresses=True,
)
FIELDS: dict[str, Any] = {
    "arguments": tuple(
        TARGET if argument.name == "target" else argument for argument in contract.ARGUMENTS
    ),
    "axes": (*contract.AXES, Word("target_dtype", "dtype of target", tiler.TARGET_DTYPES, "int64")),
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_loss log_prob", contract.float_dtypes),
        checks.Dtypes("target", tiler.TARGET_DTYPES),
        checks.Dtypes("weight", ("float32",)),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", contract.float_dtypes),
        checks.SameDtype("out", "log_prob"),
        checks.Formats(checks.ND),
        contract.check_unsupported,
        checks.Attributes("ignore_index"),
        check_reduction,
        checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        checks.Shapes("log_prob", TILING_FAILURE),
        checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        check_loss_dtype,
        checks.Holds("ignore_index < C or C == 0", "ignore_index", contract.label_message, INVALID),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page cross_entropy_loss_grad_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""
