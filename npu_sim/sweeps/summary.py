"""The summary of a sweep: counts, why calls are refused, and the largest workspace."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Values
from npu_sim.framework.checking import checked_call
from npu_sim.framework.inference import plan_arguments
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target
from npu_sim.numbers.arrays import Array
from npu_sim.plans.model import Plan
from npu_sim.status import NpuSimError
from npu_sim.sweeps.space import RecordColumn, Space, workspace_column

SHOWN_VALUES = 12
"""Values of a field that texts and pages list: the most frequent ones."""
WIDEST_COUNT = 1 << 20
"""Ranges of up to this many values are counted in one pass."""


@dataclass
class SweepSummary:
    """Counts of statuses, kernels, keys and cores, and the call with the largest workspace.

    ``first_rows`` has the first refused row of every status.
    Kernels, keys and cores are counted where the call runs. ``seconds`` and ``rows_now`` exclude
    the part that an interrupted run computed before.
    """

    space: Space
    columns: tuple[RecordColumn, ...]
    rows: int = 0
    counts: dict[str, Counter[int]] = field(default_factory=dict)
    first_rows: dict[int, int] = field(default_factory=dict)
    peak_bytes: int = -1
    peak_row: int = -1
    seconds: float = 0.0
    rows_now: int = 0

    def add(self, chunk: Array, first_row: int) -> None:
        """Count one chunk."""
        self.rows += len(chunk)
        self.rows_now += len(chunk)
        names = chunk.dtype.names or ()
        running: Any = slice(None)
        if "status" in names:
            self._count("status", chunk["status"])
            accepted = chunk["status"] == 0
            if not accepted.all():
                running = accepted
                self._find_first(chunk["status"], first_row)
        for name in ("overflows", "kernel", "tiling_key", "block_dim"):
            if name in names:
                self._count(name, chunk[name][running])
        name = workspace_column(names)
        if name and len(chunk):
            place = int(np.argmax(chunk[name]))
            if int(chunk[name][place]) > self.peak_bytes:
                self.peak_bytes, self.peak_row = int(chunk[name][place]), first_row + place

    def _find_first(self, statuses: Array, first_row: int) -> None:
        for status in self.counts["status"]:
            if status == 0 or self.first_rows.get(status, first_row) < first_row:
                continue
            place = int(np.argmax(statuses == status))
            if statuses[place] == status:
                self.first_rows[status] = first_row + place

    def _count(self, name: str, values: Array) -> None:
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
        return {
            "rows": self.rows,
            "counts": {name: sorted(counter.items()) for name, counter in self.counts.items()},
            "first_rows": sorted(self.first_rows.items()),
            "peak_bytes": self.peak_bytes,
            "peak_row": self.peak_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the counts of an interrupted sweep."""
        self.rows = state["rows"]
        self.peak_bytes, self.peak_row = state["peak_bytes"], state["peak_row"]
        self.first_rows = dict(state["first_rows"])
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
        data: dict[str, Any] = {
            "sweep": self.space.as_dict(),
            "rows": self.rows,
            "counts": counted,
            "refused": [refusal.as_dict() for refusal in self.refusals()],
            "rules_source": self.rules_source,
            "left_out": [
                {"product": product, "reason": reason} for product, reason in self.space.left_out
            ],
        }
        if self.peak_row >= 0:
            profile, values = self.space.call_at(self.peak_row)
            data["peak_workspace"] = {
                "column": workspace_column(words),
                "bytes": self.peak_bytes,
                "row": self.peak_row,
                "call": _named_call(profile, values),
            }
        return data

    def refusals(self) -> list["Refusal"]:
        """Return every status of refused calls with its number of calls and first reason."""
        return [
            Refusal(status, self.counts["status"][status], row, *_why_refused(self.space, row))
            for status, row in sorted(self.first_rows.items())
        ]

    @property
    def rules_source(self) -> str:
        """Where the rules of the products come from, as in a plan."""
        sources = dict.fromkeys(profile.product.rules_source for profile in self.space.profiles)
        return "; ".join(filter(None, sources))


@dataclass(frozen=True)
class Refusal:
    """The refused calls of one status."""

    status: int
    """aclnn status; ``UNCOUNTABLE`` where a tensor has more bytes than an int64 counts."""
    calls: int
    row: int
    """First such call."""
    reason: str
    """Why that call is refused."""
    call: Mapping[str, Any]
    """Device and axes of that call."""

    def as_dict(self) -> dict[str, Any]:
        """Return the refusal as plain data."""
        return {**vars(self), "call": dict(self.call)}


def _why_refused(space: Space, row: int) -> tuple[str, dict[str, Any]]:
    """Return the reason of a refused call, and its device and axes."""
    profile, values = space.call_at(row)
    planned = plan_at(space.operator, profile, values)
    reason = planned.message if isinstance(planned, NpuSimError) else ""
    return reason, _named_call(profile, values)


def plan_at(operator: Operator, profile: Profile, values: Values) -> Plan | NpuSimError:
    """Return the plan of one call of a sweep, or the error that refuses it."""
    call = plan_arguments(operator, values)
    deterministic, limits = call.pop("deterministic"), call.pop("limits")
    target = Target(profile, deterministic, limits=limits)
    try:
        return plan_of(checked_call(operator, call, target))
    except NpuSimError as error:
        return error


def _named_call(profile: Profile, values: Values) -> dict[str, Any]:
    place = {"product": profile.name, "soc": profile.soc, "release": profile.release}
    return {**place, **values}
