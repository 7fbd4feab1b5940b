"""``npu-sim workspace``: what lies where in the workspace of a call, and how long."""

from typing import Any

from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import DEFAULT_PRODUCT, Deterministic, Json, LimitsOption, Product, Release, Soc


def workspace_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = DEFAULT_PRODUCT,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    json_output: Json = False,
) -> None:
    """Show the workspace of a call: kernels, lifetimes, buckets and offsets."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.cores import load_profile
    from npu_sim.operators import plan

    specs = typed_specs(operator, arguments)
    result = plan(operator, profile=load_profile(product, soc, release), deterministic=deterministic, limits=limits, **specs)  # type: ignore[arg-type]
    if json_output:
        data = {
            "operator": result.operator,
            "product": result.product,
            "soc": result.soc,
            "release": result.release,
            "deterministic": deterministic,
        }
        workspace = result.workspace.model_dump(mode="json")
        print_json("workspace", {"outcome": "runs", **data, "workspace": workspace})
        return
    from npu_sim.cli.console import show
    from npu_sim.releases import release_words
    from npu_sim.show.layout import Paragraph
    from npu_sim.show.workspace import workspace_headline, workspace_tables

    place = f"{result.product_title}, {result.soc}{release_words(result.release)}"
    show(
        Paragraph(f"{result.title} on {place}: {workspace_headline(result.workspace)}", "bold green"),
        "",
        workspace_tables(result.workspace),
    )
