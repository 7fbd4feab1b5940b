"""What the programs of the product documents have in common: checks, device and stream, tensors from host data."""

import sys
from collections.abc import Sequence

import numpy as np

from npu_sim import aclnn


def check(status: int, what: str) -> None:
    """Stop the program when a call failed, as the documents' CHECK_RET does."""
    if status != aclnn.ACL_SUCCESS:
        print(f"{what} failed. ERROR: {int(status)}\n{aclnn.aclGetRecentErrMsg() or ''}")
        sys.exit(1)


def init(device_id: int) -> aclnn.Stream:
    """Initialise, take a device and make a stream."""
    check(aclnn.aclInit(None), "aclInit")
    check(aclnn.aclrtSetDevice(device_id), "aclrtSetDevice")
    status, stream = aclnn.aclrtCreateStream()
    check(status, "aclrtCreateStream")
    return stream


def finalize(device_id: int, stream: aclnn.Stream) -> None:
    """Give everything back."""
    aclnn.aclrtDestroyStream(stream)
    aclnn.aclrtResetDevice(device_id)
    aclnn.aclFinalize()


def create_acl_tensor(
    host_data: Sequence[float],
    shape: Sequence[int],
    data_type: int,
    data_format: int = aclnn.AclFormat.ACL_FORMAT_ND,
) -> tuple[np.ndarray, aclnn.AclTensor]:
    """Allocate device memory, copy host data into it, and describe it as a contiguous tensor; return (memory, tensor).

    The documents' programs copy the bytes of fp32 numbers whatever the type of the tensor; here the numbers are converted to it.
    """
    host = np.array(host_data, aclnn.AclDataType(data_type).numpy)
    status, memory = aclnn.aclrtMalloc(host.nbytes, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
    check(status, "aclrtMalloc")
    check(
        aclnn.aclrtMemcpy(memory, host.nbytes, host, host.nbytes, aclnn.ACL_MEMCPY_HOST_TO_DEVICE),
        "aclrtMemcpy",
    )
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = shape[axis + 1] * strides[axis + 1]
    return memory, aclnn.aclCreateTensor(shape, data_type, strides, 0, data_format, shape, memory)


def create_workspace(size: int) -> np.ndarray | None:
    """Allocate the workspace that the first stage asked for; None when it asked for none."""
    if size == 0:
        return None
    status, workspace = aclnn.aclrtMalloc(size, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
    check(status, "allocate workspace")
    return workspace


def print_result(name: str, memory: np.ndarray, data_type: int) -> None:
    """Copy a result to the host and print it line by line."""
    result = np.empty(
        memory.nbytes // aclnn.AclDataType(data_type).numpy.itemsize,
        aclnn.AclDataType(data_type).numpy,
    )
    status = aclnn.aclrtMemcpy(
        result, result.nbytes, memory, memory.nbytes, aclnn.ACL_MEMCPY_DEVICE_TO_HOST
    )
    check(status, "copy result from device to host")
    for position, value in enumerate(result):
        print(f"{name}[{position}] is: {float(value):f}")
