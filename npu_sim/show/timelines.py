"""Timelines as text: the bound first, then what binds, then what is not in it."""

from npu_sim.plans.answers import Evidence
from npu_sim.show.text import Line, lines_table, render
from npu_sim.timelines.model import Change, LaunchTime, Timeline

NOT_MEASURED = "lower bound from published rates; nothing here is measured"
HEADINGS = ("call", "SoC", "MHz", "lower bound", "largest launch", "busy share of the kernel", "imbalance")


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
    lines += [_launch_line(number, launch) for number, launch in enumerate(timeline.launches)]
    lines += [_change_line(change) for change in timeline.changes]
    return lines + _kernel_lines(timeline) + caution_lines(timeline)


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


def table_row(name: str, timeline: Timeline) -> tuple[str, ...]:
    """Return one timeline as a row of a comparison, under ``HEADINGS``."""
    busy = " ".join(f"{pipe} {100 * share:.0f}%" for pipe, share in timeline.busy_share.items())
    return (
        name,
        timeline.soc,
        f"{timeline.clock_mhz:g}",
        short_us(timeline.bound_us),
        largest_text(timeline),
        busy,
        f"{timeline.imbalance:.3f}",
    )


def timeline_text(timeline: Timeline, width: int | None = None) -> str:
    """Return one timeline as text."""
    headline = f"{timeline.title} on {timeline.soc}: at least {short_us(timeline.bound_us)}"
    return f"{headline}\n\n{render(lines_table(timeline_lines(timeline)), width)}"
