"""Counts over the results of a preflight."""

from dataclasses import dataclass
from typing import Any

from npu_sim.questions.preflight.answers import Checked


@dataclass
class Summary:
    """Counts over lines, and the call with the largest workspace."""

    lines: int = 0
    runs: int = 0
    overflows: int = 0
    refused: int = 0
    failed: int = 0
    malformed: int = 0
    unknown: int = 0
    differ: int = 0
    as_expected: int = 0
    not_fine: int = 0
    peak: Checked | None = None

    def add(self, checked: Checked, lines: int = 1, fine: bool | None = None) -> None:
        """Add lines of one call; ``fine`` overrides whether the result is accepted."""
        self.lines += lines
        setattr(self, checked.outcome, getattr(self, checked.outcome) + lines)
        self.not_fine += lines * (not (checked.fine if fine is None else fine))
        if checked.differences is not None:
            self.differ += lines * bool(checked.differences)
            self.as_expected += lines * (not checked.differences)
        if checked.workspace_bytes > (self.peak.workspace_bytes if self.peak else 0):
            self.peak = checked

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        names = (
            "lines",
            "runs",
            "overflows",
            "refused",
            "failed",
            "malformed",
            "unknown",
            "as_expected",
            "differ",
            "not_fine",
        )
        peak = self.peak
        place = (
            {"line": peak.line, "op": peak.op, "product": peak.product, "soc": peak.soc}
            if peak
            else None
        )
        return {
            **{name: getattr(self, name) for name in names},
            "peak_workspace_bytes": peak.workspace_bytes if peak else 0,
            "peak": place,
        }
