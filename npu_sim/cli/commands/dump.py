"""``npu-sim dump``: the calls in a dump of an accuracy tool."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.options import Deterministic, DeviceOptions, Json, Report
from npu_sim.cli.output import print_answer, with_progress
from npu_sim.cli.report_files import reproducing_command, write_report

Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]
Against = Annotated[
    Path | None, typer.Option("--against", help="Another dump: the first difference is found.")
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        help="Whether results are checked bit by bit where all tensors are in the dump.",
    ),
]
DIFFERENT = 1
"""Exit code of a dump with an impossible value, or with a difference from the other one."""


@dataclass(frozen=True)
class DumpOptions(DeviceOptions):
    """Options of ``npu-sim dump``."""

    against: Against = None
    deterministic: Deterministic = False
    verify: Verify = True
    report: Report = None
    json_output: Json = False


def dump_command(folder: Folder, options: DumpOptions) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    first call whose outputs differ from another dump although its inputs are equal.
    """
    from npu_sim.dumps.reading import read_dump

    reading = with_progress(
        lambda report: read_dump(
            folder,
            against=options.against,
            product=options.product,
            soc=options.soc,
            release=options.release,
            deterministic=options.deterministic,
            verify=options.verify,
            progress=report,
        )
    )
    if options.report is not None:
        from npu_sim.show.reports.dumps import dump_report

        write_report(options.report, dump_report(reading, reproducing_command({})))
    print_answer("dump", reading, as_json=options.json_output)
    if reading.differences or any(call.impossible for call in reading.calls):
        sys.exit(DIFFERENT)
