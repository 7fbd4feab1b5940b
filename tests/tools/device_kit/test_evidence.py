"""Evidence of devices: the files are replayed, and plans of their paths name the device."""

import json
from pathlib import Path

import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.plans.device_evidence import evidence_by_path, evidence_folder
from npu_sim.plans.model import Plan
from npu_sim.tools.device_kit.check import JudgedCall, ModeCheck, plan_or_error
from npu_sim.tools.device_kit.results import Line
from npu_sim.tools.device_kit.run_on_device import checksum
from tests.tools.device_kit.test_loop import kit, run, written

__all__ = ["kit", "written"]

RECORD = {
    "schema": "npu_sim.evidence/1",
    "product": "atlas_a2",
    "soc": "Ascend910B3",
    "release": "8.5",
    "outcome": "confirmed",
    "operator": "rms_norm",
    "deterministic": False,
}
CALL = {"x": "200x96:bf16", "gamma": "96:bf16", "product": "atlas_a2"}


def differences(record):
    """Return what a record says and npu_sim does not: plan, cores, bits of fixed orders."""
    profile, switch = load_profile(None, record["soc"], record["release"]), record["deterministic"]
    line = Line.model_validate_json(json.dumps({"number": 1, **record}))
    made = plan_or_error(line, profile, switch)
    if not isinstance(made, Plan):
        return [] if int(made.status) == record["planned_status"] else ["status"]
    now = {
        "planned_status": 0,
        "kernel": made.kernel,
        "tiling_key": made.tiling_key,
        "path": str(made.path),
        "planned_cores": made.block_dim,
    }
    found = [name for name, value in now.items() if record[name] != value]
    if record["verdict"] != "equal" or record["derived"]:
        return found
    tensors = JudgedCall(line, Path(), profile).tensors({})
    result = npu_sim.run(
        record["operator"],
        product=profile,
        deterministic=switch,
        **{**tensors, **record["attributes"]},
    )
    fixed = [order.output for order in made.order if order.fixed or switch]
    for name, digest in record["results"].items():
        output = name.partition(".")[0]
        if output in fixed and checksum(stored(result.outputs[output])) != digest:
            found.append(name)
    return found


def stored(array):
    """Return an output as the script stores it."""
    return array.view("uint16") if array.dtype.name == "bfloat16" else array


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Return a function that writes records of outcomes for the path of CALL and loads them."""
    planned = npu_sim.plan("rms_norm", **CALL)
    path = {"kernel": planned.kernel, "tiling_key": planned.tiling_key, "path": str(planned.path)}

    def write(*changes):
        records = [{**RECORD, **path, **change} for change in changes]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / "evidence.jsonl").write_text(text, encoding="utf-8")
        found = evidence_by_path(tmp_path)
        monkeypatch.setattr("npu_sim.framework.planning.shipped_evidence", lambda: found)
        return npu_sim.plan("rms_norm", **CALL)

    return write


def test_a_plan_of_a_confirmed_path_names_the_device(says):
    plan = says({})
    assert plan.device_evidence == "confirmed on Ascend910B3 (CANN 8.5)"
    assert plan.as_dict()["device_evidence"] == plan.device_evidence
    assert "exact, confirmed on Ascend910B3 (CANN 8.5)" in " ".join(str(plan).split())
    assert "confirmed on Ascend910B3 (CANN 8.5)" in plan._repr_html_()


def test_sizes_of_the_same_path_share_the_evidence(says):
    says({})
    plan = npu_sim.plan("rms_norm", **{**CALL, "x": "300x96:bf16"})
    assert plan.device_evidence == "confirmed on Ascend910B3 (CANN 8.5)"
    assert not npu_sim.plan("rms_norm", **CALL, deterministic=True).device_evidence
    assert not npu_sim.plan("rms_norm", **{**CALL, "product": "atlas_a3"}).device_evidence


def test_a_contradiction_is_said_too(says):
    plan = says({}, {}, {"outcome": "contradicted", "soc": "Ascend910B1"}, {"outcome": "open"})
    assert plan.device_evidence == (
        "confirmed on Ascend910B3 (CANN 8.5); contradicted on Ascend910B1 (CANN 8.5)"
    )


def test_an_undecided_or_refused_call_says_nothing_of_a_path(says):
    assert says({"outcome": "open"}, {"path": ""}).device_evidence == ""


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"verdict": "reachable"}, "confirmed"),
        ({"verdict": "unreachable"}, "contradicted"),
        ({"verdict": "undecided"}, "open"),
        ({"verdict": "not judged"}, "open"),
        ({"verdict": "not run", "status": None}, "open"),
        ({"verdict": "equal", "status": None}, "open"),
        ({"verdict": "not run", "status": 561002}, "contradicted"),
        ({"verdict": "not run", "status": 0, "planned_status": 161002}, "contradicted"),
        ({"verdict": "not run", "status": 161002, "planned_status": 161002}, "confirmed"),
        ({"verdict": "equal", "cores": 39, "planned_cores": 40}, "contradicted"),
        ({"verdict": "equal", "us": 3.0, "bound_us": 4.0}, "contradicted"),
    ],
)
def test_an_outcome_follows_from_all_that_was_measured(fields, outcome):
    assert ModeCheck(1, "rms_norm", False, "", **{"status": 0, **fields}).outcome == outcome


def test_the_shipped_files_are_replayed():
    for file in sorted(evidence_folder().glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            assert differences(json.loads(line)) == [], f"{file.name}, line {number}"


def test_a_replay_finds_other_bits_and_another_plan(kit):
    run(kit, "", 0, "--only", "rms_norm")
    npu_sim.check_kit(kit)
    records = [json.loads(line) for line in (kit / "evidence.jsonl").read_text().splitlines()]
    assert [differences(record) for record in records] == [[]] * 4
    assert {record["outcome"] for record in records} == {"confirmed"}
    name = next(iter(records[0]["results"]))
    changed = {**records[0]["results"], name: "0" * 64}
    assert differences({**records[0], "results": changed}) == [name]
    assert differences({**records[0], "planned_cores": 3}) == ["planned_cores"]
