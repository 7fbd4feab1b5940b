"""Kernels through Numba's public interface alone: the way for a Numba whose inside is not the one that the engine knows.

With ``NPU_SIM_CHECK=1`` kernels run this way as well, on one thread, and every access is checked: one outside its array is an
IndexError. Numba checks indices; loads and stores of vectors check themselves (`npu_sim.kernels.vectors.lane_type.element_address`).
"""

import os
from collections.abc import Callable
from typing import Any

from numba import njit, prange

CHECK_VARIABLE = "NPU_SIM_CHECK"
"""Environment variable: 1 checks every access of kernels."""
CHECKED = os.environ.get(CHECK_VARIABLE, "") not in ("", "0")
OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": CHECKED}


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a helper that kernels call."""
    return njit(**OPTIONS)(function)


def loop_of(worker: Any, arguments: int, parallel: bool) -> Any:
    """Return the compiled loop ``run(first, stop, *arguments)`` over a kernel's shares; a checked one is not parallel, so as to raise.

    Numba's parallel loops take no ``*arguments``, so the loop is written out for their number.
    """
    parallel = parallel and not CHECKED
    names = ", ".join(f"argument{position}" for position in range(arguments))
    lines = [
        f"def run(first, stop, {names}):",
        f"    for share in {'prange' if parallel else 'range'}(first, stop):",
        f"        worker(share, {names})",
    ]
    scope: dict[str, Any] = {"__name__": __name__, "worker": worker, "prange": prange}
    exec("\n".join(lines), scope)  # our own text: numbered arguments
    return njit(parallel=parallel, **OPTIONS)(scope["run"])
