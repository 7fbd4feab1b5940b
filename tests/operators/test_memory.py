"""Vector kernels need little memory beyond inputs and outputs, and no temporaries of that size.

Measured from outside, in a process of its own: the high-water mark of the resident memory, which
sees scratch of any thread and any allocator. Freed memory goes back to the system at once there, so
nothing is used again unseen.
"""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config

import npu_sim
from npu_sim.numbers.formats import numpy_dtype

MOST_EXTRA = 0.10
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
SMALL = 64
"""The call before, which compiles and starts the threads, has this many times fewer rows."""

# Rows and the other sizes, for fp32; the 16-bit calls have twice the rows.
SIZES = {
    "embedding_dense_backward": [(98304, 128, 40000), (12288, 1024, 6000)],
    "rms_norm_grad": [(5632, 1024), (352, 16384)],
    "cross_entropy_loss_grad": [(256, 32000), (8192, 1000)],
    "moe_token_permute": [(3072, 8, 768)],
    "moe_token_permute_grad": [(7168, 8, 256), (1408, 2, 4096)],
}
CALLS = [
    (operator, list(shape), dtype, deterministic)
    for operator, shapes in SIZES.items()
    for shape in shapes
    for dtype in ("float32", "bfloat16")
    for deterministic in (False, True)
]


def values(shape, dtype):
    """Data without a full-size temporary of its own: a row of it, repeated."""
    array = np.empty(shape, dtype)
    array[...] = np.linspace(-1, 1, shape[-1], dtype=np.float32).astype(dtype)
    return array


def arrays(operator, shape, dtype):
    """Arguments and outputs of a call; every page of the outputs is there."""
    rng, rows = np.random.default_rng(0), shape[0]
    if operator == "embedding_dense_backward":
        _, dim, weights = shape
        inputs = {
            "grad": values((rows, dim), dtype),
            "indices": rng.integers(0, weights, rows, np.int32),
            "num_weights": weights,
        }
        outs = (np.zeros((weights, dim), dtype),)
    elif operator == "rms_norm_grad":
        columns = shape[1]
        inputs = {
            "dy": values(shape, dtype),
            "x": values(shape, dtype),
            "rstd": np.ones(rows, np.float32),
            "gamma": np.ones(columns, dtype),
        }
        outs = (np.zeros(shape, dtype), np.zeros(columns, np.float32))
    elif operator == "cross_entropy_loss_grad":
        inputs = {
            "grad_loss": np.ones((), dtype),
            "log_prob": values(shape, dtype),
            "target": rng.integers(0, shape[1], rows),
        }
        outs = (np.zeros(shape, dtype),)
    elif operator == "moe_token_permute":
        _, experts, hidden = shape
        inputs = {
            "tokens": values((rows, hidden), dtype),
            "indices": rng.integers(0, 64, (rows, experts), np.int32),
        }
        outs = (np.zeros((rows * experts, hidden), dtype), np.zeros(rows * experts, np.int32))
    else:
        _, experts, hidden = shape
        indices = rng.permutation(rows * experts).astype(np.int32)
        inputs = {
            "permuted_output_grad": values((rows * experts, hidden), dtype),
            "sorted_indices": indices,
            "num_topk": experts,
        }
        outs = (np.zeros((rows, hidden), dtype),)
    for out in outs:
        out.fill(1)
    return inputs, outs


def resident(field):
    """Bytes of memory this process has (``VmRSS``) or had at its peak (``VmHWM``)."""
    lines = dict(
        line.split(":", 1)
        for line in STATUS.read_text(encoding="ascii").splitlines()
        if ":" in line
    )
    return int(lines[field].split()[0]) * 1024


def extra_of(work):
    """Return the bytes in use at the peak of some work beyond what there was before it."""
    gc.collect()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    RESET.write_text("5", encoding="ascii")  # the peak starts anew
    before = resident("VmRSS")
    result = work()
    peak = resident("VmHWM")
    del result
    return peak - before


def measure(operator, shape, dtype, deterministic):
    """Return the extra bytes of a call, and the bytes of its inputs and outputs."""
    rows, *others = shape
    dtype = numpy_dtype(dtype)
    rows *= 4 // dtype.itemsize
    inputs, outs = arrays(operator, (max(rows // SMALL, 1), *others), dtype)
    npu_sim.run(operator, out=outs, deterministic=deterministic, **inputs)
    inputs, outs = arrays(operator, (rows, *others), dtype)
    extra = extra_of(lambda: npu_sim.run(operator, out=outs, deterministic=deterministic, **inputs))
    return extra, sum(
        one.nbytes for one in (*inputs.values(), *outs) if isinstance(one, np.ndarray)
    )


def measure_temporary():
    """Return the extra bytes of an array that is made and dropped at once, and its size."""
    size = int(MOST_EXTRA * 60_000_000)
    return extra_of(lambda: int(np.ones(size, np.uint8)[-1])), size


def name(call):
    operator, shape, dtype, deterministic = call
    order = "deterministic" if deterministic else "default"
    return f"{operator}-{'x'.join(map(str, shape))}-{dtype}-{order}"


@pytest.fixture(scope="module")
def measured():
    if config.DISABLE_JIT:
        pytest.skip("without the compiler these sizes take minutes")
    if not (RESET.exists() and os.access(RESET, os.W_OK)):
        pytest.skip("this system does not tell the peak memory of a process anew")
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, **MALLOC},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("call", CALLS, ids=name)
@pytest.mark.long
def test_peak_memory_beyond_inputs_and_outputs(measured, call):
    extra, data = measured[name(call)]
    assert 60e6 < data < 130e6
    assert extra < MOST_EXTRA * data


@pytest.mark.long
def test_a_temporary_is_seen(measured):
    """The measurement itself: what a call would have to use at least to fail above counts."""
    extra, size = measured["temporary"]
    assert 0.9 * size < extra < 1.2 * size


if __name__ == "__main__":
    print(
        json.dumps(
            {name(call): measure(*call) for call in CALLS} | {"temporary": measure_temporary()}
        )
    )
