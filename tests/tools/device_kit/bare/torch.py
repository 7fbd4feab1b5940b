"""As much of torch as the script of the kit uses, on NumPy alone: for a Python without torch."""

import numpy as np

__version__ = "0"
bfloat16, int16 = "bfloat16", "int16"
_deterministic = [False]


def use_deterministic_algorithms(mode):
    """Set the switch."""
    _deterministic[0] = mode


def are_deterministic_algorithms_enabled():
    """Return the switch."""
    return _deterministic[0]


class Tensor:
    """An array on the device."""

    def __init__(self, array, dtype=""):
        self.array, self.dtype = array, dtype or array.dtype.name

    def view(self, dtype):
        """Return the bits as another dtype."""
        return Tensor(self.array, dtype)

    def npu(self):
        """Return a copy."""
        return Tensor(self.array.copy(), self.dtype)

    detach = cpu = contiguous = npu

    def numpy(self):
        """Return the array."""
        return self.array


def from_numpy(array):
    """Return an array as a tensor."""
    assert isinstance(array, np.ndarray)
    return Tensor(array)
