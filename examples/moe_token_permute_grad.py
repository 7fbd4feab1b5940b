"""The example of the product document aclnnMoeTokenPermuteGrad: one token, two experts, bf16."""

from acl_program import check, create_acl_tensor, create_workspace, finalize, init, print_result

from npu_sim.aclnn import (
    AclDataType,
    aclDestroyTensor,
    aclnnMoeTokenPermuteGrad,
    aclnnMoeTokenPermuteGradGetWorkspaceSize,
    aclrtSynchronizeStream,
)


def main() -> None:
    """Run the program."""
    # 1. Device and stream.
    device_id = 0
    stream = init(device_id)

    # 2. Inputs and output.
    num_topk = 2
    _, permuted_output_grad = create_acl_tensor([1, 2, 3, 4], [2, 2], AclDataType.ACL_BF16)
    _, sorted_indices = create_acl_tensor([0, 1], [2], AclDataType.ACL_INT32)
    out_memory, out = create_acl_tensor([0, 0], [1, 2], AclDataType.ACL_BF16)

    # 3. First stage, workspace, second stage.
    status, workspace_size, executor = aclnnMoeTokenPermuteGradGetWorkspaceSize(
        permuted_output_grad, sorted_indices, num_topk, False, out
    )
    check(status, "aclnnMoeTokenPermuteGradGetWorkspaceSize")
    workspace = create_workspace(workspace_size)
    check(
        aclnnMoeTokenPermuteGrad(workspace, workspace_size, executor, stream),
        "aclnnMoeTokenPermuteGrad",
    )

    # 4. Wait, and print the result.
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")
    print_result("mean result", out_memory, AclDataType.ACL_BF16)

    # 5. Release all resources.
    for tensor in (permuted_output_grad, sorted_indices, out):
        aclDestroyTensor(tensor)
    finalize(device_id, stream)


if __name__ == "__main__":
    main()
