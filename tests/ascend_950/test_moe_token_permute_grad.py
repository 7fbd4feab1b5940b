"""MoeTokenPermuteGrad on Ascend 950: order, contract, warnings, and what differs from A2."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.studies.certificate import certify
from tests.cases import every

OPERATOR = "moe_token_permute_grad"
A5 = "ascend_950"
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def call(tokens, top_k, hidden, dtype="fp32", dropped=0):
    random = np.random.default_rng([tokens, top_k, hidden])
    rows = tokens * top_k
    grad = random.standard_normal((rows - dropped, hidden), np.float32).astype(DTYPES[dtype])
    indices = random.permutation(rows).astype(np.int32)
    return {"permuted_output_grad": grad, "sorted_indices": indices, "num_topk": top_k}


def run(product=A5, **inputs):
    return npu_sim.run(OPERATOR, product=product, **inputs)


def plan(tokens, top_k, hidden, dtype="bf16", soc=None, rows=None):
    return npu_sim.plan(
        OPERATOR,
        product=A5,
        soc=soc,
        permuted_output_grad=f"{tokens * top_k if rows is None else rows}x{hidden}:{dtype}",
        sorted_indices=f"{tokens * top_k}:int32",
        num_topk=top_k,
    )


def reference(permuted_output_grad, sorted_indices, num_topk, chunk):
    """Groups of four in fp32 that restart at every chunk; dropped rows are rows of +0."""
    grad = permuted_output_grad
    live = (sorted_indices >= 0) & (sorted_indices < len(grad))
    rows = np.zeros((sorted_indices.size, grad.shape[1]), np.float32)
    rows[live] = grad[sorted_indices[live]].astype(np.float32)
    total = np.zeros((sorted_indices.size // num_topk, grad.shape[1]), np.float32)
    for token, own in enumerate(rows.reshape(-1, num_topk, grad.shape[1])):
        for begin in range(0, num_topk, chunk):
            piece = own[begin : begin + chunk]
            whole = len(piece) // 4 * 4
            for one in range(0, whole, 4):
                first, second = piece[one] + piece[one + 1], piece[one + 2] + piece[one + 3]
                total[token] = total[token] + (first + second)
            for row in piece[whole:]:
                total[token] = total[token] + row
    return total.astype(grad.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", every(2, [1, 7, 15, 16, 33, 100, 257]))
@pytest.mark.parametrize(("top_k", "dropped"), [(1, 0), (3, 2), (4, 0), (8, 5), (11, 20)])
def test_rows_are_added_in_groups_of_four(hidden, dtype, top_k, dropped):
    inputs = call(9, top_k, hidden, dtype, dropped)
    inputs["sorted_indices"][::7] *= -1
    found = run(**inputs).outputs["input_grad"]
    assert found.tobytes() == reference(**inputs, chunk=top_k).tobytes()


@pytest.mark.parametrize(("tokens", "top_k", "hidden"), [(2, 90, 2048), (3, 30, 3000), (1, 600, 9)])
def test_groups_restart_at_every_chunk(tokens, top_k, hidden):
    inputs = call(tokens, top_k, hidden)
    result = run(**inputs)
    chunk = result.plan.tiling.get("kUbFactor", top_k)
    assert (result.plan.tiling_key == 400003) == (chunk < top_k) == (hidden > 9)
    found = result.outputs["input_grad"]
    assert found.tobytes() == reference(**inputs, chunk=chunk).tobytes()
    codes = {caveat.code for caveat in result.plan.caveats}
    assert ("order_depends_on_sizes" in codes) == (chunk < top_k)


def test_the_chunk_decides_bits():
    inputs = call(3, 30, 3000)
    chunk = run(**inputs).plan.tiling["kUbFactor"]
    assert chunk % 4
    assert (reference(**inputs, chunk=chunk) != reference(**inputs, chunk=30)).any()


@pytest.mark.parametrize(
    ("tokens", "top_k", "hidden", "dropped"),
    [(4, 3, 5, 0), (4, 8, 40, 0), (5, 7, 40, 9), (2, 64, 20, 0), (2, 40, 3000, 0)],
)
def test_the_kernel_adds_as_its_declared_tree(tokens, top_k, hidden, dropped):
    certificates = certify(OPERATOR, product=A5, **call(tokens, top_k, hidden, "fp32", dropped))
    assert certificates
    assert all(one.agrees is True for one in certificates)


@pytest.mark.parametrize(("top_k", "same"), [(1, True), (2, True), (3, True), (4, False)])
def test_the_same_bits_as_a2_up_to_three_rows(top_k, same):
    inputs = call(50, top_k, 300)
    a2, a5 = (run(product, **inputs).outputs["input_grad"] for product in ("atlas_a2", A5))
    assert np.array_equal(a2, a5) == same
    codes = {caveat.code for caveat in plan(50, top_k, 300).caveats}
    assert codes == (set() if same else {"sum_differs_between_products"})


def test_a_negative_index_is_a_dropped_row():
    inputs = call(20, 4, 50)
    dropped = inputs["sorted_indices"].copy()
    inputs["sorted_indices"][[5, 13]] = -1, -3
    dropped[[5, 13]] = 1000
    found = run(**inputs)
    assert (
        "sorted_indices[5]" in {one.code: one.message for one in found.caveats}["negative_indices"]
    )
    expected = run(**{**inputs, "sorted_indices": dropped})
    assert np.array_equal(found.outputs["input_grad"], expected.outputs["input_grad"])
    assert "negative_indices" not in {one.code for one in expected.caveats}
    with pytest.raises(npu_sim.AclnnError):
        run("atlas_a2", **inputs)


@pytest.mark.parametrize(
    ("sizes", "dtype", "key", "kernel"),
    [
        ((1024, 8, 1024), "bf16", 300003, "MoeInitRoutingV2Grad"),
        ((3, 8, 8192), "bf16", 200003, "MoeInitRoutingV2Grad"),
        ((8, 8, 8192), "bf16", 300003, "MoeInitRoutingV2Grad"),
        ((7, 8, 8192), "bf16", 200003, "MoeInitRoutingV2Grad"),
        ((1024, 61, 1024), "bf16", 300003, "MoeInitRoutingV2Grad"),
        ((1024, 62, 1024), "bf16", 400003, "MoeInitRoutingV2Grad"),
        ((1024, 10, 100000), "fp32", 300003, "MoeInitRoutingV2Grad"),
        ((1024, 11, 100000), "fp32", 400003, "MoeInitRoutingV2Grad"),
    ],
)
def test_where_keys_change(sizes, dtype, key, kernel):
    made = plan(*sizes, dtype)
    assert (made.tiling_key, made.kernel) == (key, kernel)
    assert made.outcome == "runs"
    assert made.workspace.total_bytes == 16777216
    assert all(order.fixed for order in made.order)
    (memory,) = made.memories
    assert memory.used_bytes <= memory.capacity_bytes == 253952


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"num_topk": 0}, 561002),
        ({"num_topk": 7}, 561002),
        ({"padded_mode": True}, 161002),
        ({"permuted_output_grad": "0x64:bf16"}, 561002),
        ({"permuted_output_grad": "513x64:bf16"}, 561002),
        ({"permuted_output_grad": "512x0:bf16"}, 561002),
        ({"permuted_output_grad": "0x64:bf16", "sorted_indices": "0:int32"}, 561002),
        ({"sorted_indices": "512:int64"}, 161002),
        ({"out": "64x65:bf16"}, 561002),
    ],
)
def test_refusals(changes, status):
    good = {
        "permuted_output_grad": "512x64:bf16",
        "sorted_indices": "512:int32",
        "num_topk": 8,
        "product": A5,
    }
    assert npu_sim.plan(OPERATOR, **good).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(OPERATOR, **{**good, **changes})
    assert caught.value.status == status


def test_more_than_512_rows_a_token_run():
    assert plan(4, 1024, 256).outcome == "runs"


@pytest.mark.parametrize("sizes", [(1024, 8, 1024), (3, 8, 8192), (64, 100, 4096), (9, 5, 200000)])
def test_every_path_has_a_bound_and_steps(sizes):
    made = plan(*sizes)
    bound = timeline(made, load_profile(A5))
    tokens, top_k, hidden = sizes
    assert bound.bound_us > 0
    assert bound.binding_pipe == "MTE2"
    assert bound.read_bytes == pytest.approx(tokens * top_k * hidden * 2, rel=1e-3)
    assert bound.written_bytes == pytest.approx(tokens * hidden * 2, rel=1e-3)
    assert steps(made)["tiles"]
