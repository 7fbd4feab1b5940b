"""Commands as Python functions."""

import json

import pytest

import npu_sim

NORM = {"dy": "4096x8192:bf16", "gamma": "8192:bf16"}
CALLS = [
    {"op": "rms_norm_grad", "count": 65, "inputs": NORM},
    {
        "op": "embedding_dense_backward",
        "inputs": {"grad": "64x8:fp32", "indices": "64:int32", "num_weights": 10},
    },
    {"op": "rms_norm_grad", "inputs": {"dy": "8x16:fp64", "gamma": "16:fp64"}},
]


def test_the_timeline_of_a_call_has_changes_and_both_modes():
    found = npu_sim.timeline("rms_norm_grad", **NORM, soc="910B4")
    assert found.soc == "Ascend910B4"
    assert found.bound_us == sum(launch.us for launch in found.launches)
    assert [price.deterministic for price in found.determinism] == [False, True]


def test_a_workspace_is_that_of_the_plan():
    plan = npu_sim.plan("rms_norm_grad", **NORM)
    assert npu_sim.workspace("rms_norm_grad", **NORM) == plan.workspace


def test_sums_weight_every_call_that_runs_by_its_count():
    matrix = npu_sim.preflight(CALLS, products=["A2", "A3"], timed=True)
    norm = npu_sim.timeline("rms_norm_grad", **NORM)
    gradient = npu_sim.timeline(
        "embedding_dense_backward", grad="64x8:fp32", indices="64:int32", num_weights=10
    )
    for sums in matrix.totals().values():
        assert sums.calls == 66
        assert sums.launches == 65 * len(norm.launches) + len(gradient.launches)
        assert sums.bound_us == pytest.approx(65 * norm.bound_us + gradient.bound_us)
        assert sums.estimates["vector pipe"]["low_us"] == pytest.approx(
            65 * norm.launches[0].estimate.low_us
        )


def test_calls_without_a_program_count_as_0_and_are_counted():
    from npu_sim.questions.preflight_checks import totals

    timed = {"launches": 2, "bound_us": 3.0, "coverage": "", "estimates": {}}
    sums = totals([(timed, 5), ({**timed, "bound_us": None}, 7)])
    assert (sums.calls, sums.launches, sums.bound_us, sums.unbounded) == (12, 24, 15.0, 7)


def test_calls_come_from_a_file_too(tmp_path):
    file = tmp_path / "calls.jsonl"
    file.write_text("".join(json.dumps(call) + "\n" for call in CALLS), encoding="utf-8")
    assert npu_sim.preflight(file).as_dict() == npu_sim.preflight(CALLS).as_dict()
    with pytest.raises(npu_sim.UsageError, match="cannot be read"):
        npu_sim.preflight(tmp_path / "none.jsonl")


def differences(calls, **targets):
    return {
        found.fact: dict(found.values)
        for found in npu_sim.preflight(calls, timed=True, **targets).differences()
    }


def test_another_number_of_cores_and_another_time_are_differences():
    found = differences(CALLS[:1], soc="Ascend910B1,Ascend910B4")
    assert found["cores"] == {48: ("Ascend910B1",), 40: ("Ascend910B4",)}
    assert len(found["time"]) == 2
    assert not found.keys() & {"path", "bits"}


def test_another_path_of_another_product_is_a_difference():
    call = {"op": "rms_norm", "inputs": {"x": "131072x256:fp16", "gamma": "256:fp16"}}
    found = differences([call], products="A2,A3,310P")
    paths = {"merge N": ("atlas_a2", "atlas_a3"), "normal": ("atlas_inference",)}
    assert found["path"] == paths


@pytest.mark.parametrize("products", ["A2,950PR", "950PR,A2"])
def test_bits_of_another_product_are_a_difference_in_any_order(products):
    call = {"op": "rms_norm", "inputs": {"x": "131072x128:bf16", "gamma": "128:bf16"}}
    assert list(differences([call], products=products)["bits"]) == ["the last bit of rstd"]


def test_bits_that_another_release_changes_are_a_difference():
    call = {
        "op": "embedding_dense_backward",
        "inputs": {"grad": "4096x1024:fp32", "indices": "4096:int32", "num_weights": 32000},
    }
    found = differences([call], products="A2", release="8.3,8.5")
    assert list(found["bits"].values()) == [("atlas_a2 8.3 and atlas_a2 8.5",)]


def test_a_preflight_prints_and_has_html():
    plain = npu_sim.preflight(CALLS)
    timed = npu_sim.preflight(CALLS, timed=True)
    assert "calls 3 (67 with their counts)" in " ".join(str(plain).split())
    assert "67 calls, 3 of them distinct: at least" in str(timed)
    assert "Calls by their time" in timed._repr_html_()
