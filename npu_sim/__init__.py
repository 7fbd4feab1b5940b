"""npu_sim: simulate Ascend NPU backward operators on a laptop.

``plan`` says whether and how a call runs on a product, ``run`` computes it with the product's arithmetic and accumulation order,
and every operator is a function of its own name, for instance ``embedding_dense_backward``. Names are loaded when they are first
used, so that importing the package costs nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # that of ``typing``, which takes longer to load than this package does

if TYPE_CHECKING:
    from typing import Any

    from npu_sim.cores import Profile, load_profile
    from npu_sim.numbers.formats import TensorSpec
    from npu_sim.operators import plan, prepare, run
    from npu_sim.operators.contract.registration import register, register_file
    from npu_sim.operators.contract.results import OrderMask, Result
    from npu_sim.plans.model import Plan
    from npu_sim.questions.compare import compare
    from npu_sim.questions.explain import explain
    from npu_sim.questions.limits import limits
    from npu_sim.questions.measured_profile import read_profile
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
    "prepare",
    "read_profile",
    "register",
    "register_file",
    "run",
    "sweep",
    "sweep_to",
]

_HOMES = {
    "AclnnError": "npu_sim.status",
    "OrderMask": "npu_sim.operators.contract.results",
    "Plan": "npu_sim.plans.model",
    "Profile": "npu_sim.cores",
    "Result": "npu_sim.operators.contract.results",
    "Status": "npu_sim.status",
    "TensorSpec": "npu_sim.numbers.formats",
    "load_profile": "npu_sim.cores",
    "plan": "npu_sim.operators",
    "prepare": "npu_sim.operators",
    "register": "npu_sim.operators.contract.registration",
    "register_file": "npu_sim.operators.contract.registration",
    "run": "npu_sim.operators",
    "compare": "npu_sim.questions.compare",
    "explain": "npu_sim.questions.explain",
    "limits": "npu_sim.questions.limits",
    "read_profile": "npu_sim.questions.measured_profile",
    "sweep": "npu_sim.sweeps.runner",
    "sweep_to": "npu_sim.sweeps.runner",
}


_FACES = ("aclnn", "torch")
"""Subpackages that show the operators under other names; `torch` needs PyTorch."""


def __getattr__(name: str) -> "Any":
    """Load a public name from its module."""
    if name in _FACES:
        return import_module(f"npu_sim.{name}")
    if name not in _HOMES:
        if not name.startswith("_") and name == name.lower() and import_module("npu_sim.registry").find_operator(name) is not None:
            return import_module("npu_sim.operators").public_function(name)
        raise AttributeError(f"module 'npu_sim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, operators included."""
    return sorted({*globals(), *_HOMES, *(entry.name for entry in import_module("npu_sim.registry").all_operators())})
