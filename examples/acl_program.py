"""Helpers of the example programs: checks, device and stream, tensors from host data."""

import sys
from collections.abc import Sequence

import numpy as np

from npu_sim import aclnn


def check(status: int, what: str) -> None:
    """Exit if a call failed, like CHECK_RET in the product documents."""
    if status != aclnn.ACL_SUCCESS:
        print(f"{what} failed. ERROR: {int(status)}\n{aclnn.aclGetRecentErrMsg() or ''}")
        sys.exit(1)


def init(device_id: int) -> aclnn.Stream:
    """Initialise, select a device and create a stream."""
    check(aclnn.aclInit(None), "aclInit")
    check(aclnn.aclrtSetDevice(device_id), "aclrtSetDevice")
    status, stream = aclnn.aclrtCreateStream()
    check(status, "aclrtCreateStream")
    return stream


def finalize(device_id: int, stream: aclnn.Stream) -> None:
    """Release the stream and the device."""
    aclnn.aclrtDestroyStream(stream)
    aclnn.aclrtResetDevice(device_id)
    aclnn.aclFinalize()


def create_acl_tensor(
    host_data: Sequence[float],
    shape: Sequence[int],
    data_type: int,
    data_format: int = aclnn.AclFormat.ACL_FORMAT_ND,
) -> tuple[np.ndarray, aclnn.AclTensor]:
    """Return device memory with a copy of host data, and a contiguous tensor on it.

    The programs in the product documents copy fp32 bytes whatever the type of the tensor. Here the
    numbers are converted to that type.
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
    """Return a workspace of the size that the first stage returned; None for size 0."""
    if size == 0:
        return None
    status, workspace = aclnn.aclrtMalloc(size, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
    check(status, "allocate workspace")
    return workspace


def print_result(name: str, memory: np.ndarray, data_type: int) -> None:
    """Copy a result to the host and print one element per line."""
    dtype = aclnn.AclDataType(data_type).numpy
    result = np.empty(memory.nbytes // dtype.itemsize, dtype)
    status = aclnn.aclrtMemcpy(
        result, result.nbytes, memory, memory.nbytes, aclnn.ACL_MEMCPY_DEVICE_TO_HOST
    )
    check(status, "copy result from device to host")
    for position, value in enumerate(result):
        print(f"{name}[{position}] is: {float(value):f}")
