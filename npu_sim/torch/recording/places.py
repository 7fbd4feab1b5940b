"""Where in a program a call comes from: module path, parameter, file and line."""

import sys
from pathlib import Path
from types import FrameType

import torch

from npu_sim.torch.recording.calls import Place, layers_alike

_NOT_THE_PROGRAM = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
"""PyTorch, this face, and what has no file."""


class Names:
    """Paths of the modules and parameters of every model that was called."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[
            torch.nn.Module
        ] = []  # an identity is one only as long as the object lives

    def add(self, model: torch.nn.Module) -> None:
        """Learn the names of a model's modules and parameters; the model itself has the name of its class."""
        if id(model) in self._names:
            return
        self._kept.append(model)
        named = (*model.named_modules(remove_duplicate=True), *model.named_parameters())
        for name, one in named:
            self._names.setdefault(id(one), layers_alike(name) or type(one).__name__)

    def of(self, one: object) -> str:
        """Return the path of a module or parameter; empty when it belongs to no model."""
        return self._names.get(id(one), "")


def line_of_program() -> tuple[str, int]:
    """Return file and line of the innermost frame that is neither PyTorch's nor this package's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_PROGRAM):
            return _shown(file), frame.f_lineno
        frame = frame.f_back
    return "", 0


def _shown(file: str) -> str:
    """Return a path as short as it says the same."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def place_of(name: str, parameter: str = "") -> Place:
    """Return the place that calls now."""
    return Place(name, parameter, *line_of_program())
