"""The example of the product document aclnnConvTbcBackward.

All inputs are ones: 5 time steps, one sample, two channels, one tap.
"""

from acl_program import check, create_acl_tensor, create_workspace, finalize, init, print_result

from npu_sim.aclnn import (
    AclDataType,
    aclDestroyTensor,
    aclnnConvTbcBackward,
    aclnnConvTbcBackwardGetWorkspaceSize,
    aclrtSynchronizeStream,
)


def main() -> None:
    """Run the program."""
    # 1. Device and stream.
    device_id = 0
    stream = init(device_id)

    # 2. Inputs and outputs, all fp32 and all ones.
    pad, cube_math_type = 0, 1
    shapes = {
        "self": [5, 1, 2],
        "input": [5, 1, 2],
        "weight": [1, 2, 2],
        "bias": [2],
        "gradInput": [5, 1, 2],
        "gradWeight": [1, 2, 2],
        "gradBias": [2],
    }
    memory, tensors = {}, {}
    for name, shape in shapes.items():
        size = 1
        for length in shape:
            size *= length
        memory[name], tensors[name] = create_acl_tensor([1] * size, shape, AclDataType.ACL_FLOAT)

    # 3. First stage, workspace, second stage.
    status, workspace_size, executor = aclnnConvTbcBackwardGetWorkspaceSize(
        tensors["self"],
        tensors["input"],
        tensors["weight"],
        tensors["bias"],
        pad,
        cube_math_type,
        tensors["gradInput"],
        tensors["gradWeight"],
        tensors["gradBias"],
    )
    check(status, "aclnnConvTbcBackwardGetWorkspaceSize")
    workspace = create_workspace(workspace_size)
    check(aclnnConvTbcBackward(workspace, workspace_size, executor, stream), "aclnnConvTbcBackward")

    # 4. Wait, and print the results.
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream")
    for name in ("gradInput", "gradWeight", "gradBias"):
        print_result(f"{name}Result", memory[name], AclDataType.ACL_FLOAT)

    # 5. Release all resources.
    for tensor in tensors.values():
        aclDestroyTensor(tensor)
    finalize(device_id, stream)


if __name__ == "__main__":
    main()
