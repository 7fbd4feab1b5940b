"""``npu-sim explain``."""

import sys
from dataclasses import dataclass

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.errors import REFUSED_EXIT_CODE
from npu_sim.cli.options import CallOptions, Json, PerOperator, command
from npu_sim.cli.output import print_answer
from npu_sim.questions.explain import explain


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CallOptions):
    """Options of ``npu-sim explain``."""

    json: Json = False


@command(explain, PerOperator())
def explain_command(operator: str, arguments: Arguments, options: ExplainOptions) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits,
    workspace and order.
    """
    explanation = explain(
        operator,
        product=options.profile(),
        deterministic=options.deterministic,
        limits=options.limits,
        **typed_specs(operator, arguments),
    )
    print_answer("explain", explanation, json=options.json)
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED_EXIT_CODE)
