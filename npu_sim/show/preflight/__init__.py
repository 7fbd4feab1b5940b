"""A preflight, the times of a file of calls and a recording of calls, as text and as a report."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import PurePath
from shlex import quote
from typing import Any, NamedTuple

from rich.console import Group, RenderableType

from npu_sim.language import (
    Argument,
    Text,
    Verbatim,
    bytes_text,
    calls_text,
    grouped,
    joined,
    percent_text,
    say,
    short_bytes_text,
    time_text,
    visible,
)
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight import (
    ACCEPTED,
    ERROR,
    FAILED,
    INFORMATIONAL,
    Checked,
    Fault,
    Finding,
    Matrix,
    Row,
    Summary,
    grouped_cells,
)
from npu_sim.questions.preflight_checks import Comparison, Totals
from npu_sim.show import document_of, view_of
from npu_sim.show.compared_times import compared_line, compared_sentence, time_bars
from npu_sim.show.forms.layout import (
    Block,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.show.text import Line
from npu_sim.show.times import bound_cell, coverage_lines, covered_time

SHOWN_ROWS = 40
SHOWN_FAULTS = 20
SHOWN_LINES = 5
SHOWN_REMARKS = 4
SHOWN_KERNELS = 5
MARKS = {
    "timing": ("~", "can differ between runs"),
    "caveats": ("!", "runs with a caveat"),
    "workspace_unknown": ("+", "and unpublished parts"),
}


def cell_text(checked: Checked | None, budget: int | None = None) -> str:
    """Return a cell of the matrix: the workspace with its marks, or the code.

    ``budget`` is the largest accepted workspace in bytes.
    """
    if checked is None:
        return ""
    if checked.differences:
        return "different"
    if checked.outcome != RUNS:
        return "no tiling" if checked.outcome == FAILED else str(checked.status or checked.outcome)
    marks = "".join(mark for fact, (mark, _) in MARKS.items() if checked.facts.get(fact))
    size, accepted = short_bytes_text(checked.workspace_bytes), short_bytes_text(budget or 0)
    if budget is not None and checked.workspace_bytes > budget:
        over = checked.workspace_bytes - budget
        text = "{accepted} + {over}" if size == accepted else "{size} > {accepted}"
        size = Text(text, size=size, accepted=accepted, over=short_bytes_text(over))
    return f"{size} {marks}".rstrip()


def in_a_line(argument: Argument) -> str:
    """Return an argument as a line of calls states it."""
    return f'"{argument.name}": "{argument.value}"'


def count_text(row: Row) -> str:
    """Return the number of identical calls; empty for one."""
    return f"{row.count}x" if row.count != 1 else ""


def lines_text(rows: Iterable[Row]) -> str:
    """Return the line numbers of calls: ``lines 11, 14, 18``."""
    numbers = sorted(row.line for row in rows)
    if len(numbers) == 1:
        return say("line {number}", number=str(numbers[0]))
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return say("lines {first} to {last}", first=str(numbers[0]), last=str(numbers[-1]))
    rest = len(numbers) - SHOWN_LINES
    more = say(" and {numbers} more", numbers=rest) if rest > 0 else ""
    listed = ", ".join(map(str, numbers[:SHOWN_LINES]))
    return say("lines {numbers}{more}", numbers=listed, more=more)


def fault_text(fault: Fault) -> str:
    """Return the reason why a call is not accepted, in one sentence."""
    lines = sum(row.lines for row in fault.rows)
    return Text(
        "{times}{value}, {lines}, {labels}{note}: {word}: {reason}",
        times=f"{lines}x " if lines > 1 else "",
        value=_named(fault.op),
        lines=lines_text(fault.rows),
        labels=labels_text(fault.labels),
        note=Text(" (does not count)") if fault.level == INFORMATIONAL else "",
        word=fault.word,
        reason=fault.reason,
    )


def _named(operators: str) -> str:
    if isinstance(operators, Text):
        return operators
    return Verbatim(operators) if operators else "no call"


def exit_text(matrix: Matrix) -> str:
    """Return why a command ends with exit code 1: what is not accepted, and on which target."""
    counts: Counter[tuple[str, str]] = Counter()
    for row, label, _ in matrix.cells():
        for finding, level in matrix.findings(row, label):
            if level == ERROR:
                counts[finding.kind, label] += row.lines
    reasons = (
        Text("{count} {kind} on {label}", count=count, kind=kind, label=label)
        for (kind, label), count in counts.items()
    )
    return say("exit 1: {reasons}", reasons=joined(reasons, ", "))


def baseline_text(matrix: Matrix) -> str:
    """Return the numbers of accepted findings and of entries that are no longer found."""
    return say(
        "baseline: findings accepted: {accepted}; entries no longer found: {stale}",
        accepted=sum(len(fault.labels) for fault in matrix.faults(ACCEPTED, by_line=True)),
        stale=len(matrix.stale()),
    )


def stale_text(finding: Finding) -> str:
    """Return an entry of the baseline that is no longer found, in one sentence."""
    return Text(
        "no longer found: {op} {inputs}, {target}: {kind}: {reason}",
        op=finding.op,
        inputs=finding.inputs,
        target=finding.target,
        kind=finding.kind,
        reason=finding.reason,
    )


def matrix_view(matrix: Matrix) -> Group:
    """Return a preflight as a rich renderable."""
    return stack(
        _counts(matrix),
        "",
        _calls(matrix),
        *_more_calls(len(matrix.rows)),
        *after_gap(legend_text(matrix)),
        *notes(matrix),
    )


def _more_calls(rows: int) -> list[str]:
    """Return how many of the rows are not shown; nothing if all are."""
    more = rows - SHOWN_ROWS
    return (
        [say("and {rows} more calls: --report or --json lists all", rows=more)] if more > 0 else []
    )


def notes(matrix: Matrix) -> list[RenderableType]:
    """Return what refuses, what changes bits, and other remarks, each group after a gap.

    Equal reasons of several operators are one line. More than ``SHOWN_REMARKS`` remarks of a kind
    are named only: reports have their sentences.
    """
    faults = _merged(matrix.faults() + matrix.faults(INFORMATIONAL))
    more = len(faults) - SHOWN_FAULTS
    shown = [*map(fault_text, faults[:SHOWN_FAULTS])]
    if more > 0:
        shown.append(say("and {faults} more kinds: --report or --json lists all", faults=more))
    stale = (
        say("line {line}: {text}", line=line, text=stale_text(finding))
        for finding, line in matrix.stale().items()
    )
    groups = [
        shown,
        [*difference_lines(matrix, ["bits"]), *timing_lines(matrix)][:SHOWN_FAULTS],
        [baseline_text(matrix), *stale] if matrix.baseline else [],
        _remarks(matrix),
        *([text] for text in recorded_lines(matrix)),
    ]
    return [
        stack("", *(Paragraph(text, is_line=True) for text in group)) for group in groups if group
    ]


def _remarks(matrix: Matrix) -> list[str]:
    """Return the remarks of a kind, or which lines have them where they are many."""
    caveats = grouped_cells(
        (Verbatim(code), row, label)
        for row, label, checked in matrix.cells()
        for code in checked.facts.get("caveats", ())
    )
    differences = grouped_cells(
        (DIFFERENT[found.fact], row, "")
        for found in matrix.differences()
        if found.fact in DIFFERENT
        for row in found.rows
    )
    lines: list[str] = []
    are_named = False
    for sentences, kinds in (
        (list(caveat_lines(matrix)), caveats),
        (list(difference_lines(matrix, DIFFERENT)), differences),
    ):
        if len(sentences) <= SHOWN_REMARKS:
            lines += sentences
            continue
        are_named = True
        names = (
            Text("{name} ({lines})", name=name, lines=lines_text(rows))
            for name, (rows, _) in kinds.items()
        )
        lines.append(joined(names, ", "))
    return [*lines, say("sentences: --report")] if are_named else lines


def _operators(names: Sequence[str]) -> str:
    """Return the operators of a reason, many of them as their number."""
    distinct = list(dict.fromkeys(names))
    return (
        Text("{count} operators", count=len(distinct))
        if len(distinct) > SHOWN_REMARKS
        else ", ".join(distinct)
    )


def _merged(faults: Sequence[Fault]) -> list[Fault]:
    """Join the faults of several operators that have one reason."""
    groups = grouped(
        ((fault.level, fault.word, fault.reason, *fault.labels), fault) for fault in faults
    )
    return [
        replace(
            alike[0],
            op=_operators([fault.op for fault in alike]),
            rows=tuple(
                sorted((row for fault in alike for row in fault.rows), key=attrgetter("line"))
            ),
        )
        for alike in groups.values()
    ]


def _counts(matrix: Matrix) -> Table:
    summaries = matrix.summaries()
    every = [("all", _count_text(matrix.summary()), "")] if len(summaries) > 1 else []
    lines = (
        (label, _count_text(found), _peak_text(found.peak)) for label, found in summaries.items()
    )
    return lines_table([*every, *lines])


def _peak_text(peak: Checked | None) -> str:
    if peak is None:
        return ""
    return say(
        "peak {size} of workspace, line {line}: {op} on {soc}",
        size=bytes_text(peak.workspace_bytes),
        line=peak.line,
        op=peak.op,
        soc=peak.soc,
    )


def _count_text(summary: Summary) -> str:
    names = ("runs", "overflows", "refused", "failed", "malformed", "unknown")
    shown = ((name, getattr(summary, name)) for name in names)
    differs = summary.count != summary.lines
    return say(
        "calls {lines}{weighted}: {counts}{over}{expected}",
        lines=summary.lines,
        weighted=say(" ({count} with their counts)", count=summary.count) if differs else "",
        counts=joined(
            (
                Text("{count} {name}", count=count, name=name)
                for name, count in shown
                if count or name == "runs"
            ),
            ", ",
        ),
        over=say(", {count} over budget", count=summary.over_budget) if summary.over_budget else "",
        expected=say(
            "; {as_expected} match expect, {differ} do not",
            as_expected=summary.as_expected,
            differ=summary.differ,
        )
        if summary.as_expected or summary.differ
        else "",
    )


def _calls(matrix: Matrix) -> Table:
    shown, budget = matrix.rows[:SHOWN_ROWS], matrix.policy.max_workspace
    columns = (
        Column("line", lambda row: str(row.line), right=True),
        Column("", count_text, right=True),
        Column("call", lambda row: row.title, wraps=True),
        *_label_columns(matrix),
    )
    narrow = Group(*(line for row in shown for line in _block(row, budget)))
    return Table(columns, shown, narrow=narrow)


def _label_columns(matrix: Matrix) -> Iterator[Column]:
    """Yield a column of results for every target."""

    def shown(label: str, row: Row) -> str:
        return cell_text(row.cells.get(label), matrix.policy.max_workspace)

    for label in matrix.labels:
        yield Column(label, partial(shown, label))


def _block(row: Row, budget: int | None) -> Iterator[RenderableType]:
    """Yield a call and its results for narrow terminals; targets with equal results are joined."""
    answers = grouped((cell_text(checked, budget), label) for label, checked in row.cells.items())
    yield Paragraph(
        f"{row.line}  {f'{count_text(row)} '.lstrip()}{row.title}", hanging=4, is_line=True
    )
    for text, labels in answers.items():
        yield Paragraph(
            Text("{text}  {labels}", text=text, labels=labels_text(labels)), indent=4, hanging=4
        )


def legend_text(matrix: Matrix) -> str:
    """Return the meaning of the marks in the cells; empty if there are none."""
    used = {fact for _, _, checked in matrix.cells() for fact in MARKS if checked.facts.get(fact)}
    return joined(
        Text("{mark} {meaning}", mark=mark, meaning=meaning)
        for fact, (mark, meaning) in MARKS.items()
        if fact in used
    )


def caveat_lines(matrix: Matrix) -> Iterator[str]:
    """Return the caveats of the calls as sentences, each once."""
    groups = grouped_cells(
        (caveat, row, label)
        for row, label, checked in matrix.cells()
        for caveat in zip(
            checked.facts.get("caveats", ()), checked.facts.get("caveat_messages", ()), strict=True
        )
    )
    for (code, message), (rows, labels) in groups.items():
        yield say(
            "{code}, {lines}, {labels}: {message}",
            code=Verbatim(code),
            lines=lines_text(rows),
            labels=labels_text(labels),
            message=message,
        )


DIFFERENCES = {
    "path": "other path, {lines}: {values}",
    "cores": "other number of cores (sums over cores add in another order), {lines}: {values}",
    "bits": "other bits, {lines}: {values}",
}
"""Sentence for each fact; times are in a table."""
DIFFERENT = {"path": "other path", "cores": "other number of cores"}
"""Facts that do not change bits by themselves, shortened."""


def difference_lines(matrix: Matrix, facts: Collection[str] = tuple(DIFFERENCES)) -> Iterator[str]:
    """Return where the columns differ in path, cores and bits, equal differences once."""
    for found in matrix.differences():
        if found.fact in DIFFERENCES and found.fact in facts:
            parts = (
                Text(
                    "{value} on {labels}",
                    value=value,
                    labels=labels[0] if found.fact == "bits" else labels_text(labels),
                )
                for value, labels in found.values
            )
            yield say(DIFFERENCES[found.fact], lines=lines_text(found.rows), values=joined(parts))


def labels_text(labels: Iterable[str]) -> str:
    """Return targets, those that differ in the release alone together: ``A2, A3 (8.3, 9.1)``."""
    releases = grouped(label.rpartition(" ")[::2] for label in labels)
    heads = grouped((tuple(names), head) for head, names in releases.items())
    groups: list[str] = []
    for found, alike in heads.items():
        if len(found) * len(alike) == 1 or alike == [""]:
            groups += [f"{alike[0]} {name}".strip() for name in found]
        else:
            products, listed = joined(alike, ", "), joined(found, ", ")
            groups.append(Text("{products} ({releases})", products=products, releases=listed))
    return joined(groups, ", ")


def timing_lines(matrix: Matrix) -> Iterator[str]:
    """Return the results that can differ between runs, and the effect of the determinism switch."""
    found = (
        (row, label, checked.facts["timing"], checked.facts.get("deterministic_switch") or {})
        for row, label, checked in matrix.cells()
        if checked.facts.get("timing")
    )
    groups = grouped(
        (
            (row.op, ", ".join(timing), _switch_text(switch)),
            (row, label, switch.get("workspace_bytes_more", 0)),
        )
        for row, label, timing, switch in found
    )
    for (op, outputs, switched), cells in groups.items():
        more = max(size for _, _, size in cells)
        yield say(
            "{count}x {outputs} of {op} can differ between runs on {where}{switched}{workspace}",
            count=sum({row.line: row.count for row, _, _ in cells}.values()),
            outputs=outputs,
            op=op,
            where=labels_text(dict.fromkeys(label for _, label, _ in cells)),
            switched=switched,
            workspace=say(", up to {size} of additional workspace", size=bytes_text(more))
            if more > 0
            else "",
        )


def _switch_text(switch: Mapping[str, Any]) -> str:
    """Return what a call does with deterministic computation; empty if it is not known."""
    if not switch:
        return ""
    if "status" in switch:
        return say(
            "; with deterministic computation refused {status}: {reason}",
            status=switch["status"],
            reason=switch["message"],
        )
    still = ", ".join(switch["timing"] or ())
    return say(
        "; with deterministic computation: path '{switch}'{still}{unknown}",
        switch=switch["path"],
        still=say(", {outputs} still can", outputs=still) if still else "",
        unknown=", unpublished parts" if switch["workspace_unknown"] else "",
    )


def recorded_lines(matrix: Matrix) -> Iterator[str]:
    """Return what the calls of a recording do not cover."""
    if matrix.recorded is None:
        return
    for lost in matrix.recorded.get("not_recognised", ()):
        yield say(
            "not recognised: {count}x {what} {name}: {reason}",
            count=lost["count"],
            what=lost["what"],
            name=lost.get("name", ""),
            reason=lost["why"],
        )
    remarks: Counter[tuple[str, str]] = Counter()
    for remark in matrix.recorded.get("remarks", ()):
        remarks[remark["what"], remark["why"]] += remark["count"]
    for (what, why), count in remarks.items():
        yield say("remark on {count}x {what}: {remark}", count=count, what=what, remark=why)
    kernels = matrix.recorded.get("not_modelled", {})
    if kernels:
        most = sorted(kernels, key=kernels.__getitem__, reverse=True)[:SHOWN_KERNELS]
        yield say(
            "not modelled: {count} kernels of {kinds} kinds; most often {most}",
            count=sum(kernels.values()),
            kinds=len(kernels),
            most=", ".join(f"{name} {kernels[name]}" for name in most),
        )


NOTE = (
    "lower bound: from published rates, nothing is measured; estimate V: busy time of the vector "
    "pipe, not of the launch; both cover the calls above, not the rest of the model"
)
SHARES = (
    "share: of the bounds with the same mark; those of different marks add up to more than 100 %"
)


def totals_table(matrix: Matrix) -> Table:
    """Return the sums of every target; counts are weighted."""
    summaries = matrix.summaries()
    columns = (
        Column("product", lambda item: item[0], wraps=True, key=True),
        Column("calls", lambda item: f"{item[2].count:,}", right=True),
        Column("runs", lambda item: f"{item[1].calls:,}", right=True),
        Column("launches", lambda item: f"{item[1].launches:,}", right=True),
        Column("lower bound", lambda item: _sums_text(item[1]), right=True),
        Column("estimate", lambda item: _estimate_text(item[1].estimates), wraps=True),
        Column(
            "peak workspace",
            lambda item: bytes_text(item[2].peak_bytes) if item[2].peak else "",
            wraps=True,
        ),
    )
    found = [(label, sums, summaries[label]) for label, sums in matrix.totals().items()]
    return Table(columns, found, "Sums")


def _sums_text(sums: Totals) -> str:
    """Return the sums of bounds, each of calls with bounds that cover the same work."""
    if not sums.calls:
        return ""
    bound = bound_cell(sums.bound_us, next(iter(sums.bounds), ""))
    if len(sums.bounds) > 1:
        bound = joined(
            say(
                "{calls}: {time}",
                calls=calls_text(found.calls),
                time=bound_cell(found.bound_us, coverage),
            )
            for coverage, found in sums.bounds.items()
        )
    if not sums.unbounded:
        return bound
    return say("{time}, {count} calls have none", time=bound, count=sums.unbounded)


class Times(NamedTuple):
    """Texts of a call on one target; only the outcome of a call that has no times."""

    outcome: str = ""
    path: str = ""
    launches: str = ""
    workspace: str = ""
    bound: str = ""
    bound_of_all: str = ""
    """Bound of all identical calls."""
    estimate: str = ""


class TimedCall(NamedTuple):
    """A call and the targets on which its texts are equal."""

    row: Row
    times: Times
    labels: list[str]


def calls_table(matrix: Matrix) -> Table:
    """Return the calls and their times, those with the largest bound of all their calls first.

    Targets on which a call has equal cells are one row. Bounds that cover different work have no
    common order: calls with bounds of each coverage follow each other. So do the calls of each
    group, whose shares are those of the group.
    """
    parts = matrix.groups() or {matrix.rows[0].group: matrix}
    sums = {group: part.totals() for group, part in parts.items()}
    found = [
        TimedCall(row, times, labels)
        for part in parts.values()
        for row in sorted(part.rows, key=_place)
        for times, labels in grouped(
            (_times(row, checked), label) for label, checked in row.cells.items()
        ).items()
    ]
    columns = (
        Column("line", lambda call: str(call.row.line), right=True),
        Column("", lambda call: f"{call.row.count:,}x", right=True, key=True),
        Column("call", lambda call: call.row.title, wraps=True, key=True),
        Column("product", lambda call: ", ".join(call.labels), wraps=True, key=True),
        Column("outcome", lambda call: call.times.outcome),
        Column("path", lambda call: call.times.path, wraps=True),
        Column("launches", lambda call: call.times.launches, right=True),
        Column("workspace", lambda call: call.times.workspace, right=True),
        Column("lower bound", lambda call: call.times.bound, right=True),
        Column("all calls", lambda call: call.times.bound_of_all, right=True),
        Column("share", lambda call: _share(call, sums[call.row.group]), right=True),
        Column("estimate", lambda call: call.times.estimate, wraps=True),
    )
    return Table(columns, found, "Calls by their time")


def _share(call: TimedCall, sums: Mapping[str, Totals]) -> str:
    """Return the part of the sum of a target's bounds of one coverage that a row's calls have."""
    label = call.labels[0]
    time = call.row.cells[label].facts.get("time", {})
    if not time.get("bound_us"):
        return ""
    whole = sums[label].bounds[time["coverage"]].bound_us
    return percent_text(call.row.count * time["bound_us"] / whole)


def _place(row: Row) -> tuple[str, float]:
    """Return what orders calls: a coverage of their bounds, ``""`` first, and the largest bound."""
    bounds = _bounds(row)
    coverage = min(bounds, default="")
    return coverage, -row.count * max(bounds.get(coverage, [0.0]))


def _bounds(row: Row) -> dict[str, list[float]]:
    """Return the bounds of a row's calls by their coverage; 0 for calls without one."""
    times = (cell.facts["time"] for cell in row.cells.values() if "time" in cell.facts)
    return grouped((time["coverage"], time["bound_us"] or 0.0) for time in times)


def _times(row: Row, checked: Checked) -> Times:
    """Return the texts of a call on one target."""
    if checked.outcome != RUNS or "time" not in checked.facts:
        return Times(checked.label)
    time = checked.facts["time"]
    bound = time["bound_us"]
    return Times(
        path=checked.facts["path"],
        launches=str(time["launches"]),
        workspace=short_bytes_text(checked.workspace_bytes),
        bound="" if bound is None else bound_cell(bound, time["coverage"]),
        bound_of_all="" if bound is None else bound_cell(row.count * bound, time["coverage"]),
        estimate=_estimate_text(time["estimates"]),
    )


def _estimate_text(estimates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sums of the estimates: ``V 36.0 us to 44.0 us of 5 launches``."""
    return joined(
        [
            Text(
                "{kind}{low} to {high}{launches}",
                kind="V " if kind == "vector pipe" else "",
                low=time_text(part["low_us"]),
                high=time_text(part["high_us"]),
                launches=say(" of {count} launches", count=part["launches"])
                if part["launches"] > 1
                else "",
            )
            for kind, part in estimates.items()
        ]
    )


def call_times_view(matrix: Matrix) -> Group:
    """Return the times of a file of calls as a rich renderable."""
    return stack(Paragraph(headline(matrix), "bold"), *times_parts(matrix), *notes(matrix))


def time_notes(matrix: Matrix) -> list[str]:
    """Return the meaning of the times, and why bounds that cover less are apart."""
    if not matrix.timed:
        return []
    totals = matrix.totals().values()
    marked = coverage_lines(coverage for sums in totals for coverage in sums.bounds)
    return [NOTE, *marked, SHARES] if marked else [NOTE]


def _all_calls(matrix: Matrix) -> str:
    """Return the number of calls, and of distinct ones."""
    return calls_text(sum(row.count for row in matrix.rows), len(matrix.rows))


def headline(matrix: Matrix) -> str:
    """Return calls and lower bounds in one sentence, without bounds that are not compared."""
    calls = _all_calls(matrix)
    compared = matrix.compared()
    if compared is not None and not _is_comparable(matrix, compared):
        return compared_sentence(calls, compared)
    totals = matrix.totals()
    bounds = [
        Text("{time} on {label}", time=_covered_times(sums), label=label)
        for label, sums in totals.items()
        if sums.bounds
    ]
    without = [label for label, sums in totals.items() if not sums.bounds]
    none = say("no call has a bound on {labels}", labels=labels_text(without))
    if not bounds:
        return say("{calls}: {none}", calls=calls, none=none)
    return say(
        "{calls}: at least {bounds}{rest}",
        calls=calls,
        bounds=joined(bounds, ", "),
        rest=Text("; {none}", none=none) if without else "",
    )


def _is_comparable(matrix: Matrix, compared: Comparison) -> bool:
    """Return whether the sums of all columns have the same calls and count the same work."""
    sums = (matrix.totals()[label] for label in compared.bounds_us)
    return not compared.copies_alone and all(found.calls == compared.calls for found in sums)


def _covered_times(sums: Totals) -> str:
    """Return the sum of all bounds, and how much of it leaves out computation."""
    if len(sums.bounds) == 1:
        (coverage,) = sums.bounds
        return covered_time(sums.bound_us, coverage)
    partial_us = sum(found.bound_us for coverage, found in sums.bounds.items() if coverage)
    return Text(
        "{time} ({partial} of it {coverages})",
        time=time_text(sums.bound_us),
        partial=time_text(partial_us),
        coverages=joined(filter(None, sums.bounds), ", "),
    )


def group_lines(matrix: Matrix) -> list[Line]:
    """Return the lower bounds of every group of calls, such as prefill and decode."""
    return [
        (group or say("no group"), headline(part), "") for group, part in matrix.groups().items()
    ]


def times_parts(matrix: Matrix) -> list[RenderableType]:
    """Return the sums and the calls with their times, each after a gap; nothing without times."""
    if not matrix.timed:
        return []
    calls = calls_table(matrix)
    compared = matrix.compared()
    return [
        "",
        totals_table(matrix),
        *after_gap(lines_table([] if compared is None else [compared_line(compared)])),
        *after_gap(lines_table(group_lines(matrix))),
        "",
        replace(calls, rows=calls.rows[:SHOWN_ROWS]),
        *_more_calls(len(calls.rows)),
        "",
        *(Paragraph(line, "dim") for line in time_notes(matrix)),
    ]


@view_of.register
def preflight_view(matrix: Matrix) -> Group:
    """Return a preflight as a rich renderable: its times if it has them, else its outcomes."""
    return call_times_view(matrix) if matrix.timed else matrix_view(matrix)


RECORDED_KERNELS = 12


def recording_view(recording: Mapping[str, Any], file: str) -> RenderableType:
    """Return a recording as a rich renderable; ``file`` is where its calls were written."""
    calls, kernels = recording["calls"], recording["not_modelled"]
    columns = (
        COUNT,
        Column("op", lambda call: call["op"], key=True),
        Column("inputs", _inputs, wraps=True, plain=True),
        Column("called from", lambda call: call.get("name", ""), wraps=True),
    )
    shown = [f"{name} {count}" for name, count in list(kernels.items())[:RECORDED_KERNELS]]
    more = (
        say(", and {kernels} more kinds", kernels=len(kernels) - RECORDED_KERNELS)
        if len(kernels) > RECORDED_KERNELS
        else ""
    )
    texts = (
        ("forked processes made calls that are not recorded: {processes}", "processes"),
        ("started processes are not recorded: {processes}", "spawned"),
    )
    unrecorded = (
        after_gap(say(text, processes=", ".join(recording[name])))
        for text, name in texts
        if recording.get(name)
    )
    return stack(
        say(
            "{calls}, in {file}",
            calls=calls_text(sum(call["count"] for call in calls), len(calls)),
            file=visible(str(file)),
        ),
        *after_gap(Table(columns, calls)),
        *after_gap(listed_code("not recognised", recording["not_recognised"])),
        *after_gap(listed_code("remark on", recording.get("remarks", ()))),
        *(part for parts in unrecorded for part in parts),
        *after_gap(
            say("not modelled: {shown}{more}", shown=", ".join(shown), more=more) if shown else ""
        ),
        "",
        say(
            "next: npu-sim preflight {file} --products all",
            file=Verbatim(quote(visible(str(file)))),
        ),
    )


COUNT = Column("count", lambda entry: f"{entry['count']}x", right=True, key=True)
"""Column of how often a recording has what a row shows."""


def _inputs(call: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in call["inputs"].items())


def listed_code(title: str, entries: Iterable[Mapping[str, Any]], caption: str = "") -> Table:
    """Return a table of code with a reason and a place."""
    columns = (
        COUNT,
        Column(title, lambda entry: entry["what"], key=True),
        Column("why", lambda entry: entry["why"], wraps=True, plain=True),
        Column("called from", called_from, wraps=True),
    )
    return Table(columns, list(entries), caption)


def called_from(entry: Mapping[str, Any]) -> str:
    """Return the module or the line that a place names."""
    place = f"{entry['file']}:{entry['line']}" if "file" in entry else ""
    return entry.get("name") or place


LEVELS = {ERROR: "fails", INFORMATIONAL: "does not count", ACCEPTED: "in the baseline"}


@document_of.register
def preflight_report(matrix: Matrix, file: str = "", command: str = "") -> Document:
    """Return the report of a preflight; with times it begins with where they go.

    - ``file``: name of the calls.
    - ``command``: command that reproduces the report.
    """
    file = PurePath(file).name or say("calls")
    if matrix.timed:
        title, sentence = say("{file}: calls and times", file=file), headline(matrix)
        sections = _times_sections(matrix)
    else:
        title, sentence = say("{file}: preflight", file=file), _checked_text(matrix)
        sections = _checked_sections(matrix)
    bad = sum(summary.not_fine for summary in matrix.summaries().values())
    unknown = sum(summary.unknown for summary in matrix.summaries().values())
    tone = "neutral" if unknown else "good"
    outcome = say("{bad} not accepted", bad=bad) if bad else say("all accepted")
    if unknown:
        outcome += say("; {unknown} not modelled, so unknown", unknown=unknown)
    return Document(
        title,
        say("{file}: {sentence}; {outcome}", file=file, sentence=sentence, outcome=outcome),
        sections,
        command,
        tone="bad" if bad else tone,
    )


def _checked_text(matrix: Matrix) -> str:
    return say("{calls}, on {labels}", calls=_all_calls(matrix), labels=labels_text(matrix.labels))


def _checked_sections(matrix: Matrix) -> tuple[Section, ...]:
    tables = (_faults_table(matrix), _targets_table(matrix), _cells_table(matrix))
    return filled(
        *((table.caption, [replace(table, caption="")]) for table in tables),
        ("Notes", map(Paragraph, _notes(matrix, difference_lines(matrix)))),
    )


def _times_sections(matrix: Matrix) -> tuple[Section, ...]:
    bits = map(Paragraph, difference_lines(matrix, ["bits"]))
    return filled(
        ("Where the time goes", _time_blocks(matrix)),
        (
            "Not accepted" if matrix.faults() else "Not counted",
            [replace(_faults_table(matrix), caption="")],
        ),
        ("What differs", [differences_table(matrix), *bits]),
        ("Sums", [replace(totals_table(matrix), caption="")]),
        (
            "Every call",
            [replace(table, folded=True) for table in (calls_table(matrix), _cells_table(matrix))],
        ),
        ("Notes", map(Paragraph, _notes(matrix, time_notes(matrix)))),
    )


def _time_blocks(matrix: Matrix) -> Iterator[Block]:
    """Yield how the products compare, and the bounds of every operator as a picture."""
    compared = matrix.compared()
    if compared is not None:
        _, bounds, meaning = compared_line(compared)
        yield Paragraph(Text("{bounds}: {meaning}", bounds=bounds, meaning=meaning))
    if not any(sums.bound_us for sums in matrix.totals().values()):
        return
    groups = matrix.groups()
    if not groups:
        yield time_bars(matrix)
    for (group, sentence, _), part in zip(group_lines(matrix), groups.values(), strict=True):
        yield Paragraph(Text("{group}: {sentence}", group=group, sentence=sentence))
        yield time_bars(part)


def _notes(matrix: Matrix, first: Iterable[str]) -> list[str]:
    """Return the remarks at the end of a report; ``first`` are those of its kind."""
    return [
        *first,
        *filter(None, [legend_text(matrix)]),
        *caveat_lines(matrix),
        *timing_lines(matrix),
        *recorded_lines(matrix),
    ]


def differences_table(matrix: Matrix) -> Table:
    """Return path and cores of the calls that differ in them or in their outcome, by column."""
    found = grouped(
        ((row.op, *(_way_text(row.cells.get(label)) for label in matrix.labels)), row)
        for row in matrix.rows
    )
    different = [(ways, rows) for (_, *ways), rows in found.items() if len(set(ways)) > 1]

    def calls(item: tuple[list[str], list[Row]]) -> str:
        _, rows = item
        return Text("{op}, {lines}", op=Verbatim(rows[0].op), lines=lines_text(rows))

    columns = [Column("calls", calls, wraps=True, key=True)]
    for number, label in enumerate(matrix.labels):
        columns.append(Column(label, partial(_way_of, number), wraps=True))
    return Table(columns, different)


def _way_of(number: int, item: tuple[list[str], list[Row]]) -> str:
    return item[0][number]


def _way_text(checked: Checked | None) -> str:
    """Return path and cores of a call that runs, or its outcome."""
    if checked is None or checked.outcome != RUNS:
        return "" if checked is None else checked.label
    path, cores = checked.facts.get("path"), checked.facts.get("block_dim")
    return Text("{path}, {cores} cores", path=path, cores=cores) if path else checked.label


def _targets_table(matrix: Matrix) -> Table:
    columns = (
        Column("target", lambda item: item[0]),
        Column("calls", lambda item: item[1].lines),
        Column("run", lambda item: item[1].runs),
        Column("overflow", lambda item: item[1].overflows or ""),
        Column("refused", lambda item: item[1].refused),
        Column("no tiling", lambda item: item[1].failed),
        Column("malformed", lambda item: item[1].malformed),
        Column("unknown", lambda item: item[1].unknown),
        Column("not accepted", lambda item: item[1].not_fine),
        Column(
            "peak workspace",
            lambda item: short_bytes_text(item[1].peak_bytes) if item[1].peak else "",
        ),
    )
    return Table(columns, list(matrix.summaries().items()), "Targets")


def _cells_table(matrix: Matrix) -> Table:
    columns = (
        Column("line", lambda row: row.line),
        Column("count", lambda row: row.count),
        Column("name", lambda row: str(row.remarks.get("name", ""))),
        Column("operator", lambda row: row.op),
        Column("inputs", lambda row: row.inputs),
        *_label_columns(matrix),
    )
    return Table(columns, matrix.rows, "Calls: workspace, or the code")


def _faults_table(matrix: Matrix) -> Table:
    columns = (
        Column("level", lambda fault: LEVELS[fault.level]),
        Column("fault", lambda fault: fault.word),
        Column("operator", lambda fault: fault.op),
        Column("where", lambda fault: lines_text(fault.rows)),
        Column("targets", lambda fault: ", ".join(fault.labels)),
        Column("why", lambda fault: fault.reason),
    )
    faults = [fault for level in LEVELS for fault in matrix.faults(level)]
    return Table(columns, faults, "Not accepted")
