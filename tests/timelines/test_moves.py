"""The bound of a launch that only moves bytes: bytes over cores, rates and clock, first pass.

Numbers are those of the platform files: 30 cores, 32 bytes a cycle from global memory, 110 read
from and 86 written to the L2 of 32 MiB.
"""

from fractions import Fraction

import pytest

import npu_sim

CORES, MEMORY, L2 = 30, 32, 32 << 20
BUFFER = {"reading": 110, "writing": 86}
MHZ = {"Ascend910ProB": 1150, "Ascend910B": 900}


def bound_us(moved, direction, mhz):
    """Return the time of a move; what the L2 cannot hold comes from memory, the rest may not."""
    from_memory = max(moved - L2, 0)
    cycles = Fraction(from_memory, MEMORY) + Fraction(moved - from_memory, BUFFER[direction])
    return float(cycles / CORES / mhz)


def timeline(soc, rows, num_weights=1000):
    """Return the timeline of an embedding's gradient in fp16, which has Casts around its kernel."""
    return npu_sim.timeline(
        "embedding_dense_backward",
        grad=f"{rows}x512:fp16",
        indices=f"{rows}:int64",
        num_weights=num_weights,
        soc=soc,
    )


@pytest.mark.parametrize("soc", MHZ)
@pytest.mark.parametrize("rows", [16, 8192, 200_000])
def test_a_move_takes_its_bytes_over_cores_rates_and_clock(soc, rows):
    answer = timeline(soc, rows)
    moves = [launch for launch in answer.launches if not launch.planned]
    assert [launch.kernel for launch in moves] == ["Cast", "Cast"]
    for launch in moves:
        read = bound_us(launch.read_bytes, "reading", MHZ[soc])
        written = bound_us(launch.written_bytes, "writing", MHZ[soc])
        assert launch.us == pytest.approx(max(read, written), rel=1e-12)
        assert launch.binds == ("reading" if read > written else "writing")
    assert moves[0].read_bytes == 2 * 512 * rows
    assert moves[0].written_bytes == 4 * 512 * rows


def test_a_large_move_nears_32_bytes_a_cycle_and_core():
    (move, _, _) = timeline("Ascend910ProB", 2_000_000).launches
    bytes_per_us = move.written_bytes / move.us
    assert bytes_per_us == pytest.approx(CORES * MEMORY * 1150, rel=0.01)
    assert bytes_per_us > CORES * MEMORY * 1150


def test_bounds_state_a_doubt_about_the_clock_where_there_is_one():
    doubtful, sure = timeline("Ascend910B", 16), timeline("Ascend910ProB", 16)
    assert "21 % faster" in doubtful.clock_doubt
    assert doubtful.as_dict()["clock_doubt"] == doubtful.clock_doubt
    assert "the bound may be too high" in str(doubtful)
    assert sure.clock_doubt == ""
    assert "too high" not in str(sure)
