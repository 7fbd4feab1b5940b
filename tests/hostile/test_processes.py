"""Forks, interruptions and the end of processes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cases import every
from tests.processes import interruptible

ROOT = Path(__file__).parents[2]

FORK = """
import multiprocessing, sys
import numpy as np
import npu_sim
from tests.hostile.calls import NAMES, small_call

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
    command = [sys.executable, "-m", "tests.hostile.two_threads"]
    process = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    if "No threading layer could be loaded" in process.stderr:
        pytest.skip(f"{layer} is not available")
    assert process.stdout == "the same bits\n", process.stderr


IDLE = """
import statistics, time
import npu_sim
from tests.hostile.two_threads import CALL

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


# --- Interruption ---

COMMANDS = {
    "while a study compiles": [
        "study",
        "determinism",
        "rms_norm_grad",
        "--dy",
        "64x256:fp32",
        "--gamma",
        "256:fp32",
    ],
    "while a sweep compiles": [
        "sweep",
        "embedding_dense_backward",
        "--grid",
        "rows=1..100000000",
        "--out",
        "plans.csv",
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=list(COMMANDS))
def test_an_interruption_is_one_line_and_exit_130(tmp_path, arguments):
    command, variables = (
        [sys.executable, "-m", "npu_sim", *arguments],
        environment(NPU_SIM_CACHE_DIR=str(tmp_path / "cache")),
    )
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables, preexec_fn=interruptible, **streams
    ) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
    assert process.returncode == 130, stderr
    assert re.fullmatch(r"\s*interrupted(: .*)?\n", stderr)
    assert not (tmp_path / "plans.csv").exists()


def test_an_interruption_while_modules_load_is_one_line_and_exit_130():
    code = (
        "import os, signal, sys, npu_sim.__main__ as entry\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'npu_sim.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "entry.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


def test_an_interruption_that_a_library_converts_is_one_line_and_exit_130():
    code = (
        "import os, signal, npu_sim.__main__ as entry, npu_sim.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def command():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise ValueError\n"
        "npu_sim.cli.main = command\n"
        "entry.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


def test_a_signal_that_a_library_swallows_still_ends_the_process():
    """A compiler callback suppresses errors too: the watching thread ends the process."""
    code = (
        "import signal, sys, time; from npu_sim.cli.output import INTERRUPTION\n"
        "INTERRUPTION.watch(); signal.signal(signal.SIGINT, lambda *_: None)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment(), **streams) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == "interrupted\n"


# --- Import ---

FORK_IN_THE_PACKAGE = """
import os, signal, sys, threading
from pathlib import Path

package = str(Path("npu_sim/__init__.py").resolve())
begun, forked = threading.Event(), threading.Event()
def wait(frame, event, _):
    if frame.f_code.co_filename != package:
        return None
    if "__version__" in frame.f_globals and not begun.is_set():
        begun.set()
        forked.wait()
    return wait

def load():
    sys.settrace(wait)
    import npu_sim

thread = threading.Thread(target=load)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(15)
    try:
        import npu_sim
        npu_sim.plan("rms_norm", x="4x8:fp32", gamma="8:fp32")
    except ImportError as error:
        assert "forked while another thread" in str(error), error
    os._exit(0)
_, status = os.waitpid(child, 0)
forked.set()
thread.join()
print(status)
"""
WITHOUT_THE_LOCK = """
import sys
sys._is_gil_enabled = lambda: False
try:
    import npu_sim
except ImportError as error:
    print(error)
"""


def test_a_child_forked_in_the_first_moment_of_the_import_works_or_states_it():
    program = [sys.executable, "-c", FORK_IN_THE_PACKAGE]
    process = subprocess.run(
        program, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout == "0\n", process.stderr


def test_free_threaded_python_is_refused_with_the_way_out():
    program = [sys.executable, "-c", WITHOUT_THE_LOCK]
    process = subprocess.run(
        program, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert "set PYTHON_GIL=1" in process.stdout
