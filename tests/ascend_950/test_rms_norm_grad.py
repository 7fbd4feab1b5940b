"""RmsNormGrad on Ascend 950: orders, warnings, and what differs from A2."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.studies.certificate import certify
from tests.cases import every

A5 = "ascend_950"
SMALL = "Ascend950PR_950z"
"""Eight vector cores: rows go to cores from 256 rows on."""
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def call(rows, columns, dtype="fp32", gamma_dtype=None):
    random = np.random.default_rng([rows, columns])
    kind = DTYPES[dtype]
    dy, x = (random.standard_normal((rows, columns), np.float32).astype(kind) for _ in range(2))
    gamma = random.normal(1, 0.2, columns).astype(DTYPES[gamma_dtype or dtype])
    rstd = random.uniform(0.5, 2, rows).astype(np.float32)
    return {"dy": dy, "x": x, "rstd": rstd, "gamma": gamma}


@pytest.mark.parametrize(
    ("rows", "columns"),
    every(
        2,
        [
            (1, 3),
            (2, 64),
            (3, 100),
            (17, 128),
            (100, 130),
            (160, 7),
            (161, 5),
            (200, 65),
            (450, 300),
        ],
    ),
)
@pytest.mark.parametrize("dtype", every(2, ["fp32", "bf16"]))
def test_columns_and_rows_are_added_as_their_declared_trees(rows, columns, dtype):
    dgamma, *mean = certify("rms_norm_grad", product=A5, **call(rows, columns, dtype))
    assert dgamma.agrees is True
    if dtype == "fp32":  # probes of a mean of more columns than bf16 can count are not exact
        assert [one.agrees for one in mean] == [True] * (columns > 2)


@pytest.mark.parametrize(
    ("rows", "columns"),
    every(
        8, [(256, 8), (300, 20), (500, 40), (511, 60), (512, 33), (513, 64), (700, 65), (1100, 3)]
    ),
)
def test_many_rows_are_added_as_their_declared_tree(rows, columns):
    inputs = call(rows, columns)
    assert npu_sim.plan("rms_norm_grad", soc=SMALL, **inputs).tiling_key == 9000
    dgamma, *_ = certify("rms_norm_grad", soc=SMALL, **inputs)
    assert dgamma.agrees is True


@pytest.mark.parametrize("columns", every(5, [6145, 8192, 10000, 12289, 16384]))
def test_wide_rows_are_added_as_their_declared_tree(columns):
    certificates = certify("rms_norm_grad", product=A5, **call(2, columns))
    assert [one.agrees for one in certificates] == [True, True]


def test_the_last_column_is_left_out_of_the_mean():
    inputs = call(2, 8193)
    plan = npu_sim.plan("rms_norm_grad", product=A5, **inputs)
    assert "last_column_left_out_of_mean" in {caveat.code for caveat in plan.caveats}
    before = npu_sim.run("rms_norm_grad", product=A5, **inputs).outputs
    inputs["dy"][:, -1] = 1000
    after = npu_sim.run("rms_norm_grad", product=A5, **inputs).outputs
    assert np.array_equal(before["dx"][:, :-1], after["dx"][:, :-1])
    assert (before["dx"][:, -1] != after["dx"][:, -1]).all()
    assert before["dgamma"][-1] != after["dgamma"][-1]


def test_from_9_2_on_the_mean_has_the_last_column():
    inputs = call(2, 8193)
    plan = npu_sim.plan("rms_norm_grad", product=A5, release="9.2", **inputs)
    assert plan.tiling["dxTilingData"]["bodyPart"] == 8192
    certificates = certify("rms_norm_grad", product=A5, release="9.2", **inputs)
    assert [one.agrees for one in certificates] == [True, True]


def test_from_9_2_on_dx_has_one_rounding_less():
    inputs = call(40, 130)
    old, new = (
        npu_sim.run("rms_norm_grad", product=A5, release=release, **inputs).outputs
        for release in ("9.1.1", "9.2")
    )
    assert old["dgamma"].tobytes() == new["dgamma"].tobytes()
    differ = (old["dx"] != new["dx"]).mean()
    assert 0.05 < differ < 0.5
    narrow = call(40, 130, "bf16")
    assert differ > 20 * np.mean(
        npu_sim.run("rms_norm_grad", product=A5, release="9.1.1", **narrow).outputs["dx"]
        != npu_sim.run("rms_norm_grad", product=A5, release="9.2", **narrow).outputs["dx"]
    )


def test_from_9_2_on_dgamma_of_no_rows_is_0():
    inputs = call(0, 100)
    result = npu_sim.run("rms_norm_grad", product=A5, release="9.2", **inputs)
    assert not result.outputs["dgamma"].any()
    assert [step["note"] for step in steps(result.plan)["tiles"]] == ["clear"]


@pytest.mark.parametrize("shape", ["100x1000", "4096x8192", "100000x64", "2x8193", "0x64"])
def test_what_9_2_changes_is_a_model_and_says_so(shape):
    columns = shape.partition("x")[2]
    specs = {"dy": f"{shape}:bf16", "gamma": f"{columns}:bf16"}
    plans = {
        one: npu_sim.plan("rms_norm_grad", soc=soc, release=one, **specs)
        for soc in (SMALL,)
        for one in ("9.1", "9.1.1", "9.2")
    }
    assert plans["9.1"].evidence == plans["9.1.1"].evidence
    assert plans["9.2"].evidence == "model"
    assert [caveat.code for caveat in plans["9.2"].caveats] == ["release_inferred"]
    if shape.startswith("0"):
        return
    a2 = npu_sim.plan("rms_norm_grad", product="atlas_a2", release="9.2", **specs)
    assert a2.evidence == "exact"


def test_verify_names_the_release_by_the_bits_of_dx():
    inputs = call(40, 130)
    for release in ("9.1", "9.2"):
        dx = npu_sim.run("rms_norm_grad", soc=SMALL, release=release, **inputs).outputs["dx"]
        answer = npu_sim.verify("rms_norm_grad", soc=SMALL, dx=dx, **inputs)
        assert (answer.status, answer.release) == ("equal", release)


def test_without_rows_dgamma_is_nan():
    result = npu_sim.run("rms_norm_grad", product=A5, **call(0, 100))
    assert result.plan.tiling_key == 8000
    assert result.outputs["dx"].shape == (0, 100)
    assert np.isnan(result.outputs["dgamma"]).all()
    with pytest.raises(npu_sim.AclnnError):
        npu_sim.run("rms_norm_grad", product="atlas_a2", **call(0, 100))


@pytest.mark.long
def test_the_switch_changes_nothing_and_dx_does_not_depend_on_rows():
    inputs = call(300, 1000, "bf16", "fp32")
    off, on = (
        npu_sim.run("rms_norm_grad", product=A5, deterministic=switch, **inputs)
        for switch in (False, True)
    )
    assert off.plan.tiling == on.plan.tiling
    for name in ("dx", "dgamma"):
        assert off.outputs[name].tobytes() == on.outputs[name].tobytes()
    row = {name: inputs[name][40:41] for name in ("dy", "x", "rstd")}
    alone = npu_sim.run("rms_norm_grad", soc=SMALL, **row, gamma=inputs["gamma"]).outputs["dx"]
    assert alone.tobytes() == off.outputs["dx"][40:41].tobytes()


@pytest.mark.parametrize(
    ("shape", "dtypes", "codes"),
    [
        ("4096x8192", "bf16 bf16", set()),
        ("64x104", "bf16 fp32", {"stale_gamma_lanes"}),
        ("64x105", "bf16 fp32", set()),
        ("64x106", "bf16 bf16", set()),
        ("64x120", "bf16 fp32", {"stale_gamma_lanes"}),
        ("64x121", "bf16 fp32", set()),
        ("64x16385", "bf16 fp32", {"last_column_left_out_of_mean"}),
        ("64x16386", "bf16 fp32", set()),
        ("1000000x8192", "bf16 bf16", {"offsets_wrap"}),
        ("0x64", "bf16 bf16", {"dgamma_is_nan"}),
    ],
)
def test_warnings(shape, dtypes, codes):
    dtype, gamma = dtypes.split()
    columns = shape.partition("x")[2]
    specs = {"dy": f"{shape}:{dtype}", "gamma": f"{columns}:{gamma}"}
    plan = npu_sim.plan("rms_norm_grad", product=A5, **specs)
    assert {caveat.code for caveat in plan.caveats} == codes
    assert all("not run on a device" in caveat.message for caveat in plan.caveats)
    assert all(order.fixed for order in plan.order)


@pytest.mark.parametrize(
    ("specs", "status"),
    [
        ({"dy": "4x0:bf16", "gamma": "0:bf16"}, 561002),
        ({"dy": "2147483648x1:bf16", "gamma": "1:bf16"}, 561002),
        ({"dy": "4x8:fp32", "gamma": "8:bf16"}, 161002),
    ],
)
def test_refusals(specs, status):
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan("rms_norm_grad", product=A5, **specs)
    assert caught.value.status == status


@pytest.mark.parametrize("shape", ["100x1000", "4096x8192", "100000x64", "300x100000", "0x20000"])
def test_every_path_has_a_bound_and_steps(shape):
    columns = shape.partition("x")[2]
    specs = {"dy": f"{shape}:bf16", "gamma": f"{columns}:fp32"}
    plan = npu_sim.plan("rms_norm_grad", product=A5, **specs)
    assert plan.outcome == "runs"
    bound = timeline(plan, load_profile(A5))
    assert bound.bound_us > 0
    assert bound.binding_pipe in ("MTE2", "MTE3")
    assert steps(plan)["tiles"]
