"""No published row of a device is below its bound, or moves tensors faster than the rates."""

from pathlib import Path

import pytest

import npu_sim
from npu_sim.registry import operator_of_launch
from npu_sim.timelines.schedule import moving_cycles
from npu_sim.tools.profiles.calibrate import SCATTERED
from npu_sim.tools.profiles.reader import read_device_profile

MEASURED = Path(__file__).parents[3].parent / "shared/data/device/kernel_details.csv"
needs_the_rows = pytest.mark.skipif(not MEASURED.is_file(), reason="no measured rows")
A2 = npu_sim.load_profile("atlas_a2", "Ascend910B3")


@pytest.mark.long
@needs_the_rows
def test_no_bound_is_above_a_measured_row():
    answer = npu_sim.read_profile(MEASURED)
    assert len(answer.groups) == 13
    for group in answer.groups:
        assert 0 < group.bound_us <= min(group.times)
    for group in answer.calls:
        bounds = [launch.us for launch in group.timeline.launches]
        for call in group.calls:
            measured = [launch.duration_us for launch in call]
            assert all(us <= time for us, time in zip(bounds, measured, strict=True))


@needs_the_rows
def test_no_measured_row_moves_its_tensors_faster_than_the_rates():
    rows = [
        row
        for row in read_device_profile(MEASURED)
        if row.is_vector
        and operator_of_launch(row.kernel) is None
        and not any(part in row.kernel.lower() for part in SCATTERED)
    ]
    assert len(rows) > 20
    for row in rows:
        for tensors, writes in ((row.inputs, False), (row.outputs, True)):
            cycles = sum(
                moving_cycles(A2.chip, spec.nbytes, spec.nbytes, writes=writes)
                for spec in tensors or ()
                if spec is not None
            )
            assert cycles / A2.chip.vector_cores / 1800 <= row.duration_us
