"""Bounds and estimates of time as sentences, lines and cells."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from npu_sim.language import Text, Verbatim, bytes_text, joined, percent_text, say, time_text
from npu_sim.plans.answers import Evidence
from npu_sim.show.text import Line
from npu_sim.timelines.bounds import COPIES_ONLY
from npu_sim.timelines.model import (
    Change,
    Estimate,
    LaunchEstimate,
    LaunchTime,
    ModePrice,
    Timeline,
    VectorEstimate,
)

SHOWN_SHARE = 0.05
"""Minimum fraction of an estimate from which bank conflicts are reported."""
NOT_MEASURED = "lower bound from published rates; nothing here is measured"


def busy_text(
    timeline: Timeline, share_text: Callable[[float], str] = percent_text, separator: str = ", "
) -> str:
    """Return the busy fraction of each pipe of the slowest core; a pipe without rates has none."""
    is_partial = timeline.coverage == COPIES_ONLY
    return separator.join(
        f"{pipe} {share_text(share) if share or not is_partial else say('unknown')}"
        for pipe, share in timeline.busy_share.items()
    )


def covered_time(us: float, coverage: str) -> str:
    """Return a bound for a sentence: ``9.58 us (copies only)``."""
    time = time_text(us)
    return Text("{time} ({coverage})", time=time, coverage=coverage) if coverage else time


def bound_cell(us: float, coverage: str) -> str:
    """Return a bound for a table: ``>= 9.58 us, copies only``, or the time if all is covered."""
    time = time_text(us)
    return Text(">= {time}, {coverage}", time=time, coverage=coverage) if coverage else time


def copies_cell(us: float | None) -> str:
    """Return the bound of copies alone for a table; empty where it is not compared."""
    return "" if us is None else time_text(us)


def coverage_lines(coverages: Iterable[str]) -> list[str]:
    """Return why marked bounds are not compared with others; empty if none is marked."""
    marks = [
        Text("'{coverage}'", coverage=coverage) for coverage in dict.fromkeys(coverages) if coverage
    ]
    text = (
        "bounds marked {marks} leave out computation without a published rate; bounds that cover "
        "different work are not compared"
    )
    return [say(text, marks=joined(marks, ", "))] if marks else []


def timeline_lines(timeline: Timeline) -> Iterator[Line]:
    """Yield one timeline as labelled lines: call, launches, possible changes and kernels."""
    clock = say(
        "{clock} {clock_mhz:g} MHz; no execution of this call can be faster",
        clock=timeline.clock,
        clock_mhz=timeline.clock_mhz,
    )
    yield "lower bound", bound_cell(timeline.bound_us, timeline.coverage), clock
    for number, line in enumerate(_estimates(timeline)):
        yield "estimate" if number == 0 else "", *line
    for number, launch in enumerate(timeline.launches):
        yield _launch_line(number, launch)
    for change in timeline.changes:
        yield _change_line(change, timeline.coverage)
    yield from determinism_lines(timeline.determinism)
    yield from _kernel_lines(timeline)
    yield from caution_lines(timeline)
    if timeline.rules_source:
        yield "rules", timeline.rules_source, ""


def about_us(value: float) -> str:
    """Return microseconds with two or more digits, as many as an estimate supports."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def estimate_text(estimate: Estimate) -> str:
    """Return an estimate with its range: ``vector pipe about 40 us (36 to 44)``."""
    limits = say("{low} to {high}", low=about_us(estimate.low_us), high=about_us(estimate.high_us))
    if isinstance(estimate, VectorEstimate):
        us = about_us(estimate.vector_us)
        return say("vector pipe about {estimate} us ({limits})", estimate=us, limits=limits)
    if estimate.us is None:
        return say("{limits} us", limits=limits)
    return _ranged(estimate.us, estimate.low_us, estimate.high_us)


def _ranged(us: float, low: float, high: float) -> str:
    return say(
        "about {estimate} us ({low} to {high})",
        estimate=about_us(us),
        low=about_us(low),
        high=about_us(high),
    )


def estimate_note(estimate: Estimate) -> str:
    """Return the evidence for an estimate, and the user's influence on it."""
    if isinstance(estimate, LaunchEstimate):
        if estimate.us is None:
            return say("{evidence}, if yours is like one of them", evidence=estimate.evidence)
        return estimate.evidence
    return say(
        "{startup} of it instruction start-up{conflicts}; {evidence}{doubt}",
        startup=percent_text(estimate.startup_share),
        conflicts=say(", {share} bank conflicts", share=percent_text(estimate.conflict_share))
        if estimate.conflict_share >= SHOWN_SHARE
        else "",
        evidence=estimate.evidence,
        doubt=Text("; {note}", note=estimate.note) if estimate.note else "",
    )


def _estimates(timeline: Timeline) -> list[tuple[str, str]]:
    """Return the estimates of a call and of its launches as lines, and why its kernel has none."""
    launches: list[tuple[str, str]] = []
    for launch in timeline.launches:
        if launch.estimate is not None:
            estimate = estimate_text(launch.estimate)
            text = Text("{kernel}: {estimate}", kernel=launch.kernel, estimate=estimate)
            launches.append((text, estimate_note(launch.estimate)))
        elif launch.planned:
            launches.append((Text("{kernel}: none", kernel=launch.kernel), launch.estimate_missing))
    if timeline.estimate_us is None:
        return launches
    return [(call_estimate_text(timeline), "sum of the launches"), *launches]


def _estimates_of(timeline: Timeline) -> list[Estimate]:
    return [launch.estimate for launch in timeline.launches if launch.estimate is not None]


def call_estimate_text(timeline: Timeline) -> str:
    """Return the estimate of a call whose launches all have one, with its range."""
    estimates = _estimates_of(timeline)
    low = sum(estimate.low_us for estimate in estimates)
    high = sum(estimate.high_us for estimate in estimates)
    return _ranged(timeline.estimate_us or 0.0, low, high)


def estimate_cell(timeline: Timeline) -> str:
    """Return the estimate of a call, or of its only estimated launch, as a cell; empty if none."""
    if timeline.estimate_us is not None:
        return call_estimate_text(timeline)
    estimates = _estimates_of(timeline)
    if len(estimates) != 1:
        return say("of {count} launches", count=len(estimates)) if estimates else ""
    (estimate,) = estimates
    if isinstance(estimate, VectorEstimate):
        return f"V {_ranged(estimate.vector_us, estimate.low_us, estimate.high_us)}"
    return estimate_text(estimate)


def evidence_of_estimates(timelines: Sequence[Timeline]) -> str:
    """Return the evidence of all estimates of a comparison; empty if there are none."""
    evidence = joined(
        dict.fromkeys(
            estimate.evidence for timeline in timelines for estimate in _estimates_of(timeline)
        )
    )
    return (
        say(
            "estimates (V: busy time of the vector pipe, not of the launch): {evidence}",
            evidence=evidence,
        )
        if evidence
        else ""
    )


def _launch_line(number: int, launch: LaunchTime) -> Line:
    if launch.planned:
        how = say("limited by {binds}", binds=launch.binds)
    elif launch.binds == "reading":
        how = say("reading {size}", size=bytes_text(launch.read_bytes))
    else:
        how = say("writing {size}", size=bytes_text(launch.written_bytes))
    doubt = (
        "" if launch.evidence is Evidence.EXACT else Text("; {value}", value=launch.evidence.value)
    )
    label = "launches" if number == 0 else ""
    if not launch.binds:
        return (
            label,
            say("{kernel}: counted 0", kernel=launch.kernel),
            say("no AI core runs it{doubt}", doubt=doubt),
        )
    note = Text("{percent}; {how}{doubt}", percent=percent_text(launch.share), how=how, doubt=doubt)
    return (label, f"{launch.kernel}: {time_text(launch.us)}", note)


def _change_line(change: Change, coverage: str) -> Line:
    without = joined(change.without, ", ")
    gone = say("; without {without}", without=without) if without else ""
    note = Text("; {note}", note=change.note) if change.note else ""
    saved = Text(
        "{percent} less" if change.saved_share >= 0 else "{percent} more",
        percent=percent_text(abs(change.saved_share)),
    )
    return (
        "changed",
        change.change,
        say(
            "at least {time}, {saved}{note}{gone}",
            time=covered_time(change.bound_us, coverage),
            saved=saved,
            note=note,
            gone=gone,
        ),
    )


BOUNDS_ONLY = "bounds do not show which mode is faster"


def determinism_lines(prices: Sequence[ModePrice]) -> list[Line]:
    """Return the cost of the determinism switch: launches, workspace and bound off and on."""
    if not prices:
        return []
    unknown = dict.fromkeys(kernel for price in prices for kernel in price.unbounded)
    note = (
        say(
            "only the bytes of {unknown} are counted, so times are not compared",
            unknown=joined(unknown, ", "),
        )
        if unknown
        else BOUNDS_ONLY
    )
    return [("determinism", joined(_price_text(price) for price in prices), note)]


def _price_text(price: ModePrice) -> str:
    unknown = (say("unknown {name}", name=name) for name in price.workspace_unknown)
    return Text(
        "{switch}: {launches}, {workspace}, {bound}",
        switch="on" if price.deterministic else "off",
        launches=say(
            "{launches} launch" if price.launches == 1 else "{launches} launches",
            launches=price.launches,
        ),
        workspace=" + ".join((bytes_text(price.workspace_bytes), *unknown)),
        bound=say("at least {time}", time=covered_time(price.bound_us, price.coverage))
        if price.bound_us is not None
        else "time not compared",
    )


LEAST_READ_AGAIN = 1.01
"""Smaller multiples of the tensors' bytes are not explained."""
LEAST_REPEATED = 2.0
"""Below, padding to blocks may be the reason that more than a tensor's bytes are read."""


def _read_again(timeline: Timeline) -> list[Line]:
    """Return why the kernels read more bytes than their tensors have."""
    if timeline.read_bytes <= LEAST_READ_AGAIN * timeline.tensor_bytes or not timeline.tensor_bytes:
        return []
    times = joined(
        (
            say("{name} {times}x", name=Verbatim(name), times=f"{times:.3g}")
            for name, times in timeline.tensor_reads.items()
            if times >= LEAST_REPEATED
        ),
        ", ",
    )
    again = say(
        "{times}x the {size} of the tensors",
        times=f"{timeline.read_bytes / timeline.tensor_bytes:.2f}",
        size=bytes_text(timeline.tensor_bytes),
    )
    why = "parts are copied more than once, or come from the workspace"
    return [
        ("read again", again, say("read more than once: {times}", times=times) if times else why)
    ]


def _kernel_lines(timeline: Timeline) -> list[Line]:
    """Return the planned kernels as lines; empty if none is planned."""
    slowest = max(timeline.cores, key=lambda core: core.us, default=None)
    if slowest is None:
        return []
    time, pipe = time_text(timeline.kernel_us), timeline.binding_pipe or "nothing"
    busy = say(
        "core {core}, the slowest, is busy: {busy}", core=slowest.core, busy=busy_text(timeline)
    )
    copies = (
        "of the kernel's bound, the busiest copy pipe of the slowest core; that the cores share L2 "
        "and memory is not counted"
    )
    mean = say("slowest over mean of {cores} cores", cores=len(timeline.cores))
    read, written = bytes_text(timeline.read_bytes), bytes_text(timeline.written_bytes)
    traffic = say("{read} read, {written} written", read=read, written=written)
    return [
        ("kernel", say("{time}, limited by {pipe}", time=time, pipe=pipe), busy),
        ("copies", percent_text(timeline.copy_share), copies),
        ("imbalance", f"{timeline.imbalance:.3f}", mean),
        ("traffic", traffic, "by the kernel, padded to 32-byte blocks"),
        *_read_again(timeline),
        *(
            (
                "phase",
                Text("{name} {time}", name=phase.name, time=time_text(phase.us)),
                say(
                    "limited by {binding_pipe} on core {slowest_core}",
                    binding_pipe=phase.binding_pipe,
                    slowest_core=phase.slowest_core,
                ),
            )
            for phase in timeline.phases
            if len(timeline.phases) > 1
        ),
    ]


def caution_lines(timeline: Timeline) -> Iterator[Line]:
    """Yield what the bound omits and assumes."""
    doubt = timeline.clock_doubt
    unknown, left_out = joined(timeline.unknown_rates, ", "), joined(timeline.not_counted, ", ")
    if doubt:
        yield "clock", "the bound may be too high", doubt
    if unknown:
        yield "unknown", unknown, "no published rate: counted 0"
    if left_out:
        yield "left out", left_out, "not published: counted 0"
    yield from assumption_lines(
        timeline.assumptions, [(other.assumption, other.bound_us) for other in timeline.otherwise]
    )


def assumption_lines(
    assumptions: Sequence[str], otherwise: Sequence[tuple[str, float]]
) -> list[Line]:
    """Return what a bound assumes about the data, and the bounds in us if it is otherwise."""
    if not assumptions:
        return []
    return [
        (
            "assumed",
            joined(assumptions, ", "),
            "values are not read, not even from a file; the bound holds for all",
        ),
        *(
            (
                "otherwise",
                say("at least {time}", time=time_text(us)),
                say("if {assumption}", assumption=assumption),
            )
            for assumption, us in otherwise
        ),
    ]


def largest_text(timeline: Timeline) -> str:
    """Return the launch with the largest share of the bound: ``MemSet, 45 % of 6 launches``."""
    if not timeline.launches:
        return ""
    largest = max(timeline.launches, key=lambda launch: launch.us)
    if len(timeline.launches) == 1:
        return say("{kernel} (only launch)", kernel=largest.kernel)
    return say(
        "{kernel}, {share:.0f} % of {launches} launches",
        kernel=largest.kernel,
        share=100 * largest.share,
        launches=len(timeline.launches),
    )


def least_text(timeline: Timeline) -> str:
    """Return the least time of one timeline in a sentence."""
    return say(
        "{title} on {soc}: at least {time}",
        title=timeline.title,
        soc=timeline.soc,
        time=covered_time(timeline.bound_us, timeline.coverage),
    )


MOST_IN_HEADLINE = 3
"""Most SoCs whose copies a headline compares."""


def lowest_text(timelines: Sequence[Timeline], copies: Sequence[float | None]) -> str:
    """Return the lowest of several bounds of one operator, if they cover the same work.

    Of several calls on one SoC their range. Otherwise the bounds of their copies alone, in
    microseconds in ``copies``, for a few SoCs.
    """
    lowest = min(timelines, key=lambda timeline: timeline.bound_us)
    if len({timeline.coverage for timeline in timelines}) > 1:
        by_soc = dict(zip((timeline.soc for timeline in timelines), copies, strict=True))
        if len(by_soc) < len(timelines) or len(by_soc) > MOST_IN_HEADLINE:
            return say("{title}: bounds cover different work, not compared", title=lowest.title)
        times = (
            say("{time} on {soc}", time=copies_cell(us), soc=soc) for soc, us in by_soc.items()
        )
        return say(
            "{title}: copies alone at least {times}; the whole bounds cover different work",
            title=lowest.title,
            times=joined(times, ", "),
        )
    if len(timelines) == 1:
        return least_text(lowest)
    if len({timeline.soc for timeline in timelines}) == 1:
        highest = max(timelines, key=lambda timeline: timeline.bound_us)
        return say(
            "{title}: bounds {low} to {high} on {soc}",
            title=lowest.title,
            low=covered_time(lowest.bound_us, lowest.coverage),
            high=covered_time(highest.bound_us, highest.coverage),
            soc=lowest.soc,
        )
    return say(
        "{title}: lowest bound {time} on {soc}",
        title=lowest.title,
        time=covered_time(lowest.bound_us, lowest.coverage),
        soc=lowest.soc,
    )
