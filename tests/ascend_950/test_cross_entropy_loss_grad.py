"""CrossEntropyLossGrad on Ascend 950: order, labels, contract, warnings."""

import itertools
import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.kernels.shared.elementwise import ulp_distance
from npu_sim.operators.timelines import steps, timeline
from npu_sim.questions.preflight import check_file, chosen_columns
from npu_sim.show.diff import comparison_view
from npu_sim.show.forms.layout import render
from npu_sim.show.preflight import caveat_lines
from npu_sim.studies.certificate import certify
from tests.cases import every

OPERATOR = "cross_entropy_loss_grad"
A5 = "ascend_950"
SMALL = "Ascend950PR_950z"
"""Eight vector cores."""
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
WIDE = 21200
"""Columns of rows that are cut."""
SHAPES = (
    (1, 5, "fp32"),
    (9, 33, "bf16"),
    (700, 9, "fp32"),
    (17, WIDE, "bf16"),
    (530, WIDE, "fp16"),
)


def call(rows, columns, reduction="mean", weighted=True, ignored=2, dtype="fp32", target=np.int64):
    random = np.random.default_rng([rows, columns])
    loss = random.standard_normal(rows if reduction == "none" else ())
    inputs = {
        "grad_loss": np.asarray(loss).astype(DTYPES[dtype]),
        "log_prob": -random.exponential(5, (rows, columns)).astype(DTYPES[dtype]),
        "target": random.integers(0, columns, rows).astype(target),
        "reduction": reduction,
        "ignore_index": ignored,
    }
    if weighted:
        inputs["weight"] = np.float32(10) ** random.uniform(-3, 3, columns).astype(np.float32)
    return inputs


def run(soc=SMALL, **inputs):
    return npu_sim.run(OPERATOR, soc=soc, **inputs)


def plan(shape, dtype="bf16", target="int64", weighted=False, product=A5, **more):
    rows, columns = shape.split("x")
    if weighted:
        more["weight"] = f"{columns}:fp32"
    specs = {"log_prob": f"{shape}:{dtype}", "target": f"{rows}:{target}"}
    return npu_sim.plan(OPERATOR, product=product, **specs, **more)


def codes(made):
    return {caveat.code for caveat in made.caveats}


def tree(values):
    while len(values) > 1:
        values = values[::2] + values[1::2]
    return values[0]


def row_sum(values):
    """The library's sum of one row of fp32 numbers."""
    count = len(values)
    if count == 1:
        return values[0]
    if count in (8, 16, 24):
        total = values[:8]
        for begin in range(8, count, 8):
            total = values[begin : begin + 8] + total
        return tree(total)
    if count <= 64:
        return tree(np.concatenate([values, np.zeros(64 - count, np.float32)]))
    power = 1 << (count.bit_length() - 1)
    front = values[:power].copy()
    front[: count - power] += values[power:]
    rows = front.reshape(-1, 64)
    while len(rows) > 1:
        group = min(16, len(rows)) if count % 8 == 0 else len(rows)
        parts = rows.reshape(-1, group, 64)
        while parts.shape[1] > 1:
            half = parts.shape[1] // 2
            parts = parts[:, :half] + parts[:, half:]
        rows = parts[:, 0]
    return tree(rows[0])


def divisor(inputs, made, values):
    """S of mean, from the fields of the plan."""
    tiling, is_whole = made.tiling, made.tiling_key % 256 == 1
    step = tiling["alignNCNum"] // tiling["alignColLoopNum"] if is_whole else 64
    sums = []
    for core in made.cores:
        own = values[slice(*core.ranges["rows"])]
        if not is_whole and len(own) < 64:
            sums.append(row_sum(own))
            continue
        total = np.float32(0)
        for begin in range(0, len(own), step):
            total = total + row_sum(own[begin : begin + step])
        sums.append(total)
    return row_sum(np.array(sums, np.float32))


@np.errstate(divide="ignore", invalid="ignore")
def reference(inputs, made):
    """The formula in the product's order; exp in fp64, rounded once."""
    log_prob, target = inputs["log_prob"].astype(np.float32), inputs["target"]
    rows = np.arange(len(target))
    mask = np.ones(len(target), np.float32)
    if inputs["ignore_index"] >= 0:
        mask[target == inputs["ignore_index"]] = 0
    weight = inputs["weight"][target] if "weight" in inputs else np.ones_like(mask)
    q = np.broadcast_to(inputs["grad_loss"].astype(np.float32), mask.shape)
    if inputs["reduction"] == "mean":
        q = q / divisor(inputs, made, mask * weight)
    q = q * mask * weight
    exp = np.exp(log_prob.astype(np.float64)).astype(np.float32)
    exp[exp < 2.0**-126] = 0
    gradient = exp * q[:, None]
    gradient[rows, target] -= q
    return gradient.astype(inputs["log_prob"].dtype)


@pytest.mark.parametrize(
    ("ignored", "weighted", "reduction", "shape"),
    every(16, itertools.product((-1, 2), (False, True), ("none", "mean", "sum"), SHAPES)),
)
def test_every_path_agrees_with_the_reference(shape, reduction, weighted, ignored):
    rows, columns, dtype = shape
    target = np.int32 if rows % 2 else np.int64
    inputs = call(rows, columns, reduction, weighted, ignored, dtype, target)
    result = run(**inputs)
    expected = reference(inputs, result.plan)
    found = result.outputs["x_grad"]
    assert ulp_distance(found, expected, found.dtype).max() <= 2
    assert result.order_dependent["x_grad"].count == 0


@pytest.mark.parametrize(
    ("rows", "columns", "ignored"),
    every(2, [(5, 9, -100), (192, 7, 2), (520, 4, 3), (1200, 4, -1)]),
)
def test_weights_are_added_as_the_declared_tree(rows, columns, ignored):
    (one,) = certify(OPERATOR, soc=SMALL, **call(rows, columns, ignored=ignored))
    assert one.agrees is True


@pytest.mark.parametrize("rows", every(3, [8, 64, 65, 100, 2048, 2050, 2500]))
@pytest.mark.parametrize("columns", [4, WIDE])
def test_the_divisor_is_added_pass_by_pass(rows, columns):
    inputs = call(rows, columns, reduction="mean")
    inputs["log_prob"] = np.broadcast_to(np.float32(-30), inputs["log_prob"].shape)
    result = run(**inputs)
    values = np.where(inputs["target"] == 2, 0, inputs["weight"][inputs["target"]])
    total = divisor(inputs, result.plan, values.astype(np.float32))
    row = int(np.argmax(inputs["target"] != 2))
    label = inputs["target"][row]
    q = inputs["grad_loss"] / total * inputs["weight"][label]
    assert result.outputs["x_grad"][row, label] == pytest.approx(-q, rel=1e-6)


def test_a_negative_ignore_index_masks_nothing():
    inputs = call(20, 6, ignored=-100)
    inputs["target"][3] = -100
    assert np.all(npu_sim.run(OPERATOR, product="atlas_a2", **inputs).outputs["x_grad"][3] == 0)
    with pytest.raises(npu_sim.AclnnError, match=r"target\[3\] = -100 is out of range") as caught:
        run(**inputs)
    assert caught.value.status == 361001
    assert "masks nothing on Ascend 950" in str(caught.value.hint)


def test_a_migration_says_that_a_negative_ignore_index_masks_nothing():
    """By the plan, the comparison and preflight of a recorded call with the usual -100."""
    code, sentence = "negative_ignore_index", "a negative ignore_index masks nothing on Ascend 950"
    specs = {"log_prob": "4096x32000:bf16", "target": "4096:int64"}
    made = npu_sim.plan(OPERATOR, product=A5, **specs)
    assert sentence in {one.code: one.message for one in made.caveats}[code]
    comparison = npu_sim.diff(OPERATOR, product=["atlas_a2", A5], **specs)
    assert sentence in render(comparison_view(comparison), 2000)
    line = json.dumps({"op": OPERATOR, "inputs": {**specs, "ignore_index": -100}})
    matrix = check_file([line], chosen_columns(f"atlas_a2,{A5}"))
    assert [sentence in one for one in caveat_lines(matrix)] == [True]
    assert code not in codes(plan("4096x32000", product="atlas_a2"))
    assert code not in codes(plan("4096x32000", ignore_index=0))


def test_subnormal_results_of_exp_are_zero():
    inputs = call(3, 40, reduction="sum", weighted=False, ignored=-1)
    inputs["target"][:] = 0
    inputs["log_prob"][:, 1:4] = -87, -88, -np.inf
    a2, a5 = (
        npu_sim.run(OPERATOR, product=product, **inputs).outputs["x_grad"]
        for product in ("atlas_a2", A5)
    )
    assert (a5[:, 1] != 0).all()
    assert (a5[:, 2:4] == 0).all()
    assert (a2[:, 2] != 0).all()
    assert np.array_equal(np.delete(a2, 2, axis=1), np.delete(a5, 2, axis=1))


def test_mean_over_no_label_is_nan():
    inputs = call(5, 6, ignored=2)
    inputs["target"][:] = 2
    result = run(**inputs)
    assert np.isnan(result.outputs["x_grad"]).all()
    assert {one.code for one in result.caveats} == {"all_labels_ignored"}


@pytest.mark.parametrize("shape", ["0x5", "7x0", "0x0"])
def test_empty_calls_launch_a_kernel_that_returns_at_once(shape):
    made = plan(shape, "fp32")
    assert (made.outcome, made.tiling_key, made.block_dim) == ("runs", 2, 1)
    assert made.workspace.total_bytes == 16777216
    rows, columns = map(int, shape.split("x"))
    inputs = {
        "grad_loss": np.float32(1),
        "log_prob": np.empty((rows, columns), np.float32),
        "target": np.zeros(rows, np.int64),
    }
    assert run(**inputs).outputs["x_grad"].shape == (rows, columns)


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ("4096x32000", {"ignore_index": 0, "reduction": "sum"}, set()),
        ("4096x32000", {"ignore_index": 0}, {"barrier_without_batch_mode"}),
        ("4096x32000", {}, {"negative_ignore_index"}),
        (
            "4096x32000",
            {"weighted": True},
            {"negative_ignore_index", "barrier_without_batch_mode", "sum_differs_between_products"},
        ),
        ("4096x32000", {"target": "int32"}, {"negative_ignore_index", "int32_labels_undocumented"}),
    ],
)
def test_warnings(shape, options, expected):
    made = plan(shape, **options)
    assert codes(made) == expected
    assert all("not run on a device" in caveat.message for caveat in made.caveats)
    assert all(order.fixed for order in made.order)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"reduction": "max"}, 561002),
        ({"label_smoothing": 0.1}, 161002),
        ({"lse_for_zloss": "64:fp32"}, 161002),
        ({"target": "64:uint8"}, 161002),
        ({"out": "64x9:fp16"}, 161002),
        ({"grad_loss": "scalar:fp16"}, 561002),
        ({"target": "65:int64"}, 561002),
        ({"weight": "8:fp32"}, 561002),
        ({"ignore_index": 9}, 161002),
    ],
)
def test_refusals(changes, status):
    good = {"log_prob": "64x9:fp32", "target": "64:int64", "product": A5}
    assert npu_sim.plan(OPERATOR, **good).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(OPERATOR, **{**good, **changes})
    assert caught.value.status == status


def test_rows_have_no_documented_limit():
    for shape in ("1000000x128", "1000000x200000"):
        made = plan(shape, "fp32", ignore_index=5)
        (memory,) = made.memories
        assert memory.used_bytes <= memory.capacity_bytes == 253952


@pytest.mark.parametrize("shape", ["4096x32000", "4096x1000", "5x200000", "0x8"])
@pytest.mark.parametrize("ignored", [-1, 5])
def test_every_path_has_a_bound_and_steps(shape, ignored):
    made = plan(shape, ignore_index=ignored)
    bound = timeline(made, load_profile(A5))
    rows, columns = map(int, shape.split("x"))
    assert bound.bound_us > 0
    if rows:
        assert bound.read_bytes == pytest.approx(rows * columns * 2, rel=0.05)
        assert bound.written_bytes == pytest.approx(rows * columns * 2, rel=0.05)
        assert steps(made)["tiles"]


def test_sums_of_the_cores_lie_at_the_start_of_the_workspace():
    inputs = call(40, 6)
    shapes = {"log_prob": inputs["log_prob"], "target": inputs["target"]}
    parts = {
        part.name: part.bytes
        for part in npu_sim.plan(OPERATOR, soc=SMALL, **shapes).workspace.parts
    }
    assert parts == {"system": 16777216, "sums of the cores": 128 * 8}
