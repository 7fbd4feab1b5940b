"""npu_sim: simulate Ascend NPU operators, above all backward ones, on a laptop.

``plan`` says whether and how a call runs on a product, ``run`` computes it with the product's
arithmetic and accumulation order, and every operator is a function of its own name, for instance
``embedding_dense_backward``. Names are loaded when they are first used, so that importing the
package costs nothing.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers read __init__.pyi; importing typing is slow
if TYPE_CHECKING:
    from typing import Any

if not getattr(sys, "_is_gil_enabled", lambda: True)():  # another thread could change an array
    raise ImportError(
        "npu_sim does not run on free-threaded Python without its global lock: set PYTHON_GIL=1, "
        "or use an ordinary build of Python",
        name=__name__,
    )

__version__ = "1.0.0"

_NAMES = {
    "npu_sim.status": ("AclnnError", "NpuSimError", "Status", "UsageError"),
    "npu_sim.cores": ("Profile", "load_profile"),
    "npu_sim.numbers.formats": ("TensorSpec",),
    "npu_sim.plans.model": ("Plan",),
    "npu_sim.framework.execution": ("OrderMask", "Result"),
    "npu_sim.framework.registration": ("register", "register_file"),
    "npu_sim.operators": ("plan", "prepare", "run"),
    "npu_sim.questions.diff": ("diff",),
    "npu_sim.questions.explain": ("explain",),
    "npu_sim.questions.limits": ("limits",),
    "npu_sim.questions.products": ("products",),
    "npu_sim.sweeps.reader": ("read_sweep",),
    "npu_sim.sweeps.runner": ("sweep", "sweep_to"),
    "npu_sim.tiling": ("decode_tiling",),
    "npu_sim.verdicts.verify": ("verify",),
    "npu_sim.functions": ("model", "preflight", "timeline", "workspace"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
"""Public names of the core, and the modules that they are loaded from at their first use."""

_MODULES = {"aclnn": "npu_sim.aclnn", "study": "npu_sim.study", "torch": "npu_sim.torch"}
"""Modules under their public names; `torch` needs PyTorch."""


def modules_of_names() -> dict[str, str]:
    """Return the public names, those of tools included, with the modules they are loaded from."""
    from npu_sim.tool_packages import public_names

    return {**_MODULE_OF, **public_names()}


def __getattr__(name: str) -> "Any":
    """Load a public name from its module."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _MODULE_OF:
        # Stored, so that Python does not call this function for the name again.
        globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return globals()[name]
    if name == "__all__":
        return sorted(modules_of_names())
    if not name.startswith("_"):
        from npu_sim.registry import OPERATOR_NAMES, all_operators

        if name not in OPERATOR_NAMES and (module := modules_of_names().get(name)):
            globals()[name] = getattr(import_module(module), name)
            return globals()[name]
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
    operators = (entry.name for entry in all_operators())
    return sorted({"__all__", *special, *modules_of_names(), *_MODULES, *operators})
