"""Which path is taken where, over two sizes: columns of runs whose borders are planned or bisected, not guessed between samples.

Along a column every value is planned; an axis of more than ``ASKED_THROUGH`` values is searched:
every change between two neighbouring probes is bisected. Paths that only their names tell apart are
told apart at both ends of what else is alike, and between these bisected. Up to ``MOST_CALLS``
calls every column is found; of more there are some between, and by bisection wherever the order of
paths changes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.plans.model import Plan
from npu_sim.sweeps.area import Area, spread_positions

ASKED_THROUGH = 4096
"""Axes of up to this many values are planned at every one of them."""
PROBES = 512
NAMED_COLUMNS = 64
"""Columns whose paths are named, spread over the map; between two of the same paths the others are
named like them."""
MOST_SEARCHED = 192
"""Columns that a search adds where the order of paths changes."""
MOST_CALLS = 1 << 20
"""Calls of which every one is planned; of larger maps as many columns as this allows."""
PATH_FIELDS = ("status", "kernel", "tiling_key")
"""Fields of a record that tell one path from another, where an operator has them."""

NUMBER = re.compile(r"\d+")

Path = tuple[Any, ...]
"""Values of ``PATH_FIELDS``, and the name of the path; a status other than 0 is a refusal."""
Run = tuple[int, int, Path]
"""First and last position of equal paths along a column, and the path."""


@dataclass
class Columns:
    """Columns of a map, found one by one.

    Attributes
    ----------
    area
        What is planned, with two axes open.
    found
        Runs of equal paths along every column, by its position.
    alike
        The same runs as the fields of records alone tell them, by position.
    """

    area: Area
    found: dict[int, list[Run]] = field(default_factory=dict)
    alike: dict[int, list[Run]] = field(default_factory=dict)

    def search(self) -> list[int]:
        """Search the map; return positions of its columns in ascending order."""
        for position in spread_positions(self.area.axes[0], NAMED_COLUMNS):
            self.column(position)
        self._halve()
        self._fill()
        self._halve()
        return sorted(self.found)

    def paths(self, position: int) -> list[Path]:
        """Return the paths along a column, in their order."""
        return [path for _, _, path in self.column(position)]

    def column(self, position: int) -> list[Run]:
        """Return the runs of equal paths along a column."""
        if position not in self.found:
            (self.alike[position],) = self._asked([position])
            self.found[position] = [
                run for whole in self.alike[position] for run in self._named(position, whole)
            ]
        return self.found[position]

    def _halve(self) -> None:
        """Halve every gap between two columns with another order of paths until there is none."""
        most = len(self.found) + MOST_SEARCHED
        open_pairs = list(pairwise(sorted(self.found)))
        while open_pairs and len(self.found) < most:
            left, right = open_pairs.pop(0)
            if right - left > 1 and self.paths(left) != self.paths(right):
                middle = (left + right) // 2
                self.column(middle)
                open_pairs += [(left, middle), (middle, right)]

    def _fill(self) -> None:
        """Add the columns between, as many as there are or as ``MOST_CALLS`` allow: borders need not run along an axis."""
        x, y = self.area.axes
        wanted = spread_positions(x, max(NAMED_COLUMNS, MOST_CALLS // y.count))
        most = len(self.found) + MOST_SEARCHED
        for left, right in pairwise(sorted(self.found)):
            between = [position for position in wanted if left < position < right]
            for position, runs in zip(
                between, self._asked(between) if between else (), strict=True
            ):
                named = self._named_as(left, right, runs)
                if named is not None:
                    self.alike[position], self.found[position] = runs, named
                elif len(self.found) < most:
                    self.column(position)

    def _named_as(self, left: int, right: int, runs: list[Run]) -> list[Run] | None:
        """Return runs with the names that both neighbours have; None where these do not tell them."""
        if self.paths(left) != self.paths(right) or [run[2] for run in runs] != [
            run[2] for run in self.alike[left]
        ]:
            return None
        if len(self.found[left]) == len(runs):
            return [
                (first, last, path)
                for (first, last, _), path in zip(runs, self.paths(left), strict=True)
            ]
        return (
            self.found[left]
            if runs == self.alike[left] and self.found[left] == self.found[right]
            else None
        )

    def _named(self, position: int, run: Run) -> list[Run]:
        """Name a run; one that has different names at its ends is cut where the first one ends, by bisection."""
        first, last, path = run
        name = self.name(position, first)
        if name == self.name(position, last):
            return [(first, last, (*path, name))]
        same, other = first, last
        while other - same > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if self.name(position, middle) == name else (same, middle)
        return [(first, same, (*path, name)), *self._named(position, (other, last, path))]

    def name(self, position: int, row: int) -> str:
        """Return path and key of a plan, or the reason of a refusal, without the numbers that differ from call to call."""
        found = self.area.planned(position, row)
        if not isinstance(found, Plan):
            return f"{int(found.status)}, {NUMBER.sub('N', found.message)}"
        return NUMBER.sub("N", found.path) + (
            "" if found.tiling_key is None else f", key {found.tiling_key}"
        )

    def _asked(self, positions: Sequence[int]) -> list[list[Run]]:
        """Return the runs along columns that the fields of records tell apart."""
        rows = self.area.axes[1]
        asked = spread_positions(rows, ASKED_THROUGH if rows.count <= ASKED_THROUGH else PROBES)
        return [
            _joined(self._bisected(position, known))
            for position, known in zip(positions, self._ends(positions, asked), strict=True)
        ]

    def _ends(self, positions: Sequence[int], rows: Sequence[int]) -> list[dict[int, Path]]:
        """Return the paths of columns at some rows, of equal neighbours the first and the last."""
        records = self.area.records(positions, rows)
        fields = [records[name] for name in PATH_FIELDS if name in (records.dtype.names or ())]
        found = []
        for column in zip(*fields, strict=True):
            changes = np.flatnonzero(np.any([one[1:] != one[:-1] for one in column], axis=0))
            kept = np.unique([0, *changes, *(changes + 1), len(rows) - 1])
            found.append(
                {rows[place]: tuple(one[place].item() for one in column) for place in kept}
            )
        return found

    def _bisected(self, position: int, known: dict[int, Path]) -> dict[int, Path]:
        """Halve every gap between two different neighbours until there is none, all gaps at a time."""
        while middles := [
            (a + b) // 2 for a, b in pairwise(sorted(known)) if b - a > 1 and known[a] != known[b]
        ]:
            (more,) = self._ends([position], middles)
            known |= more
        return known


def _joined(known: dict[int, Path]) -> list[Run]:
    runs: list[Run] = []
    for row, path in sorted(known.items()):
        if runs and runs[-1][2] == path:
            runs[-1] = (runs[-1][0], row, path)
        else:
            runs.append((row, row, path))
    return runs
