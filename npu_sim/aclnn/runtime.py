"""The functions of the runtime that the documents' programs call: device, stream and memory.

The simulated device computes in host memory and finishes a call before it returns, so most of these
have little to do. Functions that return a pointer through an argument in C return (status, value)
here.
"""

from typing import Any

import numpy as np

from npu_sim.aclnn.enums import (
    ACL_ERROR_INVALID_PARAM,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_DEVICE_TO_DEVICE,
    ACL_SUCCESS,
)

Array = np.ndarray[Any, Any]
ALIGNMENT_BYTES = 512
"""Memory starts at a multiple of this, like the areas of a workspace (specification page
``workspace``, "Align")."""


class Stream:
    """A stream: calls on it run one after the other, and are done when they return."""


def aclInit(configPath: str | None = None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclFinalize() -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtSetDevice(deviceId: int) -> int:
    """Accept any device number; what a call is simulated for is chosen with :func:`npu_sim.aclnn.set_device`."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtResetDevice(deviceId: int) -> int:
    """Accept any device number."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtCreateStream() -> tuple[int, Stream]:
    """Return (status, stream)."""
    return ACL_SUCCESS, Stream()


def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Do nothing: calls are done when they return."""
    return ACL_SUCCESS


def aclrtDestroyStream(stream: Stream | None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtMalloc(size: int, policy: int = ACL_MEM_MALLOC_HUGE_FIRST) -> tuple[int, Array | None]:
    """Return (status, memory): a uint8 array of ``size`` bytes whose address is a multiple of 512; its content is open."""
    if size <= 0:
        return ACL_ERROR_INVALID_PARAM, None
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    return ACL_SUCCESS, block[start : start + size]


def aclrtFree(devPtr: Array | None) -> int:
    """Do nothing: memory is freed when nobody refers to it any more."""
    return ACL_SUCCESS


def aclrtMemcpy(dst: Array, destMax: int, src: Array, count: int, kind: int) -> int:
    """Copy ``count`` bytes between C-contiguous arrays of any dtypes."""
    target, source = _bytes(dst), _bytes(src)
    if (
        not 0 <= count <= min(destMax, target.size, source.size)
        or not 0 <= kind <= ACL_MEMCPY_DEVICE_TO_DEVICE
    ):
        return ACL_ERROR_INVALID_PARAM
    target[:count] = source[:count]
    return ACL_SUCCESS


def _bytes(memory: Array) -> Array:
    if not memory.flags.c_contiguous:
        raise ValueError("memory to copy is a C-contiguous array")
    return memory.reshape(-1).view(np.uint8)
