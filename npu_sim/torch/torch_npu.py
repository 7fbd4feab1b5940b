"""Replacement for ``torch_npu`` while a program is recorded on a machine without it.

It has the functions of this package, and what programs call at their start: the device, streams
and automatic mixed precision, which act on the CPU.
"""

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from npu_sim.language import Text
from npu_sim.torch.operators import differentiable_functions

TORCH_NPU = "torch_npu"
NO_EFFECT = (
    "config",
    "empty_cache",
    "init",
    "manual_seed",
    "manual_seed_all",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_compile_mode",
    "set_option",
)
"""Functions of ``torch_npu.npu`` that change nothing on the CPU."""
ZERO = (
    "device_count",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
)
"""Functions of ``torch_npu.npu`` that return 0 or False: there is no NPU."""


class _Module(ModuleType):
    """Module of the replacement; its errors name a missing name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(sorted(key for key in vars(self) if not key.startswith("_")))
        raise AttributeError(
            Text(
                "{module}.{name} is not available while npu_sim records; available: {known}",
                module=self.__name__,
                name=name,
                known=known,
            )
        )


def _replacement() -> _Module:
    """Return the replacement with its submodules."""
    of_cpu = {name: getattr(torch.cpu, name) for name in torch.cpu.__all__}
    ignored = dict.fromkeys(NO_EFFECT, _returning(None)) | dict.fromkeys(ZERO, _returning(0))
    amp = _module("npu.amp", autocast=_autocast, GradScaler=partial(torch.amp.GradScaler, "cpu"))
    npu = _module("npu", **{**of_cpu, **ignored}, amp=amp)
    contrib = _module("contrib", transfer_to_npu=_module("contrib.transfer_to_npu"))
    return _module("", **_functions(), npu=npu, contrib=contrib)


def _module(path: str, **names: Any) -> _Module:
    module = _Module(f"{TORCH_NPU}.{path}".removesuffix("."))
    vars(module).update(names)
    return module


def _autocast(
    enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
) -> torch.autocast:
    """Return the autocast of the CPU, with the arguments of ``torch_npu.npu.amp.autocast``."""
    return torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _functions() -> dict[str, Any]:
    """Return the functions of this package under the names of ``torch_npu``."""
    functions = differentiable_functions().items()
    return {name: value for name, value in functions if name.startswith("npu_")}


def _returning(value: int | None) -> Callable[..., int | None]:
    return lambda *_, **__: value


@contextmanager
def torch_npu_importable() -> Iterator[None]:
    """Make ``import torch_npu`` work in the block, unless the real one is installed.

    ``torch.npu`` and ``torch.ops.npu`` exist in the block as they do after that import. Only import
    statements find the replacement. It is not in ``sys.modules``, and ``importlib.util.find_spec``
    returns None, so that libraries that look for an NPU find none.
    """
    if TORCH_NPU in sys.modules or find_spec(TORCH_NPU) is not None:
        yield
        return
    module, import_module = _replacement(), builtins.__import__

    def import_or_replace(name: str, *arguments: Any, **options: Any) -> ModuleType:
        given = dict(zip(("globals", "locals", "fromlist", "level"), arguments, strict=False))
        given |= options
        first, *inner = name.split(".")
        if given.get("level") or first != TORCH_NPU:
            return import_module(name, **given)
        found: Any = module
        for part in inner:
            try:
                found = getattr(found, part)
            except AttributeError as error:
                raise ModuleNotFoundError(*error.args, name=name) from None
        return found if given.get("fromlist") else module

    attributes = [(torch, "npu", module.npu)]
    attributes += [(torch.ops.npu, name, function) for name, function in _functions().items()]
    builtins.__import__ = import_or_replace
    for owner, name, value in attributes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        builtins.__import__ = import_module
        for owner, name, _ in attributes:
            delattr(owner, name)
