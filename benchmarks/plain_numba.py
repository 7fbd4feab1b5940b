"""Kernels compiled through Numba's public interface alone, against the usual way of compiling them.

    python benchmarks/plain_numba.py [--only unpermute] [--dtypes bfloat16] [--rounds 25]

Two processes compute the same calls in turns, on one thread: one with ``NPU_SIM_PLAIN_NUMBA=1``, as
kernels run where Numba's private interfaces are missing, and one without it. A turn repeats a short
call. Times are processor time, and those of the fastest calls; the first call of each process
compiles the kernels it needs. A ratio above the limit is measured again, with more rounds: other
programs make calls slower, never faster, so that only a real cause remains. The exit status is 1 if
a ratio exceeds the limit.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import npu_sim
from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate

LIMIT = 1.5
TURN_SECONDS = 0.02
"""A turn repeats a call for this long, at least once."""
MORE_ROUNDS = 4
"""Multiple of the rounds that a ratio above the limit takes before it counts."""
A2, ASCEND_950 = "atlas_a2", "ascend_950"
MODES = {"usual": "0", "plain": "1"}
"""Processes, and their value of ``NPU_SIM_PLAIN_NUMBA``."""


class Call(NamedTuple):
    """A call that reaches one kernel or more: operator, product and values of axes."""

    operator: str
    product: str
    axes: dict[str, int | bool | str]

    @property
    def name(self) -> str:
        """The call in words."""
        axes = " ".join(f"{name}={value}" for name, value in self.axes.items())
        return f"{self.operator} {self.product} {axes}"


_AXES: tuple[tuple[str, dict[str, int | bool | str]], ...] = (
    ("rms_norm", {"row": 2048, "col": 512}),
    ("rms_norm", {"row": 256, "col": 6000}),
    ("rms_norm", {"row": 32, "col": 40000}),
    ("rms_norm_grad", {"row": 2048, "col": 512}),
    ("rms_norm_grad", {"row": 256, "col": 4000}),
    ("rms_norm_grad", {"row": 64, "col": 16000}),
    ("add_rms_norm", {"row": 2048, "col": 512}),
    ("add_rms_norm", {"row": 256, "col": 6000}),
    ("cross_entropy_loss", {"N": 256, "C": 16000}),
    ("cross_entropy_loss_grad", {"N": 256, "C": 16000}),
    ("embedding_dense_backward", {"rows": 16384, "dim": 128, "num_weights": 5000}),
    ("embedding_dense_backward", {"rows": 16384, "dim": 256, "num_weights": 20}),
    ("moe_token_permute", {"num_tokens": 512, "num_topk": 4, "hidden": 2048}),
    ("moe_token_permute_grad", {"tokens": 512, "num_topk": 8, "hidden": 1024}),
    ("moe_token_unpermute", {"tokens": 512, "num_topk": 4, "hidden": 2048}),
    ("moe_token_unpermute", {"tokens": 4096, "num_topk": 1, "hidden": 512, "has_probs": False}),
    ("moe_token_unpermute_grad", {"tokens": 512, "num_topk": 4, "hidden": 2048}),
    ("moe_token_unpermute_grad", {"tokens": 512, "num_topk": 4, "hidden": 1000}),
    ("swi_glu", {"row": 512, "col": 3072}),
    ("swi_glu_grad", {"row": 512, "col": 3072}),
    ("apply_adam_w_v2", {"elements": 1 << 20}),
)
_AXES_ON_A2: tuple[tuple[str, dict[str, int | bool | str]], ...] = (
    ("conv_tbc_backward", {"T": 128, "B": 4, "Cin": 64, "Cout": 64, "K": 3, "pad": 1}),
    ("rotary_position_embedding", {"x0": 512, "cos0": 512}),
    ("rotary_position_embedding_grad", {"x0": 512, "cos0": 512}),
)
CALLS = [
    *(Call(name, product, axes) for product in (A2, ASCEND_950) for name, axes in _AXES),
    *(Call(name, A2, axes) for name, axes in _AXES_ON_A2),
]


class Prepared(NamedTuple):
    """A call with its arrays."""

    call: Call
    arguments: dict[str, Any]
    outs: tuple[Any, ...]

    def run(self) -> None:
        """Compute the call into the given outputs."""
        npu_sim.run(self.call.operator, product=self.call.product, out=self.outs, **self.arguments)


def prepare(call: Call, dtype: str) -> Prepared:
    """Compute a call once, and return it with its arrays."""
    operator = load_operator(call.operator)
    types = {axis.name: dtype for axis in operator.axes if dtype in getattr(axis, "words", ())}
    arguments = call_with(operator, {**operator.defaults(), **types, **call.axes})
    arguments |= generate(call.operator, arguments_of(operator, arguments))
    result = npu_sim.run(call.operator, product=call.product, **arguments)
    return Prepared(call, arguments, tuple(result.outputs.values()))


def serve() -> None:
    """Answer requests in lines of JSON: ``[index, dtype]`` prepares a call, ``null`` repeats it.

    The answer is the seconds of the preparation, or those of the fastest call of the turn.
    """
    prepared: Prepared | None = None
    for line in sys.stdin:
        request = json.loads(line)
        start = time.process_time()
        if request is not None:
            prepared = prepare(CALLS[request[0]], request[1])
            print(time.process_time() - start, flush=True)
        elif prepared is not None:
            print(min(repeat(prepared)), flush=True)


def repeat(prepared: Prepared) -> Iterator[float]:
    """Run a call for a turn; yield the seconds of every run."""
    start = time.process_time()
    stop = start + TURN_SECONDS
    while start < stop:
        prepared.run()
        end = time.process_time()
        yield end - start
        start = end


class Worker:
    """A process that serves calls in one mode."""

    def __init__(self, plain: str) -> None:
        environment = {
            **os.environ,
            "NPU_SIM_PLAIN_NUMBA": plain,
            "NPU_SIM_CACHE_DIR": "",
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, request: Any) -> float:
        """Return the seconds of a request; see `serve`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def fastest(workers: dict[str, Worker], rounds: int) -> dict[str, float]:
    """Return the seconds of the fastest run in every mode; the first turn of a round changes."""
    best = dict.fromkeys(workers, math.inf)
    for number in range(rounds):
        for mode in sorted(workers, reverse=number % 2 == 1):
            best[mode] = min(best[mode], workers[mode].seconds(None))
    return best


def main() -> None:
    """Measure the chosen calls and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="words that the calls must have")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--limit", type=float, default=LIMIT, help="largest ratio")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    workers = {mode: Worker(plain) for mode, plain in MODES.items()}
    print("| call | ms | plain ms | ratio | first call s | plain first call s |")
    print("| --- | --- | --- | --- | --- | --- |")
    slow = False
    for number, call in enumerate(CALLS):
        if not all(word in call.name for word in options.only):
            continue
        for dtype in options.dtypes:
            first = {mode: worker.seconds([number, dtype]) for mode, worker in workers.items()}
            best = fastest(workers, options.rounds)
            if best["plain"] > options.limit * best["usual"]:
                best = fastest(workers, MORE_ROUNDS * options.rounds)
            ratio = best["plain"] / best["usual"]
            slow |= ratio > options.limit
            print(
                f"| {call.name} {dtype} | {1e3 * best['usual']:.2f} | {1e3 * best['plain']:.2f} "
                f"| {ratio:.2f} | {first['usual']:.1f} | {first['plain']:.1f} |",
                flush=True,
            )
    sys.exit(slow)


if __name__ == "__main__":
    main()
