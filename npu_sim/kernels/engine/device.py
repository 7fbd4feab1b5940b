"""How kernels and the functions they call are compiled: LLVM sees every kernel once, as a whole.

Numba optimises every function it compiles and makes machine code of it, and then does both again wherever the function is called
from. What only kernels call needs neither until it is part of a kernel.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding
from numba import config, njit, types

from npu_sim.kernels.engine.numba_inside import Compiler, JITCodeLibrary

OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Options of kernels and of what they call. ``_nrt`` off makes it a compile error to allocate memory: kernels work in what they are
given, so that their peak memory is known."""

DEVICE_OPTIONS = {
    "forceinline": True,
    "no_rewrites": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of functions that kernels call: part of the kernel's code, without Numba's rewriting of array expressions, and not to be
entered from outside."""


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel and of all it calls."""

    def _optimize_functions(self, ll_module: binding.ModuleRef) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Run LLVM's full pipeline; Numba's shorter one before it is there for reference counts, which kernels do not have."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _KernelLibrary(self.state.targetctx.codegen(), "kernel")
        self.state.library.enable_object_caching()


class _DeviceLibrary(_KernelLibrary):
    """The code of one function and of what it calls, to be linked into that of a kernel."""

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
        self.state.library = _DeviceLibrary(self.state.targetctx.codegen(), "device function")


def device_function(function: Callable[..., Any], **options: bool) -> Any:
    """Compile a helper that kernels call. Called from Python, as tests do, it is compiled once more, by itself.

    ``options`` go before :data:`DEVICE_OPTIONS`.
    """
    compiled = njit(**OPTIONS, **DEVICE_OPTIONS | options, pipeline_class=_DeviceCompiler)(function)
    if not config.DISABLE_JIT:
        compiled._insert = _not_for_python
        compiled._compile_for_args = lambda *_arguments, **_keywords: _for_python(function)
        find = compiled.get_call_template
        compiled.get_call_template = lambda arguments, keywords: find(
            tuple(types.unliteral(kind) for kind in arguments), keywords
        )
    return compiled


def _not_for_python(*_overload: Any) -> None:
    """Keep what has no machine code out of the table of what Python may call."""


@cache
def _for_python(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy")(function)
