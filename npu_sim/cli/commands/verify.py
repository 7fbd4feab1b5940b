"""``npu-sim verify``: whether a product can have produced measured outputs."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.options import DeviceOptions, Json, LimitsOption, Report, Seed, Threads
from npu_sim.cli.output import print_answer, with_progress
from npu_sim.cli.report_files import reproducing_command, write_report

UNREACHABLE_EXIT_CODE = 1
"""Exit code when an output is unreachable."""
DeterminismOption = Annotated[
    bool | None,
    typer.Option(
        "--deterministic/--no-deterministic", help="The determinism switch; both when left out."
    ),
]
BudgetOption = Annotated[
    int, typer.Option("--budget", min=1, help="Partial sums that the search may take per element.")
]
NoExplain = Annotated[
    bool,
    typer.Option("--no-explain", help="Do not search for an explanation of unreachable elements."),
]


@dataclass(frozen=True)
class VerifyOptions(DeviceOptions):
    """Options of ``npu-sim verify``."""

    deterministic: DeterminismOption = None
    limits: LimitsOption = "documented"
    budget: BudgetOption = 1 << 20
    seed: Seed = 0
    no_explain: NoExplain = False
    threads: Threads = None
    report: Report = None
    json_output: Json = False


def verify_command(operator: str, arguments: dict[str, Any], options: VerifyOptions) -> None:
    """Test whether a product can have produced measured outputs (.npy files under the names of the
    results) from the inputs, bit by bit. SoC, release and determinism are optional.
    """
    from npu_sim.cli.arguments import read_arrays
    from npu_sim.kernels.engine.threads import limit_threads
    from npu_sim.verdicts.verify import verify

    arrays = read_arrays(operator, arguments)
    limit_threads(options.threads)
    answer = with_progress(
        lambda report: verify(
            operator,
            product=options.product,
            soc=options.soc,
            release=options.release,
            deterministic=options.deterministic,
            limits=options.limits,  # type: ignore[arg-type]
            budget=options.budget,
            seed=options.seed,
            explain=not options.no_explain,
            progress=report,
            **arrays,
        )
    )
    if options.report is not None:
        from npu_sim.show.reports.verdicts import verification_report

        write_report(options.report, verification_report(answer, reproducing_command({})))
    print_answer("verification", answer, as_json=options.json_output)
    if answer.status == "unreachable":
        sys.exit(UNREACHABLE_EXIT_CODE)
