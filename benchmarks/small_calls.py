"""Small calls: microseconds of public functions, prepared calls and plans, beside PyTorch.

    python benchmarks/small_calls.py [--rounds 15] [--only rms conv] [--clock cpu] [--json FILE]

Every number is the median of the rounds, in which all works take turns. A round is a batch of
calls, or of plans of shapes that were not planned before. The last column,
``torch.ops.aten.embedding_dense_backward`` of the first case on one thread, shows how fast the
machine is at that moment. ``--clock cpu`` counts the processor time of the calling thread, for
machines that run other work too; none of these calls wakes another thread.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Shapes = Callable[[int], dict[str, Any]]
WEIGHTS = 500
CASES: dict[str, tuple[str, Shapes]] = {
    "embedding 256x64": (
        "embedding_dense_backward",
        lambda more: {
            "grad": f"{256 + more}x64:fp32",
            "indices": f"{256 + more}:int32",
            "num_weights": WEIGHTS,
        },
    ),
    "rms_norm_grad 32x512": (
        "rms_norm_grad",
        lambda more: {"dy": f"{32 + more}x512:fp32", "gamma": "512:fp32"},
    ),
    "cross_entropy 32x100": (
        "cross_entropy_loss_grad",
        lambda more: {
            "grad_loss": "scalar:fp32",
            "log_prob": f"{32 + more}x100:fp32",
            "target": f"{32 + more}:int64",
        },
    ),
    "moe_token_permute_grad 64x64": (
        "moe_token_permute_grad",
        lambda more: {
            "permuted_output_grad": f"{64 + 2 * more}x64:fp32",
            "sorted_indices": f"{64 + 2 * more}:int32",
            "num_topk": 2,
        },
    ),
    "conv 16x2x8": (
        "conv_tbc_backward",
        lambda more: {
            "grad_output": f"{16 + more}x2x8:fp32",
            "input": f"{16 + more}x2x8:fp32",
            "weight": "3x8x8:fp32",
            "bias": "8:fp32",
            "pad": 1,
        },
    ),
}
"""Name of a case to its operator and its shapes, with more and more rows."""
YARDSTICK = "yardstick"
COLUMNS = ("public", "prepared", "first plan", "repeated plan")
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
CALLS = 20
"""Calls of a round, of which the mean is taken."""


def works_of(operator: str, shapes: Shapes) -> dict[str, Callable[[], Any]]:
    """Return the measured works of a case by column."""
    declared = load_operator(operator)
    first = shapes(0)
    attributes = {name: value for name, value in first.items() if not isinstance(value, str)}
    tensors = generate(operator, arguments_of(declared, first, infer=True), 0)
    function, call = getattr(npu_sim, operator), npu_sim.prepare(operator, **first)
    inputs, outs = (
        [tensors[name] for name in declared.input_names if name in tensors],
        tuple(npu_sim.run(operator, **attributes, **tensors).outputs.values()),
    )
    more = itertools.count(1)
    return {
        "public": lambda: function(**attributes, **tensors),
        "prepared": lambda: call(*inputs, out=outs),
        "first plan": lambda: npu_sim.plan(operator, **shapes(next(more))),
        "repeated plan": lambda: npu_sim.plan(operator, **first),
    }


def yardstick() -> Callable[[], Any] | None:
    """Return PyTorch's embedding gradient of the first case; None without PyTorch."""
    if torch is None:
        return None
    torch.set_num_threads(1)
    grad, indices = (
        torch.randn(256, 64),
        torch.from_numpy(np.random.default_rng(0).integers(0, WEIGHTS, 256)),
    )
    return lambda: torch.ops.aten.embedding_dense_backward(grad, indices, WEIGHTS, -1, False)


def measure(
    works: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return the median of the rounds of every work, in microseconds."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for _ in range(3):  # a plan is cached from the second time on
            work()
    for _ in range(rounds):
        for name, work in works.items():
            start = clock()
            for _ in range(CALLS):
                work()
            found[name].append((clock() - start) / CALLS * 1e6)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Measure the cases and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=[], help="words that the name of a case has")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    torch_call, results = yardstick(), {}
    print(f"| us | {' | '.join(COLUMNS)} | PyTorch's embedding |\n|{' --- |' * (len(COLUMNS) + 2)}")
    for name, (operator, shapes) in CASES.items():
        if not all(word in name for word in options.only):
            continue
        print(f"[{name}]", file=sys.stderr, flush=True)
        works = works_of(operator, shapes) | (
            {YARDSTICK: torch_call} if torch_call is not None else {}
        )
        results[name] = measure(works, options.rounds, CLOCKS[options.clock])
        print(_line(name, results[name]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _line(name: str, times: dict[str, float]) -> str:
    """Return a row of the table."""
    cells = [f"{times[column]:.0f}" for column in COLUMNS]
    cells.append(f"{times[YARDSTICK]:.0f}" if YARDSTICK in times else "-")
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
