"""Where the time of a file of calls goes, and how its lower bounds compare on several products."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from npu_sim.language import Text, joined, percent_text, say, time_text
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight import Checked, Matrix, Row
from npu_sim.questions.preflight_checks import UNKNOWN, Comparison, bounded_time, same_work
from npu_sim.show.forms.layout import Bar, BarGroup, BarPart, Bars
from npu_sim.show.forms.svg import COLOURS
from npu_sim.show.text import Line

SAME, APART = Text("the same work on every product"), Text("work that is counted there alone")
"""Meaning of the two parts of a bar."""


def compared_sentence(calls: str, found: Comparison) -> str:
    """Return calls and the bounds of the same work on every product in one sentence."""
    if not found.calls:
        return say(
            "{calls}: no call has a bound on each of {labels}",
            calls=calls,
            labels=joined(found.bounds_us, ", "),
        )
    bounds = (
        Text("{time} on {label}", time=time_text(us), label=label)
        for label, us in found.bounds_us.items()
    )
    return say(
        "{calls}: at least {bounds} for the same work of {compared} calls",
        calls=calls,
        bounds=joined(bounds, ", "),
        compared=found.calls,
    )


def compared_line(found: Comparison) -> Line:
    """Return the bounds of the same work on every product, and what they mean."""
    times = []
    for label, us in found.bounds_us.items():
        ratio = found.ratios.get(label)
        text = Text("{time} on {label}", time=time_text(us), label=label)
        if ratio is not None:
            text = Text("{bound} ({ratio}x)", bound=text, ratio=f"{ratio:.2f}")
        times.append(text)
    return (
        "compared",
        joined(times, ", "),
        say(
            "lower bounds of the {calls} of {all_calls} calls that have one on each{copies}; how "
            "far a device stays above its bound is not known",
            calls=found.calls,
            all_calls=found.all_calls,
            copies=_copies_text(found),
        ),
    )


def _copies_text(found: Comparison) -> str:
    """Return of which calls the copies alone are compared; empty for none."""
    if not found.copies_alone:
        return ""
    if found.copies_alone == found.calls:
        return say("; their copies alone, as the bounds cover different work")
    return say(
        "; of {copies} of them the copies alone, where the bounds cover different work",
        copies=found.copies_alone,
    )


@dataclass
class OperatorTime:
    """Lower bounds of the calls of one operator on one column, in microseconds."""

    whole_us: float = 0.0
    same_us: float = 0.0
    """The part that counts the same work on every column."""
    coverages: set[str] = field(default_factory=set)
    """Coverages of the bounds; empty without a bound."""
    unbounded: dict[str, None] = field(default_factory=dict)
    """Outcomes of the calls without a bound."""

    def shown_us(self, compared: Comparison | None) -> float:
        """Return the part that is compared; the whole bound where nothing is."""
        return self.whole_us if compared is None else self.same_us

    def add(self, row: Row, checked: Checked | None, same_us: float) -> None:
        """Add a call with its count."""
        time = bounded_time(checked)
        self.same_us += row.count * same_us
        if time is not None:
            self.whole_us += row.count * time["bound_us"]
            self.coverages.add(time["coverage"])
        elif checked is not None:
            self.unbounded[_without_bound(checked)] = None


def _without_bound(checked: Checked) -> str:
    if checked.outcome == UNKNOWN:
        return say("not modelled")
    return say("no bound") if checked.outcome == RUNS else checked.label


def time_bars(matrix: Matrix) -> Bars:
    """Return the lower bounds of every operator on every product as bars of one scale.

    On several products the part of a bar that counts the same work on each is solid.
    """
    compared = matrix.compared()
    times = _operator_times(matrix, compared)
    longest = max((time.whole_us for row in times.values() for time in row.values()), default=0.0)
    groups = []
    for operator, row in sorted(
        times.items(), key=lambda item: -max(time.whole_us for time in item[1].values())
    ):
        bars = []
        for number, (label, time) in enumerate(row.items()):
            parts = _parts(time, f"c{number % COLOURS}", longest, compared)
            share = _share(time, [other[label] for other in times.values()], compared)
            name = operator if len(row) == 1 else label
            bars.append(Bar(name, tuple(parts), _value(time, share, compared)))
        groups.append(BarGroup(operator if len(row) > 1 else "", tuple(bars)))
    parts = (part for group in groups for bar in group.bars for part in bar.parts)
    if compared is not None and any(part.colour.endswith("apart") for part in parts):
        return Bars(tuple(groups), legend=(("c0", SAME), ("c0 apart", APART)))
    coverages = {
        coverage for row in times.values() for t in row.values() for coverage in t.coverages
    }
    caption = "Lower bounds of all calls of each operator."
    if compared is None and len(coverages) > 1:
        caption = (
            "Lower bounds of all calls of each operator. A percentage is the share among the bars "
            "that have one."
        )
    return Bars(tuple(groups), caption)


def _operator_times(
    matrix: Matrix, compared: Comparison | None
) -> dict[str, dict[str, OperatorTime]]:
    """Return the times of every operator by column."""
    times: dict[str, dict[str, OperatorTime]] = {}
    for row in matrix.rows:
        work = compared and same_work(row, compared.bounds_us)
        columns = times.setdefault(row.op, {label: OperatorTime() for label in matrix.labels})
        for label, time in columns.items():
            same_us = work.bounds_us.get(label, 0.0) if work else 0.0
            time.add(row, row.cells.get(label), same_us)
    return times


def _parts(
    time: OperatorTime, colour: str, longest: float, compared: Comparison | None
) -> Iterator[BarPart]:
    shown = time.shown_us(compared)
    if shown:
        title = "lower bound" if compared is None else SAME
        yield BarPart(shown / longest, colour, _titled(title, shown))
    if time.whole_us > shown:
        apart = time.whole_us - shown
        yield BarPart(apart / longest, f"{colour} apart", _titled(APART, apart))


def _titled(meaning: str, us: float) -> Text:
    return Text("{meaning}: {time}", meaning=meaning, time=time_text(us))


def _share(
    time: OperatorTime, times: Sequence[OperatorTime], compared: Comparison | None
) -> float | None:
    """Return the part of a column's time that an operator has; None for what is not comparable.

    Without another column, partial bounds beside whole ones have no percentage.
    """
    if compared is None:
        least = min((coverage for other in times for coverage in other.coverages), default="")
        if time.coverages != {least}:
            return None
        times = [other for other in times if other.coverages == {least}]
    total = sum(other.shown_us(compared) for other in times)
    return time.shown_us(compared) / total if total else None


def _value(time: OperatorTime, share: float | None, compared: Comparison | None) -> str:
    """Return the times of an operator's calls as text, and why some have none."""
    texts: list[str] = []
    shown = time.shown_us(compared)
    if shown:
        part = time_text(shown)
        texts.append(
            part if share is None else Text("{time}, {share}", time=part, share=percent_text(share))
        )
    whole = time_text(time.whole_us)
    if compared is not None and whole != time_text(shown):
        texts.append(Text("{time} in all" if shown else "{time}, not compared", time=whole))
    coverages = [coverage for coverage in sorted(time.coverages) if coverage]
    return joined([*texts, *coverages, *time.unbounded])
