"""Packages and modules of npu_sim that commands use, loaded when one of their names is read.

A command then loads only what it runs, and the command line starts quickly. A module of a package
is read by its place: ``show.layout.Paragraph``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "cores",
    "files",
    "framework",
    "kernels",
    "numbers",
    "operators",
    "plans",
    "questions",
    "show",
    "studies",
    "sweeps",
    "timelines",
]

if TYPE_CHECKING:
    # The modules that no other one imports, which mypy would not find in their packages.
    import npu_sim.operators.shared.study
    import npu_sim.show.execution
    import npu_sim.show.pictures
    import npu_sim.show.plan_report
    import npu_sim.show.plans
    import npu_sim.show.preflight_files
    import npu_sim.show.products
    import npu_sim.show.sweeps
    import npu_sim.show.timeline_report
    import npu_sim.show.timelines
    import npu_sim.studies.caveats
    import npu_sim.sweeps.maps  # noqa: F401
    from npu_sim import (
        cores,
        files,
        framework,
        kernels,
        numbers,
        operators,
        plans,
        questions,
        show,
        studies,
        sweeps,
        timelines,
    )


class LazyModule:
    """A module that is loaded when one of its names, or of its modules, is read."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        place, loaded = f"{self._place}.{name}", import_module(self._place)
        value = getattr(loaded, name) if hasattr(loaded, name) else import_module(place)
        return LazyModule(place) if hasattr(value, "__path__") else value


if not TYPE_CHECKING:
    globals().update((name, LazyModule(f"npu_sim.{name}")) for name in __all__)
