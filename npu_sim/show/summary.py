"""The summary of a sweep as text: how many calls run, and why others do not."""

from collections.abc import Iterator, Mapping
from typing import Any

from npu_sim.framework.row_planner import UNCOUNTABLE
from npu_sim.language import Text, Verbatim, calls_text, joined, say
from npu_sim.show.text import Line
from npu_sim.status import Status
from npu_sim.sweeps.summary import SHOWN_VALUES, SweepSummary

FIELDS = {"kernel": "kernel", "tiling_key": "tiling key", "block_dim": "cores that work"}
"""Counted fields of calls that run, and their titles."""


def outcomes_text(summary: SweepSummary) -> str:
    """Return the number of calls, and of those that run, overflow and are refused."""
    if "status" not in summary.counts:
        return say("{calls} planned", calls=calls_text(summary.rows))
    refused = sum(refusal.calls for refusal in summary.refusals())
    overflowing = sum(
        count for value, count in summary.counts.get("overflows", {}).items() if value
    )
    found = {
        "run": summary.rows - refused - overflowing,
        "overflow": overflowing,
        "refused": refused,
    }
    texts = (
        Text("{count} {name}", count=f"{count:,}", name=name)
        for name, count in found.items()
        if count or name == "run"
    )
    calls = say("1 call" if summary.rows == 1 else "{count} calls", count=f"{summary.rows:,}")
    return Text("{calls}: {outcomes}", calls=calls, outcomes=joined(texts, ", "))


def status_text(status: int) -> str:
    """Return an aclnn status with its name, or what npu_sim's own status means."""
    if status == UNCOUNTABLE:
        return say("more bytes than an int64 counts")
    names = {int(known): known.name for known in Status}
    return f"{status} {names.get(status, '')}".strip()


def call_text(call: Mapping[str, Any]) -> str:
    """Return device and axes of a call."""
    return joined((named_value(name, value) for name, value in call.items()), ", ")


def named_value(name: str, value: Any) -> Text:
    """Return a value with its name as they are typed: ``col = 7168``, ``deterministic = false``."""
    return Text("{name} = {value}", name=Verbatim(name), value=typed(value))


def typed(value: Any) -> Verbatim:
    """Return a value as it is typed: ``false`` for False."""
    return Verbatim(str(value).lower() if isinstance(value, bool) else str(value))


def refusal_lines(summary: SweepSummary) -> Iterator[Line]:
    """Yield every status of refused calls with their number, and why the first one is refused."""
    for number, refusal in enumerate(summary.refusals()):
        count = Text(
            "{count}: {status}", count=f"{refusal.calls:,}", status=status_text(refusal.status)
        )
        why = say("the first: {reason}", reason=refusal.reason)
        yield "refused" if number == 0 else "", count, why


def count_lines(summary: SweepSummary) -> Iterator[Line]:
    """Yield how often the calls that run have each kernel, key and number of cores."""
    counts = summary.as_dict()["counts"]
    for name, title in FIELDS.items():
        if counts.get(name):
            shown = (
                Text("{value}: {count}", value=value, count=f"{count:,}")
                for value, count in most_frequent(counts[name])
            )
            yield title, joined(shown, ", "), ""


def most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the most frequent values with their counts, and the count of all others."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    if len(most) <= SHOWN_VALUES:
        return most
    others = most[SHOWN_VALUES:]
    text = say("{count} others", count=len(others))
    return [*most[:SHOWN_VALUES], (text, sum(count for _, count in others))]
