"""What the results of a kit show, and the lines of ``evidence.jsonl``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from npu_sim.cores import load_profile
from npu_sim.files.writing import schema, write_into
from npu_sim.language import Text
from npu_sim.plans.answers import Printed
from npu_sim.status import NpuSimError
from npu_sim.tools.device_kit.lines import arguments_of_line
from npu_sim.tools.device_kit.results import Line

CONFIRMED = ("equal", "reachable")
NOT_RUN, NOT_JUDGED, UNREADABLE = "not run", "not judged", "unreadable"
VERDICTS = (*CONFIRMED, "undecided", "unreachable", NOT_RUN, NOT_JUDGED, UNREADABLE)
DAMAGED = (NpuSimError, ValueError, TypeError, OverflowError, MemoryError, OSError)
"""What results of a damaged folder raise when they are read and judged."""
EVIDENCE_FILE = "evidence.jsonl"


@dataclass(frozen=True, repr=False)
class Kit(Printed):
    """A written kit.

    Attributes
    ----------
    folder
        Folder that was written.
    soc, release
        Device that it is made for.
    calls
        Number of calls by operator.
    bytes
        Bytes of all inputs.
    left_out
        Given calls that are not in it, and why.
    """

    folder: str
    soc: str
    release: str
    calls: Mapping[str, int]
    bytes: int
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {**vars(self), "calls": dict(self.calls), "left_out": list(self.left_out)}


@dataclass(frozen=True)
class ModeCheck:
    """One call in one mode.

    Attributes
    ----------
    number, operator, deterministic
        The call.
    arguments
        The call as text.
    path, kernel, tiling_key
        What was planned; empty for a refused call.
    verdict
        ``equal``, ``reachable``, ``undecided`` or ``unreachable``: the worst of all runs;
        ``not run`` for an error, ``not judged`` where nothing can be said, ``unreadable`` for
        damaged results.
    status, planned_status
        Status of the device, None for an error without one and for results that are not of the
        call; and of the plan.
    impossible
        Number of impossible elements by output.
    cores, planned_cores
        Cores of the planned kernel, None if not measured.
    us, bound_us, estimate_error
        Measured time of the planned kernel, its lower bound, and the relative error of the estimate
        of its vector pipe; None without.
    findings
        Sentences on what is not as planned.
    results
        SHA-256 of the outputs by name, of the first run.
    """

    number: int
    operator: str
    deterministic: bool
    arguments: str
    path: str = ""
    kernel: str = ""
    tiling_key: int | None = None
    verdict: str = NOT_JUDGED
    status: int | None = None
    planned_status: int = 0
    impossible: Mapping[str, int] | None = None
    cores: int | None = None
    planned_cores: int | None = None
    us: float | None = None
    bound_us: float | None = None
    estimate_error: float | None = None
    findings: tuple[str, ...] = ()
    results: Mapping[str, str] | None = None

    @property
    def outcome(self) -> str:
        """``confirmed``, ``contradicted``, or ``open`` where the device decides neither."""
        is_faster = self.us is not None and self.bound_us is not None and self.us < self.bound_us
        if self.verdict in (NOT_JUDGED, UNREADABLE) or self.status is None:
            return "open"
        if (
            self.status != self.planned_status
            or self.cores not in (None, self.planned_cores)
            or self.verdict == "unreachable"
            or is_faster
        ):
            return "contradicted"
        return "open" if self.verdict == "undecided" else "confirmed"

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return {**vars(self), "findings": list(self.findings)}


@dataclass(frozen=True, repr=False)
class KitCheck(Printed):
    """What the results of a device show.

    Attributes
    ----------
    folder
        Folder of the kit.
    soc, release
        Device that the kit was made for.
    device
        SoC and versions that the script recorded.
    modes
        Every call in every mode.
    missing
        Numbers of the calls without results.
    unreadable
        Lines of ``calls.jsonl`` that are no calls, those of ``result.csv`` that are no results of
        this kit, and why.
    findings
        Sentences that concern the whole device.
    is_rehearsal
        Whether npu_sim played the device: then this is no evidence.
    """

    folder: str
    soc: str
    release: str
    device: Mapping[str, str]
    modes: tuple[ModeCheck, ...]
    missing: tuple[int, ...] = ()
    unreadable: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    is_rehearsal: bool = False

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of calls and modes by verdict."""
        return {name: sum(mode.verdict == name for mode in self.modes) for name in VERDICTS}

    @property
    def backend(self) -> str:
        """Where the operator test kit ran the cases: ``npusim``, its simulator, or ``npu``.

        Empty for the results of ``run_on_device.py``.
        """
        return self.device.get("backend", "")

    @property
    def contradicted(self) -> bool:
        """Whether anything is not as planned."""
        of_kit = self.findings or self.missing or self.unreadable
        return bool(of_kit) or any(mode.findings for mode in self.modes)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "folder": self.folder,
            "soc": self.soc,
            "release": self.release,
            "device": dict(self.device),
            "counts": self.counts,
            "contradicted": self.contradicted,
            "is_rehearsal": self.is_rehearsal,
            "findings": list(self.findings),
            "missing": list(self.missing),
            "unreadable": list(self.unreadable),
            "calls": [mode.as_dict() for mode in self.modes],
        }


def mode_of(line: Line, deterministic: bool, **fields: Any) -> ModeCheck:
    """Return the check of a call in one mode."""
    arguments = ", ".join(f"{name} {value}" for name, value in arguments_of_line(line).items())
    return ModeCheck(line.number, line.operator, deterministic, arguments, **fields)


def unreadable_mode(line: Line, deterministic: bool, error: Exception) -> ModeCheck:
    """Return the check of a call whose results cannot be read."""
    reason = getattr(error, "message", str(error) or type(error).__name__)
    finding = Text("the results cannot be read: {reason}", reason=reason)
    return mode_of(line, deterministic, verdict=UNREADABLE, findings=(finding,))


def write_evidence(folder: Path, answer: KitCheck, lines: Sequence[Line]) -> None:
    """Write ``evidence.jsonl`` into the folder of a kit."""
    text = "".join(json.dumps(record) + "\n" for record in evidence_records(answer, lines))
    write_into(folder, EVIDENCE_FILE, text, "check")


def evidence_records(answer: KitCheck, lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield the records of ``evidence.jsonl``: a line for every call and mode.

    Findings are left out, because error texts of a device may name files and hosts.
    """
    calls = {line.number: line for line in lines}
    for mode in answer.modes:
        yield {
            "schema": schema("evidence"),
            "product": load_profile(None, answer.soc).name,
            "soc": answer.soc,
            "release": answer.release,
            "device": dict(answer.device),
            "outcome": "open" if answer.findings else mode.outcome,
            **calls[mode.number].as_dict(),
            **{
                name: value
                for name, value in mode.as_dict().items()
                if name not in ("arguments", "number", "operator", "findings")
            },
        }
