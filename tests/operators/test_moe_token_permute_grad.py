from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.status import AclnnError, UsageError
from tests.operators.refusals import blame_of, refusal_of
from tests.reference.moe_token_permute_grad import input_grad

OPERATOR = "moe_token_permute_grad"
GOOD = {"permuted_output_grad": "65536x2048:bf16", "sorted_indices": "65536:int32", "num_topk": 8}


def plan(product="atlas_a2", soc=None, limits="documented", deterministic=False, **changes):
    return npu_sim.plan(
        OPERATOR,
        product=product,
        soc=soc,
        limits=limits,
        deterministic=deterministic,
        **{**GOOD, **changes},
    )


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "permuted_output_grad", {"permuted_output_grad": None}),
        (161001, "sorted_indices", {"sorted_indices": None}),
        (161001, "sorted_indices", {"sorted_indices": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "product", {"product": "atlas_inference"}),
        (161002, "product", {"product": "atlas_train", "permuted_output_grad": "65536x2048:fp64"}),
        (161002, "permuted_output_grad", {"permuted_output_grad": "65536x2048:fp64"}),
        (
            161002,
            "permuted_output_grad",
            {"permuted_output_grad": "65536x2048:int32", "padded_mode": True},
        ),
        (161002, "sorted_indices", {"sorted_indices": "65536:int64"}),
        (161002, "out", {"out": "8192x2048:fp16"}),
        (161002, "permuted_output_grad", {"permuted_output_grad": "65536x2048:bf16:FRACTAL_NZ"}),
        (161002, "padded_mode", {"padded_mode": True, "num_topk": 513}),
        (161002, "num_topk", {"num_topk": 0}),
        (161002, "num_topk", {"num_topk": -1}),
        (161002, "num_topk", {"num_topk": 513}),
        (161002, "num_topk", {"num_topk": 513, "sorted_indices": "2x2:int32"}),
        (161002, "num_topk", {"num_topk": 0, "limits": "hardware"}),
        (561002, "permuted_output_grad", {"permuted_output_grad": "65536:bf16"}),
        (561002, "permuted_output_grad", {"permuted_output_grad": "8192x8x2048:bf16"}),
        (561002, "permuted_output_grad", {"permuted_output_grad": "65537x2048:bf16"}),
        (561002, "permuted_output_grad", {"permuted_output_grad": "65536x0:bf16"}),
        (
            561002,
            "permuted_output_grad",
            {"permuted_output_grad": "1x4:bf16", "sorted_indices": "0:int32"},
        ),
        (561002, "sorted_indices", {"sorted_indices": "8192x8:int32"}),
        (561002, "sorted_indices", {"sorted_indices": "65537:int32"}),
        (561002, "sorted_indices", {"sorted_indices": "scalar:int32"}),
        (561002, "out", {"out": "8192x2047:bf16"}),
        (561002, "out", {"out": "65536x2048:bf16"}),
        (561002, "num_topk", {"num_topk": 65536, "limits": "hardware"}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize("num_topk", [8, 0, -1, float("inf"), float("nan"), None, "8"])
@pytest.mark.parametrize("missing", ["permuted_output_grad", "sorted_indices"])
def test_a_tensor_that_is_left_out_is_missing_since_the_other_one_does_not_imply_it(
    missing, num_topk
):
    given = {**GOOD, "num_topk": num_topk}
    del given[missing]
    with pytest.raises(UsageError) as mistake:
        npu_sim.plan(OPERATOR, **given)
    assert mistake.value.argument == missing


@pytest.mark.parametrize("profile", ["atlas_a2", "atlas_a3"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_documented_call_runs_on_every_documented_product_and_dtype(profile, dtype):
    assert (
        plan(product=profile, permuted_output_grad=f"65536x2048:{dtype}", num_topk=512).block_dim
        == 48
    )


@pytest.mark.parametrize(
    ("dtype", "hidden", "largest", "anywhere"),
    [
        ("fp32", 1024, 43904, 1408),
        ("bf16", 1024, 44416, 1920),
        ("fp16", 11776, 1920, 1920),
        ("fp32", 15872, 1408, 1408),
    ],
)
def test_beyond_512_the_error_says_where_it_really_ends_and_hardware_limits_end_there(
    dtype, hidden, largest, anywhere
):
    def call(top_k, limits):
        entries = f"{top_k}x{hidden}:{dtype}"
        return {
            "permuted_output_grad": entries,
            "sorted_indices": f"{top_k}:int32",
            "num_topk": top_k,
            "limits": limits,
        }

    documented = refusal(**call(513, "documented"))
    text = str(documented)
    assert int(documented.status) == 161002
    for number in (
        "513",
        "512",
        "512 * 10 = 5120 bytes",
        f"numTopk <= {largest} at hidden {hidden}",
        f"numTopk <= {anywhere} at every",
    ):
        assert number in text
    fits = plan(**call(largest, "hardware"))
    assert fits.tiling["tokens_splited_length"] == 1
    assert [caveat.code for caveat in fits.caveats] == ["topk_beyond_documented"]
    broken = refusal(**call(largest + 1, "hardware"))
    assert int(broken.status) == 561002
    assert f"nearest legal value: {largest} " in str(broken)
    assert str(4 * (largest + 1)) in str(broken)


def test_the_arithmetic_in_the_hardware_refusal_adds_up():
    text = refusal(
        permuted_output_grad="65536x1024:fp32", num_topk=65536, limits="hardware"
    ).message
    assert "4 * 65536 = 262144 bytes" in text
    assert "196352 - 1024 * 20 - 256 = 175616" in text


def test_a_profile_without_a_documented_bound_has_only_the_physical_one():
    profile = npu_sim.load_profile("atlas_a2")
    bare = profile.model_copy(
        update={"product": profile.product.model_copy(update={"documented_limits": {}})}
    )
    assert plan(product=bare, num_topk=4096).caveats == ()


def what_if(ub_bytes):
    profile = npu_sim.load_profile("atlas_a2")
    chip = profile.chip.model_copy(update={"ub_bytes": ub_bytes})
    return profile.model_copy(
        update={
            "product": profile.product.model_copy(
                update={"socs": {**profile.product.socs, profile.soc: chip}}
            )
        }
    )


def test_a_chip_whose_buffer_holds_no_row_is_refused_with_the_bytes_it_lacks():
    needed = 5120 + 513 * 14
    refused = refusal(product=what_if(needed + 255))
    assert int(refused.status) == 561002
    assert str(needed) in refused.hint
    assert plan(product=what_if(needed + 256)).tiling["hidden_splited_length"] == 512


def test_no_tokens_succeed_without_a_kernel():
    empty = plan(permuted_output_grad="0x2048:bf16", sorted_indices="0:int32")
    assert (empty.kernel, empty.block_dim, empty.workspace.total_bytes) == ("", 0, 0)
    result = npu_sim.moe_token_permute_grad(np.empty((0, 5), np.float32), np.empty(0, np.int32), 3)
    assert result.shape == (0, 5)


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 16777216),
        ({"permuted_output_grad": "65536x2048:bf16:strided"}, 16777216 + 268435456 + 512),
        ({"sorted_indices": "65536:int32:strided"}, 16777216 + 262144 + 512),
        (
            {
                "permuted_output_grad": "65530x2048:bf16:strided",
                "sorted_indices": "65536:int32:strided",
            },
            16777216 + 268411392 + 262144 + 512,
        ),
    ],
)
def test_the_workspace_is_the_systems_and_a_copy_of_every_strided_input(changes, total):
    workspace = plan(**changes).workspace
    assert workspace.total_bytes == total
    assert workspace.kernel_bytes == 16777216
    assert sum(part.bytes for part in workspace.parts) == total


@pytest.mark.parametrize("hidden", [1, 2048, 9217, 11777, 13313, 15873, 40000])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("top_k", [1, 8, 512])
def test_the_plan_hangs_together(hidden, dtype, top_k):
    tokens = 3000
    made = plan(
        permuted_output_grad=f"{tokens * top_k}x{hidden}:{dtype}",
        sorted_indices=f"{tokens * top_k}:int32",
        num_topk=top_k,
    )
    (memory,) = made.memories
    assert memory.used_bytes <= memory.capacity_bytes
    assert made.cores[0].ranges["tokens"][0] == 0
    assert made.cores[-1].ranges["tokens"][1] == tokens
    assert made.tiling_key == {"fp32": 4, "fp16": 2}[dtype]
    assert made.path == (
        "rows in pieces"
        if made.tiling["hidden_splited_num"] + (made.tiling["hidden_splited_remain"] > 0) > 1
        else "whole rows"
    )
    for decision in made.decisions:
        assert decision.flips
    assert made.order[0].fixed


@pytest.mark.parametrize("hidden", [2048, 10000, 12000, 20000])
@pytest.mark.parametrize("tokens", [100, 40000])
def test_every_flip_turns_its_decision_around_there_and_not_one_before(hidden, tokens):
    def decisions(hidden, tokens, num_topk):
        call = {
            "permuted_output_grad": f"{tokens * num_topk}x{hidden}:fp32",
            "sorted_indices": f"{tokens * num_topk}:int32",
        }
        try:
            return {
                decision.name: decision
                for decision in plan(**call, num_topk=num_topk, limits="hardware").decisions
            }
        except AclnnError:
            return {}

    now = {"hidden": hidden, "tokens": tokens, "num_topk": 16}
    flipped = 0
    for name, decision in decisions(**now).items():
        for flip in decision.flips:
            beyond = {**now, flip.argument: flip.value}
            step = 1 if flip.value > now[flip.argument] else -1
            before = {**now, flip.argument: flip.value - step}
            there = decisions(**beyond).get(name)
            assert there is None or there.outcome != decision.outcome
            assert decisions(**before)[name].outcome == decision.outcome
            flipped += 1
    assert flipped >= 4


def test_the_text_says_what_matters():
    text = str(plan(permuted_output_grad="65530x20480:fp32"))
    for words in (
        "rows in pieces, tiling key 4",
        "hidden 20480 > 15872",
        "48 of 48 vector cores",
        "input_grad fixed",
        "6 were dropped",
    ):
        assert words in " ".join(text.split())


def test_the_documents_sample():
    grad = np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)
    result = npu_sim.moe_token_permute_grad(grad, np.array([0, 1], np.int32), 2)
    assert result.dtype == grad.dtype
    assert result.tolist() == [[4, 6]]


def data(tokens=20, top_k=4, hidden=50, dropped=7, dtype=np.float32):
    random = np.random.default_rng(0)
    grad = random.standard_normal((tokens * top_k - dropped, hidden), np.float32).astype(dtype)
    return grad, random.permutation(tokens * top_k).astype(np.int32)


def test_a_negative_index_is_a_run_time_failure_and_nothing_is_written():
    grad, indices = data()
    indices[[13, 40]] = -3, -1
    out = np.full((20, 50), 7, np.float32)
    with pytest.raises(AclnnError) as refused:
        npu_sim.moe_token_permute_grad(grad, indices, 4, out=out)
    assert int(refused.value.status) == 361001
    assert "sorted_indices[13] = -3" in refused.value.message
    assert (out == 7).all()


def test_any_index_beyond_the_gradient_is_a_dropped_token():
    grad, indices = data()
    far = np.where(indices >= len(grad), np.int32(2**31 - 1), indices)
    assert np.array_equal(
        npu_sim.moe_token_permute_grad(grad, far, 4), input_grad(grad, indices, 4)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_strided_arrays_and_a_given_output(dtype):
    grad, indices = data(dtype=dtype)
    expected = input_grad(grad, indices, 4)
    apart = np.zeros((*grad.shape, 2), dtype)[:, :, 1]
    apart[...] = grad
    far_indices = np.zeros((indices.size, 3), np.int32)[:, 2]
    far_indices[...] = indices
    straight, strided = np.empty((20, 50), dtype), np.zeros((50, 20), dtype).T
    assert npu_sim.moe_token_permute_grad(apart, far_indices, 4, out=straight) is straight
    assert npu_sim.moe_token_permute_grad(grad, indices, 4, out=strided) is strided
    odd = np.zeros(straight.nbytes + 1, np.uint8)[1:].view(dtype).reshape(20, 50)
    assert npu_sim.moe_token_permute_grad(grad, indices, 4, out=odd) is odd
    assert np.array_equal(odd, expected)
    grad.flags.writeable = indices.flags.writeable = False
    assert np.array_equal(npu_sim.moe_token_permute_grad(grad, indices, 4), expected)
    assert np.array_equal(straight, expected)
    assert np.array_equal(strided, expected)


def test_no_switch_changes_the_result_and_nothing_depends_on_timing():
    grad, indices = data(dropped=0)
    expected = input_grad(grad, indices, 4)
    for order in ("sequential", "reverse", "round_robin", "random"):
        result = npu_sim.run(
            OPERATOR,
            permuted_output_grad=grad,
            sorted_indices=indices,
            num_topk=4,
            core_order=order,
            seed=5,
            deterministic=order == "random",
        )
        assert np.array_equal(result.outputs["input_grad"], expected)
        assert result.order_dependent["input_grad"].count == 0


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((20, 49), np.float32), "20x50"),
        (np.empty((20, 50), np.float16), "fp32"),
        (np.empty((4, 20, 50), np.float32)[0].T, "20x50"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(out, message):
    grad, indices = data()
    with pytest.raises(UsageError, match=message) as refused:
        npu_sim.moe_token_permute_grad(grad, indices, 4, out=out)
    assert refused.value.argument == "out"
