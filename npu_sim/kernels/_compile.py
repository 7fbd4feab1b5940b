"""How kernels are compiled: one place for the options every kernel shares.

``fastmath`` is never on: the order of additions, signed zeros, inf and nan are part of what is simulated.
"""

from collections.abc import Callable
from typing import Any

from numba import config, njit

from npu_sim.kernels._cache import KernelCache


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel whose ``numba.prange`` loops run on all threads; every output element has one owner."""
    compiled = njit(parallel=True, nogil=True, error_model="numpy")(function)
    if not config.DISABLE_JIT:
        compiled._cache = KernelCache(function)
    return compiled


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a helper that kernels call."""
    return njit(nogil=True, error_model="numpy")(function)
