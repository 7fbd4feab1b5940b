"""The command ``profile``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Csv, DeviceOptions, Json, Report, command
from npu_sim.cli.output import print_answer, print_csv, write_report
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import command_on, reproducing_command
from npu_sim.files.writing import write_text
from npu_sim.status import UsageError
from npu_sim.tools.profiles import calibrate as calibration
from npu_sim.tools.profiles import view
from npu_sim.tools.profiles.measured_profile import compare_profiles, read_profile

ProfileFile = Annotated[
    Path,
    typer.Argument(
        help="kernel_details.csv, op_summary_*.csv, the .db of a profiler, or a folder with a CSV "
        "file of measured shapes for every kernel."
    ),
]


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(DeviceOptions):
    """Options of ``npu-sim profile``."""

    report: Report = None
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write measured launches and their bounds as a trace for Perfetto.",
            callback=require_writable,
        ),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option(
            help="Read the device's clock and memory ceilings, and the error of our estimates for "
            "vector kernels."
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write what --calibrate found, for npu-sim timeline --calibration.",
            callback=require_writable,
        ),
    ] = None
    kernel: Annotated[
        str,
        typer.Option(
            help="Show only kernels whose name contains this, with * and ?, in text and CSV.",
            metavar="PATTERN",
            show_default=False,
        ),
    ] = ""
    details: Annotated[
        str,
        typer.Option(
            help="Plan, estimate and counters of the launches of a kernel, or of all.",
            metavar="KERNEL",
            show_default=False,
        ),
    ] = ""
    against: Annotated[
        Path | None,
        typer.Option(
            help="An earlier profile: time of every kernel before and after, new and missing ones."
        ),
    ] = None
    json: Json = False
    csv: Csv = False


@command(read_profile)
def profile_command(file: ProfileFile, options: ProfileOptions) -> None:
    """Read a device's profile: measured time beside the bound, planned beside measured cores, and,
    per call, each launch's share of the time.
    """
    device: dict[str, Any] = {
        "product": options.product,
        "soc": options.soc,
        "release": options.release,
    }
    if options.calibrate:
        others = {
            "report": options.report,
            "trace": options.trace,
            "kernel": options.kernel,
            "against": options.against,
        }
        _refuse(others, "--calibrate")
        found = calibration.calibrate(file, **device)
        if options.out is not None:
            write_text(options.out, view.calibration_yaml(found.calibration))
        print_answer("calibration", found, json=options.json)
        return
    if options.out is not None:
        raise UsageError(
            "out",
            "out = {out}: there is nothing to write without --calibrate",
            "--calibrate --out FILE, or --report",
            out=options.out,
        )
    if options.against is not None:
        _refuse(
            {"report": options.report, "trace": options.trace, "details": options.details},
            "--against",
        )
        _compare(file, options.against, options.kernel, options.json, options.csv)
        return

    answer = with_progress(lambda progress: read_profile(file, **device, progress=progress))
    _require_kernel((launch.kernel for launch in answer.launches), options.kernel)
    reproducing = (
        command_on(answer.device.profile)
        if answer.device
        else reproducing_command({("--release",): answer.release})
    )
    write_report(options.report, lambda: view.measured_report(answer, reproducing))
    if options.trace is not None:
        text = dumps(view.measured_trace(answer), ensure_ascii=False, separators=(",", ":"))
        write_text(options.trace, text)
    if options.csv:
        print_csv(
            group
            for group in answer.group_facts()
            if view.is_chosen(group["kernel"], options.kernel)
        )
    elif options.json:
        print_json("profile", answer.as_dict())
    else:
        print_text(view.measured_profile_view(answer, options.details, options.kernel))


def _require_kernel(kernels: Iterable[str], pattern: str) -> None:
    """Raise UsageError if ``--kernel`` selects no kernel."""
    names = sorted(set(kernels))
    if not any(view.is_chosen(name, pattern) for name in names):
        raise UsageError(
            "kernel",
            "kernel = {pattern}: no kernel has such a name",
            "kernels: {names}",
            pattern=pattern,
            names=", ".join(names),
        )


def _compare(file: Path, against: Path, kernel: str, json: bool, csv: bool) -> None:
    """Compare two profiles, kernel by kernel."""
    answer = compare_profiles(file, against)
    _require_kernel((change.kernel for change in answer.kernels), kernel)
    chosen = tuple(change for change in answer.kernels if view.is_chosen(change.kernel, kernel))
    answer = replace(answer, kernels=chosen)
    print_answer("profile_comparison", answer, json=json, csv="kernels" if csv else "")


def _refuse(options: Mapping[str, object], mode: str) -> None:
    """Raise UsageError for an option, by its name, that another one excludes."""
    for name, value in options.items():
        if value:
            raise UsageError(
                name,
                "{name} and {mode} exclude each other",
                "leave one of the two out",
                name=f"--{name}",
                mode=mode,
            )
