"""What the processor can do that code is compiled for: this machine's, or the one that ``NUMBA_CPU_NAME`` names."""

import platform
from functools import cache

from llvmlite import binding
from numba.core import config


def is_arm() -> bool:
    """Whether code is compiled for 64-bit ARM."""
    return platform.machine().lower() in ("aarch64", "arm64")


def has_features(*names: str) -> bool:
    """Whether the code generator may use all of these, by LLVM's names, for instance ``avx2``."""
    return {f"+{name}" for name in names} <= _features()


@cache
def _features() -> frozenset[str]:
    """Ask once: it takes a third of a millisecond."""
    named = config.CPU_FEATURES
    return frozenset(
        (binding.get_host_cpu_features().flatten() if named is None else named).split(",")
    )
