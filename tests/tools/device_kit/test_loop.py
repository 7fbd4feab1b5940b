"""The loop of the device kit: a kit, results of a stand-in for a device, and what they show."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim.show import document_of
from npu_sim.tools.device_kit.run_on_device import CALLS as CALLS_OF_TORCH
from npu_sim.tools.device_kit.run_on_device import (
    PIECE,
    checksum,
    floating,
    make_input,
    random_bits,
)
from tests.cli.runner import npu_sim as command

ROOT = Path(__file__).parents[3]
STAND_IN = Path(__file__).parent / "stand_in"
SOC, RELEASE = "Ascend910B3", "8.5"
LIAR = "rms_norm"
"""Operator whose results the stand-in changes."""
CALLS = (
    {"op": "rms_norm", "inputs": {"x": "200x96:bf16", "gamma": "96:bf16"}},
    {"op": "rms_norm", "inputs": {"x": "99x33:fp32", "gamma": "33:fp32"}},
    {"op": "rms_norm_grad", "inputs": {"dy": "64x40:bf16", "gamma": "40:bf16"}},
    {
        "op": "embedding_dense_backward",
        "inputs": {"grad": "512x64:bf16", "indices": "512:int64", "num_weights": 20},
    },
    {
        "op": "moe_token_permute_grad",
        "inputs": {
            "permuted_output_grad": "64x32:bf16",
            "sorted_indices": "64:int32",
            "num_topk": 4,
        },
    },
)

pytest.importorskip("torch", reason="the stand-in computes with npu_sim.torch")


def run(folder, lie="", expected=0, *options):
    """Run the script of a kit on the stand-in."""
    paths = (str(STAND_IN), str(ROOT))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NPU_SIM_LIE": lie}
    done = subprocess.run(
        [sys.executable, "run_on_device.py", "--runs", "2", *options],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    return done


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A kit of the calls, without results."""
    folder = tmp_path_factory.mktemp("kits")
    calls = folder / "calls.jsonl"
    calls.write_text("".join(json.dumps(call) + "\n" for call in CALLS), encoding="utf-8")
    made = npu_sim.kit(calls, soc=SOC, release=RELEASE, out=folder / "kit")
    assert sum(made.calls.values()) == len(CALLS)
    return folder / "kit"


@pytest.fixture
def kit(written, tmp_path):
    """A copy of the kit."""
    return Path(shutil.copytree(written, tmp_path / "kit"))


def found_in(answer):
    """All findings as one text."""
    return "; ".join([*answer.findings, *(text for mode in answer.modes for text in mode.findings)])


def test_an_honest_device_is_confirmed(kit):
    run(kit)
    answer = npu_sim.check_kit(kit)
    assert not answer.contradicted, found_in(answer)
    assert len(answer.modes) == 2 * len(CALLS)
    assert answer.counts["equal"] + answer.counts["reachable"] == len(answer.modes)
    assert {mode.cores == mode.planned_cores for mode in answer.modes} == {True}
    records = [json.loads(line) for line in (kit / "evidence.jsonl").read_text().splitlines()]
    assert len(records) == len(answer.modes)
    assert str(kit) not in (kit / "evidence.jsonl").read_text()


def test_a_rehearsal_shows_what_a_check_will_show_and_writes_nothing(kit, tmp_path):
    before = {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()}
    reported = []
    answer = npu_sim.rehearse_kit(kit, progress=lambda *stage: reported.append(stage))
    assert not answer.contradicted, found_in(answer)
    assert len(answer.modes) == 2 * len(CALLS)
    assert answer.counts["equal"] + answer.counts["reachable"] == len(answer.modes)
    assert {mode.cores == mode.planned_cores for mode in answer.modes} == {True}
    assert all(mode.us == pytest.approx(mode.bound_us) for mode in answer.modes if mode.bound_us)
    assert {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()} == before
    assert "this says nothing of a device" in str(answer)
    assert "nothing is written: a rehearsal is no evidence" in str(answer)
    assert answer.as_dict()["is_rehearsal"]
    assert "Simulated, not measured" in document_of(answer).origin
    assert {stage for stage, _ in reported} == {"playing the device", "judging results"}


def test_the_command_writes_the_page_of_a_rehearsal(written, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.html"
    folder = Path(shutil.copytree(written, tmp_path / "my kit"))
    lines = (folder / "calls.jsonl").read_text().splitlines(keepends=True)
    (folder / "calls.jsonl").write_text(lines[0])
    shown = command(capsys, monkeypatch, "kit", "--rehearse", str(folder), "--report", str(page))
    assert shown.code == 0
    assert shown.out.startswith("rehearsal: npu_sim played an Ascend910B3, 1 call;")
    assert "rehearsal: npu_sim played" in page.read_text(encoding="utf-8")
    both = command(capsys, monkeypatch, "kit", "--rehearse", str(folder), "--check", str(folder))
    assert both.code == 64
    assert "exclude each other" in both.err


def test_the_folder_says_what_to_do_with_it(written):
    text = (written / "README.md").read_text(encoding="utf-8")
    for said in (
        "Ascend910B3",
        "8.5",
        "python run_on_device.py",
        "the 5 calls",
        "35 runs",
        "--no-profile",
    ):
        assert said in text


def test_printed_commands_can_be_typed(tmp_path):
    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps(CALLS[0]) + "\n")
    text = str(npu_sim.kit(calls, soc=SOC, release=RELEASE, out=tmp_path / "my kit"))
    assert f"npu-sim kit --check '{tmp_path / 'my kit'}'" in " ".join(text.split())
    assert text.startswith(f"kit for {SOC}, release {RELEASE}: 1 call, 1 operator, ")


def test_results_behind_a_link_are_neither_written_nor_removed(kit, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").touch()
    (kit / "results").symlink_to(tmp_path / "elsewhere")
    done = run(kit, "", 1)
    assert "results is a link: remove it" in done.stderr
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["mine"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": "x"}'])
def test_a_damaged_note_of_an_earlier_start_is_ignored(kit, text):
    (kit / "running.json").write_text(text)
    run(kit, "", 0, "--only", "rms_norm", "--runs", "1", "--no-profile")
    assert npu_sim.check_kit(kit).missing == (3, 4, 5)


@pytest.mark.long
def test_every_third_call_of_a_chosen_kit_is_confirmed(tmp_path):
    made = npu_sim.kit(soc=SOC, release=RELEASE, out=tmp_path / "kit")
    assert {*made.calls} == {*CALLS_OF_TORCH}
    calls = tmp_path / "kit" / "calls.jsonl"
    chosen = calls.read_text(encoding="utf-8").splitlines(keepends=True)[::3]
    calls.write_text("".join(chosen), encoding="utf-8")
    run(tmp_path / "kit", "", 0, "--runs", "1")
    answer = npu_sim.check_kit(tmp_path / "kit")
    assert not answer.contradicted, found_in(answer)
    assert {mode.number for mode in answer.modes} == {*range(1, sum(made.calls.values()) + 1, 3)}
    assert {mode.outcome for mode in answer.modes} == {"confirmed"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("lie", "finding"),
    [
        ("other order", "elements are impossible"),
        ("drops a row", "elements are impossible"),
        ("rounds twice", "elements are impossible"),
        ("one core fewer", "cores, planned"),
        ("refuses", "the device refused it"),
        ("other kernel", "nothing is judged"),
        ("other soc", "the cores of all kernels are those of Ascend910B1"),
        ("other name", "the results are of Ascend910B4"),
        ("too fast", "are below the bound of"),
        ("has no memory", "the device refused it: MemoryError"),
    ],
)
def test_a_lie_is_found_and_named(kit, lie, finding):
    # The calls of the liar have the same cores on both SoCs.
    run(kit, lie, 0, *(() if lie == "other soc" else ("--only", LIAR)))
    answer = npu_sim.check_kit(kit)
    assert answer.contradicted
    assert finding in found_in(answer)


@pytest.mark.long
def test_a_crash_is_recorded_and_the_rest_runs_after_a_new_start(kit):
    run(kit, "crashes", expected=1)
    run(kit, "crashes")
    answer = npu_sim.check_kit(kit)
    assert "the process ended in this call" in found_in(answer)
    assert not answer.missing
    assert answer.counts["not run"] == 1


@pytest.mark.long
def test_a_second_start_runs_what_is_missing(kit):
    run(kit, "", 0, "--only", "rms_norm")
    assert npu_sim.check_kit(kit).missing == (3, 4, 5)
    before = (kit / "results/001/done.json").stat().st_mtime_ns
    run(kit)
    assert npu_sim.check_kit(kit).missing == ()
    assert (kit / "results/001/done.json").stat().st_mtime_ns == before


@pytest.mark.long
def test_results_of_another_call_are_not_judged(kit):
    run(kit)
    lines = [json.loads(line) for line in (kit / "calls.jsonl").read_text().splitlines()]
    lines[0]["attributes"]["epsilon"] = 1e-2
    (kit / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = npu_sim.check_kit(kit)
    assert "the results are of another call" in found_in(answer)
    assert answer.counts["not judged"] == 1


@pytest.mark.long
def test_inputs_that_the_device_made_otherwise_are_not_judged(kit):
    run(kit)
    path = kit / "results/001/done.json"
    done = json.loads(path.read_text())
    done["inputs"]["x"] = "0" * 64
    path.write_text(json.dumps(done))
    answer = npu_sim.check_kit(kit)
    assert "the results are of other inputs: x" in found_in(answer)
    assert answer.counts["not judged"] == 1


@pytest.mark.long
def test_a_damaged_result_is_unreadable_and_the_others_are_judged(kit):
    run(kit)
    path = next((kit / "results/001/off/run0").glob("*.npy"))
    array = np.load(path)
    array.reshape(-1)[0] += 1
    np.save(path, array)
    answer = npu_sim.check_kit(kit)
    assert "not what the script wrote" in found_in(answer)
    assert [mode.verdict for mode in answer.modes].count("unreadable") == 1
    assert answer.counts["equal"] + answer.counts["reachable"] == 2 * len(CALLS) - 1


def test_the_script_says_how_many_calls_and_how_much_time_are_left(kit):
    (kit / "results/001").mkdir(parents=True)
    (kit / "results/001/done.json").write_text("{}")
    first, *calls, last = run(kit, "", 0, "--no-profile").stdout.splitlines()
    assert first == "5 calls, 4 of them to run, 3 times each"
    timed = [re.fullmatch(r"(\d) of 5 \w+, about \d+ s left", line) for line in calls[:3]]
    assert [found[1] for found in timed] == ["2", "3", "4"]
    assert re.fullmatch(r"5 of 5 \w+", calls[3])
    assert last.startswith("done: 5 calls, 0 with errors")


def test_an_operator_of_which_the_kit_has_no_call_is_refused(kit):
    said = run(kit, "", 1, "--only", "rmsnorm").stderr
    assert "--only rmsnorm: no call of it; this kit has embedding_dense_backward, " in said


def test_without_torch_npu_the_script_says_what_it_needs(kit):
    done = subprocess.run(
        [sys.executable, "run_on_device.py"], cwd=kit, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("run_on_device.py needs torch and torch_npu")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("python", [sys.executable, os.environ.get("NPU_SIM_PYTHON_3_8")])
def test_the_script_runs_without_npu_sim(kit, python):
    """NPU_SIM_PYTHON_3_8 names a Python 3.8 with NumPy."""
    if python is None:
        pytest.skip("NPU_SIM_PYTHON_3_8 names no Python")
    lines = (kit / "calls.jsonl").read_text().splitlines()[:2]
    refused = json.loads(lines[1])
    refused["inputs"]["x"]["shape"] = [1, 33]
    (kit / "calls.jsonl").write_text(f"{lines[0]}\n{json.dumps(refused)}\n")
    done = subprocess.run(
        [python, "run_on_device.py", "--no-profile"],
        cwd=kit,
        env={"PYTHONPATH": str(Path(__file__).parent / "bare")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = (
        json.loads((kit / "results" / number / "done.json").read_text())
        for number in ("001", "002")
    )
    assert [run["count"] for mode in first["modes"] for run in mode["runs"]] == [3, 2]
    assert first["modes"][0]["runs"][0]["results"]["y.bfloat16"] == first["inputs"]["x"]
    assert [mode["error"][-6:] for mode in second["modes"]] == ["561002", "561002"]


def test_a_folder_in_use_is_not_written_to(kit):
    with pytest.raises(npu_sim.UsageError, match="not an empty folder"):
        npu_sim.kit(soc=SOC, out=kit)


def test_calls_that_torch_does_not_reach_are_listed(tmp_path):
    lines = [{"op": "rms_norm", "inputs": {"x": "4x8:fp32", "gamma": "8:fp32"}}, {"op": "Nothing"}]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = npu_sim.kit(tmp_path / "calls.jsonl", out=tmp_path / "kit")
    assert dict(made.calls) == {"rms_norm": 1}
    assert made.left_out[0].startswith("line 2:")


def test_inputs_are_the_same_on_every_machine():
    assert [hex(bits) for bits in random_bits(1, 2)] == ["0x910a2dec89025cc1", "0xbeeb8da1658eec67"]
    tensor = {"shape": [64, 3], "dtype": "float32", "seed": 5, "values": "special"}
    assert checksum(make_input(tensor))[:16] == "d1610c3a0e0ec2f7"
    positive = make_input({**tensor, "values": "positive"})
    assert np.all(positive > 0)
    assert checksum(positive)[:16] == "c6d01254ae9c5d5c"
    large = {"shape": [PIECE + 5], "dtype": "bfloat16", "seed": 7, "values": "normal"}
    assert np.array_equal(make_input(large), floating(random_bits(7, PIECE + 5), "bfloat16"))
    values = floating(random_bits(3, 4096), "float16").view(np.float16)
    assert 0.125 <= np.abs(values).min() <= np.abs(values).max() < 2
