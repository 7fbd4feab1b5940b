"""A device that copies: enough to run the script of the kit, and wrong in every result."""

import sys
from types import SimpleNamespace

import torch

assert "npu_sim" not in sys.modules
__version__ = "0"
npu = SimpleNamespace(synchronize=lambda: None, get_device_name=lambda index: "Ascend910B3")


def npu_rms_norm(x, gamma, epsilon):
    """Return x and gamma; refuse one row."""
    if x.array.shape[0] == 1:
        raise RuntimeError("call aclnnRmsNorm failed, error code is 561002")
    return x, torch.from_numpy(gamma.array)
