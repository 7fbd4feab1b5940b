"""Every vector operator against PyTorch and against copies of the same bytes, in one process, alternating.

    MALLOC_MMAP_THRESHOLD_=17179869184 MALLOC_TRIM_THRESHOLD_=17179869184 python benchmarks/operators.py [--json FILE] [--only moe]

The two variables keep freed memory warm, which is the harder baseline: without them PyTorch pays page faults for every result.
Bytes are what the operator must read and write once. Two copies are measured: ``numpy.copyto``, which uses one thread, and a
compiled copy on all threads, which the processor turns into stores past the cache; shares of both are shown. PyTorch is optional.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import npu_sim
from npu_sim.generate import generate
from npu_sim.ops import operator_module

REPEATS = 7
DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


class Case(NamedTuple):
    """One shape: the call, the bytes it must move, and PyTorch's ways to do the same."""

    name: str
    operator: str
    inputs: dict[str, Any]
    outs: tuple[np.ndarray, ...]
    moved_bytes: int
    rivals: dict[str, Callable[[], Any]]


def tensor(array: np.ndarray) -> Any:
    """Return a NumPy array as a PyTorch tensor that shares its memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def embedding(rows: int, dim: int, weights: int, dtype: str, kind: str) -> Case:
    """An embedding gradient with Zipf or uniform indices."""
    call = {"grad": f"{rows}x{dim}:{dtype}", "indices": f"{rows}:int32", "num_weights": weights}
    inputs = {**call, **generate("embedding_dense_backward", operator_module("embedding_dense_backward").Arguments.build(call), 0)}
    if kind == "uniform":
        inputs["indices"] = np.random.default_rng(0).integers(0, weights, rows, dtype=np.int32)
    out = np.empty((weights, dim), DTYPES[dtype])
    rivals = {}
    if torch is not None:
        grad, indices = tensor(inputs["grad"]), torch.from_numpy(inputs["indices"].astype(np.int64))
        rivals = {"aten": lambda: torch.ops.aten.embedding_dense_backward(grad, indices, weights, -1, False)}
    name = f"embedding {rows}x{dim} -> {weights} {kind} {dtype}"
    return Case(name, "embedding_dense_backward", inputs, (out,), inputs["grad"].nbytes + out.nbytes, rivals)


def rms_norm(rows: int, columns: int, dtype: str) -> Case:
    """A normalisation gradient; PyTorch's own forward runs before timing."""
    call = {"dy": f"{rows}x{columns}:{dtype}", "x": f"{rows}x{columns}:{dtype}", "rstd": f"{rows}:fp32", "gamma": f"{columns}:{dtype}"}
    inputs = generate("rms_norm_grad", operator_module("rms_norm_grad").Arguments.build(call), 0)
    outs = (np.empty((rows, columns), DTYPES[dtype]), np.empty(columns, np.float32))
    rivals = {}
    if torch is not None:
        x, gamma, dy = (tensor(inputs[name]) for name in ("x", "gamma", "dy"))
        x.requires_grad_(), gamma.requires_grad_()
        forward = torch.nn.functional.rms_norm(x, (columns,), gamma, 1e-6)
        rivals = {"rms_norm": lambda: torch.autograd.grad(forward, (x, gamma), dy, retain_graph=True)}
    return Case(f"rms_norm {rows}x{columns} {dtype}", "rms_norm_grad", inputs, outs, 3 * inputs["x"].nbytes, rivals)


def cross_entropy(rows: int, columns: int, dtype: str) -> Case:
    """A loss gradient, mean, without weight."""
    call = {"grad_loss": f"scalar:{dtype}", "log_prob": f"{rows}x{columns}:{dtype}", "target": f"{rows}:int64"}
    inputs = generate("cross_entropy_loss_grad", operator_module("cross_entropy_loss_grad").Arguments.build(call), 0)
    out = np.empty((rows, columns), DTYPES[dtype])
    rivals = {}
    if torch is not None:
        log_prob, target, loss = tensor(inputs["log_prob"]), torch.from_numpy(inputs["target"]), torch.ones(())
        loss = loss.to(log_prob.dtype)
        total = torch.tensor(float(rows), dtype=log_prob.dtype)

        def backward() -> Any:
            nll = torch.ops.aten.nll_loss_backward(loss, log_prob, target, None, 1, -100, total)
            return torch.ops.aten._log_softmax_backward_data(nll, log_prob, 1, log_prob.dtype)

        rivals = {"aten": backward}
    return Case(f"cross_entropy {rows}x{columns} {dtype}", "cross_entropy_loss_grad", inputs, (out,), 2 * out.nbytes, rivals)


def moe(tokens: int, top_k: int, hidden: int, dtype: str) -> Case:
    """A permutation gradient; PyTorch gathers and sums, or adds by index."""
    call = {"permuted_output_grad": f"{tokens * top_k}x{hidden}:{dtype}", "sorted_indices": f"{tokens * top_k}:int32", "num_topk": top_k}
    inputs = {**call, **generate("moe_token_permute_grad", operator_module("moe_token_permute_grad").Arguments.build(call), 0)}
    out = np.empty((tokens, hidden), DTYPES[dtype])
    rivals = {}
    if torch is not None:
        grad, indices = tensor(inputs["permuted_output_grad"]), torch.from_numpy(inputs["sorted_indices"].astype(np.int64))
        inverse = torch.argsort(indices) // top_k
        rivals = {
            "index_select+sum": lambda: grad.index_select(0, indices).view(tokens, top_k, hidden).sum(1),
            "index_add_": lambda: torch.zeros(tokens, hidden, dtype=grad.dtype).index_add_(0, inverse, grad),
        }
    moved = inputs["permuted_output_grad"].nbytes + out.nbytes
    return Case(f"moe {tokens}x{top_k}x{hidden} {dtype}", "moe_token_permute_grad", inputs, (out,), moved, rivals)


def cases(only: str) -> list[Callable[[], Case]]:
    """List every case as a function that makes it, so that one is in memory at a time."""
    made: list[tuple[str, Callable[[], Case]]] = []
    for dtype in DTYPES:
        for kind in ("uniform", "zipf"):
            for shape in ((262144, 128, 50000), (65536, 1024, 32000)):
                made.append(("embedding", lambda shape=shape, dtype=dtype, kind=kind: embedding(*shape, dtype, kind)))
        for shape in ((8192, 4096), (65536, 512), (512, 16384)):
            made.append(("rms_norm", lambda shape=shape, dtype=dtype: rms_norm(*shape, dtype)))
        for shape in ((8192, 32000), (65536, 1000)):
            made.append(("cross_entropy", lambda shape=shape, dtype=dtype: cross_entropy(*shape, dtype)))
        for shape in ((8192, 8, 2048), (4096, 2, 7168)):
            made.append(("moe", lambda shape=shape, dtype=dtype: moe(*shape, dtype)))
    return [make for name, make in made if only in name]


def seconds(work: Callable[[], Any]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(case: Case, source: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    """Time a case against its rivals and a copy, alternating; return medians and ratios."""
    floats = case.moved_bytes // 8

    def copy() -> None:
        parallel_copy(source[:floats], target[:floats])

    def numpy_copy() -> None:
        np.copyto(target[:floats], source[:floats])

    def call(**options: Any) -> Callable[[], Any]:
        return lambda: npu_sim.run(case.operator, out=case.outs, **case.inputs, **options)

    works = {"copy": copy, "numpy copy": numpy_copy, "default": call(), "deterministic": call(deterministic=True), **case.rivals}
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEATS):
        for name, work in works.items():
            times[name].append(seconds(work))
    medians = {name: statistics.median(values) for name, values in times.items()}
    spread = {name: (max(values) - min(values)) / medians[name] for name, values in times.items()}
    rival = min((medians[name] for name in case.rivals), default=None)
    return {
        "case": case.name,
        "milliseconds": {name: round(1000 * value, 3) for name, value in medians.items()},
        "spread": {name: round(value, 3) for name, value in spread.items()},
        "of_numpy_copy": round(medians["numpy copy"] / medians["default"], 3),
        "of_threaded_copy": round(medians["copy"] / medians["default"], 3),
        "against_torch": None if rival is None else round(rival / medians["default"], 2),
        "deterministic_over_default": round(medians["deterministic"] / medians["default"], 3),
    }


def parallel_copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy on all threads."""
    _copy(source, target)


def _make_copy() -> Any:
    from numba import njit, prange

    @njit(parallel=True)
    def copy(source: Any, target: Any) -> None:
        for index in prange(source.size):
            target[index] = source[index]

    return copy


_copy = _make_copy()


def main() -> None:
    """Measure all cases and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--only", default="", help="only cases whose name has this word")
    options = parser.parse_args()
    largest = 3 * 2**30
    source, target = np.ones(largest // 8, np.float32), np.ones(largest // 8, np.float32)
    print("| case | ms | deterministic ms | of numpy copy | of threaded copy | against PyTorch | deterministic / default |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    results = []
    for make in cases(options.only):
        found = measure(make(), source, target)
        results.append(found)
        times = found["milliseconds"]
        torch_ratio = "-" if found["against_torch"] is None else f"{found['against_torch']:.1f}x"
        print(
            f"| {found['case']} | {times['default']:.1f} | {times['deterministic']:.1f} | "
            f"{100 * found['of_numpy_copy']:.0f} % | {100 * found['of_threaded_copy']:.0f} % | "
            f"{torch_ratio} | {found['deterministic_over_default']:.2f} |",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
