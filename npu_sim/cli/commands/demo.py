"""``npu-sim demo``."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.cli.options import DeviceOptions, Json, Seed, Threads, command
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.threads import limit_threads
from npu_sim.framework.inference import arguments_of
from npu_sim.language import say
from npu_sim.operators import run
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate
from npu_sim.show.forms.layout import Paragraph, lines_table
from npu_sim.show.plans import plan_view

ROWS, DIM, NUM_WEIGHTS = 16384, 1024, 32000
"""A batch of 8 sequences of 2048 tokens, hidden size 1024, vocabulary 32000."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(DeviceOptions):
    """Options of ``npu-sim demo``."""

    deterministic: bool = False
    seed: Seed = 0
    threads: Threads = None
    json: Json = False


@command(run)
def demo_command(options: DemoOptions) -> None:
    """Plan, compute and check an embedding gradient of a Zipf-distributed batch."""
    limit_threads(options.threads)
    operator = "embedding_dense_backward"
    call: dict[str, Any] = {
        "grad": f"{ROWS}x{DIM}:fp32",
        "indices": f"{ROWS}:int32",
        "num_weights": NUM_WEIGHTS,
    }
    data = generate(operator, arguments_of(load_operator(operator), call), options.seed)
    inputs = {**call, **data}
    call_options: dict[str, Any] = {
        "product": options.profile(),
        "deterministic": options.deterministic,
    }
    start = time.perf_counter()
    first = run(operator, core_order="sequential", **call_options, **inputs)
    cold_seconds = time.perf_counter() - start
    second = run(operator, core_order="random", seed=options.seed + 1, **call_options, **inputs)
    warm = run(
        operator,
        core_order="random",
        seed=options.seed + 1,
        out=second.outputs["grad_weight"],
        **call_options,
        **inputs,
    )
    check = compare(first, second, data)
    if options.json:
        print_json(
            "demo",
            {"outcome": "ran", **warm.as_dict(), "check": check, "first_run_seconds": cold_seconds},
        )
        return

    print_text(
        say(
            "A batch of {rows} tokens; token ids drawn from a Zipf distribution over {num_weights} "
            "rows of the weight: grad {grad}",
            rows=ROWS,
            num_weights=NUM_WEIGHTS,
            grad=call["grad"],
        ),
        "",
        plan_view(first.plan),
        "",
        lines_table(_result_lines(check, warm.seconds, cold_seconds)),
        "",
        Paragraph("next: npu-sim plan --help, npu-sim run --help, npu-sim products", "dim"),
    )


def _result_lines(
    check: Mapping[str, Any], seconds: Mapping[str, float], cold_seconds: float
) -> list[tuple[str, str, str]]:
    """Return the results as lines; ``seconds`` are those of the warm run by stage."""
    stages = ", ".join(
        say("{name} {seconds:.1f} ms", name=name, seconds=1000 * value)
        for name, value in seconds.items()
    )
    passes = check["passes_mixed_tolerance"]
    outside = "against a sum in float64; outside the fp32 tolerance"
    within = "against a sum in float64; within the fp32 tolerance"
    moved, masked = check["rows_that_moved"], check["order_dependent_rows"]
    return [
        (
            "check",
            say("largest error {error:.2g}", error=check["max_absolute_error"]),
            within if passes else outside,
        ),
        (
            "two runs",
            say("{moved} of {num_weights} rows differ", moved=moved, num_weights=NUM_WEIGHTS),
            _order_text(masked, check["rows_that_moved_outside_the_mask"]),
        ),
        ("time", say("{milliseconds:.1f} ms", milliseconds=1000 * sum(seconds.values())), stages),
        ("first run", f"{cold_seconds:.1f} s", "compiling or loading the kernel included"),
    ]


def _order_text(order_dependent: int, unexpected: int) -> str:
    """Return which rows may differ between runs, and how many others did."""
    if not order_dependent and not unexpected:
        return say("the order of additions is fixed")
    return say(
        "{order_dependent} can: cores add to them in any order; {unexpected} other rows differ",
        order_dependent=order_dependent,
        unexpected=unexpected,
    )


def compare(first: Any, second: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two orders of one call with each other and with a float64 sum."""
    from npu_sim.studies.precision import mixed_tolerance  # studies load Numba, the help does not

    a, b = first.outputs["grad_weight"], second.outputs["grad_weight"]
    reference = np.zeros(a.shape, np.float64)
    np.add.at(reference, data["indices"], data["grad"].astype(np.float64))
    moved = np.any(a.view(np.uint32) != b.view(np.uint32), axis=1)
    mask = first.order_dependent["grad_weight"].mask
    return {
        "max_absolute_error": float(np.abs(b - reference).max()),
        "passes_mixed_tolerance": mixed_tolerance(b, reference, "float32").passed,
        "rows_that_moved": int(np.count_nonzero(moved)),
        "order_dependent_rows": int(np.count_nonzero(mask)),
        "rows_that_moved_outside_the_mask": int(np.count_nonzero(moved & ~mask)),
    }
