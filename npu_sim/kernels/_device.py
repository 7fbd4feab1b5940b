"""How the functions that kernels call are compiled: as far as LLVM's intermediate language only.

Numba optimises every function it compiles and makes machine code of it, and then does both again wherever the function is called
from. What only kernels call needs neither until it is part of a kernel.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding
from numba import config, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Options of kernels and of what they call. ``_nrt`` off makes it a compile error to allocate memory: kernels work in what they are
given, so that their peak memory is known."""


class _DeviceLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of one function and of what it calls, to be linked into that of a kernel."""

    def _optimize_functions(self, ll_module: binding.ModuleRef) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Kernels are optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> "_DeviceLibrary":
        """Numba asks it to tell machine code where its environment is; there is neither."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class _DeviceCompiler(Compiler):  # type: ignore[misc]
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        state = self.state
        state.library = _DeviceLibrary(state.targetctx.codegen(), "device function")


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a helper that kernels call. Called from Python, as tests do, it is compiled once more, by itself."""
    compiled = njit(**OPTIONS, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_DeviceCompiler)(function)
    if not config.DISABLE_JIT:
        compiled._insert = _not_for_python
        compiled._compile_for_args = lambda *_arguments, **_keywords: _for_python(function)
    return compiled


def _not_for_python(*_overload: Any) -> None:
    """Keep what has no machine code out of the table of what Python may call."""


@cache
def _for_python(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy")(function)
