"""Operators in PyTorch, one module each, named after the gradient.

A module defines differentiable functions with a simulated backward pass (``__all__``), and how
calls are recorded (see :class:`npu_sim.torch.recorder.Patterns`). The simulated device is the one
chosen in the context that calls ``backward``; if it has none, that of the forward call.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from npu_sim.registry import OPERATORS


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return the modules of all operators that have one."""
    names = (f"{__name__}.{entry.name}" for entry in OPERATORS)
    return tuple(import_module(name) for name in names if find_spec(name) is not None)


def differentiable_functions() -> dict[str, Any]:
    """Return the functions of all operators by name."""
    return {name: getattr(module, name) for module in modules() for name in module.__all__}
