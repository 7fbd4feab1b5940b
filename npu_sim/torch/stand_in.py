"""Stand-in for ``torch_npu`` that programs import while they are recorded without it.

It has the functions of this package; functions of other operators, which PyTorch computes and the
recording counts by name; and what programs call at their start: the device, streams, automatic
mixed precision, profiler and process groups, which act on the CPU.
"""

import builtins
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial, wraps
from importlib.util import find_spec
from inspect import getmembers, isfunction
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from npu_sim.cores import load_profile
from npu_sim.framework.target import chosen_target
from npu_sim.language import Text
from npu_sim.torch import torch_npu_functions
from npu_sim.torch.operators import differentiable_functions

TORCH_NPU = "torch_npu"
NO_EFFECT = (
    "config",
    "empty_cache",
    "init",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_aoe",
    "set_compile_mode",
    "set_dump",
    "set_option",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
)
"""Functions of ``torch_npu.npu`` that change nothing on the CPU."""
ZERO = (
    "device_count",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "utilization",
)
"""Functions of ``torch_npu.npu`` that return 0 or False: there is no NPU."""
OPTIMIZERS = {
    "NpuFusedAdam": torch.optim.Adam,
    "NpuFusedAdamW": torch.optim.AdamW,
    "NpuFusedAdamP": torch.optim.Adam,
    "NpuFusedSGD": torch.optim.SGD,
}
"""Optimizers of PyTorch in place of those of ``torch_npu.optim``."""
HCCL = "hccl"
OF_GPU = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "mem_get_info",
    "reset_peak_memory_stats",
    "set_device",
    "stream",
    "synchronize",
)
"""Names of ``torch.cuda`` that raise without a GPU; those of ``torch_npu.npu`` replace them, as the
import of ``torch_npu.contrib.transfer_to_npu`` does."""


class MissingNameError(AttributeError):
    """A name of ``torch_npu`` that the stand-in does not have."""


class MissingModuleError(ModuleNotFoundError):
    """A module of ``torch_npu`` that the stand-in does not have."""


def ended_at_missing_name(error: BaseException | None) -> bool:
    """Return whether a program ended at a name of ``torch_npu`` that is not available."""
    while error is not None and not isinstance(error, MissingNameError | MissingModuleError):
        error = error.__context__
    return error is not None


class _Module(ModuleType):
    """Module of the stand-in; its errors name a missing name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingNameError(
            Text(
                "{module}.{name} is not available while npu_sim records; available: {known}",
                module=self.__name__,
                name=name,
                known=", ".join(sorted(key for key in vars(self) if not key.startswith("_"))),
            )
        )


class _Anything(_Module):
    """Module and object whose names, calls and blocks all have no effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _Properties(NamedTuple):
    """What ``torch_npu.npu.get_device_properties`` returns."""

    name: str
    total_memory: int
    major: int = 0
    minor: int = 0


class _Stream(torch.cpu.Stream):  # type: ignore[misc]
    """Stream with the arguments and methods of one of an NPU."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing."""

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()


class _Event(torch.cpu.Event):  # type: ignore[misc]
    """Event with the arguments and methods of one of an NPU; no time passes between two."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def elapsed_time(self, _: Any) -> float:
        return 0.0


def _stand_in(not_modelled: Counter[str]) -> _Module:
    """Return the stand-in with its submodules; ``not_modelled`` counts calls of other operators."""
    of_cpu = {name: getattr(torch.cpu, name) for name in torch.cpu.__all__}
    ignored: dict[str, Any] = {
        **dict.fromkeys(NO_EFFECT, lambda *_, **__: None),
        **dict.fromkeys(ZERO, lambda *_, **__: 0),
    }
    amp = _module("npu.amp", autocast=_autocast, GradScaler=partial(torch.amp.GradScaler, "cpu"))
    npu = _module("npu", **{**of_cpu, **ignored, **_properties()}, amp=amp)
    others = {
        name: _counted(function, not_modelled)
        for name, function in getmembers(torch_npu_functions, isfunction)
        if name.startswith(("npu_", "get_npu_"))
    }
    return _module(
        "",
        **{**others, **_functions()},
        __version__=torch.__version__.partition("+")[0],
        npu=npu,
        optim=_module("optim", **OPTIMIZERS),
        profiler=_Anything(f"{TORCH_NPU}.profiler"),
        contrib=_module("contrib", transfer_to_npu=_module("contrib.transfer_to_npu")),
    )


def _properties() -> dict[str, Any]:
    """Return functions and values that describe the device: the one of the context."""

    def profile() -> Any:
        target = chosen_target()
        return load_profile() if target is None else target.profile

    def memory() -> int:
        return int(profile().chip.memory_bytes or 0)

    return {
        "Event": _Event,
        "Stream": _Stream,
        "current_device": lambda: 0,
        "current_stream": _Stream,
        "default_stream": _Stream,
        "get_device_name": lambda *_: profile().soc,
        "get_device_properties": lambda *_: _Properties(profile().soc, memory()),
        "get_device_capability": lambda *_: None,
        "mem_get_info": lambda *_: (memory(), memory()),
        "memory_stats": lambda *_: {},
        "memory_summary": lambda *_, **__: "",
        "is_bf16_supported": lambda *_: True,
        "is_initialized": lambda: False,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "matmul": _module("npu.matmul", allow_hf32=False),
        "conv": _module("npu.conv", allow_hf32=True),
    }


def _counted(function: Callable[..., Any], not_modelled: Counter[str]) -> Callable[..., Any]:
    """Return a function of another operator, whose calls are counted by name."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        not_modelled[f"{TORCH_NPU}.{function.__name__}"] += 1
        return function(*arguments, **options)

    return call


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
    return {
        name: value for name, value in differentiable_functions().items() if name.startswith("npu_")
    }


def has_torch_npu() -> bool:
    """Return whether the real torch_npu is installed."""
    return TORCH_NPU in sys.modules or find_spec(TORCH_NPU) is not None


@cache
def _absent_devices() -> tuple[str, ...]:
    return ("npu",) if torch.cuda.is_available() else ("npu", "cuda")


def _on_cpu(value: Any) -> Any:
    name = value.type if isinstance(value, DEVICE) else value
    is_absent = isinstance(name, str) and name.partition(":")[0] in _absent_devices()
    return "cpu" if is_absent else value


def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the CPU where its arguments name a device that is not here."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return function(
            *map(_on_cpu, arguments), **{name: _on_cpu(value) for name, value in options.items()}
        )

    return call


DEVICE = torch.device


class _TypeOfDevice(type):
    """Metaclass whose classes have every ``torch.device`` as an instance."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, DEVICE)


class _Device(metaclass=_TypeOfDevice):
    """Replaces ``torch.device`` in the block: it takes ``npu`` as well.

    PyTorch could take ``npu`` itself after ``rename_privateuse1_backend``, until the process ends.
    Pickled devices name ``torch.device``.
    """

    __module__, __qualname__ = DEVICE.__module__, DEVICE.__qualname__

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return on_cpu(DEVICE)(*arguments, **options)


def _with_gloo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch.distributed that takes gloo where it is told to use hccl."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        given = [value for value in (*arguments, *options.values()) if isinstance(value, str)]
        if not any(HCCL in value for value in given):
            return function(*arguments, **options)
        options.pop("device_id", None)
        options.pop("pg_options", None)
        replaced = {name: _gloo(value) for name, value in options.items()}
        return function(*map(_gloo, arguments), **replaced)

    return call


def _gloo(value: Any) -> Any:
    return "gloo" if isinstance(value, str) and HCCL in value else value


def _process_groups() -> list[Any]:
    """Return patches of the functions that make process groups."""
    if not torch.distributed.is_available():
        return []
    names = ("init_process_group", "new_group")
    return [
        patch.object(module, name, _with_gloo(getattr(module, name)))
        for module in (torch.distributed, torch.distributed.distributed_c10d)
        for name in names
    ]


def _copied(value: Any) -> Any:
    """Return another object that does the same: torch.compile refuses one with two names."""
    if isinstance(value, type):
        return type(value.__name__, (value,), {})
    return lambda *arguments, **options: value(*arguments, **options)


@contextmanager
def torch_npu_importable(not_modelled: Counter[str]) -> Iterator[None]:
    """Make ``import torch_npu`` work in the block, unless the real one is installed.

    ``torch.npu`` and ``torch.ops.npu`` exist in the block as they do after that import. What a
    program puts on an NPU, or on a GPU where PyTorch finds none, is on the CPU. Only import
    statements find the replacement. It is not in ``sys.modules``, and ``importlib.util.find_spec``
    returns None, so that libraries that look for an NPU find none.
    """
    if has_torch_npu():
        yield
        return
    module, import_module = _stand_in(not_modelled), builtins.__import__
    moves: dict[str, Any] = dict.fromkeys(_absent_devices(), lambda self, *_, **__: self)

    def import_or_replace(name: str, *arguments: Any, **options: Any) -> ModuleType:
        if not name.startswith(TORCH_NPU):  # quickly: PyTorch imports within its functions
            return import_module(name, *arguments, **options)
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
                raise MissingModuleError(*error.args, name=name) from None
        return found if given.get("fromlist") else module

    of_gpu = {
        name: _copied(getattr(module.npu, name)) for name in OF_GPU if "cuda" in _absent_devices()
    }
    with ExitStack() as patches:
        for patched in _process_groups():
            patches.enter_context(patched)
        for patched in (
            patch.object(builtins, "__import__", import_or_replace),
            patch.object(torch, "npu", module.npu, create=True),
            patch.object(torch, "device", _Device),
            patch.multiple(torch.cuda, **of_gpu),
            patch.multiple(torch.ops.npu, create=True, **_functions()),
            patch.multiple(torch.Tensor, create=True, **moves),
            patch.multiple(torch.nn.Module, create=True, **moves),
            patch.object(torch.autocast, "__init__", on_cpu(torch.autocast.__init__)),
            patch.object(torch.amp.GradScaler, "__init__", on_cpu(torch.amp.GradScaler.__init__)),
            patch.object(torch, "set_default_device", on_cpu(torch.set_default_device)),
        ):
            patches.enter_context(patched)
        yield
