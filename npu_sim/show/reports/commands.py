"""A call written as a command line and as Python."""

import shlex
from collections.abc import Mapping
from typing import Any

from npu_sim.framework.target import Target
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.releases import default_release


def plan_command(plan: Plan, product: str, action: str = "plan") -> str:
    """Return the command that shows a plan; ``product`` is a name or a profile file."""
    device = {"soc": plan.soc, "release": plan.release}
    switches = {"deterministic": plan.deterministic, "limits": plan.limits}
    options = {"product": product, **device, **switches}
    return _command(action, plan.operator, plan.arguments, options)


def command_line(operator: str, arguments: Mapping[str, Any], product: str, target: Target) -> str:
    """Return a call as a command line; ``product`` is a name or a profile file."""
    return _command("plan", operator, arguments, _options(product, target))


def python_call(operator: str, arguments: Mapping[str, Any], product: str, target: Target) -> str:
    """Return a call as a Python program that prints its plan."""
    keywords = {**arguments, **_without_defaults(_options(product, target))}
    lines = [f"    {operator!r},", *(f"    {name}={value!r}," for name, value in keywords.items())]
    return "import npu_sim\n\nplan = npu_sim.plan(\n" + "\n".join(lines) + "\n)\nprint(plan)\n"


def _options(product: str, target: Target) -> dict[str, Any]:
    return {
        "product": product,
        "soc": target.profile.soc,
        "release": target.profile.release,
        "deterministic": target.deterministic,
        "limits": target.limits,
    }


def _without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"release": default_release(), "deterministic": False, "limits": "documented"}
    return {name: value for name, value in options.items() if defaults.get(name) != value}


def _command(
    action: str, operator: str, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> str:
    words = ["npu-sim", action, operator]
    outputs = {output.name: output.output for output in load_operator(operator).outputs}
    for name, value in arguments.items():
        flag = outputs.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    for name, value in _without_defaults(options).items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return shlex.join(words)
