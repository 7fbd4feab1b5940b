"""Timelines as text: the bound first, then what binds, then what is not in it."""

from npu_sim.show.text import Line, lines_table, render
from npu_sim.timelines.model import Timeline

NOT_MEASURED = "lower bound from published rates; nothing here is measured"
HEADINGS = ("call", "SoC", "MHz", "lower bound", "binds", "busy share of the bound", "imbalance")


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
    """Return one timeline as labelled lines."""
    slowest = max(timeline.cores, key=lambda core: core.us, default=None)
    lines: list[Line] = [
        (
            "lower bound",
            short_us(timeline.bound_us),
            f"{timeline.clock} {timeline.clock_mhz:g} MHz; no execution of this plan can be faster",
        ),
        (
            "binds",
            timeline.binding_pipe or "nothing",
            f"slowest core {slowest.core}: {busy_text(timeline)} of the bound" if slowest else "",
        ),
        ("copies", percent(timeline.copy_share), "of the bound, the busiest copy pipe of the slowest core"),
        ("imbalance", f"{timeline.imbalance:.3f}", f"slowest over mean of {len(timeline.cores)} cores"),
        ("traffic", f"{timeline.read_bytes} bytes read, {timeline.written_bytes} written", "padded to 32-byte blocks"),
    ]
    if len(timeline.phases) > 1:
        lines += [
            ("phase", f"{phase.name} {short_us(phase.us)}", f"{phase.binding_pipe} binds on core {phase.slowest_core}")
            for phase in timeline.phases
        ]
    return lines + caution_lines(timeline)


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


def table_row(name: str, timeline: Timeline) -> tuple[str, ...]:
    """Return one timeline as a row of a comparison, under ``HEADINGS``."""
    busy = " ".join(f"{pipe} {100 * share:.0f}%" for pipe, share in timeline.busy_share.items())
    return (
        name,
        timeline.soc,
        f"{timeline.clock_mhz:g}",
        short_us(timeline.bound_us),
        timeline.binding_pipe,
        busy,
        f"{timeline.imbalance:.3f}",
    )


def timeline_text(timeline: Timeline, width: int | None = None) -> str:
    """Return one timeline as text."""
    headline = f"{timeline.title} on {timeline.soc}: at least {short_us(timeline.bound_us)}"
    return f"{headline}\n\n{render(lines_table(timeline_lines(timeline)), width)}"
