"""Small calls beside PyTorch and compilers, in us: ``python benchmarks/operators.py --small``."""

from typing import Any

import numpy as np
from cases import Case, build
from measure import Others, Work, alternate, medians
from peers import peers
from torch_ways import ways

import npu_sim

CALLS = 100
"""Calls that are timed at once: one alone is too short for the clock and the scheduler."""
PAUSE_SECONDS = 0.01
SMALL = (
    Case("embedding", (256, 64, 500), "fp32", "zipf"),
    Case("rms_norm", (32, 512), "fp32"),
    Case("cross_entropy", (32, 100), "fp32"),
    Case("moe", (64, 4, 64), "fp32"),
    Case("moe_permute", (64, 4, 64), "fp32"),
    Case("unpermute", (64, 4, 64), "fp32"),
    Case("unpermute_grad", (64, 4, 64), "fp32"),
    Case("swi_glu", (32, 256), "fp32"),
    Case("swi_glu_grad", (32, 256), "fp32"),
    Case("rotary", (1, 16, 4, 64), "fp32"),
    Case("rotary_grad", (1, 16, 4, 64), "fp32"),
    Case("adam_w", (64, 64), "fp32"),
    Case("conv_tbc", (16, 2, 8, 8, 3), "fp32"),
)
OURS = {
    "public": "function us",
    "out": "into given arrays us",
    "prepared": "prepared us",
    "plan": "plan us",
}


def columns(names: list[str]) -> tuple[str, ...]:
    """Return the heads of the table's columns behind the case."""
    return (*OURS.values(), "PyTorch us", *(f"{name} us" for name in names))


def measure_small(case: Case, repeats: int, names: list[str]) -> dict[str, Any]:
    """Return the median microseconds of every way to make a small call, by name."""
    problem = build(case)
    prepared = npu_sim.prepare(problem.operator, **problem.inputs)
    tensors = {
        name: value
        for name, value in problem.inputs.items()
        if isinstance(value, np.ndarray | np.generic)
    }
    function = getattr(npu_sim, problem.operator)
    rivals = ways(case, problem)
    single = problem.outs[0] if len(problem.outs) == 1 else problem.outs
    works: dict[str, Work] = {
        "public": lambda: function(**problem.inputs),
        "out": lambda: problem.run(out=problem.outs),
        "prepared": lambda: prepared(**tensors, out=single),
        "plan": lambda: npu_sim.plan(problem.operator, **problem.inputs),
        **rivals,
        **peers(case, problem, names),
    }
    with Others() as others:
        times = medians(
            alternate({name: _many(work) for name, work in works.items()}, repeats, PAUSE_SECONDS)
        )
    found = {name: round(1e6 * seconds / CALLS, 1) for name, seconds in times.items()}
    fastest = min((found[name] for name in rivals), default=None)
    return {
        "case": case.name,
        "microseconds": found,
        "PyTorch": fastest,
        "others_busy_cores": round(others.cores, 2),
    }


def _many(work: Work) -> Work:
    def calls() -> None:
        for _ in range(CALLS):
            work()

    return calls


def small_row(found: dict[str, Any], names: list[str]) -> str:
    """Return a small call as a row of the Markdown table."""
    times = found["microseconds"]
    values = (
        [times[name] for name in OURS] + [found["PyTorch"]] + [times.get(name) for name in names]
    )
    return (
        "| "
        + " | ".join(
            [found["case"], *("-" if value is None else f"{value:.0f}" for value in values)]
        )
        + " |"
    )
