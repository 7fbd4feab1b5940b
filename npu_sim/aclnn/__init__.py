"""The C interface of the operators: two stages, tensors over memory, and status codes.

``aclnnXxxGetWorkspaceSize(...)`` takes the parameters of the product document without the two
output pointers and returns (status, workspaceSize, executor). ``aclnnXxx(workspace, workspaceSize,
executor, stream)`` runs the call. Size, address and alignment of the workspace are checked; its
memory is neither read nor written, because kernels compute in memory of their own. Product, SoC and
the determinism switch belong to the current context::

    with device("atlas_a2", soc="Ascend910B4", deterministic=True):
        status, size, executor = aclnnRmsNormGradGetWorkspaceSize(
            dy, x, rstd, gamma, dxOut, dgammaOut
        )
        _, workspace = aclrtMalloc(size)
        status = aclnnRmsNormGrad(workspace, size, executor, None)
"""

from typing import Any

from npu_sim.aclnn.executor import (
    AclOpExecutor,
    FirstStage,
    aclDestroyAclOpExecutor,
    aclSetAclOpExecutorRepeatable,
    functions_of,
)
from npu_sim.aclnn.runtime import (
    ACL_ERROR_INVALID_PARAM,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY,
    ACL_MEM_MALLOC_NORMAL_ONLY,
    ACL_MEMCPY_DEVICE_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_HOST_TO_HOST,
    ACL_OPT_DETERMINISTIC,
    ACL_SUCCESS,
    AclDataType,
    AclFormat,
    AclTensor,
    Stream,
    aclCreateTensor,
    aclDestroyTensor,
    aclFinalize,
    aclGetRecentErrMsg,
    aclInit,
    aclrtCreateStream,
    aclrtCtxGetSysParamOpt,
    aclrtCtxSetSysParamOpt,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtSynchronizeStream,
)
from npu_sim.framework.target import Target as Settings
from npu_sim.framework.target import current_device, device, set_device
from npu_sim.language import Text
from npu_sim.operators.loading import load_operator
from npu_sim.registry import all_operators, called_operator

# ACL_FLOAT ..., ACL_FORMAT_ND ... are constants of the module, as in C.
globals().update(AclDataType.__members__ | AclFormat.__members__)

_FIRST_STAGE = "GetWorkspaceSize"

__all__ = [
    "ACL_ERROR_INVALID_PARAM",
    "ACL_MEMCPY_DEVICE_TO_DEVICE",
    "ACL_MEMCPY_DEVICE_TO_HOST",
    "ACL_MEMCPY_HOST_TO_DEVICE",
    "ACL_MEMCPY_HOST_TO_HOST",
    "ACL_MEM_MALLOC_HUGE_FIRST",
    "ACL_MEM_MALLOC_HUGE_ONLY",
    "ACL_MEM_MALLOC_NORMAL_ONLY",
    "ACL_OPT_DETERMINISTIC",
    "ACL_SUCCESS",
    "AclDataType",
    "AclFormat",
    "AclOpExecutor",
    "AclTensor",
    "FirstStage",
    "Settings",
    "Stream",
    "aclCreateTensor",
    "aclDestroyAclOpExecutor",
    "aclDestroyTensor",
    "aclFinalize",
    "aclGetRecentErrMsg",
    "aclInit",
    "aclSetAclOpExecutorRepeatable",
    "aclrtCreateStream",
    "aclrtCtxGetSysParamOpt",
    "aclrtCtxSetSysParamOpt",
    "aclrtDestroyStream",
    "aclrtFree",
    "aclrtMalloc",
    "aclrtMemcpy",
    "aclrtResetDevice",
    "aclrtSetDevice",
    "aclrtSynchronizeStream",
    "current_device",
    "device",
    "set_device",
]


def __getattr__(name: str) -> Any:
    """Create the functions of an operator at their first use."""
    entry = called_operator(name.removesuffix(_FIRST_STAGE)) if name.startswith("aclnn") else None
    functions = functions_of(load_operator(entry.name)) if entry is not None else {}
    if name not in functions:
        raise AttributeError(
            Text("module 'npu_sim.aclnn' has no attribute {name}", name=repr(name))
        )
    return functions[name]


def __dir__() -> list[str]:
    """Return all names, including the functions of every operator."""
    functions = (
        f"aclnn{entry.title}{stage}" for entry in all_operators() for stage in ("", _FIRST_STAGE)
    )
    return sorted({*globals(), *functions})
