"""Features of the target processor: this machine's, or the one named by ``NUMBA_CPU_NAME``."""

import platform
from functools import cache

from llvmlite import binding
from numba.core import config


def is_arm() -> bool:
    """Return whether code is compiled for 64-bit ARM."""
    return platform.machine().lower() in ("aarch64", "arm64")


def has_features(*names: str) -> bool:
    """Return whether the code generator may use all of these, by LLVM's names such as ``avx2``."""
    return {f"+{name}" for name in names} <= _features()


@cache
def _features() -> frozenset[str]:
    """Return the features, cached: the query takes a third of a millisecond."""
    names = config.CPU_FEATURES
    if names is None:
        names = binding.get_host_cpu_features().flatten()
    return frozenset(names.split(","))
