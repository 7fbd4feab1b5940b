"""``npu-sim explain``: why a call is planned the way it is."""

import sys
from typing import Any

from npu_sim.cli.errors import REFUSED
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import Deterministic, Json, LimitsOption, Product, Release, Soc


def explain_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    limits: LimitsOption = "documented",
    json_output: Json = False,
) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits, workspace and order."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.explain import explain

    specs = typed_specs(operator, arguments)
    explanation = explain(
        operator,
        product=product,
        soc=soc,
        release=release,
        deterministic=deterministic,
        limits=limits,  # type: ignore[arg-type]
        **specs,
    )
    if json_output:
        print_json("explain", explanation.as_dict())
    else:
        from npu_sim.cli.console import show
        from npu_sim.show.explain import explanation_view

        show(explanation_view(explanation))
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED)
