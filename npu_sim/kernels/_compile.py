"""How kernels are compiled: one place for the options every kernel shares.

``fastmath`` is never on: the order of additions, signed zeros, inf and nan are part of what is simulated.
"""

from collections.abc import Callable
from typing import Any

from numba import config, njit

from npu_sim.kernels._cache import KernelCache


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel whose ``numba.prange`` loops run on all threads; every output element has one owner."""
    return _cached(njit(parallel=True, nogil=True, error_model="numpy")(function), function)


def serial_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that runs on one thread: for passes that several threads would slow down."""
    return _cached(njit(nogil=True, error_model="numpy")(function), function)


def _cached(compiled: Any, function: Callable[..., Any]) -> Any:
    if not config.DISABLE_JIT:
        compiled._cache = KernelCache(function)
    return compiled


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a helper that kernels call."""
    return njit(nogil=True, error_model="numpy")(function)
