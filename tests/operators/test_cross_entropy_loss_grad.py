from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import DATA
from npu_sim.operators.cross_entropy_loss_grad.plan import aliased_labels
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import program_of
from npu_sim.status import AclnnError
from tests.operators.refusals import blame_of, refusal_of

OPERATOR = "cross_entropy_loss_grad"
GOOD = {"grad_loss": "scalar:fp32", "log_prob": "1000x3200:fp32", "target": "1000:int64"}
FLOATS = ["fp32", "fp16", "bf16"]


def call(rows=1000, columns=3200, dtype="fp32", **more):
    per_row = more.get("reduction") == "none"
    shapes = {
        "grad_loss": f"{rows if per_row else 'scalar'}:{dtype}",
        "log_prob": f"{rows}x{columns}:{dtype}",
        "target": f"{rows}:int64",
    }
    return {**shapes, **more}


def plan(product="atlas_a2", soc=None, limits="documented", **changes):
    return npu_sim.plan(OPERATOR, product=product, soc=soc, limits=limits, **{**GOOD, **changes})


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "grad_loss", {"grad_loss": None}),
        (161001, "log_prob", {"log_prob": None}),
        (161001, "target", {"target": None}),
        (161001, "target", {"target": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "product", {"product": "atlas_inference", "target": "1000:int32"}),
        (161002, "grad_loss", {"grad_loss": "scalar:fp64"}),
        (161002, "grad_loss", {"grad_loss": "scalar:fp16"}),
        (161002, "log_prob", {"log_prob": "1000x3200:int32"}),
        (161002, "target", {"target": "1000:int32"}),
        (161002, "target", {"target": "999:int32"}),
        (161002, "weight", {"weight": "3200:fp16"}),
        (161002, "out", {"out": "1000x3200:fp16"}),
        (161002, "grad_zloss", {"grad_zloss": "scalar:fp64"}),
        (161002, "grad_zloss", {"grad_zloss": "scalar:fp32"}),
        (161002, "lse_for_zloss", {"lse_for_zloss": "1000:fp32"}),
        (161002, "reduction", {"reduction": "max"}),
        (161002, "reduction", {"reduction": None}),
        (161002, "reduction", {"reduction": "max", "target": "999:int64"}),
        (161002, "label_smoothing", {"label_smoothing": 0.1}),
        (161002, "label_smoothing", {"label_smoothing": -0.1}),
        (161002, "label_smoothing", {"label_smoothing": 1.5}),
        (161002, "label_smoothing", {"label_smoothing": float("nan")}),
        (161002, "lse_square_scale_for_zloss", {"lse_square_scale_for_zloss": 1e-3}),
        (161002, "log_prob", {"log_prob": "1000x3200:fp32:FRACTAL_NZ"}),
        (161002, "ignore_index", {"ignore_index": 3200}),
        (561002, "log_prob", {"log_prob": "1000:fp32"}),
        (561002, "log_prob", {"log_prob": "1000x32x100:fp32"}),
        (561002, "log_prob", {"log_prob": "1000x0:fp32"}),
        (561002, "target", {"target": "999:int64"}),
        (561002, "target", {"target": "1000x1:int64"}),
        (561002, "target", {"target": "999:int64", "ignore_index": 3200}),
        (561002, "weight", {"weight": "3199:fp32"}),
        (561002, "grad_loss", {"grad_loss": "2:fp32"}),
        (561002, "grad_loss", {"grad_loss": "1x1:fp32"}),
        (561002, "grad_loss", {"grad_loss": "1000:fp32", "reduction": "sum"}),
        (561002, "grad_loss", {"reduction": "none"}),
        (561002, "out", {"out": "1000x3201:fp32"}),
        (161002, "ignore_index", call(200000, ignore_index=3200)),
        (561002, "log_prob", call(200000)),
        (561002, "log_prob", call(448513, limits="hardware")),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    "name", ["label_smoothing", "lse_square_scale_for_zloss", "grad_zloss", "lse_for_zloss"]
)
def test_unsupported_arguments_are_refused_as_not_supported_yet(name):
    value = (
        "scalar:fp32"
        if name.startswith("grad")
        else "1000:fp32"
        if name.startswith("lse_for")
        else 0.5
    )
    assert "not supported yet" in refusal(**{name: value}).message


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weight", [None, "3200:fp32"])
def test_every_combination_is_planned(dtype, reduction, weight):
    planned = plan(**call(dtype=dtype, reduction=reduction, weight=weight))
    assert planned.tiling_key == 10 * {"bf16": 1, "fp16": 2, "fp32": 3}[dtype] + (
        weight is not None
    )
    assert planned.tiling["reduction"] == ["none", "mean", "sum"].index(reduction)
    assert planned.schedule_mode == (1 if reduction == "mean" else None)
    assert planned.order[0].fixed
    memory = planned.memories[0]
    assert memory.free_bytes >= 0
    sizes = {buffer.name: buffer.bytes for buffer in memory.allocations}
    assert ("target_weight" in sizes) == (weight is not None)
    assert ("grad_loss" in sizes) == (reduction == "none")
    assert ("grad_loss_fp32" in sizes) == (reduction == "none" and dtype != "fp32")
    assert ("buf3" in sizes) == (reduction == "mean")
    assert sizes["log_prob in"] == sizes["x_grad out"]


def test_no_rows_succeed_without_a_kernel():
    empty = plan(**call(0))
    assert (empty.kernel, empty.block_dim, empty.workspace.total_bytes) == ("", 0, 0)


@pytest.mark.parametrize(("soc", "total"), [("Ascend910B1", 16777408), ("Ascend910B4", 16777376)])
def test_workspace_totals(soc, total):
    workspace = plan(soc=soc).workspace
    assert workspace.total_bytes == total
    assert sum(part.bytes for part in workspace.parts) == total


def test_strided_inputs_are_copied():
    strided = plan(log_prob="1000x3200:fp32:strided", target="1000:int64:strided").workspace
    aligned = sum((size + 32 + 511) // 512 * 512 for size in (1000 * 3200 * 4, 8000))
    assert strided.total_bytes == 16777408 + aligned


def test_the_documented_limit_names_the_legal_the_fitting_and_the_breaking_value():
    refused = refusal(**call(200000, 32000))
    assert (
        refused.message
        == "log_prob has N = 200000 rows; the product document allows fewer than 200000"
    )
    for text in (
        "N = 199999",
        "N <= 445056",
        "N > 448512",
        'limits="hardware"',
        "87584 of 196352 bytes",
        "4167 rows a core",
    ):
        assert text in refused.hint
    assert plan(**call(199999, 32000)).block_dim == 48


@pytest.mark.parametrize("columns", [1, 10, 100, 127, 128, 1000, 32000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_hardware_limit_is_the_largest_size_that_fits(columns, dtype):
    refused = refusal(**call(600000, columns, dtype), limits="hardware")
    nearest = int(refused.hint.split("N = ")[1].split()[0].rstrip(","))
    assert plan(**call(nearest, columns, dtype), limits="hardware").memories[0].free_bytes >= 0
    assert (
        "Unified Buffer" in refusal(**call(nearest + 1, columns, dtype), limits="hardware").message
    )


def test_each_reason_of_a_hardware_refusal():
    assert (
        "row buffers alone need 196416" in refusal(**call(448513, 100), limits="hardware").message
    )
    wide = refusal(**call(445057, 32000), limits="hardware")
    assert (
        "fit 122 columns, fewer than a block of 128, and a whole row has C = 32000" in wide.message
    )
    assert ", or C = 122" in wide.hint
    assert plan(**call(445057, 122), limits="hardware").tiling_key == 30
    assert (
        "all buffers need 196512" in refusal(**call(448512, 10, "bf16"), limits="hardware").message
    )


def test_a_half_size_buffer_refuses_documented_rows_by_its_arithmetic(tmp_path):
    from npu_sim.cores import config_directory

    text = (
        (config_directory() / "atlas_a2.yaml")
        .read_text(encoding="utf-8")
        .replace("  ub_bytes: 196608", "  ub_bytes: 98304")
    )
    path = tmp_path / "half.yaml"
    path.write_text(text, encoding="utf-8")
    refused = refusal(**call(240000, 32000), product=str(path))
    nearest = int(refused.hint.split("N = ")[1].split()[0])
    assert (
        plan(**call(min(nearest, 199999), 32000), product=str(path)).memories[0].capacity_bytes
        == 98048
    )
    if nearest < 199999:
        assert "does not hold" in refusal(**call(nearest + 1, 32000), product=str(path)).message


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, set()),
        (call(1000, 127), {"row_without_own_bytes"}),
        (call(1000, 128), set()),
        (call(1000, 255, "bf16"), {"row_without_own_bytes"}),
        (call(10, 16777217), {"labels_beyond_fp32"}),
        (call(10, 16777218, ignore_index=16777216), {"labels_alias"}),
        (call(10, 16777216, ignore_index=16777215), set()),
        ({**call(200000), "limits": "hardware"}, {"rows_beyond_documented"}),
    ],
)
def test_caveats(changes, codes):
    assert {caveat.code for caveat in plan(**changes).caveats} == codes


@pytest.mark.parametrize(
    "ignored", [0, 5, 16777215, 16777216, 16777218, 16777220, 33554432, 33554436, 2**31 + 128]
)
def test_aliased_labels_are_those_that_round_to_the_same_number(ignored):
    first, last = aliased_labels(ignored, 2**40)
    wanted = np.float32(ignored)
    assert first <= ignored <= last
    assert all(np.int64(label).astype(np.float32) == wanted for label in (first, last))
    assert all(np.int64(label).astype(np.float32) != wanted for label in (first - 1, last + 1))


@pytest.mark.parametrize(
    "base",
    [
        call(),
        call(1000, 32000),
        call(100000, 9000, "bf16"),
        call(100, 20),
        call(1000, 1000, reduction="sum"),
        call(50, 300, reduction="none"),
    ],
)
def test_every_flip_changes_the_outcome_of_its_decision(base):
    rows, columns = (int(size) for size in base["log_prob"].split(":")[0].split("x"))
    dtype = base["log_prob"].split(":")[1]
    more = {"reduction": base["reduction"]} if "reduction" in base else {}
    for decision in plan(**base).decisions:
        for flip in decision.flips:
            sizes = {"N": rows, "C": columns} | (
                {flip.argument: flip.value} if flip.argument in ("N", "C") else {}
            )
            changed = more | ({flip.argument: flip.value} if flip.argument == "reduction" else {})
            flipped = plan(**call(sizes["N"], sizes["C"], dtype, **changed))
            assert {other.name: other.outcome for other in flipped.decisions}[
                decision.name
            ] != decision.outcome


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
@pytest.mark.parametrize(
    ("reduction", "flip"), [("mean", "sum"), ("sum", "mean"), ("none", "mean")]
)
def test_cores_wait_at_the_nearest_other_reduction(product, reduction, flip):
    grad_loss = "100:fp32" if reduction == "none" else "scalar:fp32"
    made = npu_sim.plan(
        OPERATOR,
        product=product,
        grad_loss=grad_loss,
        log_prob="100x50:fp32",
        target="100:int64",
        reduction=reduction,
        ignore_index=3,
    )
    decision = next(
        decision for decision in made.decisions if decision.name == "cores wait for one another"
    )
    assert [change.value for change in decision.flips if change.argument == "reduction"] == [flip]


def test_the_command_line_infers_the_gradient_of_the_loss():
    def infer(**given):
        return arguments_of(load_operator(OPERATOR), given, infer=True)

    assert str(infer(log_prob="20x5:bf16").grad_loss) == "scalar:bf16"
    assert str(infer(log_prob="20x5:fp32", reduction="none").grad_loss) == "20:fp32"
    with pytest.raises(npu_sim.UsageError, match="log_prob: tensor '20x5' has no dtype"):
        infer(log_prob="20x5")
    with pytest.raises(npu_sim.UsageError, match="log_prob is missing"):
        infer()
    assert str(infer(log_prob="20x5:bf16", grad_loss="1:fp32").grad_loss) == "1:fp32"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_example_of_the_product_document(dtype):
    log_prob, grad_loss = np.full((2, 3), -0.2).astype(dtype), np.array(0.1).astype(dtype)
    result = npu_sim.cross_entropy_loss_grad(
        grad_loss, log_prob, np.zeros(2, np.int64), np.ones(3, np.float32), reduction="mean"
    )
    expected = np.array([[-0.0091, 0.0409, 0.0409]] * 2)
    assert result.dtype == dtype
    tolerance = 5e-5 if dtype == np.float32 else 2e-4
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("product", ["A2", "A3", "950PR"])
@pytest.mark.parametrize("rows", [1, 6])
def test_a_loss_of_one_element_is_taken_as_a_scalar(rows, product, reduction):
    grad_loss, log_prob, target = inputs(rows)
    call = {"log_prob": log_prob, "target": target, "reduction": reduction, "product": product}
    scalar = npu_sim.run(OPERATOR, grad_loss=grad_loss, **call)
    one = npu_sim.run(OPERATOR, grad_loss=grad_loss.reshape(1), **call)
    assert one.plan.arguments["grad_loss"] == "1:fp32"
    assert one.plan.tiling == scalar.plan.tiling
    assert one.outputs["x_grad"].tobytes() == scalar.outputs["x_grad"].tobytes()
    programs = [program_of(result.plan) for result in (scalar, one)]
    assert programs[0] == programs[1]
    assert programs[1].views[2].by_row == {}


def inputs(rows=6, columns=9, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, columns))
    log_prob = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    return np.array(1, np.float32), log_prob, rng.integers(0, columns, rows)


@pytest.mark.parametrize("label", [9, 10**12, -1, -(2**63)])
def test_a_label_out_of_range_is_a_runtime_failure_and_writes_nothing(label):
    grad_loss, log_prob, target = inputs()
    target[[2, 4]] = label
    out = np.full_like(log_prob, 7)
    with pytest.raises(AclnnError) as refused:
        npu_sim.cross_entropy_loss_grad(grad_loss, log_prob, target, out=out)
    assert int(refused.value.status) == 361001
    assert f"target[2] = {label}" in refused.value.message
    assert (out == 7).all()


def test_a_label_out_of_range_is_legal_when_it_is_ignored():
    grad_loss, log_prob, target = inputs()
    target[3] = -7
    result = npu_sim.cross_entropy_loss_grad(
        grad_loss, log_prob, target, np.ones(9, np.float32), ignore_index=-7
    )
    assert (result[3] == 0).all()
    assert (result[:3] != 0).all()


def test_every_label_ignored_with_mean_gives_nan_and_a_caveat():
    grad_loss, log_prob, target = inputs()
    ran = npu_sim.run(
        OPERATOR,
        grad_loss=grad_loss,
        log_prob=log_prob,
        target=np.full_like(target, 4),
        ignore_index=4,
    )
    assert np.isnan(ran.outputs["x_grad"]).all()
    assert [caveat.code for caveat in ran.caveats] == ["all_labels_ignored"]
    summed = npu_sim.cross_entropy_loss_grad(
        grad_loss, log_prob, np.full_like(target, 4), reduction="sum", ignore_index=4
    )
    assert (summed == 0).all()


def test_aliased_labels_are_ignored_too_and_counted():
    columns = 16777218
    log_prob = np.full((2, columns), -16, np.float16)
    target = np.array([16777217, 3])
    ran = npu_sim.run(
        OPERATOR,
        grad_loss=np.array(1, np.float16),
        log_prob=log_prob,
        target=target,
        reduction="sum",
        ignore_index=16777216,
    )
    assert (ran.outputs["x_grad"][0] == 0).all()
    assert ran.outputs["x_grad"][1, 3] == -1
    assert [caveat.code for caveat in ran.caveats] == ["labels_aliased"]


def test_arrays_of_any_layout_and_an_array_to_write_to():
    grad_loss, log_prob, target = inputs(7, 300)
    expected = npu_sim.cross_entropy_loss_grad(grad_loss, log_prob, target)
    strided = np.asfortranarray(log_prob)
    wide = np.repeat(target, 2)[::2]
    out, gaps = np.empty_like(log_prob), np.empty((7, 600), np.float32)[:, ::2]
    assert npu_sim.cross_entropy_loss_grad(grad_loss, strided, wide, out=out) is out
    npu_sim.cross_entropy_loss_grad(grad_loss, log_prob, target, out=gaps)
    read_only = log_prob.copy()
    read_only.flags.writeable = False
    for result in (out, gaps, npu_sim.cross_entropy_loss_grad(grad_loss, read_only, target)):
        np.testing.assert_array_equal(result, expected)


def test_no_rows_run():
    result = npu_sim.cross_entropy_loss_grad(
        np.array(1, np.float32), np.empty((0, 5), np.float32), np.empty(0, np.int64)
    )
    assert result.shape == (0, 5)


def test_nothing_depends_on_order_or_determinism():
    grad_loss, log_prob, target = inputs(100, 50)
    expected = npu_sim.cross_entropy_loss_grad(grad_loss, log_prob, target)
    for more in (
        {"deterministic": True},
        {"core_order": "reverse"},
        {"core_order": "random", "seed": 3},
    ):
        np.testing.assert_array_equal(
            npu_sim.cross_entropy_loss_grad(grad_loss, log_prob, target, **more), expected
        )
    ran = npu_sim.run(OPERATOR, grad_loss=grad_loss, log_prob=log_prob, target=target)
    assert ran.order_dependent["x_grad"].count == 0


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_generated_data_runs(reduction):
    operator = load_operator(OPERATOR)
    specs = call(300, 40, "bf16", reduction=reduction, weight="40:fp32", ignore_index=7)
    data = operator.hook(DATA)(arguments_of(operator, specs), 5)
    assert np.any(data["target"] == 7)
    assert np.allclose(np.exp(data["log_prob"].astype(np.float64)).sum(axis=1), 1, atol=0.05)
    again = operator.hook(DATA)(arguments_of(operator, specs), 5)
    assert all(np.array_equal(data[name], again[name]) for name in data)
    result = npu_sim.cross_entropy_loss_grad(**data, reduction=reduction, ignore_index=7)
    assert np.isfinite(result.astype(np.float32)).all()


def test_a_negative_label_is_masked_with_the_sentence_of_the_document():
    call = {
        "grad_loss": np.ones(1, np.float32),
        "log_prob": np.log(np.full((4, 8), 1 / 8, np.float32)),
        "ignore_index": -100,
    }
    result = npu_sim.run("cross_entropy_loss_grad", **call, target=np.array([1, -100, 2, -100]))
    (warning,) = (one for one in result.caveats if one.code == "negative_label_masked")
    assert "2 labels are -100" in warning.message
    assert "a negative ignore_index ignores none" in warning.message
    assert not result.outputs["x_grad"][1].any()
    result = npu_sim.run("cross_entropy_loss_grad", **call, target=np.array([1, 5, 2, 3]))
    assert not result.caveats
