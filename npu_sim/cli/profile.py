"""``npu-sim profile``: what a device's profiler measured, held against the plans."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.cli.again import command_again
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import Json, Release, Report, Soc, writable
from npu_sim.status import UsageError

if TYPE_CHECKING:
    from npu_sim.questions.measured_profile import MeasuredProfile

File = Annotated[
    Path, typer.Argument(help="kernel_details.csv, op_summary_*.csv, or the .db of a profiler.")
]
MaybeProduct = Annotated[
    str | None,
    typer.Option(
        "--product",
        help="Product, or a profile file ending in .yaml; found in the file when left out.",
    ),
]
MeasuredTrace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        callback=writable,
        help="Write measured launches and their bounds as a trace for Perfetto.",
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="Read the device's clock and memory ceilings, and how far vector estimates are off.",
    ),
]
CalibrationOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        callback=writable,
        help="Where to write what --calibrate found, for npu-sim timeline --calibration.",
    ),
]


def profile_command(
    file: File,
    product: MaybeProduct = None,
    soc: Soc = None,
    release: Release = None,
    report: Report = None,
    trace: MeasuredTrace = None,
    calibrate: Calibrate = False,
    out: CalibrationOut = None,
    json_output: Json = False,
) -> None:
    """Read a device's profile: measured time beside the bound, planned beside measured cores, calls with the share of every launch."""
    if calibrate:
        _calibrate(file, {"product": product, "soc": soc, "release": release}, out, json_output)
        return
    if out is not None:
        raise UsageError(
            "out",
            f"out = {out}: there is nothing to write without --calibrate",
            "--calibrate --out FILE, or --report",
        )
    from npu_sim.questions.measured_profile import read_profile
    from npu_sim.show.measured_profile import measured_profile_view

    answer = read_profile(file, product=product, soc=soc, release=release)
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.reports import render
        from npu_sim.show.reports.measured_profile import measured_report

        write_text(report, render(measured_report(answer, command_again(_device_of(answer)))))
    if trace is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.measured_trace import measured_trace

        write_text(
            trace, json.dumps(measured_trace(answer), ensure_ascii=False, separators=(",", ":"))
        )
    if json_output:
        print_json("profile", answer.as_dict())
        return
    from npu_sim.cli.console import show

    show(measured_profile_view(answer))


def _device_of(answer: "MeasuredProfile") -> dict[str, str]:
    """Return the device and release that a profile was read for, as options."""
    if answer.device is None:
        return {"--release": answer.release}
    profile = answer.device.profile
    return {"--product": profile.name, "--soc": profile.soc, "--release": profile.release}


def _calibrate(
    file: Path, device: dict[str, str | None], out: Path | None, json_output: bool
) -> None:
    from npu_sim.questions.calibrate import calibrate
    from npu_sim.show.calibration import calibration_view, calibration_yaml

    answer = calibrate(file, **device)
    if out is not None:
        from npu_sim.files.writing import write_text

        write_text(out, calibration_yaml(answer.calibration))
    if json_output:
        print_json("calibration", answer.as_dict())
        return
    from npu_sim.cli.console import show

    show(calibration_view(answer))
