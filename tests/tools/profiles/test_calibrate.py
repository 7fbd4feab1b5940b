"""Calibrating on a profile: clock, ceilings and vector ratios, from synthetic rows."""

import pytest
import yaml

from npu_sim.status import UsageError
from npu_sim.timelines.model import READS_AND_WRITES, READS_ONLY, WRITES_ONLY, load_calibration
from npu_sim.tools.profiles.calibrate import calibrate
from npu_sim.tools.profiles.view import calibration_yaml
from tests.measured import OTHER, Row, write_csv

DEVICE = {"soc": "Ascend910B3", "release": "8.3"}
CLOCK = 1650
COLUMNS = (1024, 128, 512)
CYCLES_1024 = 26179.8
"""Estimate of 4096 x 1024 bf16 on 40 cores at release 8.3 (page ``estimate``, "Residuals")."""


def forward(columns, vector_us):
    like, dtypes = f"4096,{columns}", "DT_BF16;DT_BF16"
    time = 5 * vector_us
    return Row(
        "RmsNorm",
        time,
        40,
        f"{like};{columns}",
        dtypes,
        f"{like};4096,1",
        "DT_BF16;FLOAT",
        vector_us=vector_us,
        cycles=CLOCK * time * 40,
    )


def stream(kernel, elements, tb_per_s, reads=True, writes=True):
    moved = 4 * elements * (reads + writes)
    outputs = str(elements) if writes else ""
    time = moved / tb_per_s / 1e6
    return Row(kernel, time, 40, str(elements), "FLOAT", outputs, "FLOAT", cycles=CLOCK * time * 40)


def written(tmp_path, *rows):
    return write_csv(tmp_path / "kernel_details.csv", rows)


STREAMS = (
    stream("Add", 100_000_000, 0.5),
    stream("Mul", 200_000_000, 0.6),
    stream("TensorMove", 300_000_000, 0.9),
    stream("LpNormV2", 200_000_000, 0.7, writes=False),
    stream("ZerosLike", 200_000_000, 0.8, reads=False),
)


def test_ceilings_are_the_median_of_the_shapes_of_a_kind(tmp_path):
    calibration = calibrate(written(tmp_path, *STREAMS, STREAMS[0]), **DEVICE).calibration
    assert {
        kind: ceiling.tb_per_s for kind, ceiling in calibration.ceilings.items()
    } == pytest.approx({READS_AND_WRITES: 0.6, READS_ONLY: 0.7, WRITES_ONLY: 0.8}, rel=1e-6)
    assert {kind: ceiling.shapes for kind, ceiling in calibration.ceilings.items()} == {
        READS_AND_WRITES: 3,
        READS_ONLY: 1,
        WRITES_ONLY: 1,
    }
    both = calibration.ceilings[READS_AND_WRITES]
    assert (both.low_error, both.high_error) == pytest.approx(
        (0.5 / 0.75 - 1, 0.9 / 0.55 - 1), rel=1e-6
    )
    assert calibration.ceilings[WRITES_ONLY].low_error is None


def test_the_clock_is_cycles_over_time_and_cores(tmp_path):
    result = calibrate(written(tmp_path, *STREAMS), **DEVICE)
    assert result.calibration.clock_mhz == pytest.approx(CLOCK)
    assert any("1800" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (OTHER, "not on vector cores"),
        (STREAMS[0]._replace(block_dim=20), "not on all vector cores"),
        (STREAMS[0]._replace(kernel="GatherV2"), "gathers and sorts"),
        (STREAMS[0]._replace(outputs="N/A"), "without shapes or duration"),
        (stream("Add", 1000, 0.5), "less than 400000000 bytes"),
        (forward(1024, 15.0), "kernels that are planned here"),
    ],
)
def test_launches_without_memory_data_are_skipped_and_counted(tmp_path, row, reason):
    assert calibrate(written(tmp_path, *STREAMS, row), **DEVICE).skipped == {reason: 1}


@pytest.mark.parametrize("ratio", [0.97, 1.0, 1.2])
def test_a_ratio_is_counter_over_estimate(tmp_path, ratio):
    (shape,) = calibrate(
        written(tmp_path, forward(1024, ratio * CYCLES_1024 / CLOCK)), **DEVICE
    ).shapes
    assert (shape.ratio, shape.used) == (pytest.approx(ratio, abs=0.002), True)


def calibrated(tmp_path, *ratios):
    plain = calibrate(
        written(tmp_path, *(forward(columns, 15.0) for columns in COLUMNS), *STREAMS), **DEVICE
    ).shapes
    estimates = {shape.inputs[0]: shape.estimate_us for shape in plain}
    rows = [
        forward(columns, ratio * estimates[f"4096x{columns}:bf16"])
        for columns, ratio in zip(COLUMNS, ratios, strict=False)
    ]
    return calibrate(written(tmp_path, *rows, *STREAMS), **DEVICE)


@pytest.mark.parametrize(
    ("ratios", "factor", "agreeing", "reason"),
    [
        ((1.1, 1.12, 1.15), 1.12, 3, "multiplied"),
        ((0.97, 1.03, 1.04), None, 3, "within 5 %"),
        ((0.9, 1.1, 1.2), None, 0, "do not agree"),
        ((1.1, 1.12), None, 0, "needs 3"),
        ((1.1, 1.12, 1.5), None, 0, "needs 3"),
    ],
)
def test_a_factor_needs_three_shapes_that_agree_and_are_off(
    tmp_path, ratios, factor, agreeing, reason
):
    result = calibrated(tmp_path, *ratios)
    assert result.calibration.vector_factor == (
        None if factor is None else pytest.approx(factor, rel=1e-3)
    )
    assert reason in result.factor_reason
    assert result.calibration.vector_shapes == agreeing


def test_an_implausible_ratio_is_not_used_and_names_what_fits(tmp_path):
    result = calibrated(tmp_path, 1.0, 0.6)
    assert [shape.used for shape in result.shapes].count(False) == 1
    assert any("another device, release or plan" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    "rows", [(OTHER,), (forward(1024, 60.0),), (STREAMS[0]._replace(block_dim=20),)]
)
def test_a_profile_without_a_usable_row_is_refused_with_the_requirements(tmp_path, rows):
    with pytest.raises(UsageError, match="no launch to calibrate on") as refused:
        calibrate(written(tmp_path, *rows), **DEVICE)
    assert "counters" in refused.value.hint


def test_a_written_calibration_is_read_back(tmp_path):
    calibration = calibrate(written(tmp_path, *STREAMS), **DEVICE).calibration
    file = tmp_path / "calibration.yaml"
    file.write_text(calibration_yaml(calibration), encoding="utf-8")
    assert load_calibration(file) == calibration


def test_the_error_for_an_invalid_calibration_value_names_its_line(tmp_path):
    calibration = calibrate(written(tmp_path, *STREAMS), **DEVICE).calibration.model_dump(
        mode="json"
    )
    file = tmp_path / "calibration.yaml"
    file.write_text(
        yaml.safe_dump({**calibration, "clock_mhz": -1}, sort_keys=False), encoding="utf-8"
    )
    with pytest.raises(UsageError, match="clock_mhz"):
        load_calibration(file)
