from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.operators.add_rms_norm.study import add_and_norm, in_call_of
from npu_sim.operators.shared.generate import generate
from npu_sim.operators.shared.study import formula_results, study_call
from npu_sim.status import NotModelledError
from npu_sim.studies.caveats import find_caveat
from tests.operators.refusals import blame_of, refusal_of

OPERATOR, F, BF16 = "add_rms_norm", np.float32, ml_dtypes.bfloat16
INFERENCE = {"product": "atlas_inference"}
OLD = {"release": "8.5"}
IN_PLACE = {"in_place": True}
SHORT = {"outputs": "y_only", "gamma": "1x128:fp16", "dtype": "fp16"}


def plan(shape="60x128", columns="128", dtype="fp32", **changes):
    call = {"x1": f"{shape}:{dtype}", "x2": f"{shape}:{dtype}", "gamma": f"{columns}:{dtype}"}
    return npu_sim.plan(OPERATOR, **{"product": "atlas_a2", **call, **changes})


refusal = partial(refusal_of, plan)


def data(rows, columns, dtype=BF16, seed=0):
    random = np.random.default_rng(seed)
    x1, x2 = (random.standard_normal((rows, columns), F).astype(dtype) for _ in range(2))
    gamma = (1 + 0.1 * random.standard_normal(columns)).astype(dtype)
    return {"x1": x1, "x2": x2, "gamma": gamma}


def codes(**call):
    return {caveat.code for caveat in plan(**call).caveats}


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "x1", {"x1": None}),
        (161001, "gamma", {"gamma": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "outputs", {"outputs": "some"}),
        (161001, "rstd", {**SHORT, **OLD}),
        (161001, "rstd", {**SHORT, **IN_PLACE}),
        (161002, "x1", {"dtype": "fp64"}),
        (161002, "x1", {"dtype": "bf16", **INFERENCE}),
        (161002, "gamma", {"dtype": "bf16", "gamma": "128:fp32"}),
        (161002, "x2", {"x2": "60x128:fp16"}),
        (161002, "rstd", {"rstd": "60x1:fp16"}),
        (161002, "x1", {"outputs": "no_rstd", "gamma": "1x128:fp32"}),
        (161002, "x1", {"shape": "1x1x1x1x1x1x1x60x128"}),
        (161002, "x2", {"x2": "60x127:fp32"}),
        (161002, "y", {"y": "60x127:fp32"}),
        (161002, "x", {"x": "128x60:fp32"}),
        (161002, "gamma", {"columns": "127"}),
        (161002, "gamma", {"columns": "1x60x128"}),
        (161002, "gamma", {**SHORT, "gamma": "128:fp16"}),
        (161002, "gamma", {**SHORT, "shape": "0x60x128", "gamma": "1x1x128:fp16"}),
        (161002, "rstd", {"rstd": "60:fp32"}),
        (161002, "epsilon", {"epsilon": -1e-6}),
        (561002, "x2", {"x2": "60x127:fp32", **OLD}),
        (561002, "gamma", {"columns": "127", **IN_PLACE}),
        (561002, "epsilon", {"epsilon": -1e-6, **OLD}),
        (561002, "x1", {"shape": "0x128", **IN_PLACE}),
        (561002, "x1", {"shape": "0x128", **OLD}),
        (161002, "x2", {"x2": "60x128:fp32:strided", **IN_PLACE}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


def test_a_refusal_of_the_planner_names_what_a_device_says():
    assert "561103" in refusal(columns="127").message
    assert "561103" not in refusal(columns="127", **OLD).message


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": "3x20x4x32", "columns": "4x32", "rstd": "3x20x1x1:fp32"},
        {"shape": "128"},
        {"epsilon": -1e-50},
        {"epsilon": float("inf")},
        {**SHORT, "shape": "2x30x128"},
        {"release": "8.3"},
        {"shape": "60x8", "columns": "8", **INFERENCE, "dtype": "fp16"},
    ],
)
def test_calls_that_run(changes):
    assert plan(**changes).block_dim > 0


@pytest.mark.parametrize("release", ["9.0", "9.1"])
@pytest.mark.parametrize("gamma", ["128", "5"])
def test_an_empty_x1_runs_nothing_whatever_gamma_is(release, gamma):
    empty = plan(shape="0x128", columns=gamma, epsilon=-1.0, release=release)
    assert (empty.block_dim, empty.workspace.total_bytes, empty.kernel) == (0, 0, "")


def test_release_9_0_takes_an_empty_x1_of_any_dtype():
    call = {"shape": "0x128", "dtype": "fp64"}
    assert plan(release="9.0", **call).block_dim == 0
    assert blame_of(refusal(release="9.1", **call)) == (161002, "x1")


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 16777728),
        ({**SHORT, "outputs": "no_rstd"}, 16778240),
        (SHORT, 16778752),
        ({**SHORT, "release": "9.0"}, 16777472 + 4 * 60 * 128 + 256 + 1024),
        (OLD, 16777472),
        (IN_PLACE, 16777472),
        ({"x1": "60x128:fp32:strided"}, 16777728 + 31232),
        ({"x": "60x128:fp32:strided"}, 16777728 + 31232),
    ],
)
def test_the_workspace_of_the_whole_call(changes, total):
    assert plan(**changes).workspace.total_bytes == total


def test_launches_of_strided_tensors():
    strided = "60x128:fp32:strided"
    found = plan(x2=strided, y=strided)
    assert [launch.kernel for launch in found.launches][1:] == ["AddRmsNorm", "ViewCopy"]
    assert plan(**IN_PLACE).launches[0].kernel == "InplaceAddRmsNorm"


@pytest.mark.parametrize("dtype", [F, np.float16, BF16])
@pytest.mark.parametrize(("rows", "columns"), [(7, 300), (70, 300), (70, 2500), (3, 13000)])
def test_results_are_near_the_formula(dtype, rows, columns):
    call = data(rows, columns, dtype)
    results = npu_sim.run(OPERATOR, **call).outputs
    exact = formula_results(OPERATOR, study_call(OPERATOR, call).arguments, call)
    tolerance = {F: 1e-6, np.float16: 2e-3, BF16: 1.6e-2}[dtype]
    for name, values in exact.items():
        found = results[name].astype(np.float64)
        assert np.allclose(found, values, rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize("outputs", ["no_rstd", "y_only"])
def test_fewer_outputs_have_the_same_bits(outputs):
    call = data(60, 3000)
    whole = npu_sim.add_rms_norm(**call)
    y, rstd, x = npu_sim.add_rms_norm(
        **{**call, "gamma": call["gamma"][np.newaxis]}, outputs=outputs
    )
    assert rstd is None
    assert np.array_equal(y, whole[0])
    assert x is None if outputs == "y_only" else np.array_equal(x, whole[2])


def test_the_inference_series_returns_no_rstd():
    y, rstd, x = npu_sim.add_rms_norm(**data(60, 128, np.float16), product="atlas_inference")
    assert (y.shape, rstd, x.shape) == ((60, 128), None, (60, 128))
    assert "rstd_not_written" in codes(dtype="fp16", **INFERENCE)


def test_bf16_has_other_bits_in_decode_than_in_prefill():
    call = data(49, 4096)
    few = {name: array[:40] if array.ndim > 1 else array for name, array in call.items()}
    prefill, decode = (npu_sim.run(OPERATOR, product="atlas_a2", **one) for one in (call, few))
    assert (prefill.plan.tiling_key, decode.plan.tiling_key) == (30, 33)
    y, rstd, x = (
        np.mean(prefill.outputs[name][:40] != decode.outputs[name]) for name in ("y", "rstd", "x")
    )
    assert x == 0
    assert rstd > 0.95
    assert 0.15 < y < 0.25


@pytest.mark.parametrize(("dtype", "columns"), [(BF16, 2000), (np.float16, 4096), (F, 4096)])
def test_other_rows_do_not_depend_on_their_number(dtype, columns):
    call = data(49, columns, dtype)
    few = {name: array[:5] if array.ndim > 1 else array for name, array in call.items()}
    whole, part = (npu_sim.run(OPERATOR, product="atlas_a2", **one).outputs for one in (call, few))
    assert all(np.array_equal(whole[name][:5], part[name]) for name in part)


@pytest.mark.parametrize(
    ("code", "call", "other"),
    [
        ("not_batch_invariant", {"shape": "41x4096", "columns": "4096", "dtype": "bf16"}, {}),
        ("two_roundings", {"dtype": "fp16"}, {}),
        ("differs_from_add_and_rms_norm", {}, {"dtype": "fp16"}),
        (
            "rstd_of_unrounded_sum",
            {"shape": "4096x4096", "columns": "4096", "dtype": "bf16"},
            {"shape": "8x4096", "columns": "4096", "dtype": "bf16"},
        ),
        (
            "element_offset_wraps",
            {"shape": "1048577x4096", "columns": "4096"},
            {"shape": "1048576x4096", "columns": "4096"},
        ),
        ("reserved_ub_used", {"shape": "9x29088", "columns": "29088"}, {}),
        (
            "short_rows_overwrite",
            {"shape": "60x7", "columns": "7", **INFERENCE},
            {"shape": "60x8", "columns": "8", **INFERENCE},
        ),
        ("x_copy_race", OLD, {"release": "9.0"}),
        ("few_cores", {"shape": "49x128"}, {"shape": "48x128"}),
        ("few_cores", {"shape": "47x128"}, {"shape": "96x128"}),
        ("zero_rows_without_epsilon", {"epsilon": 0.0}, {}),
        ("gamma_not_checked", {**SHORT, "gamma": "1x64:fp16", "release": "9.0"}, SHORT),
    ],
)
def test_warnings(code, call, other):
    assert code in codes(**call)
    assert code not in codes(**other)


def test_a_gamma_that_the_release_does_not_check_is_planned_and_not_computed():
    call = data(60, 128, np.float16) | {"gamma": np.ones((1, 64), np.float16)}
    with pytest.raises(NotModelledError, match="gamma_not_checked"):
        npu_sim.run(OPERATOR, outputs="y_only", release="9.0", **call)


@pytest.mark.parametrize("limits", ["documented", "hardware"])
def test_pieces_that_reach_into_the_reserved_bytes_do_not_overflow(limits):
    call = {"x1": "9x29088:fp32", "gamma": "29088:fp32", "soc": "Ascend910B3", "limits": limits}
    plan = npu_sim.plan("add_rms_norm", **call)
    (buffer,) = plan.memories
    assert (buffer.used_bytes, buffer.capacity_bytes) == (196480, 196352)
    assert plan.outcome == "runs"


def test_squares_that_overflow_are_reported():
    x = np.full((2, 100), 2e19, F)
    found = npu_sim.run(OPERATOR, x1=x, x2=np.zeros_like(x), gamma=np.ones(100, F))
    assert (found.outputs["rstd"] == 0).all()
    assert "squares_overflow" in {caveat.code for caveat in found.caveats}


def test_ascend_950_rounds_once_and_plans_one_row_without_rstd():
    call = data(60, 256)
    results = npu_sim.run(OPERATOR, product="ascend_950", **call).outputs
    total = call["x1"].astype(F) + call["x2"].astype(F)
    scaled = total * results["rstd"] * call["gamma"].astype(F)
    assert np.array_equal(results["y"], scaled.astype(BF16))
    short = {**call, "gamma": call["gamma"][np.newaxis]}
    few = npu_sim.run(OPERATOR, product="ascend_950", outputs="no_rstd", **short)
    assert "short_modes_compute_few_rows" in {caveat.code for caveat in few.plan.caveats}
    assert np.array_equal(few.outputs["y"][0], results["y"][0])
    assert (few.outputs["y"][1:] == 0).all()


def test_generated_data_is_that_of_a_trained_network():
    arguments = study_call(OPERATOR, data(50, 256)).arguments
    assert abs(float(np.mean(generate(OPERATOR, arguments)["gamma"].astype(F))) - 1) < 0.05


def test_the_shares_of_the_page_on_rollout_are_those_of_the_specification():
    """Page ``add_rms_norm``, "Consequences": 19 %, 34 %, 25 % and 12 to 19 % of y."""
    for code, bounds in (
        ("not_batch_invariant", {"y": (0.185, 0.195), "rstd": (0.98, 1), "x": (0, 0)}),
        (
            "differs_from_add_and_rms_norm",
            {"bfloat16": (0.335, 0.345), "float16": (0.245, 0.255), "float32": (0.12, 0.19)},
        ),
    ):
        shares = find_caveat(code).experiment()[0]
        assert shares.keys() == bounds.keys()
        for name, (low, high) in bounds.items():
            assert low <= shares[name] <= high, name


def test_add_and_rms_norm_are_batch_invariant():
    call = study_call(OPERATOR, {**data(49, 4096), "product": "atlas_a2"})
    few = call.with_tensors(**{name: call.tensors[name][:7] for name in ("x1", "x2")})
    whole, part = add_and_norm(call), add_and_norm(few)
    assert all(np.array_equal(whole[name][:7], part[name]) for name in whole)


@pytest.mark.parametrize(("rows", "place"), [(49, "decode"), (8, "prefill")])
def test_verify_says_where_the_rows_of_another_template_come_from(rows, place):
    call = data(rows, 4096)
    study = study_call(OPERATOR, {**call, "product": "atlas_a2"})
    y = in_call_of(study, 48 if rows == 49 else 49)["y"]
    answer = npu_sim.verify(OPERATOR, product="atlas_a2", **call, y=y).outputs["y"]
    assert answer.status == "unreachable"
    assert any(place in str(found) for found in answer.explanations)


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_verify_knows_add_and_rms_norm(dtype):
    call = data(60, 4096, dtype)
    results = add_and_norm(study_call(OPERATOR, {**call, "product": "atlas_a2"}))
    answer = npu_sim.verify(OPERATOR, product="atlas_a2", **call, y=results["y"]).outputs["y"]
    assert answer.status == "unreachable"
    assert any("then RmsNorm" in str(found) for found in answer.explanations)


def test_a_root_that_differs_by_a_unit_is_undecided():
    call = data(60, 256, F)
    rstd = npu_sim.run(OPERATOR, product="atlas_a2", **call).outputs["rstd"]
    near = np.nextafter(rstd, np.float32(np.inf))
    far = rstd + 5 * np.spacing(rstd)
    found = [
        npu_sim.verify(OPERATOR, product="atlas_a2", **call, rstd=one).outputs["rstd"].status
        for one in (rstd, near, far)
    ]
    assert found == ["equal", "undecided", "unreachable"]
