"""Intermediate values that a run leaves in the areas of its workspace."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.aclnn import AclDataType, device
from npu_sim.plans.workspace import Areas
from tests.aclnn.calls import (
    BF16,
    FP32,
    bits,
    conv,
    cross_entropy,
    embedding,
    first_stage,
    moe,
    moe_permute,
    rms_norm_grad,
    second_stage,
    strided,
    workspace_of,
)


def run_call(operator, call, **settings):
    """Run a call in a workspace of nan; return its areas and the executor."""
    with device(**settings):
        status, size, executor = first_stage(operator, call)
    assert status == 0
    memory = workspace_of(size, 0xFF)
    assert second_stage(operator, memory, size, executor) == 0
    return Areas(memory, executor.workspace), executor


def test_embedding_stores_casts_and_sorted_indices():
    call = embedding(BF16, dim=600)
    areas, _ = run_call("embedding_dense_backward", call)
    grad, indices, out = (call[name].array for name in ("grad", "indices", "out"))
    np.testing.assert_array_equal(
        areas.array("grad as fp32", (60, 600), "float32"), grad.astype(np.float32)
    )
    np.testing.assert_array_equal(areas.array("sorted indices", (60,), "int32"), np.sort(indices))
    positions = areas.array("positions", (60,), "int32")
    np.testing.assert_array_equal(
        np.maximum(positions, ~positions), np.argsort(indices, kind="stable")
    )
    # The result reuses the workspace of Sort, and out is the result rounded once.
    buckets = {area.name: area.bucket for area in areas_of(call)}
    assert buckets["result"] == buckets["workspace of Sort"]
    result = areas.array("result", (20, 600), "float32")
    np.testing.assert_array_equal(bits(result.astype(ml_dtypes.bfloat16)), bits(out))


def test_embedding_on_ascend_950_stores_sorted_indices_and_a_strided_result():
    call = embedding(BF16, rows=1100, index=AclDataType.ACL_DOUBLE)
    call |= {"grad": strided(1100, 24, kind=BF16), "out": strided(20, 24, kind=BF16)}
    plain = npu_sim.embedding_dense_backward(
        call["grad"].array, call["indices"].array, 20, padding_idx=3, product="ascend_950"
    )
    areas, _ = run_call("embedding_dense_backward", call, product="ascend_950")
    indices = call["indices"].array.astype(np.int64)
    np.testing.assert_array_equal(areas.array("sorted indices", (1100,), "int64"), np.sort(indices))
    positions = areas.array("positions", (1100,), "int32")
    np.testing.assert_array_equal(positions, np.argsort(indices, kind="stable"))
    np.testing.assert_array_equal(bits(call["out"].array), bits(plain))


def areas_of(call):
    return first_stage("embedding_dense_backward", call).executor.workspace.areas


def test_embedding_counts_in_the_workspace():
    call = embedding(FP32, scale=True)
    areas, _ = run_call("embedding_dense_backward", call)
    counts = np.bincount(call["indices"].array, minlength=20)
    counts[call["paddingIdx"]] = 0
    np.testing.assert_array_equal(areas.array("frequency counters", (20,), "float32"), counts)
    np.testing.assert_array_equal(
        areas.array("indices as int32", (60,), "int32"), call["indices"].array
    )


def test_embedding_stages_the_ends_of_every_core_on_the_native_path():
    call = embedding(BF16, rows=600, dim=520, weights=101000)
    call["indices"].array[...] //= 20000
    areas, executor = run_call("embedding_dense_backward", call)
    cores = executor.plan.block_dim
    staged = areas.array("stage indices", (2 * cores,), "int32")
    rows = areas.array("stage rows", (2 * cores, 520), "float32")
    order = np.argsort(call["indices"].array, kind="stable")
    for work in executor.plan.cores:
        own = order[slice(*work.ranges["sorted rows"])]
        indices = call["indices"].array[own]
        assert staged[2 * work.core : 2 * work.core + 2].tolist() == [indices[0], indices[-1]]
        for slot, index in ((0, indices[0]), (1, indices[-1])):
            expected = call["grad"].array[own[indices == index]].astype(np.float64).sum(0)
            nothing = index == call["paddingIdx"] or (slot == 1 and indices[0] == indices[-1])
            np.testing.assert_allclose(
                rows[2 * work.core + slot], expected * (not nothing), rtol=1e-5, atol=1e-5
            )


def test_copies_of_strided_embedding_tensors_are_in_the_workspace():
    call = embedding(FP32) | {"grad": strided(60, 24), "out": strided(20, 24)}
    areas, _ = run_call("embedding_dense_backward", call)
    np.testing.assert_array_equal(
        areas.array("contiguous grad", (60, 24), "float32"), call["grad"].array
    )
    np.testing.assert_array_equal(areas.array("result", (20, 24), "float32"), call["out"].array)


@pytest.mark.parametrize(("columns", "stored"), [(700, 704), (6100, 6104)])
def test_rms_norm_stores_the_dgamma_of_every_core(columns, stored):
    call = rms_norm_grad(rows=2000, columns=columns)
    areas, executor = run_call("rms_norm_grad", call, deterministic=True)
    cores = executor.plan.block_dim
    vectors = areas.array("dgamma of every core", (cores, stored), "float32")[:, :columns]
    total = np.zeros(columns, np.float32)
    for vector in vectors:
        total = total + vector
    np.testing.assert_array_equal(total, call["dgammaOut"].array)
    dy, x, rstd = (call[name].array.astype(np.float64) for name in ("dy", "x", "rstd"))
    first, last = executor.plan.cores[1].ranges["rows"]
    own = (dy * x * rstd[:, None])[first:last].sum(0)
    np.testing.assert_allclose(vectors[1], own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weight", [False, True])
def test_cross_entropy_stores_the_sum_of_every_core(weight):
    call = cross_entropy(rows=600, weight=weight)
    areas, executor = run_call("cross_entropy_loss_grad", call)
    target = call["target"].array
    terms = (call["weightOptional"].array if weight else np.ones(40, np.float32))[target] * (
        target != call["ignoreIndex"]
    )
    expected = [
        terms[slice(*work.ranges["rows"])].sum(dtype=np.float64) for work in executor.plan.cores
    ]
    np.testing.assert_allclose(
        areas.array("sums of the cores", (len(expected),), "float32"),
        expected,
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["permutedOutputGrad", "sortedIndices"])
def test_strided_moe_inputs_are_copied_at_the_end(name):
    call = moe()
    like = call[name]
    call[name] = strided(*like.shape, kind=like.dtype, high=60 if name == "sortedIndices" else None)
    np.testing.assert_array_equal(call[name].array, like.array)
    areas, executor = run_call("moe_token_permute_grad", call)
    (copy,) = [area for area in executor.workspace.areas if area.name.startswith("contiguous")]
    assert copy.offset == 16 * 2**20
    np.testing.assert_array_equal(areas.array(copy.name, like.shape, like.array.dtype), like.array)


@pytest.mark.parametrize("name", ["tokens", "indices"])
def test_strided_tokens_and_indices_are_copied_at_the_end(name):
    call = moe_permute()
    like = call[name]
    call[name] = strided(*like.shape, kind=like.dtype, high=9 if name == "indices" else None)
    areas, executor = run_call("moe_token_permute", call)
    (copy,) = [area for area in executor.workspace.areas if area.name.startswith("contiguous")]
    np.testing.assert_array_equal(areas.array(copy.name, like.shape, like.array.dtype), like.array)
    assert executor.workspace.kernel_bytes == 24 * 60 + 64 * 48 + 16 * 2**20


@pytest.mark.parametrize("kind", [FP32, BF16])
def test_conv_stores_both_gradients(kind):
    call = conv(kind, math=2)
    areas, executor = run_call("conv_tbc_backward", call)
    own = call["input"].array.dtype
    weight = areas.array("gradWeight in fp32", (4, 5, 3), "float32")
    np.testing.assert_array_equal(
        bits(weight.transpose(2, 1, 0).astype(own)), bits(call["gradWeight"].array)
    )
    assert {area.name for area in executor.workspace.areas} >= {
        "self as fp16",
        "weight in cube layout",
        "gradInput in its dtype",
    }


@pytest.mark.parametrize("kind", [FP32, BF16])
def test_conv_copies_strided_operands_twice(kind):
    call = conv(kind)
    shapes = {"self": (7, 3, 4), "input": (7, 3, 5), "weight": (3, 5, 4)}
    spread = call | {name: strided(*shape, kind=kind) for name, shape in shapes.items()}
    _, executor = run_call("conv_tbc_backward", spread)
    nodes = [node.name for node in executor.workspace.nodes]
    assert nodes[:9] == ["Contiguous"] * 3 + ["Contiguous", "Transpose"] * 3
    results = {name: bits(spread[name].array) for name in ("gradInput", "gradWeight", "gradBias")}
    run_call("conv_tbc_backward", call)
    for name, result in results.items():
        np.testing.assert_array_equal(result, bits(call[name].array))


@pytest.mark.parametrize("batch", [1, 3])
def test_conv_as_matrix_products_runs_in_its_workspace(batch):
    call = conv(steps=3, batch=batch, pad=0)
    _, executor = run_call("conv_tbc_backward", call)
    assert executor.workspace.total_bytes > 0
    tensors = {
        name: call[parameter].array
        for name, parameter in (("grad_output", "self"), ("input", "input"), ("weight", "weight"))
    }
    expected = npu_sim.run("conv_tbc_backward", bias=call["bias"].array, **tensors).outputs
    for name, parameter in (
        ("grad_input", "gradInput"),
        ("grad_weight", "gradWeight"),
        ("grad_bias", "gradBias"),
    ):
        np.testing.assert_array_equal(expected[name], call[parameter].array)
