"""A kit that came back from a machine of others: damaged parts are named, the rest is judged."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16

import npu_sim
from npu_sim.tools.device_kit.check import status_in
from npu_sim.tools.device_kit.results import MOST_ELEMENTS
from npu_sim.tools.device_kit.run_on_device import checksum, digest_of, make_input
from tests.cli.runner import npu_sim as command

SOC, RELEASE = "Ascend910B3", "8.5"
CALLS = (
    {"op": "rms_norm", "inputs": {"x": "20x96:fp32", "gamma": "96:fp32", "epsilon": 1e-6}},
    {"op": "swi_glu", "inputs": {"x": "4x64:bf16"}},
)


def computed(folder, line):
    """Write the results of a call as the script writes them, computed by npu_sim."""
    call = json.loads(line)
    inputs = {name: make_input(tensor) for name, tensor in call["inputs"].items()}
    tensors = {
        name: array.view(bfloat16) if call["inputs"][name]["dtype"] == "bfloat16" else array
        for name, array in inputs.items()
    }
    modes = []
    for deterministic in (False, True):
        outputs = npu_sim.run(
            call["operator"],
            soc=SOC,
            release=RELEASE,
            deterministic=deterministic,
            **tensors,
            **call["attributes"],
        ).outputs
        place = folder / ("on" if deterministic else "off") / "run0"
        place.mkdir(parents=True)
        digests = {}
        for name, array in outputs.items():
            is_bf16 = array.dtype == bfloat16
            stored = array.view(np.uint16) if is_bf16 else array
            key = f"{name}.bfloat16" if is_bf16 else name
            np.save(place / f"{key}.npy", stored)
            digests[key] = checksum(stored)
        runs = [{"folder": "run0", "count": 3, "results": digests}]
        modes.append({"deterministic": deterministic, "runs": runs})
    done = {
        "call": digest_of(line.encode()),
        "inputs": {name: checksum(array) for name, array in inputs.items()},
        "modes": modes,
    }
    (folder / "done.json").write_text(json.dumps(done))


def played(folder, *calls):
    """Return a kit of calls with the results of an honest device."""
    source = folder.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(call) + "\n" for call in calls))
    npu_sim.kit(source, soc=SOC, release=RELEASE, out=folder)
    lines = (folder / "calls.jsonl").read_text().splitlines()
    for number, line in enumerate(lines, 1):
        computed(folder / "results" / f"{number:03d}", line)
    head = json.loads((folder / "kit.json").read_text())
    device = {"cann": RELEASE, "torch": "2.1.0+cpu", "torch_npu": "2.1.0.post8", **head}
    (folder / "device.json").write_text(json.dumps(device))
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return played(tmp_path_factory.mktemp("kits") / "kit", *CALLS)


@pytest.fixture
def kit(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "kit"))


def edit(path, change):
    """Replace a JSON file by what ``change`` makes of it."""
    value = json.loads(path.read_text())
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed))


def findings(answer):
    return "; ".join([*answer.findings, *(text for mode in answer.modes for text in mode.findings)])


def test_an_honest_device_is_confirmed(kit):
    answer = npu_sim.check_kit(kit)
    assert not answer.contradicted
    assert answer.counts["equal"] == 4


def test_a_link_in_the_folder_is_not_followed(kit, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (kit / "evidence.jsonl").symlink_to("../victim")
    npu_sim.check_kit(kit)
    assert victim.read_text() == "mine"
    assert len((kit / "evidence.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("text", ["$(touch PWNED)", "`id`", "a\nb", "8" * 101, 8.5, None, ["8.5"]])
def test_names_of_a_device_are_names(kit, text):
    edit(kit / "device.json", lambda device: device.update(cann=text))
    with pytest.raises(npu_sim.UsageError, match=r"device.json: cann: "):
        npu_sim.check_kit(kit)


def test_what_else_stands_in_device_json_is_not_repeated(kit):
    edit(kit / "device.json", lambda device: device.update(host="secret"))
    npu_sim.check_kit(kit)
    assert "secret" not in (kit / "evidence.jsonl").read_text()


@pytest.mark.parametrize(("name", "key"), [("kit", "soc"), ("kit", "release"), ("device", "soc")])
def test_a_head_without_a_key_is_refused_with_its_name(kit, name, key):
    edit(kit / f"{name}.json", lambda head: head.pop(key) and None)
    with pytest.raises(npu_sim.UsageError, match=rf"{name}.json: {key}: "):
        npu_sim.check_kit(kit)


def test_a_missing_folder_is_missing(tmp_path):
    with pytest.raises(npu_sim.UsageError, match="No such file"):
        npu_sim.check_kit(tmp_path / "nowhere")


DAMAGED_LINES = {
    "no JSON": "{",
    "a list": "[]",
    "an unknown operator": {"operator": "nothing"},
    "a number as text": {"number": "1"},
    "a negative size": {"inputs": {"x": {"shape": [-1, 4]}}},
    "a huge shape": {"inputs": {"x": {"shape": [40000, 60000]}}},
    "a dtype without numbers": {"inputs": {"x": {"dtype": "int32"}}},
    "an unknown dtype": {"inputs": {"x": {"dtype": "complex64"}}},
    "deep": "[" * 100_000,
}


def merged(value, changes):
    """Return a value with changes put in at every level."""
    if not isinstance(changes, dict):
        return changes
    return {**value, **{name: merged(value.get(name), new) for name, new in changes.items()}}


@pytest.mark.parametrize("name", DAMAGED_LINES)
def test_a_damaged_line_is_named_and_the_other_call_is_judged(kit, name):
    changes, path = DAMAGED_LINES[name], kit / "calls.jsonl"
    first, second = path.read_text().splitlines()
    damaged = (
        changes if isinstance(changes, str) else json.dumps(merged(json.loads(first), changes))
    )
    path.write_text(f"{damaged}\n{second}\n")
    answer = npu_sim.check_kit(kit)
    assert answer.contradicted
    assert [line.partition(":")[0] for line in answer.unreadable] == ["calls.jsonl, line 1"]
    assert answer.counts["equal"] == 2
    assert "line 1: " in str(answer)


def test_the_largest_inputs_of_a_call_are_limited(kit):
    assert MOST_ELEMENTS < 30_000 * 30_000
    with pytest.raises(npu_sim.UsageError, match="no call that torch_npu reaches"):
        npu_sim.kit(
            written_calls(kit, {"op": "swi_glu", "inputs": {"x": "30000x30000:bf16"}}),
            out=kit.parent / "large",
        )


def written_calls(kit, *calls):
    path = kit.parent / "given.jsonl"
    path.write_text("".join(json.dumps(call) + "\n" for call in calls))
    return path


DAMAGED_RESULTS = {
    "no JSON": "{",
    "a list": "[]",
    "no digest of the call": {"call": None},
    "modes as text": {"modes": "both"},
    "no modes": {"modes": []},
    "a mode without runs": {
        "modes": [{"deterministic": mode, "runs": []} for mode in (False, True)]
    },
    "a run elsewhere": {"modes": [{"deterministic": False, "runs": [{"folder": "/etc"}]}]},
    "a run above": {
        "modes": [{"deterministic": False, "runs": [{"folder": "../../002/off/run0"}]}]
    },
    "a missing run": {
        "modes": [
            {"deterministic": False, "runs": [{"folder": "run7", "results": {"y": "0" * 64}}]}
        ]
    },
    "an error that is a number": {"modes": [{"deterministic": False, "runs": [], "error": 7}]},
    "inputs as a list": {"inputs": []},
}


@pytest.mark.parametrize("name", DAMAGED_RESULTS)
def test_a_damaged_result_is_unreadable_and_the_other_call_is_judged(kit, name):
    changes, path = DAMAGED_RESULTS[name], kit / "results/001/done.json"
    if isinstance(changes, str):
        path.write_text(changes)
    else:
        edit(path, lambda done: merged(done, changes))
    answer = npu_sim.check_kit(kit)
    assert answer.contradicted
    assert {mode.verdict for mode in answer.modes if mode.number == 1} == {"unreadable"}
    assert {mode.outcome for mode in answer.modes if mode.number == 1} == {"open"}
    assert answer.counts["equal"] == 2
    assert "unreadable" in str(answer)


@pytest.mark.parametrize("damage", ["truncated", "pickled", "a pipe", "a link to /dev/zero"])
def test_a_damaged_array_is_unreadable_and_the_other_mode_is_judged(kit, damage):
    path = kit / "results/001/off/run0/y.npy"
    content = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[:-9])
    elif damage == "pickled":
        np.save(path, np.array([{}], object))
    elif damage == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    answer = npu_sim.check_kit(kit)
    assert [mode.verdict for mode in answer.modes] == ["unreadable", "equal", "equal", "equal"]


@pytest.mark.parametrize("text", ["", "Name,Type\n\x00", "Type,Duration(us)\nRmsNorm,nan\n"])
def test_a_damaged_profile_of_a_call_is_unreadable(kit, text):
    (kit / "results/001/off/kernel_details.csv").write_text(text)
    answer = npu_sim.check_kit(kit)
    assert [mode.verdict for mode in answer.modes][1:] == ["equal", "equal", "equal"]
    assert answer.contradicted


def test_results_of_another_kit_are_not_judged(kit, tmp_path):
    """The inputs are the same: they depend on the number and place of a call alone."""
    (norm, *others) = CALLS
    changed = {**norm, "inputs": {**norm["inputs"], "epsilon": 1e-2}}
    other = played(tmp_path / "other", changed, *others)
    shutil.rmtree(kit / "results")
    shutil.copytree(other / "results", kit / "results")
    shutil.copy(other / "device.json", kit / "device.json")
    answer = npu_sim.check_kit(kit)
    assert [mode.verdict for mode in answer.modes] == ["not judged", "equal", "equal"]
    assert [mode.status for mode in answer.modes] == [None, 0, 0]
    assert "status 2 of 2 as planned" in " ".join(str(answer).split())
    assert "the results are of another call" in findings(answer)
    assert "device.json is of another kit" in answer.findings
    records = [json.loads(line) for line in (kit / "evidence.jsonl").read_text().splitlines()]
    assert {record["outcome"] for record in records} == {"open"}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("(PID:161234, Device:0) call aclnnRmsNorm failed, error code is 561002", 561002),
        ("RuntimeError: call aclnnRmsNorm failed, detail:EZ1001: [PID: 161234] x", None),
        ("aclnnRmsNormGetWorkspaceSize failed: 161002", 161002),
        ("error code is 161234", None),
        ("561002 rows", None),
        ("MemoryError: ", None),
    ],
)
def test_a_status_is_one_that_aclnn_has_and_that_the_text_calls_so(text, status):
    assert status_in(text) == status


def test_a_crashed_call_is_not_run(kit):
    def crash(done):
        return {"call": done["call"], "crashed": "MemoryError: "}

    edit(kit / "results/001/done.json", crash)
    answer = npu_sim.check_kit(kit)
    assert answer.modes[0].verdict == "not run"
    assert answer.modes[0].findings == ("MemoryError: ",)


def test_the_command_says_what_is_unreadable(kit, capsys, monkeypatch):
    (kit / "results/002/done.json").write_text("{")
    shown = command(capsys, monkeypatch, "kit", "--check", str(kit))
    assert shown.code == 1
    assert "1 unreadable" in " ".join(shown.out.split())


@pytest.mark.parametrize("folder", ["out", "ttk"])
def test_a_file_without_calls_says_what_its_first_line_is(tmp_path, folder):
    calls = tmp_path / "calls.jsonl"
    calls.write_text('{"op": "swi_glu", "inputs": {"x": "4x64:bf16"}, "attributes": {"dim": 1}}\n')
    with pytest.raises(npu_sim.UsageError, match="line 1: 'attributes' is not a key of a call"):
        npu_sim.kit(calls, **{folder: tmp_path / "kit"})
