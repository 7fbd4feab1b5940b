"""Kernels in threads, in forked children, and inside other calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

import npu_sim
from npu_sim.kernels.engine.compile import Kernel
from tests.cases import every
from tests.processes import printed_by
from tests.small_calls import NAMES, small_call

ROOT = Path(__file__).parents[2]

FORK = """
import multiprocessing, sys
import numpy as np
import npu_sim
from tests.small_calls import NAMES, small_call

def digests(_=0):
    results = [npu_sim.run(name, **small_call(name)).outputs for name in NAMES]
    return [sorted((name, array.tobytes()) for name, array in result.items()) for result in results]

before = digests()
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    assert all(result == before for result in pool.map(digests, range(4)))
assert digests() == before
print("the same bits")
"""


def environment(**others):
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


@pytest.mark.parametrize("layer", every(2, ["omp", "workqueue"]))
@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_a_child_forked_after_a_kernel_ran_can_compute(layer, threads):
    variables = environment(NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS=threads)
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    process = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    if "No threading layer could be loaded" in process.stderr:
        pytest.skip(f"{layer} is not available")
    assert process.stdout == "the same bits\n", process.stderr


FORK_WITHOUT_A_KERNEL = """
import os, sys
import numpy as np
import npu_sim
from npu_sim.kernels.engine.compile import limit_threads, thread_count

{start}
child = os.fork()
if child == 0:
    grad, indices = np.ones((4096, 512), np.float32), np.zeros(4096, np.int64)
    npu_sim.embedding_dense_backward(grad, indices, num_weights=5)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("start", every(2, ["thread_count()", "limit_threads(2)"]))
def test_a_child_forked_after_threads_were_counted_or_limited_can_compute(start):
    code = FORK_WITHOUT_A_KERNEL.format(start=start)
    command = [sys.executable, "-W", "ignore", "-c", code]
    process = subprocess.run(
        command,
        env=environment(NUMBA_NUM_THREADS="2"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("layer", every(2, ["workqueue", "omp"]))
def test_two_python_threads_compute_concurrently(layer):
    variables = environment(NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
    command = [sys.executable, "-m", "tests.kernels.two_threads"]
    process = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    if "No threading layer could be loaded" in process.stderr:
        pytest.skip(f"{layer} is not available")
    assert process.stdout == "the same bits\n", process.stderr


IDLE = """
import statistics, time
import npu_sim
from tests.kernels.two_threads import CALL

def busy_after_a_call():
    npu_sim.rms_norm_grad(**CALL)
    before = time.process_time()
    time.sleep(0.03)
    return time.process_time() - before

print(statistics.median(busy_after_a_call() for _ in range(15)))
"""


def busy_seconds(layer, **variables):
    """Return the processor time of idle threads in the 0.03 seconds after a call."""
    chosen = environment(NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2", **variables)
    command = [sys.executable, "-c", IDLE]
    process = subprocess.run(
        command, cwd=ROOT, env=chosen, capture_output=True, text=True, timeout=240, check=False
    )
    if "No threading layer could be loaded" in process.stderr:
        pytest.skip(f"{layer} is not available")
    return float(process.stdout)


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.long
def test_idle_threads_use_no_processor_time_after_a_call(layer):
    assert busy_seconds(layer) < busy_seconds("omp", OMP_WAIT_POLICY="active", NPU_SIM_CHECK="") / 4


FORKS_WHILE_COMPILING = """
import os, pkgutil, signal, threading, time
from importlib import import_module
import npu_sim, npu_sim.kernels, npu_sim.operators
from tests.small_calls import small_call

for package in (npu_sim.kernels, npu_sim.operators):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        import_module(module.name)  # a child that is forked during imports waits for their locks
compiled, called = (small_call(name) for name in ("conv_tbc_backward", "rms_norm"))
thread = threading.Thread(target=npu_sim.run, args=["conv_tbc_backward"], kwargs=compiled)
thread.start()
children = []
while len(children) < 3:
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        npu_sim.run("rms_norm", **called)
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
thread.join()
print("ended")
"""


@pytest.mark.long
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_children_forked_while_a_thread_compiles_can_compile():
    assert printed_by(FORKS_WHILE_COMPILING, seconds=90, NPU_SIM_CACHE_DIR="") == "ended\n"


@pytest.mark.parametrize("operator", NAMES)
def test_a_call_between_the_kernels_of_another_call_changes_no_result(operator):
    """Signal handlers and finalizers run between kernels, as this profile function does."""
    outer, inner = small_call(operator, 1), small_call(operator, 2)
    expected = npu_sim.run(operator, **outer).outputs

    def interrupt(frame, event, _argument):
        if event == "return" and frame.f_code is Kernel.over.__code__:
            npu_sim.run(operator, **inner)

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        outputs = npu_sim.run(operator, **outer).outputs
    finally:
        sys.setprofile(before)
    assert {name: array.tobytes() for name, array in outputs.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


CONVOLUTION = """
import gc, signal, sys
import numpy as np
import npu_sim
from tests.small_calls import small_call
outer, inner = (small_call("conv_tbc_backward", seed) for seed in (1, 2))
call = lambda values: [array.tobytes() for array in npu_sim.run("conv_tbc_backward", **values)
                       .outputs.values()]
expected, expected_inside, inside = call(outer), call(inner), []
"""
SIGNAL = """
def handle(*_):
    inside.append(call(inner))
    signal.setitimer(signal.ITIMER_REAL, 1e-3)  # not before its end: handlers would nest
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 1e-3)
while len(inside) < 50:
    assert call(outer) == expected
signal.signal(signal.SIGALRM, signal.SIG_IGN)
assert all(result == expected_inside for result in inside)
"""
FINALIZER = """
class Deleted:
    def __init__(self):
        self.cycle = self
    def __del__(self):
        inside.append(call(inner))
gc.set_threshold(20)
while len(inside) < 50:
    Deleted()
    assert call(outer) == expected
gc.disable()
assert all(result == expected_inside for result in inside)
"""


@pytest.mark.parametrize("program", every(2, [SIGNAL, FINALIZER]), ids=["signal", "finalizer"])
def test_a_call_inside_a_convolution_changes_no_result(program):
    assert printed_by(CONVOLUTION + program + '\nprint("ended")\n', seconds=60) == "ended\n"
