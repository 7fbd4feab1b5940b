"""The example of the product document aclnnCrossEntropyLossGrad.

Two rows of three equal log-probabilities, with the mean of the loss. The program of the document
writes fp32 numbers to tensors that it declares as bf16. Here the types agree: fp32, which prints
the values of the document, or bf16 with ``python cross_entropy_loss_grad.py bf16``.
"""

import sys

from acl_program import check, create_acl_tensor, create_workspace, finalize, init, print_result

from npu_sim.aclnn import (
    AclDataType,
    aclDestroyTensor,
    aclnnCrossEntropyLossGrad,
    aclnnCrossEntropyLossGradGetWorkspaceSize,
    aclrtSynchronizeStream,
)


def main(kind: AclDataType) -> None:
    """Run the program with the type of gradLoss, logProb and xGradOut."""
    # 1. Device and stream.
    device_id = 0
    stream = init(device_id)

    # 2. Inputs and output.
    ignore_index, label_smoothing, lse_square_scale_for_zloss = -100, 0.0, 0.0
    _, grad_loss = create_acl_tensor([0.1], [], kind)
    _, log_prob = create_acl_tensor([-0.2] * 6, [2, 3], kind)
    _, target = create_acl_tensor([0, 0], [2], AclDataType.ACL_INT64)
    _, weight = create_acl_tensor([1.0, 1.0, 1.0], [3], AclDataType.ACL_FLOAT)
    grad_zloss = lse_for_zloss = None
    out_memory, x_grad_out = create_acl_tensor([0] * 6, [2, 3], kind)

    # 3. First stage, workspace, second stage.
    status, workspace_size, executor = aclnnCrossEntropyLossGradGetWorkspaceSize(
        grad_loss,
        log_prob,
        target,
        weight,
        grad_zloss,
        lse_for_zloss,
        "mean",
        ignore_index,
        label_smoothing,
        lse_square_scale_for_zloss,
        x_grad_out,
    )
    check(status, "aclnnCrossEntropyLossGradGetWorkspaceSize")
    workspace = create_workspace(workspace_size)
    check(
        aclnnCrossEntropyLossGrad(workspace, workspace_size, executor, stream),
        "aclnnCrossEntropyLossGrad",
    )

    # 4. Wait, and print the result.
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")
    print_result("result", out_memory, kind)

    # 5. Release all resources.
    for tensor in (grad_loss, log_prob, target, weight, x_grad_out):
        aclDestroyTensor(tensor)
    finalize(device_id, stream)


if __name__ == "__main__":
    main(AclDataType.ACL_BF16 if "bf16" in sys.argv[1:] else AclDataType.ACL_FLOAT)
