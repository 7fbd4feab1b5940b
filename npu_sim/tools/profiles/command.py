"""The command ``profile``."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import WRITES, Option, Options, command
from npu_sim.cli.output import (
    command_on,
    print_answer,
    print_csv,
    print_json,
    print_text,
    reproducing_command,
    write_report,
)
from npu_sim.files.writing import write_text
from npu_sim.status import UsageError
from npu_sim.tools.profiles import view
from npu_sim.tools.profiles.calibrate import calibrate
from npu_sim.tools.profiles.measured_profile import compare_profiles

ProfileFile = Annotated[
    Path,
    typer.Argument(
        help="kernel_details.csv, op_summary_*.csv, the .db of a profiler, or a folder with a CSV "
        "file of measured shapes for every kernel."
    ),
]


@command(
    "npu_sim.tools.profiles.measured_profile:read_profile",
    "product soc release report trace calibrate out kernel details against json csv",
    trace=Option(
        "Write measured launches and their bounds as a trace for Perfetto.",
        Path | None,
        extra=WRITES,
    ),
    calibrate=Option(
        "Read the device's clock and memory ceilings, and the error of our estimates for "
        "vector kernels.",
        bool,
        False,
    ),
    out=Option(
        "Where to write what --calibrate found, for npu-sim timeline --calibration.",
        Path | None,
        extra=WRITES,
    ),
    kernel=Option(
        "Show only kernels whose name contains this, with * and ?, in text and CSV.",
        str,
        "",
        extra={"metavar": "PATTERN", "show_default": False},
    ),
    details=Option(
        "Plan, estimate and counters of the launches of a kernel, or of all.",
        str,
        "",
        extra={"metavar": "KERNEL", "show_default": False},
    ),
    against=Option(
        "An earlier profile: time of every kernel before and after, new and missing ones.",
        Path | None,
    ),
)
def profile_command(file: ProfileFile, options: Options) -> None:
    """Read a device's profile: measured time beside the bound, planned beside measured cores, and,
    per call, each launch's share of the time.
    """
    if options.calibrate:
        _calibrate(file, options)
        return
    if options.out is not None:
        raise UsageError(
            "out",
            "out = {out}: there is nothing to write without --calibrate",
            "--calibrate --out FILE, or --report",
            out=options.out,
        )
    if options.against is not None:
        _compare(file, options.against, options)
        return

    answer = options.answer(file)
    _require_kernel((launch.kernel for launch in answer.launches), options.kernel)
    command = (
        command_on(answer.device.profile)
        if answer.device
        else reproducing_command({("--release",): answer.release})
    )
    write_report(options.report, lambda: view.measured_report(answer, command))
    if options.trace is not None:
        write_text(
            options.trace,
            json.dumps(view.measured_trace(answer), ensure_ascii=False, separators=(",", ":")),
        )
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


def _compare(file: Path, against: Path, options: Options) -> None:
    """Compare two profiles, kernel by kernel."""
    _refuse(options, ("report", "trace", "details"), "--against")

    answer = compare_profiles(file, against)
    _require_kernel((change.kernel for change in answer.kernels), options.kernel)
    answer = replace(
        answer,
        kernels=tuple(
            change for change in answer.kernels if view.is_chosen(change.kernel, options.kernel)
        ),
    )
    print_answer(
        "profile_comparison", answer, as_json=options.json, csv="kernels" if options.csv else ""
    )


def _refuse(options: Options, names: Iterable[str], mode: str) -> None:
    """Raise UsageError for an option that another one excludes."""
    for name in names:
        if getattr(options, name):
            raise UsageError(
                name,
                "{name} and {mode} exclude each other",
                "leave one of the two out",
                name=f"--{name}",
                mode=mode,
            )


def _calibrate(file: Path, options: Options) -> None:
    _refuse(options, ("report", "trace", "kernel", "against"), "--calibrate")

    answer = calibrate(file, **options.call)
    if options.out is not None:
        write_text(options.out, view.calibration_yaml(answer.calibration))
    print_answer("calibration", answer, as_json=options.json)
