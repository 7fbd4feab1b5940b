"""Summary of a sweep, counted chunk by chunk while it runs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npu_sim.sweeps.records import RecordColumn, workspace_column
from npu_sim.sweeps.space import Space

COUNTED_WHEN_RUNNING = ("overflows", "kernel", "tiling_key", "block_dim")
SHOWN_VALUES = 12
WIDEST_COUNT = 1 << 20
"""Ranges of up to this many values are counted in one pass."""


@dataclass
class SweepSummary:
    """Counts of statuses, kernels, keys and cores, and the call with the largest workspace.

    Kernels, keys and cores are counted where the call runs. ``seconds`` and ``rows_now`` exclude
    the part that an interrupted run computed before.
    """

    space: Space
    columns: tuple[RecordColumn, ...]
    rows: int = 0
    counts: dict[str, Counter[int]] = field(default_factory=dict)
    peak_bytes: int = -1
    peak_row: int = -1
    seconds: float = 0.0
    rows_now: int = 0

    def add(self, chunk: np.ndarray, first_row: int) -> None:
        """Count one chunk."""
        self.rows += len(chunk)
        self.rows_now += len(chunk)
        names = chunk.dtype.names or ()
        running: Any = slice(None)
        if "status" in names:
            self._count("status", chunk["status"])
            accepted = chunk["status"] == 0
            running = slice(None) if accepted.all() else accepted
        for name in COUNTED_WHEN_RUNNING:
            if name in names:
                self._count(name, chunk[name][running])
        name = workspace_column(names)
        if name and len(chunk):
            place = int(np.argmax(chunk[name]))
            if int(chunk[name][place]) > self.peak_bytes:
                self.peak_bytes, self.peak_row = int(chunk[name][place]), first_row + place

    def _count(self, name: str, values: np.ndarray) -> None:
        counter = self.counts.setdefault(name, Counter())
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        if high - low < WIDEST_COUNT:
            counts = np.bincount(values.astype(np.int64) - low)
            nonzero = np.flatnonzero(counts)
            counter.update({low + int(place): int(counts[place]) for place in nonzero})
        else:
            unique, counts = np.unique(values, return_counts=True)
            counter.update(dict(zip(unique.tolist(), counts.tolist(), strict=True)))

    def state(self) -> dict[str, Any]:
        """Return the counts as plain data for :meth:`restore`."""
        counts = {name: sorted(counter.items()) for name, counter in self.counts.items()}
        return {
            "rows": self.rows,
            "counts": counts,
            "peak_bytes": self.peak_bytes,
            "peak_row": self.peak_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the counts of an interrupted sweep."""
        self.rows = state["rows"]
        self.peak_bytes, self.peak_row = state["peak_bytes"], state["peak_row"]
        self.counts = {name: Counter(dict(pairs)) for name, pairs in state["counts"].items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        words = {column.name: column.words for column in self.columns}
        counted = {
            name: {
                words[name][value] if words[name] else str(value): count
                for value, count in sorted(counter.items())
            }
            for name, counter in self.counts.items()
        }
        data: dict[str, Any] = {"sweep": self.space.as_dict(), "rows": self.rows, "counts": counted}
        data["rules_source"] = self.rules_source
        data["left_out"] = [
            {"product": product, "reason": reason} for product, reason in self.space.left_out
        ]
        if self.peak_row >= 0:
            data["peak_workspace"] = {
                "column": workspace_column(words),
                "bytes": self.peak_bytes,
                "row": self.peak_row,
                "call": self.peak_call(),
            }
        return data

    @property
    def rules_source(self) -> str:
        """Where the rules of the products come from, as in a plan."""
        sources = dict.fromkeys(profile.product.rules_source for profile in self.space.profiles)
        return "; ".join(filter(None, sources))

    def peak_call(self) -> dict[str, Any]:
        """Return the call with the largest workspace."""
        profile, values = self.space.call_at(self.peak_row)
        return {"product": profile.name, "soc": profile.soc, "release": profile.release, **values}
