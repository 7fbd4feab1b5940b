"""npu_sim: simulate Ascend NPU backward operators on a laptop.

``plan`` says whether and how a call runs on a product, ``run`` computes it with the product's arithmetic and accumulation order,
and every operator is a function of its own name, for instance ``embedding_dense_backward``. Names are loaded when they are first
used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npu_sim.registry import OPERATOR_NAMES

if TYPE_CHECKING:
    from npu_sim.comparison import compare
    from npu_sim.cores import Profile, load_profile
    from npu_sim.explanation import explain
    from npu_sim.formats import TensorSpec
    from npu_sim.limit_search import limits
    from npu_sim.ops import plan, run
    from npu_sim.ops.base import OrderMask, Result
    from npu_sim.plan_model import Plan
    from npu_sim.status import AclnnError, Status
    from npu_sim.sweeps.runner import sweep, sweep_to

__version__ = "0.1.0"

__all__ = [
    "AclnnError",
    "OrderMask",
    "Plan",
    "Profile",
    "Result",
    "Status",
    "TensorSpec",
    "compare",
    "explain",
    "limits",
    "load_profile",
    "plan",
    "run",
    "sweep",
    "sweep_to",
]

_HOMES = {
    "AclnnError": "npu_sim.status",
    "OrderMask": "npu_sim.ops.base",
    "Plan": "npu_sim.plan_model",
    "Profile": "npu_sim.cores",
    "Result": "npu_sim.ops.base",
    "Status": "npu_sim.status",
    "TensorSpec": "npu_sim.formats",
    "load_profile": "npu_sim.cores",
    "plan": "npu_sim.ops",
    "run": "npu_sim.ops",
    "compare": "npu_sim.comparison",
    "explain": "npu_sim.explanation",
    "limits": "npu_sim.limit_search",
    "sweep": "npu_sim.sweeps.runner",
    "sweep_to": "npu_sim.sweeps.runner",
    **{name: f"npu_sim.ops.{name}" for name in OPERATOR_NAMES},
}


_FACES = ("aclnn", "torch")
"""Subpackages that show the operators under other names; `torch` needs PyTorch."""


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name in _FACES:
        return import_module(f"npu_sim.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'npu_sim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, operators included."""
    return sorted({*globals(), *_HOMES})
