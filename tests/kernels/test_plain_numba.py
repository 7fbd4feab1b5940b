"""Kernels through Numba's public interface have the same bits; unsuitable versions are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

import npu_sim
from npu_sim import UsageError
from npu_sim.kernels.engine import numba_inside
from tests.small_calls import small_call

ROOT = Path(__file__).parents[2]
NAMES = ("moe_token_permute_grad",)
"""It compiles fast; CI runs the golden samples of the others this way."""
DIGESTS = """
import json, sys
import npu_sim
from npu_sim.kernels.engine.compile import PLAIN
from tests.small_calls import small_call

assert PLAIN
def digests(outputs):
    return {name: array.tobytes().hex() for name, array in outputs.items()}

names = sys.argv[1:]
print(json.dumps({name: digests(npu_sim.run(name, **small_call(name)).outputs) for name in names}))
"""


@pytest.mark.long
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_an_operator_gives_the_same_bits():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), numba_inside.PLAIN_VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *NAMES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {one: npu_sim.run(one, **small_call(one)).outputs for one in NAMES}
    assert json.loads(done.stdout) == {
        one: {name: array.tobytes().hex() for name, array in outputs.items()}
        for one, outputs in expected.items()
    }


OUTSIDE = """
import numpy as np
from npu_sim.kernels.conv_tbc_backward.register_tile import (
    ROW_STRIDE, TILE_COLUMNS, Walk, multiply_row
)
from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.vectors import lane_blocks, lanes, lanes_edges

def tried(kernel, *arguments):
    try:
        kernel.over(1, *arguments)
        return "."
    except IndexError:
        return "x"

def of_array(kernel, array, *places):
    print(kernel.__name__, *(tried(kernel, array, place) for place in places))

@kernel
def index(chunk, array, place):
    array[place] = chunk

@kernel
def line(chunk, array, place):
    lanes.store(array, place, lanes.load(array, place))

@kernel
def part(chunk, array, place):
    lanes_edges.store_some(array, place, lanes_edges.load_some(array, place, 2, 5, array), 2, 5)

@kernel
def block(chunk, array, place):
    lane_blocks.store_numbers(array, place, lane_blocks.load_block(array, place))

@kernel
def kept(chunk, array, place):
    lanes.store_lanes(array, place, lanes.load_lanes(array, place, array))

@kernel
def product(chunk, array, place):
    multiply_row(array, place, array, 0, array, 0, Walk(1, 0, 0, 2, 8, 8))

numbers = np.zeros(16 * TILE_COLUMNS, np.float32)
end = numbers.size
of_array(index, numbers, 0, end - 1, end)
of_array(line, numbers, 0, end - 16, end - 15, -1)
of_array(part, numbers, -2, end - 5, end - 4, -3)
of_array(block, numbers, 0, end - 1, -1)
of_array(kept, numbers, 0, end - 16, end - 15, -1)
of_array(product, numbers, 0, end - 16, end - 15, -1)
of_array(product, numbers[:-1], 0)
"""
ACCESSES = """\
index . . x
line . . x x
part . . x x
block . x x
kept . . x x
product . . x x
product x
"""


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_checked_kernel_refuses_every_access_outside_its_arrays():
    """Places inside (.) and outside (x) an array, for single elements and for vectors."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), numba_inside.CHECK_VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # Numba prints the index of a refused access, too.
    lines = [line for line in done.stdout.splitlines(True) if not line.startswith("debug: ")]
    assert "".join(lines) == ACCESSES, done.stderr


@pytest.mark.parametrize("version", ["0.61.0", "0.61.2rc1", "0.9"])
def test_a_numba_that_is_too_old_is_refused_with_a_sentence(version):
    with pytest.raises(UsageError, match=r"kernels need 0\.62 or later"):
        numba_inside.require_numba(version)


@pytest.mark.parametrize("version", ["0.62.0", "0.68.1", "0.69.0dev0", "1.0"])
def test_a_numba_that_is_new_enough_is_not(version):
    numba_inside.require_numba(version)


def fails():
    raise ValueError("another inside")


@pytest.mark.parametrize(
    ("version", "probe", "works"),
    [("0.68.9", fails, True), ("0.69", fails, False), ("9.0", lambda: True, True)],
)
def test_a_numba_that_was_not_tried_is_tried(version, probe, works):
    assert numba_inside.holds(probe, version) == works


def test_nothing_else_uses_the_inside_of_numba():
    private = (
        "numba.core.caching",
        "numba.core.compiler",
        "numba.core.codegen",
        "numba.core.ccallback",
        "numba.core.serialize",
        "numba.np.",
    )
    users = [
        path.name
        for path in (ROOT / "npu_sim").rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in private)
    ]
    assert set(users) - {"codegen.py"} == {"numba_inside.py"}
