"""aclnnRmsNormGrad (product document "aclnnRmsNormGrad", "接口原型")."""

from typing import Any

from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.prototype import FirstStage, Prototype, Tensor
from npu_sim.status import Status

PROTOTYPE = Prototype(
    "rms_norm_grad",
    {"dy": "dy", "x": "x", "rstd": "rstd", "gamma": "gamma", "dxOut": "dx", "dgammaOut": "dgamma"},
)


def aclnnRmsNormGradGetWorkspaceSize(dy: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor, dxOut: Tensor, dgammaOut: Tensor) -> FirstStage:
    """Check and plan the gradients of an RMS normalisation; return (status, workspaceSize, executor)."""
    return PROTOTYPE.first_stage(dy, x, rstd, gamma, dxOut, dgammaOut)


def aclnnRmsNormGrad(workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
    """Run a call of the first stage in its workspace; return the status."""
    return PROTOTYPE.second_stage(workspace, workspaceSize, executor, stream)
