"""Compilation of kernels and their helpers: LLVM optimises each kernel once, as a whole.

Numba optimises every function and generates machine code for it, and does both again in every
caller. A function that only kernels call needs neither before it is part of a kernel.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding
from numba import config, njit, types

from npu_sim.kernels.engine.numba_inside import Compiler, JITCodeLibrary

OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Options of kernels and of the functions they call. With ``_nrt`` off, allocating memory is a
compile error: kernels work in the arrays they are given, so their peak memory is known."""

DEVICE_OPTIONS = {
    "forceinline": True,
    "no_rewrites": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of functions that kernels call: inlined, without Numba's rewriting of array expressions,
and without an entry for Python or C."""


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of a kernel and of all functions it calls."""

    def _optimize_functions(self, ll_module: binding.ModuleRef) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Run LLVM's full pipeline once.

        Numba runs a shorter one before it to remove reference counts, which kernels do not have.
        """
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _KernelLibrary(self.state.targetctx.codegen(), "kernel")
        self.state.library.enable_object_caching()


class _DeviceLibrary(_KernelLibrary):
    """Code of one function and of its callees, to be linked into a kernel."""

    def _optimize_final_module(self) -> None:
        """Do nothing: kernels are optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> "_DeviceLibrary":
        """Numba calls its :meth:`set_env`: there is no machine code with an environment."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class DeviceCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for functions that are inlined into compiled loops."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _DeviceLibrary(self.state.targetctx.codegen(), "device function")


def device_function(function: Callable[..., Any], **options: bool) -> Any:
    """Compile a helper that kernels call; ``options`` override :data:`DEVICE_OPTIONS`.

    Calls from Python, as in tests, run a second compiled version.
    """
    compiled = njit(**OPTIONS, **DEVICE_OPTIONS | options, pipeline_class=DeviceCompiler)(function)
    if not config.DISABLE_JIT:
        compiled._insert = _not_for_python
        compiled._compile_for_args = lambda *_arguments, **_keywords: _for_python(function)
        find = compiled.get_call_template
        compiled.get_call_template = lambda arguments, keywords: find(
            tuple(types.unliteral(kind) for kind in arguments), keywords
        )
    return compiled


def _not_for_python(*_overload: Any) -> None:
    """Keep functions without machine code out of the table of versions that Python may call."""


@cache
def _for_python(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy")(function)
