"""``npu-sim profile``."""

import csv
import json
from pathlib import Path

import pytest

from npu_sim.cores import default_release, release_names
from npu_sim.timelines.model import load_calibration
from tests.measured import EMBEDDING, GRAD, OTHER, Row, write_csv

ROWS = (OTHER, *EMBEDDING, GRAD)


def test_the_help_of_a_command_that_identifies_releases_names_no_default(cli):
    text = " ".join(cli("profile", "--help").out.split())
    assert f"or {release_names()[-1]}. " in text
    assert f"default {default_release()}" not in text


def test_a_profile_without_known_kernels_has_nothing_to_model(cli, tmp_path: Path):
    outcome = cli("profile", str(write_csv(tmp_path / "other.csv", [OTHER])))
    assert (outcome.code, "0 of 1 kernels modelled" in outcome.out) == (0, True)


@pytest.mark.long
def test_the_command_prints_json_and_writes_report_and_trace(cli, tmp_path: Path):
    path, report, trace = (
        tmp_path / name for name in ("kernel_details.csv", "profile.html", "profile.json")
    )
    outcome = cli(
        "profile",
        str(write_csv(path, ROWS)),
        "--json",
        "--report",
        str(report),
        "--trace",
        str(trace),
    )
    assert json.loads(outcome.out)["modelled"] == len(ROWS) - 1
    page = report.read_text(encoding="utf-8")
    assert "Measured beside bound" in page
    assert "Times were measured on a device" in page
    assert "not measured on a device" not in page
    assert json.loads(trace.read_text(encoding="utf-8"))["otherData"]["file"] == str(path)


def test_calibrating_prints_json_and_writes_a_calibration_for_timelines(cli, tmp_path: Path):
    elements = 200_000_000
    stream = Row(
        "Add", 2000.0, 40, str(elements), "FLOAT", str(elements), "FLOAT", cycles=1650 * 2000.0 * 40
    )
    path, out = write_csv(tmp_path / "kernel_details.csv", [stream]), tmp_path / "calibration.yaml"
    outcome = cli(
        "profile", "--calibrate", str(path), "--soc", "Ascend910B3", "--out", str(out), "--json"
    )
    assert json.loads(outcome.out)["calibration"]["ceilings"]["reads and writes"][
        "tb_per_s"
    ] == pytest.approx(0.8)
    assert load_calibration(out).clock_mhz == pytest.approx(1650)
    assert "one shape: its error is not known" in " ".join(
        cli("profile", "--calibrate", str(path), "--soc", "Ascend910B3").out.split()
    )


@pytest.mark.parametrize("arguments", [("--trace",), ("--calibrate", "--out")])
def test_unwritable_outputs_are_refused_before_the_profile_is_read(cli, tmp_path: Path, arguments):
    outcome = cli("profile", tmp_path / "none.csv", *arguments, tmp_path / "no folder" / "file")
    assert outcome.code == 64
    assert "no folder" in outcome.err
    assert "none.csv" not in outcome.err


def test_out_requires_calibrate(cli, tmp_path: Path):
    path = write_csv(tmp_path / "kernel_details.csv", ROWS)
    outcome = cli("profile", str(path), "--out", str(tmp_path / "calibration.yaml"))
    assert outcome.code != 0
    assert not (tmp_path / "calibration.yaml").exists()


@pytest.mark.parametrize("name", ["report", "trace"])
def test_a_calibration_has_no_report_and_no_trace(cli, tmp_path: Path, name):
    file = write_csv(tmp_path / "kernel_details.csv", ROWS)
    outcome = cli("profile", file, "--calibrate", f"--{name}", tmp_path / "out", "--json")
    assert (outcome.code, outcome.data["argument"]) == (64, name)
    assert not (tmp_path / "out").exists()


def test_kernels_are_found_by_a_part_of_their_name(cli, tmp_path: Path):
    path = write_csv(tmp_path / "kernel_details.csv", ROWS)
    chosen = cli("profile", path, "--soc", "Ascend910B3", "--kernel", "normGRAD").out
    assert "RmsNormGrad 4096x1x1024:bf16" in chosen
    assert "EmbeddingDenseGradV2" not in chosen
    outcome = cli("profile", path, "--soc", "Ascend910B3", "--kernel", "nothing")
    assert outcome.code == 64
    assert "RmsNormGrad" in outcome.err


GRAD_INPUTS = ["4096x1x1024:bf16", "4096x1x1024:bf16", "4096x1x1:fp32", "1024:bf16"]


def test_rows_are_printed_as_csv(cli, tmp_path: Path):
    path = write_csv(tmp_path / "kernel_details.csv", (OTHER, GRAD))
    printed = cli("profile", path, "--soc", "Ascend910B3", "--csv").out
    rows = {row["kernel"]: row for row in csv.DictReader(printed.splitlines())}
    whole = OTHER.duration_us + GRAD.duration_us
    assert float(rows["RmsNormGrad"]["median_us"]) == GRAD.duration_us
    assert float(rows["RmsNormGrad"]["share"]) == pytest.approx(GRAD.duration_us / whole)
    assert rows["RmsNormGrad"]["inputs"].split() == GRAD_INPUTS
    chosen = cli("profile", path, "--soc", "Ascend910B3", "--csv", "--kernel", "rms").out
    assert [row["kernel"] for row in csv.DictReader(chosen.splitlines())] == ["RmsNormGrad"]


def test_two_profiles_are_compared_kernel_by_kernel(cli, tmp_path: Path):
    before = write_csv(tmp_path / "before.csv", [GRAD, GRAD, Row("Sort", 10.0)])
    after = write_csv(tmp_path / "after.csv", [GRAD, Row("Mul", 5.0)])
    data = json.loads(cli("profile", after, "--against", before, "--json").out)
    assert data["schema"] == "npu_sim.profile_comparison/1"
    assert (data["before_us"], data["us"]) == (200.0, 100.0)
    kernels = {kernel.pop("kernel"): kernel for kernel in data["kernels"]}
    assert list(kernels) == ["RmsNormGrad", "Sort", "Mul"]
    names = ("launches_before", "launches", "before_us", "us", "ratio", "share")
    assert [tuple(kernel[name] for name in names) for kernel in kernels.values()] == [
        (2, 1, 190.0, 95.0, 0.5, 0.95),
        (1, 0, 10.0, 0.0, None, 0.0),
        (0, 1, 0.0, 5.0, None, 0.05),
    ]
    rows = [line.split() for line in cli("profile", after, "--against", before).out.splitlines()]
    assert ["Sort", "1", "->", "0", "10.0", "us", "missing"] in rows
    assert ["Mul", "0", "->", "1", "5.00", "us", "new", "5.0", "%"] in rows
    only = cli("profile", after, "--against", before, "--kernel", "m?l", "--csv").out
    assert [row["kernel"] for row in csv.DictReader(only.splitlines())] == ["Mul"]


@pytest.mark.parametrize("option", [("--report", "x.html"), ("--details", "all")])
def test_a_comparison_has_no_report_and_no_details(cli, tmp_path: Path, option, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_csv(tmp_path / "kernel_details.csv", ROWS)
    other = write_csv(tmp_path / "other.csv", ROWS)
    outcome = cli("profile", path, "--against", other, *option)
    assert outcome.code == 64
    assert "--against" in outcome.err


@pytest.mark.parametrize("options", [("--report",), ("--trace",), ("--calibrate", "--out")])
def test_an_output_that_is_the_profile_is_refused(cli, tmp_path, options):
    file = write_csv(tmp_path / "kernel_details.csv", [GRAD])
    before = file.read_bytes()
    outcome = cli("profile", file, *options, file)
    assert (outcome.code, outcome.out) == (64, "")
    assert "is an input of this command" in outcome.err
    assert file.read_bytes() == before


def test_a_profile_without_launches_is_an_error(cli, tmp_path):
    file = tmp_path / "kernel_details.csv"
    file.write_text(
        "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
        "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
        "Output Formats\n",
        encoding="utf-8",
    )
    outcome = cli("profile", file)
    assert outcome.code == 64
    assert "no launch of a kernel" in outcome.err


def test_a_profile_has_a_row_for_equal_launches_and_details_on_request(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    file = write_csv(tmp_path / "kernel_details.csv", [OTHER, GRAD])
    short = cli("profile", file).out
    row = next(line for line in short.splitlines() if line.startswith("RmsNormGrad"))
    share = GRAD.duration_us / (OTHER.duration_us + GRAD.duration_us)
    assert f"{100 * share:.1f} %" in row
    assert "tiling key" not in short
    detailed = cli("profile", file, "--details", "rmsnormgrad").out
    assert "split N, tiling key 1" in detailed
    assert cli("profile", file, "--details", "all").out == detailed
