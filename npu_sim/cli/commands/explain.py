"""``npu-sim explain``."""

import sys

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.errors import REFUSED_EXIT_CODE
from npu_sim.cli.options import Json, PerOperator, command
from npu_sim.cli.output import print_answer
from npu_sim.framework.target import Limits
from npu_sim.questions.explain import explain


@command(explain, PerOperator())
def explain_command(
    operator: str,
    arguments: Arguments,
    *,
    product: str | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    json: Json = False,
) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits,
    workspace and order.
    """
    explanation = explain(
        operator,
        product=product,
        soc=soc,
        release=release,
        deterministic=deterministic,
        limits=limits,
        **typed_specs(operator, arguments),
    )
    print_answer("explain", explanation, json=json)
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED_EXIT_CODE)
