"""The import of the package: forks during it, and Pythons that it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import every
from tests.processes import printed_by

ROOT = Path(__file__).parents[1]


def environment(**others):
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


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


@pytest.mark.parametrize(
    "module", every(3, ["npu_sim.operators", "npu_sim.framework.execution", "numba"])
)
def test_a_child_forked_while_a_thread_imports_npu_sim_states_it(module):
    assert printed_by(FORK_WHILE_IMPORTING, module, seconds=20) == "ended\n"
