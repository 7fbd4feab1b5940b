"""aclnnConvTbcBackward (product document "aclnnConvTbcBackward", "接口原型")."""

from typing import Any

from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.prototype import FirstStage, Prototype, Tensor
from npu_sim.status import Status

PROTOTYPE = Prototype(
    "conv_tbc_backward",
    {
        "self": "grad_output",
        "input": "input",
        "weight": "weight",
        "bias": "bias",
        "pad": "pad",
        "cubeMathType": "cube_math_type",
        "gradInput": "grad_input",
        "gradWeight": "grad_weight",
        "gradBias": "grad_bias",
    },
)


def aclnnConvTbcBackwardGetWorkspaceSize(
    self: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    pad: int,
    cubeMathType: int,
    gradInput: Tensor,
    gradWeight: Tensor,
    gradBias: Tensor,
) -> FirstStage:
    """Check and plan the gradients of a temporal convolution; return (status, workspaceSize, executor)."""
    return PROTOTYPE.first_stage(self, input, weight, bias, pad, cubeMathType, gradInput, gradWeight, gradBias)


def aclnnConvTbcBackward(workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
    """Run a call of the first stage in its workspace; return the status."""
    return PROTOTYPE.second_stage(workspace, workspaceSize, executor, stream)
