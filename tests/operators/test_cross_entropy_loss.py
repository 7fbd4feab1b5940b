import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.framework.arguments import Arguments
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators.shared.study import formula_results


def codes_of(result):
    return [warning.code for warning in (*result.plan.caveats, *result.caveats)]


INPUT, TARGET = "60x40:fp32", "60:int64"
MISSING, INVALID, RUNTIME, STRIDED, TILING = 161001, 161002, 361001, 561000, 561002
LARGE = "200001x40:fp32", "200001:int64"


def refused(**call):
    with pytest.raises(npu_sim.AclnnError) as raised:
        npu_sim.plan("cross_entropy_loss", **{"input": INPUT, "target": TARGET, **call})
    return int(raised.value.status), raised.value.argument


@pytest.mark.parametrize(
    ("call", "status", "argument"),
    [
        ({"input": None}, MISSING, "input"),
        ({"product": "atlas_train"}, INVALID, "product"),
        ({"product": "atlas_inference"}, INVALID, "product"),
        ({"input": "60x40:int32"}, INVALID, "input"),
        ({"loss": "1:fp16"}, INVALID, "loss"),
        ({"target": "60:int32"}, INVALID, "target"),
        ({"weight": "40:fp16"}, INVALID, "weight"),
        ({"reduction": "average"}, TILING, "reduction"),
        ({"label_smoothing": 1.1}, TILING, "label_smoothing"),
        ({"label_smoothing": -0.1}, TILING, "label_smoothing"),
        ({"input": "60x0:fp32"}, TILING, "input"),
        ({"input": "0x40:fp32", "target": "0:int64"}, TILING, "input"),
        ({"input": "2x30x40:fp32"}, TILING, "input"),
        ({"target": "59:int64"}, TILING, "target"),
        ({"weight": "41:fp32"}, TILING, "weight"),
        ({"loss": "60:fp32"}, TILING, "loss"),
        ({"reduction": "none", "loss": "1:fp32"}, TILING, "loss"),
        ({"log_prob": "60x41:fp32"}, TILING, "log_prob"),
        ({"zloss": "3:fp32"}, TILING, "zloss"),
        ({"lse_for_zloss": "59:fp32"}, TILING, "lse_for_zloss"),
        ({"input": LARGE[0], "target": LARGE[1]}, TILING, "input"),
        ({"target": "60:int32", "product": "ascend_950", "input": "60x0:fp32"}, TILING, "input"),
    ],
)
def test_the_contract_refuses(call, status, argument):
    assert refused(**call) == (status, argument)


@pytest.mark.parametrize(
    "call",
    [
        {"label_smoothing": 1.00000001},
        {"label_smoothing": -1e-50},
        {"label_smoothing": float("nan")},
        {"loss": "scalar:fp32"},
        {"zloss": "0:fp32", "lse_for_zloss": "60:fp32"},
        {"reduction": "none", "loss": "60:fp32", "zloss": "60:fp32"},
        {"lse_square_scale_for_zloss": 0.5, "return_zloss": True},
        {"input": LARGE[0], "target": LARGE[1], "limits": "hardware"},
        {"input": LARGE[0], "target": LARGE[1], "product": "ascend_950"},
        {"target": "60:int32", "product": "ascend_950"},
        {"input": "0x40:fp32", "target": "0:int64", "product": "ascend_950"},
    ],
)
def test_the_contract_allows(call):
    plan = npu_sim.plan("cross_entropy_loss", **{"input": INPUT, "target": TARGET, **call})
    assert plan.path


@pytest.mark.parametrize(("soc", "most"), [("Ascend910B3", 633600), ("Ascend910B1", 760320)])
def test_too_many_rows_leave_no_room_for_columns(soc, most):
    """The page: with 16 bits, 15841 rows on a core leave none, 16017 seem to leave any."""

    def shape(rows):
        return {"input": f"{rows}x64:bf16", "target": f"{rows}:int64"}

    hardware = {"limits": "hardware", "soc": soc}
    assert npu_sim.plan("cross_entropy_loss", **shape(most), **hardware).path
    assert refused(**shape(most + 1), **hardware) == (TILING, "input")
    assert refused(**shape(most * 2), **hardware) == (TILING, "input")


def test_an_empty_call_launches_nothing():
    for product in ("atlas_a2", "ascend_950"):
        plan = npu_sim.plan(
            "cross_entropy_loss",
            input="0x40:fp32",
            target="0:int64",
            reduction="none",
            label_smoothing=2.0,
            product=product,
        )
        assert plan.launches == ()
        assert plan.path.startswith("empty")


def test_without_rows_ascend_950_writes_the_values_of_pytorch():
    empty = np.empty((0, 4), np.float32), np.empty(0, np.int64)
    mean, _ = npu_sim.cross_entropy_loss(*empty, product="ascend_950")
    total, _ = npu_sim.cross_entropy_loss(*empty, reduction="sum", product="ascend_950")
    assert np.isnan(mean[0])
    assert total[0] == 0


def test_strided_inputs_are_copied_from_9_0_on():
    x = np.zeros((4, 16), np.float32)[:, ::2]
    target = np.zeros(4, np.int64)
    assert len(npu_sim.plan("cross_entropy_loss", input=x, target=target).launches) == 2
    with pytest.raises(npu_sim.AclnnError) as raised:
        npu_sim.plan("cross_entropy_loss", input=x, target=target, release="8.5")
    assert (int(raised.value.status), raised.value.argument) == (STRIDED, "input")


@pytest.mark.parametrize("label", [-1, 40])
@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_a_label_outside_is_refused_with_its_position(label, product):
    target = np.zeros(60, np.int64)
    target[7] = label
    with pytest.raises(npu_sim.AclnnError, match=rf"target\[7\] = {label}") as raised:
        npu_sim.cross_entropy_loss(np.zeros((60, 40), np.float32), target, product=product)
    assert raised.value.status == RUNTIME


@pytest.mark.parametrize(("columns", "status"), [(40, 0), (4000, RUNTIME)])
def test_a_negative_ignore_index_masks_whole_rows_only_on_ascend_950(columns, status):
    x, target = np.zeros((6, columns), np.float32), np.array([0, 1, -100, 2, 3, 4])
    codes = [
        warning.code
        for warning in npu_sim.plan(
            "cross_entropy_loss", input=x, target=target, product="ascend_950"
        ).caveats
    ]
    assert ("negative_ignore_index" in codes) == bool(status)
    if status:
        with pytest.raises(npu_sim.AclnnError, match=r"target\[2\] = -100") as raised:
            npu_sim.cross_entropy_loss(x, target, product="ascend_950")
        assert raised.value.status == status
    else:
        loss, _ = npu_sim.cross_entropy_loss(x, target, product="ascend_950")
        assert loss[0] == np.log(np.float64(columns)).astype(np.float32)


def test_ascend_950_compares_32_bits_of_labels():
    x, target = np.random.default_rng(0).standard_normal((6, 40), np.float32), np.arange(6)
    call = {"input": x, "target": target, "reduction": "none", "product": "ascend_950"}
    loss = npu_sim.run("cross_entropy_loss", ignore_index=2**32 + 3, **call)
    assert (loss.outputs["loss"] == 0).tolist() == [False, False, False, True, False, False]
    assert "label_low_32_bits" in codes_of(loss)


@pytest.mark.parametrize(
    ("call", "code", "is_given"),
    [
        ({"input": "60x48001:fp32"}, "row_is_cut", True),
        ({"input": "60x48000:fp32"}, "row_is_cut", False),
        ({"input": "60x23809:bf16"}, "row_is_cut", True),
        ({"label_smoothing": 0.1}, "smoothing_has_no_gradient", True),
        ({"label_smoothing": 1e-50}, "smoothing_has_no_gradient", False),
        ({"label_smoothing": 0.1}, "weight_sum_reused", True),
        ({"label_smoothing": 0.1, "weight": "40:fp32"}, "weight_sum_reused", False),
        ({"release": "8.5"}, "barrier_without_batch_mode", True),
        ({"release": "8.5", "reduction": "none"}, "barrier_without_batch_mode", False),
        ({}, "barrier_without_batch_mode", False),
        ({"product": "ascend_950"}, "weight_buffer_unplanned", False),
        ({"product": "ascend_950", "input": "60x4000:fp32"}, "weight_buffer_unplanned", True),
        ({"product": "ascend_950"}, "log_prob_differs_between_products", True),
    ],
)
def test_plans_warn(call, code, is_given):
    plan = npu_sim.plan("cross_entropy_loss", **{"input": INPUT, "target": TARGET, **call})
    assert (code in [warning.code for warning in plan.caveats]) == is_given


@pytest.mark.parametrize("release", ["8.5", "9.0"])
def test_runs_warn_of_what_the_data_show(release):
    x = np.zeros((3, 5), np.float32)
    result = npu_sim.run("cross_entropy_loss", input=x, target=np.full(3, -100), release=release)
    assert ("negative_label_read" in codes_of(result)) == (release == "8.5")
    assert "all_ignored" in codes_of(result)


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_results_are_near_the_formula(dtype, smoothing, reduction, product):
    rng = np.random.default_rng(0)
    for columns in (37, 3000):
        call = {
            "input": rng.standard_normal((41, columns), np.float32).astype(numpy_dtype(dtype)),
            "target": rng.integers(0, columns, 41),
            "weight": rng.uniform(0.5, 2, columns).astype(np.float32),
            "reduction": reduction,
            "label_smoothing": smoothing,
        }
        result = npu_sim.run("cross_entropy_loss", product=product, **call)
        arguments = {"ignore_index": -100, **call}
        exact = formula_results("cross_entropy_loss", Arguments(arguments), arguments)
        for name, output in result.outputs.items():
            values = output.astype(np.float64).reshape(exact[name].shape)
            unit = float(ml_dtypes.finfo(output.dtype).eps)
            assert np.allclose(values, exact[name], rtol=2 * unit, atol=1e-5)
