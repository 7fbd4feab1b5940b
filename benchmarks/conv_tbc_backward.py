"""ConvTbcBackward against NumPy's matrix products and PyTorch, in one process, alternating; medians.

Run ``python benchmarks/conv_tbc_backward.py`` (``--json FILE`` keeps the numbers). PyTorch is optional.

NumPy's BLAS and PyTorch keep their threads spinning for a while after a call, which takes cores from whoever runs next:
every measurement starts after a pause. ``numpy.matmul`` computes the three products underneath at full size: self times weight and
input transposed times self for every tap, and a row of ones times self.
"""

import argparse
import json
import statistics
import time

import ml_dtypes
import numba
import numpy as np

import npu_sim
from npu_sim.kernels._compile import kernel
from npu_sim.kernels.conv_tbc_backward_tile import CHUNK, CHUNK_STRIDE, TILE_COLUMNS, TILE_ROWS, TILE_SIZE, multiply_rows

SHAPES = {
    "T=512 B=32 512->512 K=3 pad 1": (512, 32, 512, 512, 3, 1),
    "T=2048 B=8 256->512 K=5 pad 2": (2048, 8, 256, 512, 5, 2),
}
PAUSE_SECONDS = 0.2
DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@kernel
def _register_peak(a, b, sums, repeats):
    for thread in numba.prange(sums.shape[0]):
        for _ in range(repeats):
            multiply_rows(a, 0, b, 0, sums[thread], 0, CHUNK)


def register_peak():
    """Operations a second of the register tile on operands that stay in the first-level cache, all threads."""
    a, b = np.ones(TILE_ROWS * CHUNK_STRIDE, np.float32), np.ones(CHUNK * TILE_COLUMNS, np.float32)
    sums, repeats = np.zeros((numba.get_num_threads(), TILE_SIZE), np.float32), 20000
    _register_peak(a, b, sums, 1)
    best = min(timed(lambda: _register_peak(a, b, sums, repeats)) for _ in range(5))
    return 2 * TILE_SIZE * CHUNK * repeats * sums.shape[0] / best


def timed(function):
    time.sleep(PAUSE_SECONDS)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def numpy_products(grad, x, weight):
    """The three products at full size, into arrays made beforehand."""
    rows, columns, ones = grad.reshape(-1, grad.shape[2]), x.reshape(-1, x.shape[2]), np.ones((1, grad[..., 0].size), np.float32)
    for_input, for_weight = np.empty(columns.shape, np.float32), np.empty(weight.shape[1:], np.float32)
    for_bias = np.empty((1, grad.shape[2]), np.float32)

    def products():
        for tap in range(weight.shape[0]):
            np.matmul(rows, weight[tap].T, out=for_input)
        for _ in range(weight.shape[0]):
            np.matmul(columns.T, rows[: len(columns)], out=for_weight)
        np.matmul(ones, rows, out=for_bias)

    return products


def torch_calls(values, pad, dtype):
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(numba.get_num_threads())
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    grad, x, weight, bias = (torch.from_numpy(np.asarray(one, np.float32)).to(kind) for one in values)
    by_channel = [one.permute(1, 2, 0).contiguous() for one in (grad, x)]
    kernel_view = weight.permute(2, 1, 0).contiguous()
    convolution = torch.ops.aten.convolution_backward

    def conv1d():
        convolution(*by_channel, kernel_view, [len(bias)], [1], [pad], [1], False, [0], 1, [True, True, True])

    return {
        "torch conv_tbc_backward": lambda: torch.ops.aten.conv_tbc_backward(grad, x, weight, bias, pad),
        "torch conv1d backward": conv1d,
    }


def measure(name, dtype, rounds):
    time_steps, batch, in_channels, out_channels, taps, pad = SHAPES[name]
    rng = np.random.default_rng(0)
    shapes = ((time_steps + 2 * pad - taps + 1, batch, out_channels), (time_steps, batch, in_channels), (taps, in_channels, out_channels))
    values = [rng.standard_normal(shape, np.float32).astype(DTYPES[dtype]) for shape in (*shapes, (out_channels,))]
    outs = tuple(np.empty_like(one) for one in values[1:])
    calls = {
        "npu_sim": lambda: npu_sim.conv_tbc_backward(*values, pad, 0, out=outs),
        "npu_sim deterministic": lambda: npu_sim.conv_tbc_backward(*values, pad, 0, deterministic=True, out=outs),
        "npu_sim allocating": lambda: npu_sim.conv_tbc_backward(*values, pad, 0),
    }
    if dtype == "fp32":
        calls["numpy matmul"] = numpy_products(*values[:3])
    calls |= torch_calls(values, pad, dtype)
    for call in calls.values():
        call()
    seconds = {label: [] for label in calls}
    for _ in range(rounds):
        for label, call in calls.items():
            seconds[label].append(timed(call))
    operations = 4 * time_steps * batch * in_channels * out_channels * taps
    return {
        label: {"median": statistics.median(one), "best": min(one), "gflops": operations / statistics.median(one) / 1e9}
        for label, one in seconds.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--json", help="file for the numbers")
    options = parser.parse_args()
    peak = register_peak()
    print(f"register tile peak: {peak / 1e9:.0f} GFLOP/s on {numba.get_num_threads()} threads\n")
    report = {"register_peak_gflops": peak / 1e9}
    print("| shape | dtype | who | median ms | best ms | GFLOP/s | of peak | time / npu_sim |")
    print("| --- " * 8 + "|")
    for name in SHAPES:
        for dtype in options.dtypes:
            results = report[f"{name} {dtype}"] = measure(name, dtype, options.rounds)
            own = results["npu_sim"]["median"]
            for label, one in results.items():
                share = 1e9 * one["gflops"] / peak
                print(
                    f"| {name} | {dtype} | {label} | {1e3 * one['median']:.1f} | {1e3 * one['best']:.1f} | {one['gflops']:.0f} "
                    f"| {share:.0%} | {one['median'] / own:.2f} |",
                    flush=True,
                )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
