"""aclnnEmbeddingDenseBackward (product document "aclnnEmbeddingDenseBackward", "接口原型")."""

from typing import Any

from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.prototype import FirstStage, Prototype, Tensor
from npu_sim.status import Status

PROTOTYPE = Prototype(
    "embedding_dense_backward",
    {
        "grad": "grad",
        "indices": "indices",
        "numWeights": "num_weights",
        "paddingIdx": "padding_idx",
        "scaleGradByFreq": "scale_grad_by_freq",
        "out": "out",
    },
)


def aclnnEmbeddingDenseBackwardGetWorkspaceSize(
    grad: Tensor, indices: Tensor, numWeights: int, paddingIdx: int, scaleGradByFreq: bool, out: Tensor
) -> FirstStage:
    """Check and plan the gradient of an embedding table; return (status, workspaceSize, executor)."""
    return PROTOTYPE.first_stage(grad, indices, numWeights, paddingIdx, scaleGradByFreq, out)


def aclnnEmbeddingDenseBackward(workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
    """Run a call of the first stage in its workspace; return the status."""
    return PROTOTYPE.second_stage(workspace, workspaceSize, executor, stream)
