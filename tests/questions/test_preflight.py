import json

import pytest

import npu_sim
from npu_sim.questions.preflight import Summary, check_line, check_lines
from npu_sim.registry import OPERATORS
from tests.golden import tiling_lines

KERNELS = [kernel for entry in OPERATORS for kernel in entry.kernels]
GOOD = {"op": "embedding_dense_backward", "inputs": {"grad": "64x8:fp32", "indices": "64:int32", "num_weights": 10}}


def checked(**changes):
    return check_line(json.dumps({**GOOD, **changes}))


@pytest.mark.parametrize("kernel", KERNELS)
def test_golden_lines_are_reproduced(kernel):
    summary = Summary()
    lines = tiling_lines(kernel)
    for one in check_lines(json.dumps(line) for line in lines):
        assert one.differences == {}, one
        summary.add(one)
    assert summary.lines == summary.as_expected == len(lines)
    assert summary.not_fine == summary.differ == 0
    expected = [line["expect"] for line in lines if "expect" in line]
    assert summary.peak.workspace_bytes == max(one.get("workspace_bytes", 0) for one in expected)
    assert summary.failed == sum(one["status"] == "failed" for one in expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_golden_line_with_a_wrong_number_is_found(kernel):
    line = next(line for line in tiling_lines(kernel) if line.get("expect", {}).get("status") == "success")
    group = next(iter(line["expect"]["tiling"]))
    line["expect"]["workspace_bytes"] += 1
    line["expect"]["tiling"][group] = -5
    one = check_line(json.dumps(line))
    assert set(one.differences) >= {"workspace_bytes"}
    assert any(name.startswith(f"tiling.{group}") for name in one.differences)
    assert not one.fine


def test_a_call_that_runs_carries_its_plan():
    one = checked(product="atlas_train", deterministic=True)
    planned = npu_sim.plan(GOOD["op"], profile="atlas_train", deterministic=True, **GOOD["inputs"])
    assert one.outcome == "runs"
    assert one.fine
    assert one.plan == planned.as_dict()
    assert one.workspace_bytes == planned.workspace.total_bytes


def test_a_refused_call_carries_status_and_reason():
    one = checked(inputs={**GOOD["inputs"], "indices": "63:int32"})
    assert (one.outcome, one.status, one.fine) == ("refused", 161002, False)
    assert "63" in one.message


def test_expectations_of_a_call_are_compared():
    planned = npu_sim.plan(GOOD["op"], **GOOD["inputs"])
    right = {"status": 0, "block_dim": planned.block_dim, "workspace_bytes": planned.workspace.total_bytes, "path": planned.path}
    assert checked(expect=right).fine
    assert checked(expect={**right, "status": "success"}).fine
    wrong = checked(expect={**right, "block_dim": planned.block_dim + 1})
    assert not wrong.fine
    assert wrong.differences == {"block_dim": {"expected": planned.block_dim + 1, "found": planned.block_dim}}
    refused = {**GOOD["inputs"], "indices": "63:int32"}
    assert checked(inputs=refused, expect={"status": 161002}).fine
    assert not checked(inputs=refused, expect={"status": 0}).fine
    assert not checked(expect={"status": 161002}).fine


def test_tensors_can_be_objects_and_socs_name_their_product():
    inputs = {
        "grad": {"shape": [64, 8], "dtype": "float32", "contiguous": False},
        "indices": {"shape": [64], "dtype": "int32"},
        "num_weights": 10,
    }
    one = checked(inputs=inputs, soc="Ascend910ProB")
    assert (one.product, one.soc, one.outcome) == ("atlas_train", "Ascend910ProB", "runs")
    assert one.plan["arguments"]["grad"] == "64x8:fp32:strided"


def test_profile_files_are_found_beside_the_calls(tmp_path):
    from npu_sim.cores import config_directory

    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("name: atlas_a2", "name: mine"), encoding="utf-8")
    (one,) = check_lines([json.dumps({**GOOD, "product": "mine.yaml"})], directory=tmp_path)
    assert (one.product, one.outcome) == ("mine", "runs")


MALFORMED = [
    ("{", "not JSON"),
    ("[" * 100000, "not"),
    ("[1]", "one JSON object"),
    ("{}", "op is missing"),
    (json.dumps({"op": "rms_norm_grad"}), "inputs is missing"),
    (json.dumps({**GOOD, "op": "embeding"}), "neither operator nor kernel"),
    (json.dumps({**GOOD, "determinstic": True}), "deterministic"),
    (json.dumps({**GOOD, "deterministic": "yes"}), "deterministic"),
    (json.dumps({**GOOD, "limits": "none"}), "limits"),
    (json.dumps({**GOOD, "product": "atlas_a9"}), "atlas_a9"),
    (json.dumps({**GOOD, "product": 5}), "names"),
    (json.dumps({**GOOD, "soc": "Ascend911"}), "Ascend911"),
    (json.dumps({**GOOD, "expect": 5}), "expect"),
    (json.dumps({**GOOD, "level": "kernel"}), "no kernel"),
    (json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "grad": "64xx:fp32"}}), "grad"),
    (json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "grad": {"shape": 5, "dtype": "fp32"}}}), "grad"),
    (json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "gard": "64x8:fp32"}}), "gard"),
    (json.dumps({"op": "embedding_dense_grad_v2", "inputs": {"grad_shape": [5, 5]}}), "missing"),
    (
        json.dumps({"op": "embedding_dense_grad_v2", "soc": "Ascend910B1", "inputs": {"grad_shape": 5}}),
        "cannot be planned",
    ),
]


@pytest.mark.parametrize(("line", "words"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_lines_say_what_is_wrong(line, words):
    one = check_line(line, 17)
    assert (one.line, one.outcome, one.fine) == (17, "malformed", False)
    assert words in one.message


def test_malformed_lines_do_not_stop_the_rest():
    lines = [line for malformed, _ in MALFORMED for line in (malformed, json.dumps(GOOD))]
    found = list(check_lines(["", *lines, "\n"]))
    assert [one.line for one in found] == list(range(2, len(lines) + 2))
    assert [one.outcome for one in found] == ["malformed", "runs"] * len(MALFORMED)
