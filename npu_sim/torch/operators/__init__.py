"""Operators in PyTorch, one module each, named after the gradient.

A module defines differentiable functions with a simulated backward pass (``__all__``), and how
calls are recorded (see :class:`npu_sim.torch.recorder.Patterns`). The simulated device is the one
chosen in the context that calls ``backward``; if it has none, that of the forward call.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from npu_sim.registry import OPERATORS


def differentiable_functions() -> dict[str, Any]:
    """Return the functions of all operators by name."""
    names = (f"{__name__}.{entry.name}" for entry in OPERATORS)
    modules = [import_module(name) for name in names if find_spec(name) is not None]
    return {name: getattr(module, name) for module in modules for name in module.__all__}
