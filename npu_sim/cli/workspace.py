"""``npu-sim workspace``: what lies where in the workspace of a call, and how long."""

import json
from typing import Any

from npu_sim.cli.options import DEFAULT_PRODUCT, Deterministic, Json, LimitsOption, Product, Soc


def workspace_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = DEFAULT_PRODUCT,
    soc: Soc = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    json_output: Json = False,
) -> None:
    """Show the workspace of a call: kernels, lifetimes, buckets and offsets."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.cores import load_profile
    from npu_sim.operators import plan

    specs = typed_specs(operator, arguments)
    result = plan(operator, profile=load_profile(product, soc), deterministic=deterministic, limits=limits, **specs)  # type: ignore[arg-type]
    if json_output:
        data = {"operator": result.operator, "product": result.product, "soc": result.soc, "deterministic": deterministic}
        workspace = result.workspace.model_dump(mode="json")
        print(json.dumps({"outcome": "runs", **data, "workspace": workspace}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from npu_sim.show.workspace import workspace_headline, workspace_tables

    console = Console(highlight=False)
    console.print(f"{result.title} on {result.product_title}, {result.soc}: {workspace_headline(result.workspace)}", style="bold green")
    console.print()
    console.print(workspace_tables(result.workspace))
