"""A calibration, and a comparison of two device profiles, as text."""

from pathlib import Path

import yaml
from rich.console import RenderableType

from npu_sim.language import Text, say
from npu_sim.language.quantities import percent_text, time_text
from npu_sim.questions.calibrate import CalibrationAnswer
from npu_sim.questions.measured_profile import KernelChange, ProfileComparison
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack
from npu_sim.show.text import Line
from npu_sim.timelines.estimates import Calibration, Ceiling


def calibration_yaml(calibration: Calibration) -> str:
    """Return a calibration as the YAML file that ``timeline --calibration`` reads."""
    head = (
        "# Written by npu-sim profile --calibrate. Clock in MHz, ceilings in 10^12 bytes "
        "a second; a fact of one machine.\n"
    )
    text: str = yaml.safe_dump(
        calibration.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )
    return head + text


def calibration_view(answer: CalibrationAnswer) -> RenderableType:
    """Return a calibration as a rich renderable."""
    calibration = answer.calibration
    lines: list[Line] = [
        ("read as", say("{soc}, release {release}", calibration), "--soc and --release choose"),
        ("clock", say("{clock_mhz:.0f} MHz", calibration), "vector cores"),
    ]
    lines += [
        (say("ceiling, {kind}", kind=kind), f"{ceiling.tb_per_s:.3f} TB/s", _ceiling_note(ceiling))
        for kind, ceiling in calibration.ceilings.items()
    ]
    value = (
        say("factor {vector_factor:.3f}", calibration) if calibration.vector_factor else "no factor"
    )
    lines.append(("vector pipe", value, answer.factor_reason))
    lines += [
        ("skipped", say("{count} launches", count=count), reason)
        for reason, count in answer.skipped.items()
    ]
    lines += [("warning", warning, "") for warning in answer.warnings]
    return stack(
        Paragraph(say("calibration from {source}", calibration), "bold green"),
        "",
        lines_table(lines),
        *_shapes(answer),
    )


def _ceiling_note(ceiling: Ceiling) -> str:
    if ceiling.low_error is None or ceiling.high_error is None:
        return "one shape: its error is not known"
    return say(
        "{shapes} shapes; leave-one-out error {low_error:+.1%} to {high_error:+.1%}", ceiling
    )


def _shapes(answer: CalibrationAnswer) -> tuple[RenderableType, ...]:
    if not answer.shapes:
        return ()
    columns = (
        Column("vector pipe of", key=True),
        Column("launches", right=True),
        *(Column(name) for name in ("measured", "estimate", "ratio")),
    )
    rows = []
    for shape in answer.shapes:
        used = "" if shape.used else ", not used"
        ratio = Text("{ratio}{value}", ratio=f"{shape.ratio:.3f}", value=used)
        name = f"{shape.kernel} {shape.inputs[0] if shape.inputs else ''}"
        measured, estimate = say("{measured_us:.2f} us", shape), say("{estimate_us:.2f} us", shape)
        rows.append((name, str(shape.count), measured, estimate, ratio))
    return "", Table(columns, rows)


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
