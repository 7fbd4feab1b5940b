"""Timelines as text: the bound first, then what binds, then what is not in it."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from npu_sim.plans.answers import Evidence
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, render, stack
from npu_sim.show.socs import socs_text
from npu_sim.show.text import Line
from npu_sim.status import AclnnError
from npu_sim.timelines.model import Change, LaunchEstimate, LaunchTime, ModePrice, Timeline, VectorEstimate

SAID_SHARE = 0.05
"""Bank conflicts are said from this share of an estimate on."""
NOT_MEASURED = "lower bound from published rates; nothing here is measured"
COLUMNS = (
    Column("call", key=True, wraps=True),
    Column("SoC", key=True),
    Column("MHz", right=True),
    Column("lower bound", right=True),
    Column("estimate"),
    Column("largest launch"),
    Column("busy share of the kernel"),
    Column("imbalance", right=True),
)


def short_us(value: float) -> str:
    """Return microseconds with three decimals at most."""
    return f"{value:.3f} us" if value < 1000 else f"{value:.1f} us"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"


def busy_text(timeline: Timeline) -> str:
    """Return how busy every pipe of the slowest core is."""
    return ", ".join(f"{pipe} {percent(share)}" for pipe, share in timeline.busy_share.items())


def timeline_lines(timeline: Timeline) -> list[Line]:
    """Return one timeline as labelled lines: the call, its launches, what would be faster, the planned kernels, what is left out."""
    clock = f"{timeline.clock} {timeline.clock_mhz:g} MHz; no execution of this call can be faster"
    lines: list[Line] = [("lower bound", short_us(timeline.bound_us), clock)]
    lines += [("estimate" if number == 0 else "", *line) for number, line in enumerate(_estimates(timeline))]
    lines += [_launch_line(number, launch) for number, launch in enumerate(timeline.launches)]
    lines += [_change_line(change) for change in timeline.changes]
    lines += determinism_lines(timeline.determinism)
    return lines + _kernel_lines(timeline) + caution_lines(timeline)


def about_us(value: float) -> str:
    """Return microseconds in two digits at least, no more of them than an estimate can have."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def estimate_text(estimate: VectorEstimate | LaunchEstimate) -> str:
    """Return an estimate with its range: ``vector pipe about 40 us (36 to 44)``."""
    limits = f"{about_us(estimate.low_us)} to {about_us(estimate.high_us)}"
    if isinstance(estimate, VectorEstimate):
        return f"vector pipe about {about_us(estimate.vector_us)} us ({limits})"
    return f"{limits} us" if estimate.us is None else f"about {about_us(estimate.us)} us ({limits})"


def estimate_note(estimate: VectorEstimate | LaunchEstimate) -> str:
    """Return what an estimate rests on, and what of it a user can change."""
    if isinstance(estimate, LaunchEstimate):
        return f"{estimate.evidence}, if yours is like one of them" if estimate.us is None else estimate.evidence
    conflicts = f", {estimate.conflict_share:.0%} bank conflicts" if estimate.conflict_share >= SAID_SHARE else ""
    doubt = f"; {estimate.note}" if estimate.note else ""
    return f"{estimate.startup_share:.0%} of it instruction start-up{conflicts}; {estimate.evidence}{doubt}"


def launch_estimates(launches: Sequence[LaunchTime]) -> list[tuple[str, str]]:
    """Return every estimate of a call's launches with its kernel, and what it rests on."""
    said = [(launch.kernel, launch.estimate) for launch in launches if launch.estimate is not None]
    return [(f"{kernel}: {estimate_text(estimate)}", estimate_note(estimate)) for kernel, estimate in said]


def _estimates(timeline: Timeline) -> list[tuple[str, str]]:
    """Return what can be said beyond the bound: of the call where every launch has an estimate, and of its launches."""
    call = [] if timeline.estimate_us is None else [(call_estimate_text(timeline), "sum of the launches")]
    return call + launch_estimates(timeline.launches)


def call_estimate_text(timeline: Timeline) -> str:
    """Return the estimate of a call whose launches all have one, with its range."""
    ranges = [(launch.estimate.low_us, launch.estimate.high_us) for launch in timeline.launches if launch.estimate is not None]
    low, high = (sum(ends) for ends in zip(*ranges, strict=True))
    return f"about {about_us(timeline.estimate_us or 0.0)} us ({about_us(low)} to {about_us(high)})"


def estimate_cell(timeline: Timeline) -> str:
    """Return the estimate of a call, or of the one launch that has one, for a table; empty without any."""
    if timeline.estimate_us is not None:
        return call_estimate_text(timeline)
    said = [launch.estimate for launch in timeline.launches if launch.estimate is not None]
    return "" if not said else estimate_text(said[0]).replace("vector pipe", "V") if len(said) == 1 else f"of {len(said)} launches"


def evidence_of_estimates(timelines: Sequence[Timeline]) -> str:
    """Return what the estimates of a comparison are and rest on; empty without any."""
    said = [launch.estimate.evidence for one in timelines for launch in one.launches if launch.estimate is not None]
    return f"estimates (V: busy time of the vector pipe, not of the launch): {'; '.join(dict.fromkeys(said))}" if said else ""


def _launch_line(number: int, launch: LaunchTime) -> Line:
    how = f"{launch.binds} binds" if launch.planned else f"{launch.binds} {max(launch.read_bytes, launch.written_bytes)} bytes"
    doubt = "" if launch.evidence is Evidence.EXACT else f"; {launch.evidence.value}"
    label = "launches" if number == 0 else ""
    if not launch.binds:
        return label, f"{launch.kernel}: counted 0", f"no AI core runs it{doubt}"
    return label, f"{launch.kernel}: {short_us(launch.us)}", f"{percent(launch.share)}; {how}{doubt}"


def _change_line(change: Change) -> Line:
    gone = f"; without {', '.join(change.without)}" if change.without else ""
    note = f"; {change.note}" if change.note else ""
    saved = f"{percent(abs(change.saved_share))} {'less' if change.saved_share >= 0 else 'more'}"
    return "changed", change.change, f"at least {short_us(change.bound_us)}, {saved}{note}{gone}"


BOUNDS_ONLY = "bounds do not say which mode is faster"


def determinism_lines(prices: Sequence[ModePrice]) -> list[Line]:
    """Return what deterministic computation costs in one line: launches, workspace and bound with the switch off and on."""
    if not prices:
        return []
    unknown = dict.fromkeys(kernel for price in prices for kernel in price.unbounded)
    note = f"{', '.join(unknown)} not published, so no time stated" if unknown else BOUNDS_ONLY
    return [("determinism", "; ".join(_price_text(price) for price in prices), note)]


def _price_text(price: ModePrice) -> str:
    switch = "on" if price.deterministic else "off"
    launches = f"{price.launches} launch" if price.launches == 1 else f"{price.launches} launches"
    workspace = " + ".join((f"{price.workspace_bytes} bytes", *(f"unknown {name}" for name in price.workspace_unknown)))
    bound = "no time" if price.bound_us is None else f"at least {short_us(price.bound_us)}"
    return f"{switch}: {launches}, {workspace}, {bound}"


def _kernel_lines(timeline: Timeline) -> list[Line]:
    """Return what is known of the kernels that are planned; nothing when none is."""
    slowest = max(timeline.cores, key=lambda core: core.us, default=None)
    if slowest is None:
        return []
    lines: list[Line] = [
        (
            "kernel",
            f"{short_us(timeline.kernel_us)}, {timeline.binding_pipe or 'nothing'} binds",
            f"what the plan knows in tiles; slowest core {slowest.core}: {busy_text(timeline)} of this",
        ),
        ("copies", percent(timeline.copy_share), "of the kernel's bound, the busiest copy pipe of the slowest core"),
        ("imbalance", f"{timeline.imbalance:.3f}", f"slowest over mean of {len(timeline.cores)} cores"),
        ("traffic", f"{timeline.read_bytes} bytes read, {timeline.written_bytes} written", "by the kernel, padded to 32-byte blocks"),
    ]
    if len(timeline.phases) > 1:
        lines += [
            ("phase", f"{phase.name} {short_us(phase.us)}", f"{phase.binding_pipe} binds on core {phase.slowest_core}")
            for phase in timeline.phases
        ]
    return lines


def caution_lines(timeline: Timeline) -> list[Line]:
    """Return what the bound leaves out and takes for granted."""
    lines: list[Line] = []
    if timeline.unknown_rates:
        lines.append(("unknown", ", ".join(timeline.unknown_rates), "no published rate: counted 0"))
    if timeline.not_counted:
        lines.append(("left out", ", ".join(timeline.not_counted), "not published: counted 0"))
    if timeline.assumptions:
        lines.append(("assumed", ", ".join(timeline.assumptions), "data a plan cannot know"))
    return lines


def largest_text(timeline: Timeline) -> str:
    """Return the launch with the largest share of the bound: ``MemSet 45 % of 6``."""
    largest = max(timeline.launches, key=lambda launch: launch.us, default=None)
    return f"{largest.kernel} {100 * largest.share:.0f} % of {len(timeline.launches)}" if largest else ""


def _cells(timeline: Timeline) -> tuple[str, ...]:
    """Return one timeline as the cells of a comparison behind call and SoC."""
    busy = " ".join(f"{pipe} {100 * share:.0f}%" for pipe, share in timeline.busy_share.items())
    return (
        f"{timeline.clock_mhz:g}",
        short_us(timeline.bound_us),
        estimate_cell(timeline),
        largest_text(timeline),
        busy,
        f"{timeline.imbalance:.3f}",
    )


def timeline_text(timeline: Timeline, width: int | None = None) -> str:
    """Return one timeline as text."""
    return render(timeline_view(timeline), width)


def timeline_view(timeline: Timeline) -> Group:
    """Return one timeline as something rich can print."""
    headline = f"{timeline.title} on {timeline.soc}: at least {short_us(timeline.bound_us)}"
    return stack(Paragraph(headline, "bold green"), "", lines_table(timeline_lines(timeline)))


def timelines_view(compared: Sequence[tuple[str, str, Timeline | AclnnError]]) -> Group:
    """Return timelines side by side as something rich can print: the name of the call, the SoC, and what became of it.

    SoCs on which nothing differs share a row; refusals stand below, each reason once.
    """
    shown = [one for _, _, one in compared if isinstance(one, Timeline)]
    fastest = min(shown, key=lambda one: one.bound_us)
    socs: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for name, soc, one in compared:
        if isinstance(one, Timeline):
            cells = _cells(one)
        else:
            cells = ("", f"refused {int(one.status)}")
            reasons.setdefault(one.message, {})[f"{name}, {soc}"] = None
        socs.setdefault((name, cells), []).append(soc)
    rows = [(name, socs_text(alike), *cells) for (name, cells), alike in socs.items()]
    headline = Paragraph(f"{fastest.title}: lowest bound {short_us(fastest.bound_us)} on {fastest.soc}", "bold green")
    parts: list[RenderableType] = [headline, "", Table(COLUMNS, rows)]
    if reasons:
        parts += ["", lines_table(("refused", reason, "; ".join(where)) for reason, where in reasons.items())]
    parts += ["", Paragraph(NOT_MEASURED, "dim")]
    evidence = evidence_of_estimates(shown)
    if evidence:
        parts.append(Paragraph(evidence, "dim"))
    cautions = dict.fromkeys(line for one in shown for line in caution_lines(one))
    return stack(*parts, *(Paragraph(f"{label}: {value} ({note})", "dim") for label, value, note in cautions))
