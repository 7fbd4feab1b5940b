"""``npu-sim explain``: why a call is planned the way it is."""

import sys
from dataclasses import dataclass, replace
from typing import Any

from npu_sim.cli.errors import refusal_in_shell_form
from npu_sim.cli.options import CallOptions, Json
from npu_sim.cli.output import REFUSED, print_answer


@dataclass(frozen=True)
class ExplainOptions(CallOptions):
    """Options of ``npu-sim explain``."""

    json_output: Json = False


def explain_command(operator: str, arguments: dict[str, Any], options: ExplainOptions) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits,
    workspace and order.
    """
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.explain import explain

    explanation = explain(operator, **options.keywords(), **typed_specs(operator, arguments))
    if explanation.refusal is not None:
        explanation = replace(explanation, refusal=refusal_in_shell_form(explanation.refusal))
    print_answer("explain", explanation, as_json=options.json_output)
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED)
