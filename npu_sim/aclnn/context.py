"""The determinism switch under the vendor's names; everything else of a simulated device is in :mod:`npu_sim.settings`."""

from npu_sim.aclnn.enums import ACL_ERROR_INVALID_PARAM, ACL_OPT_DETERMINISTIC, ACL_SUCCESS
from npu_sim.settings import current_device, set_device


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Switch an option of the current context; the one there is here is ``ACL_OPT_DETERMINISTIC``, 0 or 1."""
    if opt != ACL_OPT_DETERMINISTIC or value not in (0, 1):
        return ACL_ERROR_INVALID_PARAM
    set_device(deterministic=bool(value))
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    """Return (status, value) of an option of the current context."""
    if opt != ACL_OPT_DETERMINISTIC:
        return ACL_ERROR_INVALID_PARAM, 0
    return ACL_SUCCESS, int(current_device().deterministic)
