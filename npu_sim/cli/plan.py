"""``npu-sim plan``: check a call and show how it is tiled."""

from typing import Any

from npu_sim.cli.again import command_on
from npu_sim.cli.errors import exit_with
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import (
    Deterministic,
    Json,
    LimitsOption,
    Product,
    Release,
    Report,
    Soc,
    Trace,
)


def plan_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    report: Report = None,
    trace: Trace = None,
    json_output: Json = False,
) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.cli.pictures import write_pictures
    from npu_sim.cores import load_profile
    from npu_sim.operators import plan

    loaded = load_profile(product, soc, release)
    specs = typed_specs(operator, arguments)
    result = plan(operator, product=loaded, deterministic=deterministic, limits=limits, **specs)  # type: ignore[arg-type]
    pictures = write_pictures(result, loaded, report, trace, command_on(loaded))
    if json_output:
        print_json("plan", {"outcome": result.outcome, "plan": result.as_dict(), **pictures})
    else:
        from npu_sim.cli.console import show
        from npu_sim.show.text import plan_view

        show(plan_view(result))
    exit_with(result)
