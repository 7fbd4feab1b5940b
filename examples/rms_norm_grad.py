"""The example of the product document aclnnRmsNormGrad: two rows of 16 columns, rstd 1 and 2."""

from acl_program import check, create_acl_tensor, create_workspace, finalize, init, print_result

from npu_sim.aclnn import (
    AclDataType,
    AclFormat,
    aclDestroyTensor,
    aclnnRmsNormGrad,
    aclnnRmsNormGradGetWorkspaceSize,
    aclrtSynchronizeStream,
)


def main() -> None:
    """Run the program."""
    # 1. Device and stream.
    device_id = 0
    stream = init(device_id)

    # 2. Inputs and outputs; the initial values of the outputs are overwritten.
    numbers = range(1, 33)
    rows, columns, scales = [2, 1, 16], [16], [2]
    kind, layout = AclDataType.ACL_FLOAT, AclFormat.ACL_FORMAT_NCDHW
    _, grad_input = create_acl_tensor(numbers, rows, kind, layout)
    _, x_input = create_acl_tensor(numbers, rows, kind, layout)
    _, rstd_input = create_acl_tensor([1, 2], scales, kind, layout)
    _, gamma_input = create_acl_tensor(numbers[:16], columns, kind, layout)
    dx_memory, dx_out = create_acl_tensor(numbers, rows, kind, layout)
    dgamma_memory, dgamma_out = create_acl_tensor(numbers[:16], columns, kind, layout)

    # 3. First stage, workspace, second stage.
    status, workspace_size, executor = aclnnRmsNormGradGetWorkspaceSize(
        grad_input, x_input, rstd_input, gamma_input, dx_out, dgamma_out
    )
    check(status, "aclnnRmsNormGradGetWorkspaceSize")
    workspace = create_workspace(workspace_size)
    check(aclnnRmsNormGrad(workspace, workspace_size, executor, stream), "aclnnRmsNormGrad")

    # 4. Wait, and print the results.
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")
    print_result("result", dx_memory, kind)
    print_result("result", dgamma_memory, kind)

    # 5. Release all resources.
    for tensor in (grad_input, x_input, rstd_input, gamma_input, dx_out, dgamma_out):
        aclDestroyTensor(tensor)
    finalize(device_id, stream)


if __name__ == "__main__":
    main()
