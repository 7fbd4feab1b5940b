"""Replacement for ``torch_npu`` while a program is recorded on a machine without it."""

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from npu_sim.language import Text
from npu_sim.torch.operators import differentiable_functions

TORCH_NPU = "torch_npu"


class _TorchNpu(ModuleType):
    """Replacement for ``torch_npu`` with the functions of this package."""

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(key for key in vars(self) if key.startswith("npu_")))
        raise AttributeError(
            Text(
                "{module}.{name} is not available while npu_sim records; available: {known}",
                module=TORCH_NPU,
                name=name,
                known=known,
            )
        )


@contextmanager
def torch_npu_importable() -> Iterator[None]:
    """Make ``import torch_npu`` work in the block, unless the real one is installed.

    Only import statements find the replacement. It is not in ``sys.modules``, and
    ``importlib.util.find_spec`` returns None, so that libraries that look for an NPU find none.
    """
    if TORCH_NPU in sys.modules or find_spec(TORCH_NPU) is not None:
        yield
        return
    module = _TorchNpu(TORCH_NPU, "The names of torch_npu that npu_sim records.")
    functions = differentiable_functions().items()
    vars(module).update({name: value for name, value in functions if name.startswith("npu_")})
    import_module = builtins.__import__

    def import_or_replace(name: str, *arguments: Any, **options: Any) -> ModuleType:
        return module if name == TORCH_NPU else import_module(name, *arguments, **options)

    builtins.__import__ = import_or_replace
    try:
        yield
    finally:
        builtins.__import__ = import_module
