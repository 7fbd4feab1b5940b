"""The simulated device of a rehearsal, which lies as NPU_SIM_LIE says."""

import os
from pathlib import Path

import torch

from npu_sim.tools.device_kit import simulated_device
from npu_sim.tools.device_kit.simulated_device import *  # noqa: F403
from npu_sim.tools.device_kit.simulated_device import DEVICE, __version__, library, npu

__all__ = ["__version__"]

LIE = os.environ.get("NPU_SIM_LIE", "")
LIAR = "rms_norm"
"""Operator whose results are changed."""
if LIE == "other soc":
    DEVICE["soc"] = "Ascend910B1"
honest, row_of = library.compute, simulated_device.row_of


def compute(operator, target, arguments, out=None):
    """Compute a call, and change its results by the lie."""
    if operator == LIAR and LIE == "crashes" and not Path("crashed").exists():
        Path("crashed").touch()
        os._exit(1)
    if operator == LIAR and LIE == "refuses":
        raise RuntimeError("call aclnnRmsNorm failed, error code is 561002")
    if operator == LIAR and LIE == "has no memory":
        raise MemoryError
    results = honest(operator, target, arguments, out)
    return tuple(map(changed, results)) if operator == LIAR else results


def changed(tensor):
    """Return a result as the lie changes it."""
    if tensor is None or not tensor.numel():
        return tensor
    tensor = tensor.clone()
    if LIE == "drops a row":
        tensor[-1] = 0
    if LIE == "rounds twice" and tensor.dtype == torch.float32:
        tensor = tensor.to(torch.bfloat16).to(torch.float32)
    if LIE == "other order" and tensor.dtype == torch.float32:
        tensor = torch.nextafter(tensor, torch.full_like(tensor, torch.inf))
    return tensor


def lying_row(plan):
    """Return the profiler's row, changed by the lie."""
    name, kernel, us, cores = row_of(plan)
    if LIE == "other kernel":
        kernel = "Other"
    if LIE == "too fast":
        us = repr(float(us) / 2)
    return name, kernel, us, cores - (LIE == "one core fewer")


library.compute, simulated_device.row_of = compute, lying_row
if LIE == "other name":
    npu.get_device_name = lambda index: "Ascend910B4"
if LIE == "other soc":
    npu.get_device_name = lambda index: "Ascend910B3"
