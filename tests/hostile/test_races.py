"""Calls that other threads, forks, or other calls on the same thread interrupt.

Programs with threads run in a process of their own: a wild write or a hang would end it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

import npu_sim
from npu_sim.kernels.engine.compile import Kernel
from tests.cases import every
from tests.hostile.calls import NAMES, small_call

ROOT = Path(__file__).parents[2]

OUT_CHANGES = """
import sys, threading, time
import numpy as np
import npu_sim
from npu_sim.registry import load_operator
from tests.hostile.calls import small_call

operator, way = sys.argv[1:]
sys.setswitchinterval(1e-6)
sizes = {axis.name for axis in load_operator(operator).axes}
call = small_call(operator, **{size: 4096 for size in ("rows", "tokens", "N") if size in sizes})
expected = npu_sim.run(operator, **call).outputs
names = load_operator(operator).result_names
outs = tuple(None if name not in expected else np.zeros_like(expected[name]) for name in names)
shapes = [None if out is None else out.shape for out in outs]
prepared = npu_sim.prepare(operator, **call)
inputs = load_operator(operator).input_names
tensors = {name: call[name] for name in inputs if call.get(name) is not None}
stop = threading.Event()

def change():
    while not stop.is_set():
        for out in outs:
            if out is not None:
                out.shape = out.shape[::-1] if out.ndim > 1 else (1, -1)
        for out, shape in zip(outs, shapes):
            if out is not None:
                out.shape = shape

thread = threading.Thread(target=change, daemon=True)
thread.start()
end, calls = time.monotonic() + 1, 0
while time.monotonic() < end:
    try:
        if way == "run":
            npu_sim.run(operator, **call, out=outs)
        else:
            prepared(**tensors, out=outs)
        calls += 1
    except npu_sim.UsageError:
        pass
stop.set()
thread.join()
for name, out in zip(names, outs):
    if out is not None and calls:
        assert out.tobytes() == expected[name].tobytes(), name
print("ended", calls > 0)
"""

FORKS = """
import os, sys, threading
import numpy as np
import npu_sim

x, gamma = np.ones((9000, 16), "f4"), np.ones(16, "f4")
compute = lambda: npu_sim.rms_norm(x, gamma)
compute()
sys.setswitchinterval(1e-5)
def work():
    while True:
        compute()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for number in range(600):
    child = os.fork()
    if child == 0:
        if number % 20 == 0:
            compute()
        npu_sim.kernels.engine.compile.threads_for(1 << 20)
        os._exit(0)
    os.waitpid(child, 0)
print("ended")
"""

FORKS_WHILE_COMPILING = """
import os, pkgutil, signal, threading, time
from importlib import import_module
import npu_sim, npu_sim.kernels, npu_sim.operators
from tests.hostile.calls import small_call

for package in (npu_sim.kernels, npu_sim.operators):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        import_module(module.name)  # a fork during imports is FORK_WHILE_IMPORTING
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

FORK_WHILE_IMPORTING = """
import os, signal, sys, threading
from importlib.machinery import PathFinder
import numpy as np
import npu_sim

begun, forked = threading.Event(), threading.Event()
class Pause:
    def find_spec(self, name, *others):
        if name != sys.argv[1]:
            return None
        spec = PathFinder.find_spec(name, *others)
        execute = spec.loader.exec_module
        def execute_later(module):
            begun.set()
            forked.wait()
            execute(module)
        spec.loader.exec_module = execute_later
        return spec
sys.meta_path.insert(0, Pause())
compute = lambda: npu_sim.rms_norm(np.ones((2, 16), "f4"), np.ones(16, "f4"))
thread = threading.Thread(target=compute)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(15)
    try:
        compute()
    except ImportError as error:
        assert str(error).startswith("this process was forked while another thread"), error
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
forked.set()
thread.join()
assert compute()[0].all()
print("ended")
"""


def ended(program, *arguments, seconds=20, **variables):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize(
    ("operator", "way"),
    every(
        6,
        [
            ("embedding_dense_backward", "run"),
            ("cross_entropy_loss_grad", "run"),
            ("moe_token_unpermute_grad", "run"),
            ("embedding_dense_backward", "prepare"),
            ("moe_token_unpermute_grad", "prepare"),
            ("cross_entropy_loss_grad", "prepare"),
        ],
    ),
)
def test_an_output_reshaped_by_another_thread_is_written_completely_or_refused(operator, way):
    assert ended(OUT_CHANGES, operator, way) == "ended True\n"


@pytest.mark.long
def test_children_forked_while_threads_compute_end():
    assert ended(FORKS, seconds=90) == "ended\n"


@pytest.mark.long
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_children_forked_while_a_thread_compiles_can_compile():
    assert ended(FORKS_WHILE_COMPILING, seconds=90, NPU_SIM_CACHE_DIR="") == "ended\n"


@pytest.mark.parametrize(
    "module", every(3, ["npu_sim.operators", "npu_sim.framework.execution", "numba"])
)
def test_a_child_forked_while_a_thread_imports_npu_sim_states_it(module):
    assert ended(FORK_WHILE_IMPORTING, module) == "ended\n"


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
