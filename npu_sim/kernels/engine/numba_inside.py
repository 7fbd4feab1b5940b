"""Private interfaces of Numba that the engine uses, and the modes in which kernels run.

No other module of npu_sim uses such interfaces. They make the first start fast: kernels are
compiled once, as a whole, and cached on disk under a key that covers all their source. Kernels do
not depend on them: where they are missing, or with ``NPU_SIM_PLAIN_NUMBA=1``, the same kernels run
through ``njit`` alone, slower to start and with the same bits.

With ``NPU_SIM_CHECK=1`` kernels run that way too, on one thread, and every access is checked: one
outside its array is an IndexError. Numba checks indices; loads and stores of vectors check
themselves (`npu_sim.kernels.vectors.lanes.element_address`).
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module

import numba

from npu_sim.status import UsageError
from npu_sim.system import at_fork

PLAIN_VARIABLE = "NPU_SIM_PLAIN_NUMBA"
"""Environment variable: 1 runs kernels through Numba's public interface alone."""
CHECK_VARIABLE = "NPU_SIM_CHECK"
"""Environment variable: 1 checks every access of kernels."""
CHECKED = os.environ.get(CHECK_VARIABLE, "") not in ("", "0")
if CHECKED:
    numba.config.FULL_TRACEBACKS = 1  # prints index, axis and size of an access out of bounds
LEAST_VERSION = (0, 62)
"""Older versions have another optimiser, with which the kernels were never tested."""
LAST_TESTED = (0, 68)
"""This module was tested with every version up to this one; later ones are probed."""

UNCOUNTED = {"_nrt": False}
"""Option of ``njit``, not documented: no code counts references to arrays, or allocates them."""

try:
    from numba.core.caching import _Cache as KernelCacheBase
    from numba.core.ccallback import CFunc
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler, CompileResult
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.serialize import dumps
    from numba.np.arrayobj import populate_array

    REQUIRED = (
        (CompileResult, ("_rebuild", "_reduce")),
        (JITCodeLibrary, ("_optimize_functions", "_optimize_final_module")),
        (JITCodeLibrary, ("_finalize_final_module", "_finalize_dynamic_globals")),
        (JITCodeLibrary, ("enable_object_caching", "get_pointer_to_function")),
        (CFunc, ("compile", "address")),
        (global_compiler_lock, ("acquire", "release")),
    )
    NAMES_FOUND = all(hasattr(owner, name) for owner, names in REQUIRED for name in names)
except ImportError:
    NAMES_FOUND = False
    KernelCacheBase = CFunc = JITCodeLibrary = object  # type: ignore[misc]
    Compiler = CompileResult = object
    dumps = populate_array = None

__all__ = [
    "CHECKED",
    "UNCOUNTED",
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
"""Iterations of the busy wait of a GNU OpenMP thread, well below a millisecond. The default takes
several, during which these threads keep others, the next call's included, from computing."""
BUSY_WAITS_VARIABLE = "GOMP_SPINCOUNT"

if NAMES_FOUND:
    # A child forked while another thread compiles would inherit Numba's compiler lock, held for
    # ever. A fork waits until that thread releases it.
    at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: (0, 62) for ``0.62.0rc1``."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def require_numba(text: str = numba.__version__) -> None:
    """Check that this version of Numba can compile kernels.

    Raises
    ------
    UsageError
        For one that is too old.
    """
    if version_of(text) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise UsageError(
            "numba",
            "numba {text} is installed: kernels need {least} or later",
            "pip install 'numba>={least}'",
            text=text,
            least=least,
        )


@cache
def is_plain() -> bool:
    """Return whether kernels must run through Numba's public interface alone."""
    return os.environ.get(PLAIN_VARIABLE, "") not in ("", "0") or not NAMES_FOUND


def holds(probe: Callable[[], bool], text: str = numba.__version__) -> bool:
    """Return whether this module works with a version of Numba; ``probe`` tests a new one."""
    if version_of(text) <= LAST_TESTED:
        return True
    try:
        return probe()
    except Exception:  # a changed private interface may raise anything
        return False


def load_openmp() -> None:
    """Load GNU OpenMP with a short busy wait, unless the user chose another; it reads this once."""
    is_chosen = {BUSY_WAITS_VARIABLE, "OMP_WAIT_POLICY"} & os.environ.keys()
    if is_chosen or numba.config.THREADING_LAYER not in ("default", "threadsafe", "omp"):
        return
    os.environ[BUSY_WAITS_VARIABLE] = BUSY_WAITS
    try:
        with suppress(ImportError):  # another layer serves as well
            import_module("numba.np.ufunc.omppool")
    finally:
        del os.environ[BUSY_WAITS_VARIABLE]
