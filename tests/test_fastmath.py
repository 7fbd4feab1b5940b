"""No kernel may let the compiler reorder additions or forget signed zeros, inf and nan."""

import pkgutil
from importlib import import_module

import pytest
from numba.core.dispatcher import Dispatcher

import npu_sim.kernels
from npu_sim.kernels._compile import Kernel
from npu_sim.kernels._device import OPTIONS

MODULES = [name for _, name, _ in pkgutil.iter_modules(npu_sim.kernels.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_fastmath_is_off(name):
    for value in vars(import_module(f"npu_sim.kernels.{name}")).values():
        compiled = value.worker if isinstance(value, Kernel) else value
        if isinstance(compiled, Dispatcher):
            assert not compiled.targetoptions.get("fastmath", False)


def test_fastmath_is_off_where_kernels_are_entered():
    assert "fastmath" not in OPTIONS
