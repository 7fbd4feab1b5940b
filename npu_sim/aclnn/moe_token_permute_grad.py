"""aclnnMoeTokenPermuteGrad (product document "aclnnMoeTokenPermuteGrad", "接口原型")."""

from typing import Any

from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.prototype import FirstStage, Prototype, Tensor
from npu_sim.status import Status

PROTOTYPE = Prototype(
    "moe_token_permute_grad",
    {
        "permutedOutputGrad": "permuted_output_grad",
        "sortedIndices": "sorted_indices",
        "numTopk": "num_topk",
        "paddedModeOptional": "padded_mode",
        "out": "out",
    },
)


def aclnnMoeTokenPermuteGradGetWorkspaceSize(
    permutedOutputGrad: Tensor, sortedIndices: Tensor, numTopk: int, paddedModeOptional: bool, out: Tensor
) -> FirstStage:
    """Check and plan the gradient of the tokens of a mixture of experts; return (status, workspaceSize, executor)."""
    return PROTOTYPE.first_stage(permutedOutputGrad, sortedIndices, numTopk, paddedModeOptional, out)


def aclnnMoeTokenPermuteGrad(workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
    """Run a call of the first stage in its workspace; return the status."""
    return PROTOTYPE.second_stage(workspace, workspaceSize, executor, stream)
