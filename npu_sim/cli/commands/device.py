"""Commands on what a device left: ``profile``, ``diagnose``, ``dump``, and ``kit``."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.lazy import files, questions, tools
from npu_sim.cli.options import BOTH_MODES, WRITES, Option, Options, command
from npu_sim.cli.output import (
    REFUSED_EXIT_CODE,
    command_on,
    print_answer,
    print_csv,
    print_json,
    print_text,
    reproducing_command,
    show_answer,
    with_progress,
    write_report,
)
from npu_sim.language import Text
from npu_sim.status import UsageError, shown

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
            Text("out = {out}: there is nothing to write without --calibrate", out=options.out),
            "--calibrate --out FILE, or --report",
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
    write_report(options.report, lambda: tools.profiles.view.measured_report(answer, command))
    if options.trace is not None:
        files.writing.write_text(
            options.trace,
            json.dumps(
                tools.profiles.view.measured_trace(answer),
                ensure_ascii=False,
                separators=(",", ":"),
            ),
        )
    if options.csv:
        print_csv(
            group
            for group in answer.group_facts()
            if tools.profiles.view.is_chosen(group["kernel"], options.kernel)
        )
    elif options.json:
        print_json("profile", answer.as_dict())
    else:
        print_text(
            tools.profiles.view.measured_profile_view(answer, options.details, options.kernel)
        )


def _require_kernel(kernels: Iterable[str], pattern: str) -> None:
    """Raise UsageError if ``--kernel`` selects no kernel."""
    names = sorted(set(kernels))
    if not any(tools.profiles.view.is_chosen(name, pattern) for name in names):
        raise UsageError(
            "kernel",
            Text("kernel = {pattern}: no kernel has such a name", pattern=pattern),
            Text("kernels: {names}", names=", ".join(names)),
        )


def _compare(file: Path, against: Path, options: Options) -> None:
    """Compare two profiles, kernel by kernel."""
    _refuse(options, ("report", "trace", "details"), "--against")

    answer = tools.profiles.measured_profile.compare_profiles(file, against)
    _require_kernel((change.kernel for change in answer.kernels), options.kernel)
    answer = replace(
        answer,
        kernels=tuple(
            change
            for change in answer.kernels
            if tools.profiles.view.is_chosen(change.kernel, options.kernel)
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
                Text("{name} and {mode} exclude each other", name=f"--{name}", mode=mode),
                "leave one of the two out",
            )


def _calibrate(file: Path, options: Options) -> None:
    _refuse(options, ("report", "trace", "kernel", "against"), "--calibrate")

    answer = tools.profiles.calibrate.calibrate(file, **options.call)
    if options.out is not None:
        files.writing.write_text(
            options.out, tools.profiles.view.calibration_yaml(answer.calibration)
        )
    print_answer("calibration", answer, as_json=options.json)


STATED = ("product", "soc", "release", "deterministic")
"""Options of ``diagnose`` that the line of a call may state; the line decides, as in preflight."""
RESERVED = {"text", "operator", *STATED}
"""Names that are options of ``diagnose``, and no arguments of an operator."""
DIFFERENT = 1
"""Exit code of a dump with an impossible value, a difference from the other one, or nothing that
could be compared with it."""
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File with the error text or log as it was printed, or an exception dump; - for "
        "standard input. Or the text itself.",
    ),
]
Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]


@command(
    "npu_sim.tools.failures.diagnosis:diagnose",
    "product soc release deterministic call_line json",
    call_line=Option(
        "The call that failed, as a line of a file of calls: a JSON object with op and "
        "inputs, and where they differ from the options product, soc, release and deterministic; "
        "it is planned.",
        str | None,
        flags="--call",
    ),
)
def diagnose_command(file: File, options: Options) -> None:
    """Read an error text or a log: code and stage in words, the operator where the text proves
    it, the argument, and of a device exception (plog or exception dump) the tiling fields.
    """
    call = {} if options.call_line is None else _call(options.call_line)
    text = tools.failures.reader.decoded(sys.stdin.buffer) if file == "-" else _text_or_path(file)
    diagnosis = options.answer(text, **call)
    print_answer("diagnosis", diagnosis, as_json=options.json)
    if diagnosis.refusal is not None:
        sys.exit(REFUSED_EXIT_CODE)


def _text_or_path(argument: str) -> str | Path:
    """Return the path of a file, or the argument where it is an error text and no file."""
    # A colon behind the second character is none of a drive.
    is_text = any(map(str.isspace, argument)) or argument.isdigit() or ":" in argument[2:]
    return argument if is_text and not os.path.lexists(argument) else Path(argument)


def _call(text: str) -> dict[str, Any]:
    """Return the arguments of `diagnose` that a call states, given as a line of a file of calls."""
    try:
        call = json.loads(text)
        questions.preflight_lines.require_keys(call)
        operator, inputs = call.get("op"), call["inputs"]
        if (
            isinstance(inputs, dict)
            and not RESERVED & inputs.keys()
            and (operator is None or isinstance(operator, str))
        ):
            stated = {name: call[name] for name in STATED if name in call}
            return {"operator": operator, **stated, **inputs}
    except questions.preflight_lines.MalformedLineError as error:
        raise UsageError("call", Text("call: {error}", error=error)) from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        pass
    raise UsageError(
        "call",
        Text("call = {call} is not a call", call=shown(text)),
        "write a JSON object with op and inputs, as a line of a file of calls",
    )


@command(
    "npu_sim.tools.dumps.reading:read_dump",
    "against product soc release deterministic verify report json",
    against=Option(kind=Path | None),
    deterministic=BOTH_MODES,
)
def dump_command(folder: Folder, options: Options) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    calls whose outputs differ from another dump although their inputs are equal.
    """
    reading = options.answer(folder)
    show_answer("dump", reading, options, reproducing_command({}))
    if reading.failed:
        sys.exit(DIFFERENT)


CONTRADICTED = 1
"""Exit code if anything that a device did is not as planned."""
Calls = Annotated[
    str | None,
    typer.Argument(
        metavar="[CALLS]",
        help="File of calls, such as npu-sim record writes; without it, small calls that take "
        "every path of every operator that the SoC has and torch_npu reaches.",
    ),
]
EPILOGS = {
    "kit": "Copy the folder to the machine with the device, run python run_on_device.py there, "
    "copy it back, then npu-sim kit --check FOLDER. Exit code 1: something is not as planned."
}


@command(
    "npu_sim.tools.device_kit.folder:kit",
    "soc release out check report json",
    out=Option(kind=str, default="kit"),
    check=Option(
        "Judge the results that a device wrote into this folder, and write evidence.jsonl there.",
        Path | None,
    ),
)
def kit_command(calls: Calls = None, *, options: Options) -> None:
    """Write calls for your device, with a script that runs them, and judge its results."""
    if options.check is None:
        if options.report is not None:
            raise UsageError(
                "report", "--report shows the results of a device", "add --check FOLDER"
            )
        print_answer("kit", options.answer(calls), as_json=options.json)
        return
    if calls is not None:
        raise UsageError("calls", "CALLS and --check exclude each other", "leave one of them out")

    answer = with_progress(
        lambda report: tools.device_kit.check.check_kit(options.check, progress=report)
    )
    show_answer("kit_check", answer, options, reproducing_command({}))
    if answer.contradicted:
        sys.exit(CONTRADICTED)
