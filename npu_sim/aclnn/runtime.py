"""Functions of the runtime: device, stream, memory, context options and error messages.

The simulated device computes in host memory and finishes a call before it returns, so most of these
functions have little to do. Functions that return a value through a pointer argument in C return
(status, value) here.
"""

import threading
from typing import Any

import numpy as np

from npu_sim.aclnn.tensor import (
    ACL_ERROR_INVALID_PARAM,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_DEVICE_TO_DEVICE,
    ACL_OPT_DETERMINISTIC,
    ACL_SUCCESS,
)
from npu_sim.framework.target import current_device, set_device
from npu_sim.plans.workspace import ALIGNMENT_BYTES
from npu_sim.status import AclnnError, Status

Array = np.ndarray[Any, Any]


class Stream:
    """Stream: calls on it run in order, and have finished when they return."""


def aclInit(configPath: str | None = None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclFinalize() -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtSetDevice(deviceId: int) -> int:
    """Accept any device number; :func:`npu_sim.aclnn.set_device` chooses the simulated device."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtResetDevice(deviceId: int) -> int:
    """Accept any device number."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtCreateStream() -> tuple[int, Stream]:
    """Return (status, stream)."""
    return ACL_SUCCESS, Stream()


def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Do nothing: calls have finished when they return."""
    return ACL_SUCCESS


def aclrtDestroyStream(stream: Stream | None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtMalloc(size: int, policy: int = ACL_MEM_MALLOC_HUGE_FIRST) -> tuple[int, Array | None]:
    """Return (status, memory), an uninitialised uint8 array of ``size`` bytes aligned to 512."""
    if size <= 0:
        return ACL_ERROR_INVALID_PARAM, None
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    return ACL_SUCCESS, block[start : start + size]


def aclrtFree(devPtr: Array | None) -> int:
    """Do nothing: memory is freed with its last reference."""
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


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Set an option of the current context; the only one is ``ACL_OPT_DETERMINISTIC``, 0 or 1."""
    if opt != ACL_OPT_DETERMINISTIC or value not in (0, 1):
        return ACL_ERROR_INVALID_PARAM
    set_device(deterministic=bool(value))
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    """Return (status, value) of an option of the current context."""
    if opt != ACL_OPT_DETERMINISTIC:
        return ACL_ERROR_INVALID_PARAM, 0
    return ACL_SUCCESS, int(current_device().deterministic)


MAX_MESSAGES = 16
"""Messages stored per thread; older ones are dropped."""


class _Messages(threading.local):
    def __init__(self) -> None:
        self.newest_first: list[str] = []


_messages = _Messages()


def report(interface: str, error: AclnnError, argument: str = "") -> Status:
    """Store the message of an error for :func:`aclGetRecentErrMsg` and return its status.

    Parameters
    ----------
    interface
        Name of the function that returns the status.
    error
        The error.
    argument
        Name of the illegal argument in the product document; empty for the error's own name.
    """
    where = f" ({argument or error.argument})" if argument or error.argument else ""
    _messages.newest_first.insert(0, f"{interface}{where}: {error}")
    del _messages.newest_first[MAX_MESSAGES:]
    return error.status


def aclGetRecentErrMsg() -> str | None:
    """Return and clear this thread's error messages, newest first; None if there are none."""
    messages = _messages.newest_first
    if not messages:
        return None
    _messages.newest_first = []
    return "\n".join(messages)
