"""A call written out again: as a command line and as Python."""

import shlex
from typing import Any

from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.releases import default_release

PLAIN = {"deterministic": False, "limits": "documented"}


def plan_command(plan: Plan, product: str) -> str:
    """Return the command that plans a call again; ``product`` is a name or the file of a profile."""
    return command_line(
        plan.operator,
        plan.arguments,
        product,
        plan.soc,
        plan.release,
        plan.deterministic,
        plan.limits,
    )


def command_line(
    operator: str,
    arguments: dict[str, Any],
    product: str,
    soc: str,
    release: str,
    deterministic: bool,
    limits: str,
) -> str:
    """Return a call as a command line."""
    words = ["npu-sim", "plan", operator]
    outputs = {one.name: one.output for one in load_operator(operator).outputs}
    for name, value in arguments.items():
        flag = outputs.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    words += ["--product", product, "--soc", soc]
    if release != default_release():
        words += ["--release", release]
    if deterministic:
        words.append("--deterministic")
    if limits != PLAIN["limits"]:
        words += ["--limits", limits]
    return shlex.join(words)


def python_call(
    operator: str,
    arguments: dict[str, Any],
    product: str,
    soc: str,
    release: str,
    deterministic: bool,
    limits: str,
) -> str:
    """Return a call as a Python program that prints its plan."""
    options: dict[str, Any] = {"product": product, "soc": soc}
    if release != default_release():
        options["release"] = release
    if deterministic:
        options["deterministic"] = True
    if limits != PLAIN["limits"]:
        options["limits"] = limits
    lines = [
        f"    {operator!r},",
        *(f"    {name}={value!r}," for name, value in {**arguments, **options}.items()),
    ]
    return "import npu_sim\n\nplan = npu_sim.plan(\n" + "\n".join(lines) + "\n)\nprint(plan)\n"
