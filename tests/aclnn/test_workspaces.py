"""Workspaces of calls with strided tensors: areas, kernels, and results in any memory."""

import numpy as np
import pytest

import npu_sim
from npu_sim.aclnn import AclDataType, device
from tests.aclnn.calls import (
    BF16,
    FP32,
    bits,
    conv,
    embedding,
    first_stage,
    moe,
    moe_permute,
    second_stage,
    strided,
    workspace_of,
)
from tests.cases import every


def run_call(operator, call, **settings):
    """Run a call in a workspace of nan; return the executor."""
    with device(**settings):
        status, size, executor = first_stage(operator, call)
    assert status == 0
    assert second_stage(operator, workspace_of(size, 0xFF), size, executor) == 0
    return executor


def areas_of(call):
    return first_stage("embedding_dense_backward", call).executor.workspace.areas


def test_the_result_of_embedding_reuses_the_workspace_of_sort():
    buckets = {area.name: area.bucket for area in areas_of(embedding(BF16, dim=600))}
    assert buckets["result"] == buckets["workspace of Sort"]


def test_embedding_on_ascend_950_writes_a_strided_result():
    call = embedding(BF16, rows=1100, index=AclDataType.ACL_DOUBLE)
    call |= {"grad": strided(1100, 24, kind=BF16), "out": strided(20, 24, kind=BF16)}
    plain = npu_sim.embedding_dense_backward(
        call["grad"].array, call["indices"].array, 20, padding_idx=3, product="ascend_950"
    )
    run_call("embedding_dense_backward", call, product="ascend_950")
    np.testing.assert_array_equal(bits(call["out"].array), bits(plain))


def test_copies_of_strided_embedding_tensors_are_in_the_workspace():
    call = embedding(FP32) | {"grad": strided(60, 24), "out": strided(20, 24)}
    sizes = {area.name: area.bytes for area in areas_of(call)}
    assert (sizes["contiguous grad"], sizes["result"]) == (60 * 24 * 4, 20 * 24 * 4)


@pytest.mark.parametrize("name", ["permutedOutputGrad", "sortedIndices"])
def test_strided_moe_inputs_are_copied_at_the_end(name):
    call = moe()
    like = call[name]
    call[name] = strided(*like.shape, kind=like.dtype, high=60 if name == "sortedIndices" else None)
    np.testing.assert_array_equal(call[name].array, like.array)
    executor = run_call("moe_token_permute_grad", call)
    (copy,) = [area for area in executor.workspace.areas if area.name.startswith("contiguous")]
    assert copy.offset == 16 * 2**20
    assert copy.bytes == like.array.nbytes


@pytest.mark.parametrize("name", ["tokens", "indices"])
def test_strided_tokens_and_indices_are_copied_at_the_end(name):
    call = moe_permute()
    like = call[name]
    call[name] = strided(*like.shape, kind=like.dtype, high=9 if name == "indices" else None)
    executor = run_call("moe_token_permute", call)
    (copy,) = [area for area in executor.workspace.areas if area.name.startswith("contiguous")]
    assert copy.bytes == like.array.nbytes
    assert executor.workspace.kernel_bytes == 24 * 60 + 64 * 48 + 16 * 2**20


@pytest.mark.parametrize("kind", every(2, [FP32, BF16]))
def test_conv_has_areas_for_casts_and_cube_layouts(kind):
    executor = run_call("conv_tbc_backward", conv(kind, math=2))
    assert {area.name for area in executor.workspace.areas} >= {
        "gradWeight in fp32",
        "grad_output as fp16",
        "weight in cube layout",
        "gradInput in its dtype",
    }


@pytest.mark.parametrize("kind", every(2, [FP32, BF16]))
def test_conv_copies_strided_operands_twice(kind):
    call = conv(kind)
    shapes = {"self": (7, 3, 4), "input": (7, 3, 5), "weight": (3, 5, 4)}
    spread = call | {name: strided(*shape, kind=kind) for name, shape in shapes.items()}
    executor = run_call("conv_tbc_backward", spread)
    nodes = [node.name for node in executor.workspace.nodes]
    assert nodes[:9] == ["Contiguous"] * 3 + ["Contiguous", "Transpose"] * 3
    results = {name: bits(spread[name].array) for name in ("gradInput", "gradWeight", "gradBias")}
    run_call("conv_tbc_backward", call)
    for name, result in results.items():
        np.testing.assert_array_equal(result, bits(call[name].array))


@pytest.mark.parametrize("batch", [1, 3])
def test_conv_as_matrix_products_runs_in_its_workspace(batch):
    call = conv(steps=3, batch=batch, pad=0)
    executor = run_call("conv_tbc_backward", call)
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
