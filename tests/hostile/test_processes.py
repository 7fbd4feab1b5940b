"""Forks, interruptions and deaths: what a process does when others start, stop or end it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FORK = """
import multiprocessing, sys
import numpy as np
import npu_sim
from tests.hostile.calls import NAMES, small_call

def digests(_=0):
    return [sorted((name, array.tobytes()) for name, array in npu_sim.run(one, **small_call(one)).outputs.items()) for one in NAMES]

before = digests()
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    assert all(found == before for found in pool.map(digests, range(4)))
assert digests() == before
print("the same bits")
"""


def environment(**others):
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_child_forked_after_a_kernel_ran_goes_on_computing(layer, threads):
    variables = environment(NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS=threads)
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240, check=False)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"{layer} is not there")
    assert done.stdout == "the same bits\n", done.stderr
