"""A device that copies: enough to run the script of the kit, and wrong in every result."""

import sys

import torch

assert "npu_sim" not in sys.modules
__version__ = "0"


class npu:  # noqa: N801 - the name in torch_npu
    """Functions of the device."""

    @staticmethod
    def synchronize():
        """Do nothing."""

    @staticmethod
    def get_device_name(index):
        return "Ascend910B3"


def npu_rms_norm(x, gamma, epsilon):
    """Return x and gamma; refuse one row."""
    if x.array.shape[0] == 1:
        raise RuntimeError("call aclnnRmsNorm failed, error code is 561002")
    return x, torch.from_numpy(gamma.array)
