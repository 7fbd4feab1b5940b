"""The device kit: what was written, and what a device's results show, as text and as a report."""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from rich.console import RenderableType

from npu_sim.framework.describing import counted
from npu_sim.language import Text, Verbatim, calls_text, joined, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import (
    SIMULATED,
    Column,
    Document,
    Lines,
    Paragraph,
    Table,
    after_gap,
    filled,
    lines_table,
    stack,
)
from npu_sim.tools.device_kit.answers import Kit, KitCheck
from npu_sim.tools.device_kit.ttk.folder import TtkKit

MOST_FINDINGS = 20
"""Findings that the text lists; the report has all."""
MIB = 1 << 20
SIMULATOR = "npusim"
MEASURED = "Results were computed on a device; plans, bounds and verdicts are simulated."
OF_SIMULATOR = "Results were computed in the vendor's simulator; plans and verdicts are of npu_sim."


@view_of.register
def kit_view(answer: Kit) -> RenderableType:
    """Return what was written, and what to do with it."""
    written = Text(
        "kit for {soc}, release {release}: {calls}, {operators}, {mib:.0f} MiB of inputs made on "
        "the device",
        soc=answer.soc,
        release=answer.release,
        calls=calls_text(sum(answer.calls.values())),
        operators=counted(len(answer.calls), "operator"),
        mib=answer.bytes / MIB,
    )
    return stack(
        Paragraph(written, "bold"),
        *_left_out(answer),
        Text("rehearse: npu-sim kit --rehearse {folder}", folder=Verbatim(quote(answer.folder))),
        Text(
            "next: copy {name} to a machine with an {soc} and torch_npu, run: python "
            "run_on_device.py; then npu-sim kit --check {folder}",
            name=answer.folder,
            folder=Verbatim(quote(answer.folder)),
            soc=answer.soc,
        ),
    )


def _left_out(answer: Kit) -> Iterator[RenderableType]:
    if answer.left_out:
        yield Text("left out: {lines}", lines=counted(len(answer.left_out), "line"))
        yield from (Paragraph(text, indent=2) for text in answer.left_out[:5])


@view_of.register
def ttk_view(answer: TtkKit) -> RenderableType:
    """Return what was written for the operator test kit, and what to do with it."""
    written = Text(
        "kit for {soc}, release {release}: {cases} of {operators}, {mib:.0f} MiB, for the vendor's "
        "operator test kit",
        soc=answer.soc,
        release=answer.release,
        cases=counted(sum(answer.calls.values()), "case"),
        operators=counted(len(answer.calls), "operator"),
        mib=answer.bytes / MIB,
    )
    return stack(
        Paragraph(written, "bold"),
        *_left_out(answer),
        Text("next, where its toolkit (9.1 or later) is installed, in its own folder:"),
        Verbatim(answer.command),
        Text("then: npu-sim kit --check {folder}", folder=Verbatim(quote(answer.folder))),
    )


def headline(answer: KitCheck) -> str:
    """Return device, versions and the number of calls."""
    calls = len({mode.number for mode in answer.modes}) + len(answer.missing)
    if answer.is_rehearsal:
        text = "rehearsal: npu_sim played an {soc}, {calls}; this says nothing of a device"
        return Text(text, soc=answer.soc, calls=calls_text(calls))
    if answer.backend:
        text = (
            "the vendor's simulator, {soc}, CANN {cann}: {calls}"
            if answer.backend == SIMULATOR
            else "operator test kit on {soc}, CANN {cann}: {calls}"
        )
        device = answer.device
        return Text(text, soc=device["soc"], cann=device["cann"], calls=calls_text(calls))
    return Text(
        "{soc}, CANN {cann}, torch_npu {torch_npu}: {calls}",
        soc=answer.device.get("soc", "?"),
        cann=answer.device.get("cann", "?"),
        torch_npu=answer.device.get("torch_npu", "?"),
        calls=calls_text(calls),
    )


def lines_of(answer: KitCheck) -> Lines:
    """Yield bits, cores, status and time in one line each."""
    counts = answer.counts
    bits = Text(
        "{confirmed} as computed or reachable, {open} undecided, {impossible} impossible, "
        "{not_run} not run, {not_judged} not judged, {unreadable} unreadable",
        confirmed=counts["equal"] + counts["reachable"],
        open=counts["undecided"],
        impossible=counts["unreachable"],
        not_run=counts["not run"],
        not_judged=counts["not judged"],
        unreadable=counts["unreadable"],
    )
    yield "bits", bits
    if not answer.backend:
        yield from _launches(answer)
    numbers = joined(map(str, answer.missing[:MOST_FINDINGS]), ", ")
    if numbers:
        yield "missing", Text("no results of the calls {numbers}", numbers=numbers)
    for line in answer.unreadable[:5]:
        yield "unreadable", line


def _launches(answer: KitCheck) -> Lines:
    """Yield what a device shows beside bits: cores, status and time."""
    cores = [mode.cores == mode.planned_cores for mode in answer.modes if mode.cores is not None]
    status = [m.status == m.planned_status for m in answer.modes if m.status is not None]
    timed = [mode for mode in answer.modes if mode.us is not None and mode.bound_us]
    time = Text(
        "{below} of {of} below their bound",
        below=sum((mode.us or 0.0) < (mode.bound_us or 0.0) for mode in timed),
        of=len(timed),
    )
    errors = [mode.estimate_error for mode in timed if mode.estimate_error is not None]
    if errors:
        text = "{text}; vector estimates {low:+.0%} to {high:+.0%}"
        time = Text(text, text=time, low=min(errors), high=max(errors))
    yield "cores", _as_planned(cores)
    yield "status", _as_planned(status)
    yield "time", time


def _as_planned(agree: Sequence[bool]) -> str:
    text = "{count} of {of} as planned" if agree else "not measured"
    return Text(text, count=sum(agree), of=len(agree))


def findings_of(answer: KitCheck) -> list[tuple[str, str]]:
    """Return what is not as planned: the call, and a sentence."""
    return [
        *(("device", finding) for finding in answer.findings),
        *(
            (
                Text("call {number}", number=mode.number),
                Text(
                    "{operator} {arguments}, deterministic: {finding}"
                    if mode.deterministic
                    else "{operator} {arguments}: {finding}",
                    operator=mode.operator,
                    arguments=mode.arguments,
                    finding=finding,
                ),
            )
            for mode in answer.modes
            for finding in mode.findings
        ),
    ]


@view_of.register
def check_view(answer: KitCheck) -> RenderableType:
    """Return the verdicts as text, with what is not as planned."""
    found = findings_of(answer)
    hidden = len(found) - MOST_FINDINGS
    more = [Text("{count} more: --report", count=hidden)] if hidden > 0 else []
    return stack(
        Paragraph(headline(answer), "bold"),
        lines_table(lines_of(answer)),
        *after_gap(lines_table(found[:MOST_FINDINGS])),
        *more,
        Text("nothing is written: a rehearsal is no evidence")
        if answer.is_rehearsal
        else Text("written: {folder}/evidence.jsonl", folder=answer.folder),
    )


def _cores(mode: Any) -> str:
    return "" if mode.cores is None else f"{mode.cores} / {mode.planned_cores}"


@document_of.register
def check_document(answer: KitCheck) -> Document:
    """Return the report: the verdicts, what is not as planned, and every call."""
    columns = (
        Column("call", lambda mode: mode.number),
        Column("operator", lambda mode: mode.operator),
        Column("deterministic", lambda mode: say("on") if mode.deterministic else say("off")),
        Column("verdict", lambda mode: say(mode.verdict)),
        Column("cores", _cores),
        Column("time", lambda mode: "" if mode.us is None else f"{mode.us:.3g} us"),
        Column("bound", lambda mode: f"{mode.bound_us:.3g} us" if mode.bound_us else ""),
        Column("path", lambda mode: mode.path),
    )
    sections = filled(
        (say("Verdicts"), [lines_table(lines_of(answer))]),
        (say("Not as planned"), [lines_table(findings_of(answer))]),
        (say("Calls"), [Table(columns, answer.modes)]),
    )
    title = headline(answer)
    measured = OF_SIMULATOR if answer.backend == SIMULATOR else MEASURED
    origin = SIMULATED if answer.is_rehearsal else measured
    tone = "bad" if answer.contradicted else "good"
    return Document(title, title, sections, "", tone, origin)
