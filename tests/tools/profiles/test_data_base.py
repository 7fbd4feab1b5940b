"""A folder of measured kernels, a CSV file each, is read and calibrated on like a profile."""

import os

import pytest

import npu_sim
from npu_sim.status import UsageError
from npu_sim.timelines.model import READS_AND_WRITES
from npu_sim.tools.profiles.calibrate import calibrate
from npu_sim.tools.profiles.measured_profile import read_profile
from npu_sim.tools.profiles.reader import read_device_profile
from tests.measured import GRAD, Row, write_data_base
from tests.tools.profiles.test_calibrate import CYCLES_1024, DEVICE, forward, stream

RATED_MHZ = 1800
ROWS = (GRAD, GRAD._replace(duration_us=0.0), stream("Add", 100_000_000, 0.5))


def test_rows_have_the_median_and_the_kernel_of_their_file(tmp_path):
    launches = read_device_profile(write_data_base(tmp_path / "base", ROWS))
    assert [(launch.kernel, launch.line) for launch in launches] == [("Add", 1), ("RmsNormGrad", 2)]
    assert launches[1].duration_us == 95.0
    assert launches[1].counter("aiv_time") == 95.0
    assert [launch.block_dim for launch in launches] == [None, None]


def test_a_row_with_the_average_alone_has_that(tmp_path):
    file = tmp_path / "Add.csv"
    file.write_text(
        "Input Shapes,Average Duration(us),Profiling Median Duration(us)\n4,7.5,\n5,,\n",
        encoding="utf-8",
    )
    assert [launch.duration_us for launch in read_device_profile(tmp_path)] == [7.5]


def test_rows_are_compared_with_plans_and_bounds(tmp_path):
    answer = read_profile(write_data_base(tmp_path / "base", ROWS), **DEVICE)
    (group,) = answer.groups
    facts = group.as_dict()
    assert facts["kernel"] == "RmsNormGrad"
    assert facts["measured_block_dim"] is None
    assert facts["planned_block_dim"] == 40
    assert 0 < facts["bound_us"] < 95.0


def test_without_block_dims_the_device_must_be_named(tmp_path):
    with pytest.raises(UsageError, match="on how many cores"):
        read_profile(write_data_base(tmp_path / "base", ROWS))


def test_calibrating_uses_the_rated_clock(tmp_path):
    vector_us = CYCLES_1024 / RATED_MHZ
    rows = (forward(1024, vector_us), stream("Add", 100_000_000, 0.5))
    answer = calibrate(write_data_base(tmp_path / "base", rows), **DEVICE)
    assert answer.calibration.clock_mhz == RATED_MHZ
    assert answer.calibration.ceilings[READS_AND_WRITES].tb_per_s == pytest.approx(0.5)
    (shape,) = answer.shapes
    assert shape.ratio == pytest.approx(1.0, rel=1e-3)


def test_a_damaged_file_is_named(tmp_path):
    folder = write_data_base(tmp_path / "base", ROWS)
    (folder / "Add.csv").write_text("Input Shapes,Seconds\n4,1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"Add\.csv, line 1: has none of the columns"):
        read_profile(folder, **DEVICE)


def test_a_folder_without_files_is_refused_as_one(tmp_path):
    with pytest.raises(npu_sim.UsageError, match="a folder without CSV files\na folder with"):
        npu_sim.read_profile(tmp_path)


def test_a_small_move_on_unknown_cores_is_not_a_ceiling(tmp_path):
    rows = (Row("Add", 3.0, 1, "4000", "FLOAT", "4000", "FLOAT"), forward(1024, 14.5))
    answer = calibrate(write_data_base(tmp_path / "base", rows), **DEVICE)
    assert answer.calibration.ceilings == {}


HAS_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: os.mkfifo(path), "it is not a plain file", marks=HAS_PIPES),
        (lambda path: path.symlink_to("/dev/zero"), "it is not a plain file"),
        (lambda path: path.mkdir(), "it is not a plain file|a folder without CSV files"),
        (lambda path: path.symlink_to("/nowhere"), "No such file"),
    ],
)
@pytest.mark.parametrize("name", ["SwiGlu.csv", "file.db"])
def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path, name, make, message):
    (tmp_path / "data").mkdir()
    make(tmp_path / "data" / name)
    path = tmp_path / "data" if name.endswith(".csv") else tmp_path / "data" / name
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.read_profile(path)
