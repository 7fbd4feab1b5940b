"""Kernels through Numba's public interface alone: the way for a Numba whose inside is not the one that the engine knows."""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit, prange

OPTIONS = {"nogil": True, "error_model": "numpy"}


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a helper that kernels call."""
    return njit(**OPTIONS)(function)


@cache
def loop_of(worker: Any, arguments: int, parallel: bool) -> Any:
    """Return the compiled loop ``run(first, stop, *arguments)`` over a kernel's shares.

    Numba's parallel loops take no ``*arguments``, so the loop is written out for their number.
    """
    names = ", ".join(f"argument{position}" for position in range(arguments))
    lines = [
        f"def run(first, stop, {names}):",
        f"    for share in {'prange' if parallel else 'range'}(first, stop):",
        f"        worker(share, {names})",
    ]
    scope: dict[str, Any] = {"worker": worker, "prange": prange}
    exec("\n".join(lines), scope)  # our own text: numbered arguments
    return njit(parallel=parallel, **OPTIONS)(scope["run"])
