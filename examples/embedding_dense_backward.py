"""The example of the product document aclnnEmbeddingDenseBackward: two of four weight rows."""

from acl_program import check, create_acl_tensor, create_workspace, finalize, init, print_result

from npu_sim.aclnn import (
    AclDataType,
    aclDestroyTensor,
    aclnnEmbeddingDenseBackward,
    aclnnEmbeddingDenseBackwardGetWorkspaceSize,
    aclrtSynchronizeStream,
)


def main() -> None:
    """Run the program."""
    # 1. Device and stream.
    device_id = 0
    stream = init(device_id)

    # 2. Inputs and output.
    num_weights, padding_idx, scale_grad_by_freq = 4, 0, False
    _, grad_output = create_acl_tensor([1, 2, 3, 4, 5, 6], [2, 3], AclDataType.ACL_FLOAT)
    _, indices = create_acl_tensor([1, 2], [2], AclDataType.ACL_INT64)
    out_memory, out = create_acl_tensor([0] * 12, [4, 3], AclDataType.ACL_FLOAT)

    # 3. First stage, workspace, second stage.
    status, workspace_size, executor = aclnnEmbeddingDenseBackwardGetWorkspaceSize(
        grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, out
    )
    check(status, "aclnnEmbeddingDenseBackwardGetWorkspaceSize")
    workspace = create_workspace(workspace_size)
    check(
        aclnnEmbeddingDenseBackward(workspace, workspace_size, executor, stream),
        "aclnnEmbeddingDenseBackward",
    )

    # 4. Wait, and print the result.
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")
    print_result("resultData", out_memory, AclDataType.ACL_FLOAT)

    # 5. Release all resources.
    for tensor in (grad_output, indices, out):
        aclDestroyTensor(tensor)
    finalize(device_id, stream)


if __name__ == "__main__":
    main()
