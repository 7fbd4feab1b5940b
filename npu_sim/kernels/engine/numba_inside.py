"""What the engine uses of Numba that Numba does not promise to keep; nowhere else in npu_sim is anything of it used.

It makes a first start fast: kernels are compiled once, as a whole, and kept on disk in a form that
notices every change. Kernels do not need it: where it is missing, or with
``NPU_SIM_PLAIN_NUMBA=1``, the same kernels run through ``njit`` and ``prange`` alone
(:mod:`npu_sim.kernels.engine.plain`), slower to start and with the same bits.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module

import numba

from npu_sim.status import UsageError

PLAIN_VARIABLE = "NPU_SIM_PLAIN_NUMBA"
"""Environment variable: 1 runs kernels through Numba's public interface alone."""
LEAST_VERSION = (0, 62)
"""Before it, Numba has another optimiser, and neither way gives kernels that were tried."""
LAST_TRIED = (0, 68)
"""Up to here this module was tried with every version; later ones are tried when they are first
met."""

try:
    from numba.core.caching import _Cache as KernelCacheBase
    from numba.core.ccallback import CFunc
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler, CompileResult
    from numba.core.serialize import dumps
    from numba.np.arrayobj import populate_array

    NAMES_FOUND = all(
        hasattr(owner, name)
        for owner, names in (
            (CompileResult, ("_rebuild", "_reduce")),
            (
                JITCodeLibrary,
                (
                    "_optimize_functions",
                    "_optimize_final_module",
                    "_finalize_final_module",
                    "_finalize_dynamic_globals",
                ),
            ),
            (JITCodeLibrary, ("enable_object_caching", "get_pointer_to_function")),
            (CFunc, ("compile", "address")),
        )
        for name in names
    )
except ImportError:
    NAMES_FOUND = False
    KernelCacheBase = CFunc = JITCodeLibrary = Compiler = CompileResult = object  # type: ignore[misc]
    dumps = populate_array = None

__all__ = [
    "CFunc",
    "CompileResult",
    "Compiler",
    "JITCodeLibrary",
    "KernelCacheBase",
    "dumps",
    "is_plain",
    "load_openmp",
    "populate_array",
]
BUSY_WAITS = "10000"
"""Times that a thread of GNU OpenMP looks for more work before it sleeps: well below a millisecond.
By default it looks for several, in which it keeps others from computing, the next call among
them."""
BUSY_WAITS_VARIABLE = "GOMP_SPINCOUNT"


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: (0, 62) for ``0.62.0rc1``."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def require_numba(text: str = numba.__version__) -> None:
    """Check that this Numba can compile kernels at all.

    Raises
    ------
    UsageError
        For one that is too old.
    """
    if version_of(text) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        message = f"numba {text} is installed: kernels need {least} or later"
        raise UsageError("numba", message, f"pip install 'numba>={least}'")


@cache
def is_plain() -> bool:
    """Whether kernels are to run through Numba's public interface alone."""
    return os.environ.get(PLAIN_VARIABLE, "") not in ("", "0") or not NAMES_FOUND


def holds(probe: Callable[[], bool], text: str = numba.__version__) -> bool:
    """Whether this module works with a version of Numba: known for those it was tried with, else tried now by ``probe``."""
    if version_of(text) <= LAST_TRIED:
        return True
    try:
        return probe()
    except Exception:  # whatever another Numba makes of its own inside
        return False


def load_openmp() -> None:
    """Load GNU OpenMP, which reads once how long its threads wait busily; what the user says of that goes first."""
    said = {BUSY_WAITS_VARIABLE, "OMP_WAIT_POLICY"} & os.environ.keys()
    if said or numba.config.THREADING_LAYER not in ("default", "threadsafe", "omp"):
        return
    os.environ[BUSY_WAITS_VARIABLE] = BUSY_WAITS
    try:
        with suppress(ImportError):  # another layer serves as well
            import_module("numba.np.ufunc.omppool")
    finally:
        del os.environ[BUSY_WAITS_VARIABLE]
