"""aclnnCrossEntropyLossGrad (product document "aclnnCrossEntropyLossGrad", "接口原型")."""

from typing import Any

from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.prototype import FirstStage, Prototype, Tensor
from npu_sim.status import Status

PROTOTYPE = Prototype(
    "cross_entropy_loss_grad",
    {
        "gradLoss": "grad_loss",
        "logProb": "log_prob",
        "target": "target",
        "weightOptional": "weight",
        "gradZlossOptional": "grad_zloss",
        "lseForZlossOptional": "lse_for_zloss",
        "reduction": "reduction",
        "ignoreIndex": "ignore_index",
        "labelSmoothing": "label_smoothing",
        "lseSquareScaleForZloss": "lse_square_scale_for_zloss",
        "xGradOut": "out",
    },
)


def aclnnCrossEntropyLossGradGetWorkspaceSize(
    gradLoss: Tensor,
    logProb: Tensor,
    target: Tensor,
    weightOptional: Tensor,
    gradZlossOptional: Tensor,
    lseForZlossOptional: Tensor,
    reduction: str,
    ignoreIndex: int,
    labelSmoothing: float,
    lseSquareScaleForZloss: float,
    xGradOut: Tensor,
) -> FirstStage:
    """Check and plan the gradient of the logits of a cross entropy; return (status, workspaceSize, executor)."""
    return PROTOTYPE.first_stage(
        gradLoss,
        logProb,
        target,
        weightOptional,
        gradZlossOptional,
        lseForZlossOptional,
        reduction,
        ignoreIndex,
        labelSmoothing,
        lseSquareScaleForZloss,
        xGradOut,
    )


def aclnnCrossEntropyLossGrad(workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
    """Run a call of the first stage in its workspace; return the status."""
    return PROTOTYPE.second_stage(workspace, workspaceSize, executor, stream)
