"""Checking a file of calls before anything runs: one JSON object a line.

A line names the operator (or a vendor kernel, for its raw planner), the product or SoC, and the inputs::

    {"op": "rms_norm_grad", "product": "atlas_a2", "deterministic": true,
     "inputs": {"dy": "4096x8192:bf16", "gamma": "8192:bf16"}}

``expect`` (any of ``status``, ``block_dim``, ``tiling_key``, ``workspace_bytes``, ``schedule_mode``, ``path`` and, for a kernel,
``tiling``) is compared with the result.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile, profile_of_soc
from npu_sim.files.reading import LINE_BYTES
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import require_limits
from npu_sim.operators.contract.checks import require_bool
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.planning import plan_of
from npu_sim.plans.model import Plan
from npu_sim.registry import OPERATORS, all_operators, find_kernel, find_operator, load_operator
from npu_sim.status import AclnnError, closest
from npu_sim.tiling import raw_plan

KEYS = ("op", "level", "product", "soc", "inputs", "deterministic", "limits", "expect", "route", "name", "group", "note")
"""Keys of a line; ``name``, ``group`` and ``note`` are remarks."""
RUNS, REFUSED, FAILED, MALFORMED = "runs", "refused", "failed", "malformed"
"""Outcomes: ``failed`` is a raw planner that found no tiling, which carries no status code."""


class MalformedLineError(Exception):
    """A line that is no call."""


@dataclass(frozen=True)
class Checked:
    """What became of one line.

    Attributes
    ----------
    line
        Its number, from 1.
    op, product, soc
        What was asked, as far as it could be read.
    outcome
        ``runs``, ``refused``, ``failed`` or ``malformed``.
    status
        aclnn status of an operator's call; None for a raw planner and for a malformed line.
    message
        Why it does not run, or why the line is malformed.
    facts
        Sizes of the plan: ``block_dim``, ``tiling_key``, ``workspace_bytes``, ``path``, ``caveats`` ...
    plan
        The whole plan, or the raw planner's result.
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

    @property
    def fine(self) -> bool:
        """Whether the line is as it should be: as expected, or, when nothing is expected, runs."""
        return not self.differences if self.differences is not None else self.outcome == RUNS

    @property
    def workspace_bytes(self) -> int:
        """Workspace of the call; 0 when it does not run."""
        return int(self.facts.get("workspace_bytes") or 0)

    def as_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the result as plain data; with ``whole`` the plan too."""
        data: dict[str, Any] = {"line": self.line, "op": self.op, "product": self.product, "soc": self.soc, "outcome": self.outcome}
        data |= {"status": self.status, "fine": self.fine}
        if self.message:
            data["message"] = self.message
        data |= self.facts
        if self.differences is not None:
            data["differences"] = dict(self.differences)
        if whole and self.plan is not None:
            data["plan"] = self.plan
        return data


@dataclass
class Summary:
    """Counts over a file, and the call with the largest workspace."""

    lines: int = 0
    runs: int = 0
    refused: int = 0
    failed: int = 0
    malformed: int = 0
    differ: int = 0
    as_expected: int = 0
    not_fine: int = 0
    peak: Checked | None = None

    def add(self, checked: Checked) -> None:
        """Count one line."""
        self.lines += 1
        setattr(self, checked.outcome, getattr(self, checked.outcome) + 1)
        self.not_fine += not checked.fine
        if checked.differences is not None:
            self.differ += bool(checked.differences)
            self.as_expected += not checked.differences
        if checked.workspace_bytes > (self.peak.workspace_bytes if self.peak else 0):
            self.peak = checked

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        names = ("lines", "runs", "refused", "failed", "malformed", "as_expected", "differ", "not_fine")
        peak = self.peak
        place = {"line": peak.line, "op": peak.op, "product": peak.product, "soc": peak.soc} if peak else None
        return {**{name: getattr(self, name) for name in names}, "peak_workspace_bytes": peak.workspace_bytes if peak else 0, "peak": place}


def check_lines(lines: Iterable[str | bytes], product: str = "atlas_a2", directory: Path | None = None) -> Iterator[Checked]:
    """Check calls line by line; empty lines are skipped.

    Parameters
    ----------
    lines
        Lines of JSON.
    product
        Product of lines that name neither product nor SoC.
    directory
        Folder that relative profile files of the lines are looked up in; the working directory when None.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield check_line(line, number, product, directory)


def check_line(line: str | bytes, number: int = 1, product: str = "atlas_a2", directory: Path | None = None) -> Checked:
    """Check one call; a line that is none gives the outcome ``malformed``."""
    call: dict[str, Any] = {}
    try:
        call = _read(line)
        profile = _profile(call, product, directory)
        checked = _check_kernel(call, number, profile) if _is_kernel(call) else _check_operator(call, number, profile)
    except MalformedLineError as error:
        message = str(error)
    except AclnnError as error:  # names and values that no call can have, found before any contract is asked
        message = f"{error.message}; {error.hint}" if error.hint else error.message
    else:
        return checked
    shown = {name: str(call.get(name, "")) for name in ("op", "product", "soc")}
    return Checked(number, shown["op"], shown["product"], shown["soc"], MALFORMED, message=message)


def _read(line: str | bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES:
        raise MalformedLineError(f"not a call: longer than {LINE_BYTES} bytes")
    try:
        call = json.loads(line)
    except ValueError as error:
        raise MalformedLineError(f"not JSON: {error}") from None
    except RecursionError:
        raise MalformedLineError("not a call: nested too deeply") from None
    if not isinstance(call, dict):
        raise MalformedLineError("not a call: a line is one JSON object")
    for name in call:
        if name not in KEYS:
            raise MalformedLineError(f"{name!r} is no key of a call{closest(name, KEYS)}; keys: {', '.join(KEYS)}")
    if not isinstance(call.get("op"), str):
        raise MalformedLineError("op is missing: the name of an operator or of a kernel")
    if not isinstance(call.get("inputs"), dict):
        raise MalformedLineError("inputs is missing: an object with the arguments by name")
    if not isinstance(call.get("expect", {}), dict):
        raise MalformedLineError("expect is no object")
    return call


def _profile(call: Mapping[str, Any], default: str, directory: Path | None) -> Profile:
    product, soc = call.get("product"), call.get("soc")
    if not isinstance(product, str | None) or not isinstance(soc, str | None):
        raise MalformedLineError("product and soc are names")
    if product is None and soc is not None:
        return profile_of_soc(soc)
    name = product or default
    if directory is not None and name.endswith((".yaml", ".yml")) and not Path(name).is_absolute():
        name = str(directory / name)
    return load_profile(name, soc)


def _is_kernel(call: Mapping[str, Any]) -> bool:
    """Decide between operator and raw planner: some have the same name, then the inputs tell."""
    op, level = call["op"], call.get("level")
    operator, kernel = find_operator(op), find_kernel(op)
    if operator is None and kernel is None:
        operators = [entry.name for entry in all_operators()]
        names = (*operators, *(one for entry in OPERATORS for one in entry.kernels if one not in operators))
        raise MalformedLineError(f"op = {op!r} is neither operator nor kernel{closest(op, names)}; known: {', '.join(names)}")
    if level not in (None, "operator", "kernel"):
        raise MalformedLineError(f"level = {level!r}: operator or kernel")
    if (level == "kernel" and kernel is None) or (level == "operator" and operator is None):
        raise MalformedLineError(f"op = {op!r} is no {level}")
    if level is not None or operator is None or kernel is None:
        return level == "kernel" or operator is None
    return not set(call["inputs"]) <= {one.name for one in load_operator(operator.name).arguments}


def _check_kernel(call: Mapping[str, Any], number: int, profile: Profile) -> Checked:
    """Run the raw planner, as the golden data of the product was made."""
    deterministic = require_bool("deterministic", call.get("deterministic", False))
    entry = find_kernel(call["op"])
    assert entry is not None
    try:
        result = raw_plan(entry, call["op"], call["inputs"], profile, deterministic)
    except KeyError as error:
        raise MalformedLineError(f"inputs: {error.args[0]!r} is missing or unknown; given: {', '.join(call['inputs'])}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise MalformedLineError(f"inputs cannot be planned: {type(error).__name__}: {error}") from None
    outcome = FAILED if result.get("status") == "failed" else RUNS
    facts: dict[str, Any] = {
        name: result[name] for name in ("route", "block_dim", "tiling_key", "workspace_bytes", "schedule_mode") if name in result
    }
    wanted = {**call.get("expect", {}), **({"route": call["route"]} if "route" in call else {})}
    message = "the planner finds no tiling" if outcome == FAILED else ""
    differences = _differences(wanted, result) if wanted else None
    return Checked(number, call["op"], profile.name, profile.soc, outcome, None, message, facts, result, differences)


def _check_operator(call: Mapping[str, Any], number: int, profile: Profile) -> Checked:
    """Check a call against its contract and plan it."""
    operator: Operator = load_operator(call["op"])
    deterministic = require_bool("deterministic", call.get("deterministic", False))
    limits = require_limits(call.get("limits", "documented"))
    inputs = {name: _tensor(name, value) if name in operator.tensor_names else value for name, value in call["inputs"].items()}
    built = operator.build(inputs, infer=True)
    facts: dict[str, Any] = {}
    plan: Plan | None = None
    error: AclnnError | None = None
    try:
        plan = plan_of(operator.check(built, profile, deterministic, limits))
    except AclnnError as refusal:
        error = refusal
    if plan is not None:
        facts = {"path": plan.path, "block_dim": plan.block_dim, "tiling_key": plan.tiling_key, "schedule_mode": plan.schedule_mode}
        facts |= {"workspace_bytes": plan.workspace.total_bytes, "workspace_unknown": [part.name for part in plan.workspace.unknown]}
        facts |= {"deterministic": all(one.deterministic for one in plan.order), "caveats": [caveat.code for caveat in plan.caveats]}
    status = int(error.status) if error is not None else 0
    message = f"{error.message}; {error.hint}" if error is not None and error.hint else error.message if error is not None else ""
    outcome = REFUSED if error is not None else RUNS
    found = {**facts, "status": "success" if call.get("expect", {}).get("status") == "success" and status == 0 else status}
    differences = _differences(call["expect"], found) if "expect" in call else None
    dumped = plan.as_dict() if plan is not None else None
    return Checked(number, operator.name, profile.name, profile.soc, outcome, status, message, facts, dumped, differences)


def _tensor(name: str, value: Any) -> Any:
    """Read a tensor given as text, or as an object with ``shape`` and ``dtype``."""
    if not isinstance(value, dict):
        return value
    try:
        return TensorSpec(tuple(value["shape"]), value["dtype"], value.get("contiguous", True), value.get("storage_format", "ND"))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedLineError(f"{name}: not a tensor: {error}; write '4096x512:bf16' or an object with shape and dtype") from None


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the wanted entries that are missing or different, by their path."""
    different: dict[str, Any] = {}
    for name, value in wanted.items():
        other = found.get(name)
        if isinstance(value, dict) and isinstance(other, Mapping):
            different |= _differences(value, other, f"{prefix}{name}.")
        elif name not in found or not _same(value, other):
            different[prefix + name] = {"expected": value, "found": other}
    return different


def _same(wanted: Any, found: Any) -> bool:
    """Compare values; fractions as fp32, which is what the product's tilings hold."""
    if isinstance(wanted, float) and isinstance(found, int | float):
        import numpy as np

        return bool(np.float32(wanted) == np.float32(found))
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)
