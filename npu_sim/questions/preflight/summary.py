"""Counts over the results of a preflight."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from npu_sim.questions.preflight.answers import WORKSPACE, Checked


@dataclass
class Summary:
    """Counts over lines, and the call with the largest workspace.

    ``count`` is the sum of the lines' ``count``; the other counts are lines. ``over_budget`` lines
    need more workspace than the policy accepts.
    """

    lines: int = 0
    count: int = 0
    runs: int = 0
    overflows: int = 0
    refused: int = 0
    failed: int = 0
    malformed: int = 0
    unknown: int = 0
    as_expected: int = 0
    differ: int = 0
    not_fine: int = 0
    over_budget: int = 0
    peak: Checked | None = None

    def add(self, checked: Checked, lines: int, count: int, faults: Collection[str]) -> None:
        """Add the lines of one call and the kinds of reasons for not accepting it."""
        self.lines += lines
        self.count += count
        self.over_budget += lines * (WORKSPACE in faults)
        setattr(self, checked.outcome, getattr(self, checked.outcome) + lines)
        self.not_fine += lines * bool(faults)
        if checked.differences is not None:
            self.differ += lines * bool(checked.differences)
            self.as_expected += lines * (not checked.differences)
        if checked.workspace_bytes > (self.peak.workspace_bytes if self.peak else 0):
            self.peak = checked

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        peak = self.peak
        place = None
        if peak:
            place = {"line": peak.line, "op": peak.op, "product": peak.product, "soc": peak.soc}
        return {
            **vars(self),
            "peak_workspace_bytes": peak.workspace_bytes if peak else 0,
            "peak": place,
        }
