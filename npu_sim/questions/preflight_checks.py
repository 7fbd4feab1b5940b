"""Check of one call on one product, and its result: contract and plan, or a kernel's raw planner.

On request with its launches, lower bounds and estimates, and their sums over a file of calls.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from npu_sim.cores import Profile
from npu_sim.framework.case import Case
from npu_sim.framework.checking import check
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target, require_bool, require_limits
from npu_sim.language import Joined, Text, joined
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import copies_us, is_timed, timeline
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import REFUSED, RUNS, Plan
from npu_sim.questions.preflight_lines import RECORDED, Call, MalformedLineError, operator_inputs
from npu_sim.registry import find_kernel
from npu_sim.status import AclnnError, NotModelledError, Unplanned, UsageError
from npu_sim.tiling import raw_plan
from npu_sim.timelines.model import LaunchEstimate, LaunchTime

FAILED, MALFORMED, UNKNOWN = "failed", "malformed", "unknown"
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
        :func:`npu_sim.questions.preflight_checks.call_times`).
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
        if isinstance(hint, Joined):  # lines, the nearest legal value first; a plan has them all
            hint = joined(hint.fields["parts"][:2], "; ")
        return Text("{message}; {hint}", message=self.message, hint=hint)

    @property
    def label(self) -> str:
        """The outcome with its status."""
        if self.differences:
            return "different"
        refused = self.outcome == REFUSED and self.status
        return Text("refused {status}", status=self.status) if refused else self.outcome

    @property
    def workspace_bytes(self) -> int:
        """Workspace of the call; 0 when it does not run."""
        return int(self.facts.get("workspace_bytes") or 0)

    def as_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the result as plain data, including the plan if ``whole``."""
        why = {"argument": self.argument, "message": self.message, "hint": self.hint}
        data = {
            "line": self.line,
            "op": self.op,
            "product": self.product,
            "soc": self.soc,
            "release": self.release,
            "outcome": self.outcome,
            "status": self.status,
            "fine": self.fine,
            **{name: value for name, value in why.items() if value},
            **self.facts,
        }
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
        """Operator with group and name of the call, or with its inputs."""
        named = (self.op or "no call", self.group, self.remarks.get("name") or self.inputs)
        return " ".join(filter(None, named))

    @property
    def group(self) -> str:
        """Group of the call, such as the pass of a model that makes it; empty without one."""
        return str(self.remarks.get("group", ""))


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
        if checked.workspace_bytes > self.peak_bytes:
            self.peak = checked

    @property
    def peak_bytes(self) -> int:
        """Largest workspace of a call."""
        return self.peak.workspace_bytes if self.peak else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        peak = self.peak
        return {
            **vars(self),
            "peak_workspace_bytes": self.peak_bytes,
            "peak": {"line": peak.line, "op": peak.op, "product": peak.product, "soc": peak.soc}
            if peak
            else None,
        }


def call_times(plan: Plan, profile: Profile) -> dict[str, Any]:
    """Return launches, lower bound and estimate of one call, times in microseconds.

    ``bound_us`` is None if the operator declares no program; ``coverage`` is that of
    :class:`npu_sim.timelines.model.Timeline`; ``copies_us`` is the bound of the copies alone.
    ``estimates`` maps what is estimated (``launch``, ``vector pipe``) to the number of launches
    and the sum of their ranges.
    """
    if plan.block_dim and not is_timed(plan):
        return {
            "launches": len(plan.launches),
            "bound_us": None,
            "coverage": "",
            "copies_us": None,
            "estimates": {},
        }
    found = timeline(plan, profile)
    return {
        "launches": len(found.launches),
        "bound_us": found.bound_us,
        "coverage": found.coverage,
        "copies_us": copies_us(plan, profile),
        "estimates": _estimates(found.launches),
    }


def _estimates(launches: tuple[LaunchTime, ...]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for launch in launches:
        estimate = launch.estimate
        if estimate is None or (isinstance(estimate, LaunchEstimate) and estimate.us is None):
            continue
        part = sums.setdefault(estimate.of, {"launches": 0, "low_us": 0.0, "high_us": 0.0})
        part["launches"] += 1
        part["low_us"] += estimate.low_us
        part["high_us"] += estimate.high_us
    return sums


@dataclass
class Totals:
    """Sums over the calls of one column that run, each weighted by its count."""

    calls: int
    launches: int
    bound_us: float
    """Sum of the lower bounds in microseconds."""
    bounds: Mapping[str, "BoundSum"]
    """The part of ``bound_us`` that the calls of each coverage have."""
    unbounded: int
    """Calls without a bound, counted as 0: their operator declares no program."""
    estimates: Mapping[str, Mapping[str, Any]]
    """As in :func:`call_times`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        return vars(self) | {
            "bounds": [
                {"coverage": coverage, **found._asdict()} for coverage, found in self.bounds.items()
            ]
        }


class BoundSum(NamedTuple):
    """Calls with bounds of one coverage, and the sum of their bounds in microseconds."""

    calls: int
    bound_us: float


class SameWork(NamedTuple):
    """Lower bounds of one call in us that count the same work on every column."""

    bounds_us: Mapping[str, float]
    copies_alone: bool
    """Whether only copies count, because the bounds of the call cover different work."""


def same_work(row: Row, labels: Iterable[str]) -> SameWork | None:
    """Return the bounds of a row that can be compared; None without a bound on every column."""
    times = {label: bounded_time(row.cells.get(label)) for label in labels}
    found = {label: time for label, time in times.items() if time is not None}
    if len(found) < len(times):
        return None
    copies_alone = len({time["coverage"] for time in found.values()}) > 1
    counted = "copies_us" if copies_alone else "bound_us"
    return SameWork({label: time[counted] for label, time in found.items()}, copies_alone)


def bounded_time(checked: Checked | None) -> Mapping[str, Any] | None:
    """Return the times of a call that runs and has a lower bound; None for any other."""
    if checked is None or checked.outcome != RUNS:
        return None
    time: Mapping[str, Any] = checked.facts.get("time", {})
    return None if time.get("bound_us") is None else time


@dataclass(frozen=True)
class Comparison:
    """Sums of the lower bounds of calls that have one on every column, each weighted by its count.

    Every call counts the same work on all columns (:func:`same_work`).
    """

    calls: int
    """Calls that are compared."""
    all_calls: int
    copies_alone: int
    """Compared calls of which only the copies count."""
    bounds_us: Mapping[str, float]
    """Sum of every column in microseconds."""

    @property
    def ratios(self) -> dict[str, float]:
        """Sums of the other columns over that of the first one; empty where it is 0."""
        first, *others = self.bounds_us
        total = self.bounds_us[first]
        return {label: self.bounds_us[label] / total for label in others if total}

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {**vars(self), "ratios": self.ratios}


def comparison(rows: Sequence[Row], labels: Sequence[str]) -> Comparison | None:
    """Return the comparison of the columns that have bounds; None for fewer than two of them."""
    timed = [label for label in labels if any(bounded_time(row.cells.get(label)) for row in rows)]
    if len(timed) < 2:
        return None
    found = [(row.count, work) for row in rows if (work := same_work(row, timed)) is not None]
    return Comparison(
        calls=sum(count for count, _ in found),
        all_calls=sum(row.count for row in rows),
        copies_alone=sum(count for count, work in found if work.copies_alone),
        bounds_us={
            label: sum(count * work.bounds_us[label] for count, work in found) for label in timed
        },
    )


def totals(times: list[tuple[Mapping[str, Any], int]]) -> Totals:
    """Return the sums over calls, given as pairs of :func:`call_times` and count."""
    estimates: dict[str, Any] = {}
    bounds: dict[str, BoundSum] = {}
    for time, count in times:
        if time["bound_us"] is not None:
            calls, bound_us = bounds.get(time["coverage"], (0, 0.0))
            bounds[time["coverage"]] = BoundSum(calls + count, bound_us + count * time["bound_us"])
        for kind, part in time["estimates"].items():
            known = estimates.setdefault(kind, dict.fromkeys(part, 0))
            for name, value in part.items():
                known[name] += count * value
    return Totals(
        calls=sum(count for _, count in times),
        launches=sum(count * time["launches"] for time, count in times),
        bound_us=sum(count * (time["bound_us"] or 0.0) for time, count in times),
        bounds=dict(sorted(bounds.items())),
        unbounded=sum(count for time, count in times if time["bound_us"] is None),
        estimates=estimates,
    )


def malformed(
    values: Mapping[str, Any], number: int, error: MalformedLineError | UsageError
) -> Checked:
    """Return the result of a line that is not a call."""
    op, product, soc, release = (
        str(values.get(name) or "") for name in ("op", "product", "soc", "release")
    )
    answer = Checked(number, op, product, soc, MALFORMED, release=release)
    if isinstance(error, UsageError):  # illegal names and values, found before the contract
        return replace(answer, argument=error.argument, message=error.message, hint=error.hint)
    return replace(answer, message=error.args[0])


def check_call(
    call: Call, number: int, profile: Profile, *, whole: bool = True, timed: bool = False
) -> Checked:
    """Return the result of a call on one product, including the plan if ``whole``.

    With ``timed``, the facts include launches, bound and estimate.

    Raises
    ------
    MalformedLineError, UsageError
        When the line is not a call.
    """
    answer = Checked(
        number, call.values["op"], profile.name, profile.soc, RUNS, release=profile.release
    )
    if call.kernel:
        return _check_kernel(call.values, answer, profile)
    return _check_operator(call.values, answer, profile, whole, timed)


def _check_kernel(call: Mapping[str, Any], answer: Checked, profile: Profile) -> Checked:
    """Run the raw planner, without the contract."""
    deterministic = require_bool("deterministic", call.get("deterministic", False))
    entry = find_kernel(call["op"])
    assert entry is not None
    try:
        result = raw_plan(entry, call["op"], call["inputs"], profile, deterministic)
    except KeyError as error:
        raise MalformedLineError(
            Text(
                "inputs: {key} is missing or unknown; given: {call}",
                key=repr(error.args[0]),
                call=", ".join(call["inputs"]),
            )
        ) from None
    except NotModelledError as error:
        return replace(answer, outcome=UNKNOWN, **_reason(error))
    except UsageError as error:
        raise MalformedLineError(
            Text("inputs cannot be planned: {message}", message=error.message)
        ) from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise MalformedLineError(
            Text(
                "inputs cannot be planned: {error_type}: {error}",
                error_type=type(error).__name__,
                error=error,
            )
        ) from None
    outcome = FAILED if result.get("status") == "failed" else RUNS
    facts: dict[str, Any] = {
        name: result[name]
        for name in ("route", "block_dim", "tiling_key", "workspace_bytes", "schedule_mode")
        if name in result
    }
    wanted = dict(call.get("expect", {}))
    if "route" in call:
        wanted["route"] = call["route"]
    return replace(
        answer,
        outcome=outcome,
        message="the planner finds no tiling" if outcome == FAILED else "",
        facts=facts,
        plan=result,
        differences=_differences(wanted, result) if wanted else None,
    )


def _check_operator(
    call: Mapping[str, Any], answer: Checked, profile: Profile, whole: bool, timed: bool
) -> Checked:
    """Check a call against its contract and plan it."""
    operator = load_operator(call["op"])
    deterministic = require_bool("deterministic", call.get("deterministic", False))
    limits = require_limits(call.get("limits", "documented"))
    built = arguments_of(operator, operator_inputs(operator, call["inputs"]), infer=True)
    facts: dict[str, Any] = {"deterministic": deterministic}
    plan: Plan | None = None
    outcome = REFUSED
    why: dict[str, Any] = {"status": 0}
    try:
        case = check(operator, built, Target(profile, deterministic, limits=limits))
        plan = plan_of(case, plans_flips=whole)
        outcome = plan.outcome
        facts |= _facts(plan, case, is_recorded=RECORDED in call)
        if timed:
            facts["time"] = call_times(plan, profile)
        why |= _overflow(plan)
    except AclnnError as error:
        why = {"status": int(error.status), **_reason(error)}
    except NotModelledError as error:
        outcome = UNKNOWN
        why = {"status": None, **_reason(error)}
    found = {
        **facts,
        "status": "success"
        if call.get("expect", {}).get("status") == "success" and why["status"] == 0
        else why["status"],
    }
    return replace(
        answer,
        op=operator.name,
        outcome=outcome,
        facts=facts,
        plan=plan.as_dict() if plan is not None and whole else None,
        planned=plan if timed else None,
        differences=_differences(call["expect"], found) if "expect" in call else None,
        **why,
    )


def _reason(error: Unplanned) -> dict[str, Any]:
    """Return an error as fields of `Checked`, as texts that can be translated."""
    return {"argument": error.argument, "message": error.message, "hint": error.hint}


def _overflow(plan: Plan) -> dict[str, str]:
    """Return the reason for a plan that overflows; empty for others."""
    memory = plan.overflow
    if memory is None:
        return {}
    return {
        "argument": "product",
        "message": Text(
            "the buffers take {used_bytes} bytes, the Unified Buffer of {soc} has {capacity_bytes}",
            used_bytes=memory.used_bytes,
            soc=plan.soc,
            capacity_bytes=memory.capacity_bytes,
        ),
        "hint": "the product does not check it: take a chip with a larger one",
    }


def _facts(plan: Plan, case: Case, is_recorded: bool) -> dict[str, Any]:
    """Return the facts of a plan that a result reports."""
    caveats = [one for one in plan.caveats if not (is_recorded and one.lacks_input)]
    timing = [order.output for order in plan.order if order.state == "timing"]
    facts = {
        "path": plan.path,
        "block_dim": plan.block_dim,
        "tiling_key": plan.tiling_key,
        "schedule_mode": plan.schedule_mode,
        "workspace_bytes": plan.workspace.total_bytes,
        "workspace_unknown": [part.name for part in plan.workspace.unknown],
        "timing": timing,
        "races": [order.output for order in plan.order if order.race],
        "caveats": [caveat.code for caveat in caveats],
        "caveat_messages": [caveat.message for caveat in caveats],
        "evidence": plan.evidence.value,
        "rules_source": plan.rules_source,
    }
    if timing and not case.deterministic:
        facts["deterministic_switch"] = _switched(plan, case)
    return facts


def _switched(plan: Plan, case: Case) -> dict[str, Any]:
    """Return the facts of the plan with the determinism switch on."""
    try:
        other = plan_of(
            check(case.operator, case.arguments, replace(case.target, deterministic=True))
        )
    except AclnnError as error:
        return {"status": int(error.status), "message": error.message}
    return {
        "path": other.path,
        "workspace_bytes_more": other.workspace.total_bytes - plan.workspace.total_bytes,
        "workspace_unknown": any(
            part.evidence is Evidence.UNKNOWN for part in other.workspace.parts
        ),
        "timing": [order.output for order in other.order if order.state == "timing"],
    }


def _differences(
    wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return the wanted entries that are missing or different, by dotted path."""
    different: dict[str, Any] = {}
    for name, value in wanted.items():
        other = found.get(name)
        if isinstance(value, dict) and isinstance(other, Mapping):
            different |= _differences(value, other, f"{prefix}{name}.")
        elif name not in found or not _same(value, other):
            different[prefix + name] = {"expected": value, "found": other}
    return different


def _same(wanted: Any, found: Any) -> bool:
    """Return whether values are equal; floats are compared as fp32, as in tilings."""
    if isinstance(wanted, float) and isinstance(found, int | float):
        import numpy as np

        return bool(np.float32(wanted) == np.float32(found))
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)
