"""No kernel may let the compiler reorder additions or forget signed zeros, inf and nan."""

import pkgutil
from importlib import import_module

import pytest
from numba.core.dispatcher import Dispatcher

import npu_sim.kernels
from npu_sim.kernels.engine.codegen import COMPILE_OPTIONS
from npu_sim.kernels.engine.compile import Kernel

PREFIX = "npu_sim.kernels."
MODULES = [
    one.name.removeprefix(PREFIX) for one in pkgutil.walk_packages(npu_sim.kernels.__path__, PREFIX)
]


@pytest.mark.parametrize("name", MODULES)
def test_fastmath_is_off(name):
    for value in vars(import_module(PREFIX + name)).values():
        compiled = value.worker if isinstance(value, Kernel) else value
        if isinstance(compiled, Dispatcher):
            assert not compiled.targetoptions.get("fastmath", False)


def test_fastmath_is_off_where_kernels_are_entered():
    assert "fastmath" not in COMPILE_OPTIONS
