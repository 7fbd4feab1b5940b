"""MoeTokenUnpermuteGrad on Ascend 950: order, contract, warnings, and what differs from A2."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.studies.certificate import certify
from tests.cases import every

OPERATOR = "moe_token_unpermute_grad"
A5 = "ascend_950"
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
MAIN = {"fp32": 10400, "fp16": 20800, "bf16": 20800}
"""Columns of a main block; rows of at most WHOLE columns are not cut."""
WHOLE = {"fp32": 10552, "fp16": 21072, "bf16": 21072}


def call(tokens, top_k, hidden, dtype="fp32", probs_dtype="fp32"):
    random = np.random.default_rng([tokens, top_k, hidden])
    entries = tokens * top_k
    rows, grad = (
        random.standard_normal((count, hidden), np.float32).astype(DTYPES[dtype])
        for count in (entries, tokens)
    )
    indices = random.permutation(entries).astype(np.int32)
    inputs = {"permuted_tokens": rows, "unpermuted_tokens_grad": grad, "sorted_indices": indices}
    if probs_dtype:
        probs = random.standard_normal((tokens, top_k), np.float32)
        inputs["probs"] = probs.astype(DTYPES[probs_dtype])
    return inputs


def run(product=A5, **inputs):
    return npu_sim.run(OPERATOR, product=product, **inputs)


def plan(tokens, top_k, hidden, dtype="bf16", probs_dtype="fp32", **changes):
    entries = tokens * top_k
    given = {
        "permuted_tokens": f"{entries}x{hidden}:{dtype}",
        "unpermuted_tokens_grad": f"{tokens}x{hidden}:{dtype}",
        "sorted_indices": f"{entries}:int32",
        **({"probs": f"{tokens}x{top_k}:{probs_dtype}"} if probs_dtype else {}),
    }
    return npu_sim.plan(OPERATOR, product=A5, **{**given, **changes})


def codes(caveats):
    return {caveat.code for caveat in caveats}


def tree(values):
    """Tree of neighbours of 64 values, missing ones +0."""
    own = np.zeros(64, np.float32)
    own[: values.size] = values
    while own.size > 1:
        own = own[::2] + own[1::2]
    return own[0]


def folded_sum(values):
    """``qsum`` of the page, for the largest power of two."""
    if values.size < 64:
        return tree(values)
    power = 1 << (values.size.bit_length() - 1)
    own = values[:power].copy()
    own[: values.size - power] += values[power:]
    sums = np.array([tree(register) for register in own.reshape(-1, 64)], np.float32)
    while sums.size > 64:
        sums = sums[: sums.size // 2] + sums[sums.size // 2 :]
    return tree(sums)


def crossed(slots):
    own = np.zeros((4, 64), np.float32)
    own.reshape(-1)[: len(slots)] = slots
    return tree((own[0] + own[2]) + (own[1] + own[3]))


def cut_sum(values, main):
    """Sums of the blocks of a long row, in the order of the page."""
    half, hidden = main // 2, values.size
    blocks = 1 << ((hidden // main).bit_length() - 1)
    behind = hidden - main * blocks
    whole = 2 * (behind // main)
    tail = behind - whole * half
    tails = 2 if tail > half else int(tail > 0)
    slots = []
    for number in range(whole + tails):
        added = values[main * blocks + number * half :][:half]
        slots.append(
            folded_sum(np.concatenate([values[number * half : (number + 1) * half], added]))
        )
    if tails == 1:
        slots.append(folded_sum(values[(whole + 1) * half : (whole + 2) * half]))
    for number in range(whole // 2 + (tails > 0), blocks):
        slots.append(folded_sum(values[number * main : (number + 1) * main]))
    assert len(slots) == -(-hidden // main)
    full = len(slots) // 256
    if not full:
        return crossed(slots)
    lists = [crossed(slots[256 * number : 256 * number + 256]) for number in range(full)]
    return crossed(slots[256 * full :]) + crossed(lists)


@np.errstate(all="ignore")
def reference(permuted_tokens, unpermuted_tokens_grad, sorted_indices, probs, dtype):
    """Both gradients, entry by entry."""
    rows, top_k = permuted_tokens, probs.shape[1]
    gradient, sums = np.zeros_like(rows), np.zeros(probs.size, np.float32)
    for place, row in enumerate(sorted_indices):
        if not 0 <= row < len(rows):
            continue
        g = unpermuted_tokens_grad[place // top_k].astype(np.float32)
        gradient[row] = (g * np.float32(probs.reshape(-1)[place])).astype(rows.dtype)
        values = rows[row].astype(np.float32) * g
        is_whole = values.size <= WHOLE[dtype]
        sums[place] = folded_sum(values) if is_whole else cut_sum(values, MAIN[dtype])
    return gradient, sums.astype(probs.dtype).reshape(probs.shape)


def assert_as_the_reference(inputs, dtype):
    found = run(**inputs).outputs
    gradient, sums = reference(**inputs, dtype=dtype)
    assert found["permuted_tokens_grad"].tobytes() == gradient.tobytes()
    assert found["probs_grad"].tobytes() == sums.tobytes()


@pytest.mark.parametrize(("dtype", "probs_dtype"), every(4, product(DTYPES, repeat=2)))
@pytest.mark.parametrize("hidden", every(3, [1, 33, 63, 64, 130, 500, 1000, 1024, 2048]))
def test_products_are_folded_once_and_added_as_a_tree(hidden, dtype, probs_dtype):
    inputs = call(5, 3, hidden, dtype, probs_dtype)
    inputs["sorted_indices"][[2, 7]] = -1, 20
    assert_as_the_reference(inputs, dtype)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("hidden", [4095, 4096, 6144, 8192, 10552])
def test_wide_rows(hidden, dtype):
    assert_as_the_reference(call(2, 2, hidden, dtype), dtype)


@pytest.mark.parametrize(
    ("hidden", "dtype"),
    [
        (10553, "fp32"),
        (15600, "fp32"),
        (15601, "fp32"),
        (20800, "fp32"),
        (26001, "fp32"),
        (100000, "fp32"),
        (16384, "fp16"),
        (21072, "bf16"),
        (21073, "bf16"),
        (52010, "bf16"),
        (90001, "fp16"),
    ],
)
def test_rows_in_blocks(hidden, dtype):
    assert_as_the_reference(call(1, 2, hidden, dtype), dtype)


@pytest.mark.long
@pytest.mark.parametrize("hidden", [255 * 10400, 256 * 10400, 256 * 10400 + 1, 5324801])
def test_more_blocks_than_slots(hidden):
    assert_as_the_reference(call(1, 1, hidden), "fp32")


@pytest.mark.parametrize("hidden", [40, 64, 100, 2048, 4096, 8192, 10553, 20800])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_sign_of_a_sum_of_negative_zeros(hidden, dtype):
    inputs = call(1, 1, hidden, dtype)
    inputs["permuted_tokens"][...] = -0.0
    inputs["unpermuted_tokens_grad"][...] = 1
    assert_as_the_reference(inputs, dtype)
    sign = np.signbit(run(**inputs).outputs["probs_grad"]).item()
    assert sign == (4096 <= hidden <= WHOLE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_probs_rows_are_copied(dtype):
    inputs = call(40, 1, 65, dtype, None)
    inputs["sorted_indices"][[3, 8]] = -1, 40
    found = run(**inputs)
    expected = np.zeros_like(inputs["permuted_tokens"])
    for place, row in enumerate(inputs["sorted_indices"]):
        if 0 <= row < 40:
            expected[row] = inputs["unpermuted_tokens_grad"][place]
    assert found.outputs["permuted_tokens_grad"].tobytes() == expected.tobytes()
    assert codes(found.caveats) == {"negative_indices", "tokens_dropped", "rows_not_written"}


def test_a_dropped_entry_has_a_sum_of_zero_unlike_on_a2():
    inputs = call(4, 2, 100)
    inputs["sorted_indices"][3] = 8
    inputs["unpermuted_tokens_grad"][1, 7] = np.inf
    a2, a5 = (run(product, **inputs).outputs["probs_grad"] for product in ("atlas_a2", A5))
    assert np.isnan(a2[1, 1])
    assert a5[1, 1] == 0
    assert not np.signbit(a5[1, 1])


@pytest.mark.parametrize(("hidden", "same"), [(63, True), (100, True), (300, False), (700, True)])
def test_where_sums_differ_from_a2(hidden, same):
    inputs = call(50, 4, hidden)
    a2, a5 = (run(product, **inputs) for product in ("atlas_a2", A5))
    assert np.array_equal(a2.outputs["probs_grad"], a5.outputs["probs_grad"]) == same
    rows = (one.outputs["permuted_tokens_grad"].tobytes() for one in (a2, a5))
    assert len(set(rows)) == 1
    assert codes(a5.plan.caveats) == (set() if same else {"sum_differs_between_products"})


@pytest.mark.parametrize(
    ("tokens", "top_k", "hidden"),
    [(4, 3, 40), (4, 8, 130), (2, 2, 5000), (1, 2, 9000), (1, 2, 15601), (1, 1, 47000)],
)
def test_the_kernel_adds_as_its_declared_tree(tokens, top_k, hidden):
    (certificate,) = certify(OPERATOR, product=A5, **call(tokens, top_k, hidden))
    assert certificate.agrees is True


def test_a_row_that_two_cores_write_depends_on_their_order():
    inputs = call(100, 2, 40)
    inputs["sorted_indices"][[10, 190]] = 17
    results = [run(**inputs, core_order=order) for order in ("sequential", "reverse")]
    first, last = (one.outputs["permuted_tokens_grad"][17] for one in results)
    assert (first != last).any()
    assert results[0].order_dependent["permuted_tokens_grad"].mask[17]
    assert {"duplicate_indices", "rows_not_written"} <= codes(results[0].caveats)


@pytest.mark.parametrize(
    ("sizes", "dtypes", "key", "warnings"),
    [
        ((1024, 8, 64), ("bf16", "fp32"), 20011, set()),
        ((1024, 8, 2048), ("bf16", "bf16"), 20011, {"sum_differs_between_products"}),
        (
            (64, 4, 10552),
            ("fp32", "fp32"),
            20011,
            {"sum_differs_between_products", "zeros_behind_buffer"},
        ),
        ((64, 4, 10544), ("fp32", "fp32"), 20011, {"sum_differs_between_products"}),
        (
            (64, 4, 10553),
            ("fp32", "fp32"),
            20012,
            {"sum_differs_between_products", "reads_behind_row"},
        ),
        ((64, 4, 10560), ("fp32", "fp32"), 20012, {"sum_differs_between_products"}),
        ((4096, 1, 63480), ("fp32", None), 10001, {"probs_grad_not_written"}),
        ((4096, 1, 63481), ("fp32", None), 10002, {"probs_grad_not_written"}),
    ],
)
def test_where_keys_change(sizes, dtypes, key, warnings):
    made = plan(*sizes, *dtypes)
    assert (made.tiling_key, made.kernel) == (key, "MoeFinalizeRoutingV2Grad")
    assert made.outcome == "runs"
    assert codes(made.caveats) == warnings
    assert made.workspace.total_bytes == 16777216
    (memory,) = made.memories
    assert memory.used_bytes <= memory.capacity_bytes == 253952


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"padded_mode": True, "sorted_indices": None}, 161002),
        ({"permuted_tokens": None}, 161001),
        ({"permuted_tokens": None, "probs": None}, 161001),
        ({"permuted_tokens": "500x64:bf16"}, 561002),
        ({"permuted_tokens": "512x65:bf16"}, 561002),
        ({"permuted_tokens": "512x64:fp16"}, 161002),
        ({"probs": None}, 561002),
        ({"probs": "64x7:fp32"}, 561002),
        ({"sorted_indices": "512:int64"}, 161002),
        ({"sorted_indices": "scalar:int32"}, 161002),
        ({"probs_grad": "64x8:fp16"}, 561002),
        ({"permuted_tokens_grad": "511x64:bf16"}, 561002),
        ({"unpermuted_tokens_grad": "64x0:bf16", "permuted_tokens": "512x0:bf16"}, 561002),
    ],
)
def test_refusals(changes, status):
    assert plan(64, 8, 64).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        plan(64, 8, 64, **changes)
    assert caught.value.status == status


def test_without_probs_the_rows_of_the_experts_are_not_looked_at():
    inputs = call(20, 1, 33, "bf16", None)
    expected = run(**inputs).outputs["permuted_tokens_grad"]
    inputs["permuted_tokens"] = inputs["permuted_tokens"][:7, :3]
    found = run(**inputs).outputs["permuted_tokens_grad"]
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("sizes", [(0, 8, 64), (64, 0, 64)])
def test_nothing_runs_without_entries(sizes):
    made = plan(*sizes)
    assert (made.outcome, made.block_dim, made.workspace.total_bytes) == ("runs", 0, 0)


def test_what_a2_refuses_runs():
    assert plan(4, 1024, 256).outcome == "runs"


@pytest.mark.parametrize(
    ("sizes", "probs"),
    [
        ((1024, 8, 1024), "fp32"),
        ((64, 4, 40000), "bf16"),
        ((5000, 1, 1024), None),
        ((70, 1, 200000), None),
    ],
)
def test_every_path_has_a_bound_and_steps(sizes, probs):
    made = plan(*sizes, probs_dtype=probs)
    bound = timeline(made, load_profile(A5))
    tokens, top_k, hidden = sizes
    rows = tokens * top_k
    assert bound.bound_us > 0
    assert bound.written_bytes == pytest.approx(rows * hidden * 2, rel=1e-2)
    read = rows + tokens if probs else rows
    assert bound.read_bytes == pytest.approx(read * hidden * 2, rel=0.1)
    assert steps(made)["tiles"]
