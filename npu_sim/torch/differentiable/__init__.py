"""Functions whose forward is PyTorch's and whose backward is a simulated operator, in a file of the operator's name.

The simulated device is the one chosen where ``backward`` is called; when none was chosen there, the one of the forward call.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from npu_sim.registry import OPERATORS


def differentiable_functions() -> dict[str, Any]:
    """Return the functions of every operator that has some, by name."""
    homes = (f"{__name__}.{entry.name}" for entry in OPERATORS)
    rooms = [import_module(home) for home in homes if find_spec(home) is not None]
    return {name: getattr(room, name) for room in rooms for name in room.__all__}
