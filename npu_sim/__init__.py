"""npu_sim: simulate Ascend NPU operators, above all backward ones, on a laptop.

``plan`` says whether and how a call runs on a product, ``run`` computes it with the product's
arithmetic and accumulation order, and every operator is a function of its own name, for instance
``embedding_dense_backward``. Names are loaded when they are first used, so that importing the
package costs nothing.
"""

import _frozen_importlib
import os
import sys
from _thread import get_ident
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # type checkers take it as True; importing typing is slow
if TYPE_CHECKING:
    from typing import Any

    from npu_sim.cores import Profile, load_profile
    from npu_sim.dumps.reading import read_dump
    from npu_sim.failures.diagnosis import diagnose
    from npu_sim.framework.execution import OrderMask, Result
    from npu_sim.framework.registration import register, register_file
    from npu_sim.numbers.formats import TensorSpec
    from npu_sim.operators import plan, prepare, run
    from npu_sim.plans.model import Plan
    from npu_sim.questions.compare import compare
    from npu_sim.questions.explain import explain
    from npu_sim.questions.limits import limits
    from npu_sim.questions.measured_profile import read_profile
    from npu_sim.status import AclnnError, NpuSimError, Status, UsageError
    from npu_sim.sweeps.runner import sweep, sweep_to
    from npu_sim.tiling.structures import decode_tiling

__version__ = "0.1.0"

__all__ = [
    "AclnnError",
    "NpuSimError",
    "OrderMask",
    "Plan",
    "Profile",
    "Result",
    "Status",
    "TensorSpec",
    "UsageError",
    "compare",
    "decode_tiling",
    "diagnose",
    "explain",
    "limits",
    "load_profile",
    "plan",
    "prepare",
    "read_dump",
    "read_profile",
    "register",
    "register_file",
    "run",
    "sweep",
    "sweep_to",
]

_HOMES = {
    "AclnnError": "npu_sim.status",
    "NpuSimError": "npu_sim.status",
    "OrderMask": "npu_sim.framework.execution",
    "Plan": "npu_sim.plans.model",
    "Profile": "npu_sim.cores",
    "Result": "npu_sim.framework.execution",
    "Status": "npu_sim.status",
    "TensorSpec": "npu_sim.numbers.formats",
    "UsageError": "npu_sim.status",
    "load_profile": "npu_sim.cores",
    "plan": "npu_sim.operators",
    "prepare": "npu_sim.operators",
    "register": "npu_sim.framework.registration",
    "register_file": "npu_sim.framework.registration",
    "run": "npu_sim.operators",
    "compare": "npu_sim.questions.compare",
    "explain": "npu_sim.questions.explain",
    "limits": "npu_sim.questions.limits",
    "read_profile": "npu_sim.questions.measured_profile",
    "sweep": "npu_sim.sweeps.runner",
    "sweep_to": "npu_sim.sweeps.runner",
    "decode_tiling": "npu_sim.tiling.structures",
    "diagnose": "npu_sim.failures.diagnosis",
    "read_dump": "npu_sim.dumps.reading",
}


_MODULES = {
    "aclnn": "npu_sim.aclnn",
    "study": "npu_sim.studies.functions",
    "torch": "npu_sim.torch",
}
"""Modules under their public names; `torch` needs PyTorch."""


class _HalfImported(ModuleType):
    """A module that another thread was importing when this process was forked.

    That thread does not exist here: importing the module would wait for its lock for ever.
    """

    def __getattr__(self, name: str) -> "Any":
        """Raise an ImportError; tools that look at all modules find no special names."""
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        message = (
            "this process was forked while another thread imported npu_sim: call npu_sim once "
            "before threads and processes start, or start processes with spawn"
        )
        raise ImportError(message, name=self.__name__)


def _replace_half_imported() -> None:
    """Replace the modules of this package whose locks belong to threads that a fork left behind."""
    locks = getattr(_frozen_importlib, "_module_locks", {})  # weak references to locks, by module
    for name, lock in list(locks.items()):
        owner = getattr(lock(), "owner", None)
        if name.partition(".")[0] == __name__ and owner not in (None, get_ident()):
            sys.modules[name] = _HalfImported(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_half_imported)


def __getattr__(name: str) -> "Any":
    """Load a public name from its module."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        found = globals()[name] = getattr(
            import_module(_HOMES[name]), name
        )  # the next time Python finds it by itself
        return found
    if not name.startswith("_"):
        from npu_sim.registry import OPERATOR_NAMES, all_operators

        if name in OPERATOR_NAMES or name in {entry.name for entry in all_operators()}:
            from npu_sim.operators import public_function

            return public_function(name)
    from npu_sim.language import Text

    raise AttributeError(
        Text("module 'npu_sim' has no attribute {name}", name=repr(name)),
        name=name,
        obj=sys.modules[__name__],
    )


def __dir__() -> list[str]:
    """List the public names, operators included, and what every module has."""
    from npu_sim.registry import all_operators

    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__, *_MODULES, *(entry.name for entry in all_operators())})
