"""Result of checking one call on one product."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_sim.language import Joined, Text, joined
from npu_sim.plans.model import RUNS, Plan

REFUSED, FAILED, MALFORMED, UNKNOWN = "refused", "failed", "malformed", "unknown"
"""Outcomes besides those of a plan; ``failed``: a raw planner found no tiling (no status code);
``unknown``: the product has the operator and npu_sim does not model it there."""
WORKSPACE = "workspace"
"""Kind of the reason that a call needs more workspace than accepted."""
ERROR, INFORMATIONAL, ACCEPTED = "error", "informational", "accepted"
"""Levels of a finding: it counts; its product is only informational; it is in the baseline."""


@dataclass(frozen=True)
class Checked:
    """Result of one line.

    Attributes
    ----------
    line
        Line number, from 1.
    op, product, soc, release
        From the line, as far as they could be read.
    outcome
        ``runs``, ``refused``, ``failed``, ``malformed`` or ``unknown``.
    status
        aclnn status of an operator's call; None for a raw planner and for a malformed line.
    argument, message, hint
        Reason of a refusal, overflow or malformed line: argument, problem and correction.
    facts
        Facts of the plan: ``block_dim``, ``tiling_key``, ``workspace_bytes``, ``path``,
        ``caveats``, ``timing`` (outputs that can differ between runs) and
        ``deterministic_switch`` (the plan and cost with the switch on), and ``time`` (see
        :func:`npu_sim.questions.preflight.checking.call_times`).
    plan
        The complete plan, or the raw planner's result.
    planned
        The plan, where columns are compared in time.
    differences
        Expected and found values that differ; None when the line expects nothing.
    """

    line: int
    op: str
    product: str
    soc: str
    outcome: str
    status: int | None = None
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    differences: Mapping[str, Any] | None = None
    release: str = ""
    argument: str = ""
    hint: str = ""
    planned: Plan | None = field(default=None, repr=False, compare=False)

    @property
    def fine(self) -> bool:
        """Whether the result is as expected, or the call runs if the line expects nothing."""
        return not self.differences if self.differences is not None else self.outcome == RUNS

    @property
    def reason(self) -> str:
        """Why the line is not accepted, in one line."""
        if self.differences:
            return joined(
                (
                    Text(
                        "{name}: expected {expected}, found {found}",
                        name=name,
                        expected=values["expected"],
                        found=values["found"],
                    )
                    for name, values in self.differences.items()
                )
            )
        if not self.hint:
            return self.message
        hint = self.hint
        if isinstance(hint, Joined):  # of several lines
            hint = joined(hint.fields["parts"], "; ")
        return Text("{message}; {hint}", message=self.message, hint=hint)

    @property
    def label(self) -> str:
        """The outcome with its status."""
        if self.differences:
            return "different"
        refused = self.outcome == REFUSED and self.status
        return Text("refused {status}", self) if refused else self.outcome

    @property
    def workspace_bytes(self) -> int:
        """Workspace of the call; 0 when it does not run."""
        return int(self.facts.get("workspace_bytes") or 0)

    def as_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the result as plain data, including the plan if ``whole``."""
        data: dict[str, Any] = {
            "line": self.line,
            "op": self.op,
            "product": self.product,
            "soc": self.soc,
            "release": self.release,
        }
        data |= {"outcome": self.outcome, "status": self.status, "fine": self.fine}
        data |= {
            name: value
            for name in ("argument", "message", "hint")
            if (value := getattr(self, name))
        }
        data |= self.facts
        if self.differences is not None:
            data["differences"] = dict(self.differences)
        if whole and self.plan is not None:
            data["plan"] = self.plan
        return data


@dataclass
class Row:
    """One call with all its lines.

    Attributes
    ----------
    line, lines
        Number of the first line, and count of lines.
    op, inputs
        Operator, and inputs as text.
    count
        Sum of the lines' ``count``.
    remarks
        ``name``, ``group`` and ``note`` of the first line that has them.
    cells, seconds
        Result and duration of the check by label of the column.
    """

    line: int
    op: str
    inputs: str
    remarks: Mapping[str, Any]
    cells: dict[str, Checked]
    lines: int = 0
    count: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Operator with the name of the call, or with its inputs."""
        return f"{self.op or 'no call'} {self.remarks.get('name') or self.inputs}".strip()


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
