"""A workspace in memory: arrays over the areas that a plan lays out."""

from typing import Any

import numpy as np

from npu_sim.numbers.formats import numpy_dtype
from npu_sim.plans.model import Workspace, WorkspaceArea

Array = np.ndarray[Any, Any]


class Areas:
    """The areas of one call in the memory the caller gave.

    Parameters
    ----------
    memory : uint8 (at least ``workspace.total_bytes``,)
        Contiguous, its address a multiple of 8.
    workspace
        What lies where.
    """

    def __init__(self, memory: Array, workspace: Workspace) -> None:
        self._memory = memory
        self._areas = {area.name: area for area in workspace.areas}

    def __contains__(self, name: str) -> bool:
        return name in self._areas

    def __bool__(self) -> bool:
        return bool(self._areas)

    def bytes_of(self, name: str) -> int:
        """Return the size of an area."""
        return self._areas[name].bytes

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the array that lies in an area: a view of the workspace.

        Areas of one bucket share memory: a node may only write its own areas, and read those that live while it runs.

        Raises
        ------
        ValueError
            When the plan gave the area fewer bytes than the array has.
        """
        area = self._areas[name]
        kind = numpy_dtype(dtype)
        needed = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if needed > area.bytes:
            raise ValueError(
                f"{name} needs {needed} bytes, its area in the workspace has {area.bytes}"
            )
        return np.ndarray(
            shape, kind, buffer=self._bytes(area)[:needed] if needed else np.empty(0, np.uint8)
        )

    def put(self, name: str, values: Array, dtype: Any = None) -> Array:
        """Copy values into an area and return the array there; None for ``dtype`` keeps the dtype of the values."""
        array = self.array(name, values.shape, values.dtype if dtype is None else dtype)
        np.copyto(array, values, casting="unsafe")
        return array

    def _bytes(self, area: WorkspaceArea) -> Array:
        return self._memory[area.offset : area.offset + area.bytes]


def contiguous(name: str, array: Array, areas: Areas | None) -> Array:
    """Return an input as its kernel reads it: the copy in the workspace when the plan has one, else the array itself."""
    copy = f"contiguous {name}"
    return areas.put(copy, array) if areas is not None and copy in areas else array
