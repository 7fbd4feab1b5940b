"""A comparison of two device profiles as text."""

from pathlib import Path

from rich.console import RenderableType

from npu_sim.language import say
from npu_sim.language.quantities import percent_text, time_text
from npu_sim.questions.profile_comparison import KernelChange, ProfileComparison
from npu_sim.show.layout import Column, Paragraph, Table, stack

HEADINGS = ("kernel", "launches", "time before", "time after", "ratio", "share")


def profile_comparison_view(comparison: ProfileComparison) -> RenderableType:
    """Return a comparison as a rich renderable, one row a kernel."""
    title = say(
        "{after}: {us}; before, {before}: {before_us}",
        after=Path(comparison.file).name,
        before=Path(comparison.against).name,
        us=time_text(comparison.us),
        before_us=time_text(comparison.before_us),
    )
    columns = [Column(name, right=name != "kernel", key=name == "kernel") for name in HEADINGS]
    rows = [_cells(kernel) for kernel in comparison.kernels]
    return stack(Paragraph(title, "bold green", is_line=True), "", Table(columns, rows))


def _cells(change: KernelChange) -> tuple[str, ...]:
    """Return a kernel under ``HEADINGS``."""
    ratio = "" if change.ratio is None else f"{change.ratio:.2f}x"
    if not change.launches_before:
        ratio = "new"
    if not change.launches:
        ratio = "missing"
    return (
        change.kernel,
        f"{change.launches_before} -> {change.launches}",
        time_text(change.before_us) if change.launches_before else "",
        time_text(change.us) if change.launches else "",
        ratio,
        percent_text(change.share) if change.launches else "",
    )
