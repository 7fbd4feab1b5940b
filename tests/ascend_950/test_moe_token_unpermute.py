"""MoeTokenUnpermute on Ascend 950: order, contract, warnings, and what differs from A2."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.studies.certificate import certify
from tests.cases import every

OPERATOR = "moe_token_unpermute"
A5 = "ascend_950"
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def call(tokens, top_k, hidden, dtype="fp32", probs_dtype="fp32", dropped=0):
    random = np.random.default_rng([tokens, top_k, hidden])
    entries = tokens * top_k
    rows = random.standard_normal((entries - dropped, hidden), np.float32)
    inputs = {
        "permuted_tokens": rows.astype(DTYPES[dtype]),
        "sorted_indices": random.permutation(entries).astype(np.int32),
    }
    if probs_dtype:
        probs = random.standard_normal((tokens, top_k), np.float32)
        inputs["probs"] = probs.astype(DTYPES[probs_dtype])
    return inputs


def run(product=A5, **inputs):
    return npu_sim.run(OPERATOR, product=product, **inputs)


def plan(tokens, top_k, hidden, dtype="bf16", probs="fp32", rows=None, **options):
    entries = tokens * top_k
    given = {"probs": f"{tokens}x{top_k}:{probs}"} if probs else {}
    return npu_sim.plan(
        OPERATOR,
        product=A5,
        permuted_tokens=f"{entries if rows is None else rows}x{hidden}:{dtype}",
        sorted_indices=f"{entries}:int32",
        **given,
        **options,
    )


def codes(caveats):
    return {caveat.code for caveat in caveats}


@np.errstate(all="ignore")
def reference(permuted_tokens, sorted_indices, probs=None):
    """From +0, in k order; only dropped rows are left out."""
    top_k = 1 if probs is None else probs.shape[1]
    indices = sorted_indices.reshape(-1, top_k)
    total = np.zeros((len(indices), permuted_tokens.shape[1]), np.float32)
    for token, own in enumerate(indices):
        for place, row in enumerate(own):
            if 0 <= row < len(permuted_tokens):
                values = permuted_tokens[row].astype(np.float32)
                if probs is not None:
                    values = values * np.float32(probs[token, place])
                total[token] = total[token] + values
    return total.astype(permuted_tokens.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("probs_dtype", every(2, [None, *DTYPES]))
@pytest.mark.parametrize("hidden", every(2, [1, 15, 16, 33, 100, 257]))
@pytest.mark.parametrize(("top_k", "dropped"), [(1, 0), (2, 3), (8, 5)])
def test_rows_are_added_in_order_from_zero(hidden, dtype, probs_dtype, top_k, dropped):
    inputs = call(9, top_k if probs_dtype else 1, hidden, dtype, probs_dtype, dropped)
    inputs["sorted_indices"][::7] = -1
    inputs["permuted_tokens"][::2, ::3] = -0.0
    found = run(**inputs).outputs["unpermuted_tokens"]
    assert found.tobytes() == reference(**inputs).tobytes()


def test_the_sum_starts_with_zero_unlike_on_a2():
    inputs = call(5, 1, 40, probs_dtype=None)
    inputs["permuted_tokens"][...] = -0.0
    a2, a5 = (run(product, **inputs).outputs["unpermuted_tokens"] for product in ("atlas_a2", A5))
    assert np.signbit(a2).all()
    assert not np.signbit(a5).any()


def test_a_row_with_probs_of_zero_is_added_unlike_on_a2():
    inputs = call(6, 2, 40)
    inputs["probs"][3, 1] = 0
    inputs["permuted_tokens"][inputs["sorted_indices"][7], 5] = np.inf
    a2, a5 = (run(product, **inputs) for product in ("atlas_a2", A5))
    assert np.isfinite(a2.outputs["unpermuted_tokens"]).all()
    assert np.argwhere(np.isnan(a5.outputs["unpermuted_tokens"])).tolist() == [[3, 5]]
    assert codes(a5.caveats) == {"zero_prob_gives_nan"}


@pytest.mark.parametrize(("tokens", "top_k", "hidden"), [(4, 3, 5), (4, 8, 40), (3, 20, 700)])
def test_the_kernel_adds_as_its_declared_tree(tokens, top_k, hidden):
    inputs = call(tokens, top_k, hidden, dropped=2)
    inputs["probs"][1, 1] = 0
    certificates = certify(OPERATOR, product=A5, **inputs)
    assert certificates
    assert all(one.agrees is True for one in certificates)


def test_the_same_bits_as_a2_else():
    inputs = call(50, 8, 300, "bf16", "bf16", dropped=20)
    a2, a5 = (run(product, **inputs).outputs["unpermuted_tokens"] for product in ("atlas_a2", A5))
    assert a2.tobytes() == a5.tobytes()


def test_negative_indices_are_dropped_rows():
    inputs = call(20, 4, 50)
    dropped = inputs["sorted_indices"].copy()
    inputs["sorted_indices"][[5, 13]] = -1
    dropped[[5, 13]] = 1000
    found = run(**inputs)
    assert codes(found.caveats) == {"negative_indices"}
    expected = run(**{**inputs, "sorted_indices": dropped})
    assert found.outputs["unpermuted_tokens"].tobytes() == (
        expected.outputs["unpermuted_tokens"].tobytes()
    )
    assert codes(expected.caveats) == {"indices_at_or_beyond_rows"}
    inputs["sorted_indices"][0] = -2
    assert codes(run(**inputs).caveats) == {"negative_indices", "indices_below_minus_one"}
    with pytest.raises(npu_sim.AclnnError):
        run("atlas_a2", **inputs)


def test_a_token_without_its_one_row_is_zero_and_named():
    inputs = call(3000, 1, 40, probs_dtype=None)
    inputs["sorted_indices"][7] = -1
    found = run(**inputs)
    assert found.plan.tiling_key == 40020
    assert not found.outputs["unpermuted_tokens"][7].any()
    assert codes(found.caveats) == {"negative_indices", "one_expert_dropped"}
    small = call(30, 1, 40, probs_dtype=None)
    small["sorted_indices"][7] = -1
    assert codes(run(**small).caveats) == {"negative_indices"}


def test_more_rows_than_entries_run():
    inputs = call(10, 2, 40)
    more = np.concatenate([inputs["permuted_tokens"]] * 2)
    inputs["permuted_tokens"] = more
    inputs["sorted_indices"][3] = 25
    found = run(**inputs)
    assert codes(found.caveats) == {"reads_rows_beyond_tokens"}
    assert found.outputs["unpermuted_tokens"].tobytes() == reference(**inputs).tobytes()


@pytest.mark.parametrize(
    ("sizes", "dtypes", "key", "warnings"),
    [
        ((1024, 8, 1024), ("bf16", "fp32"), 40020, set()),
        ((1024, 8, 1024), ("bf16", "fp16"), 40021, set()),
        ((1024, 8, 1024), ("bf16", "bf16"), 40022, set()),
        ((14, 8, 1024), ("bf16", "fp32"), 30020, set()),
        ((15, 8, 1024), ("bf16", "fp32"), 40020, set()),
        ((1024, 59, 1024), ("bf16", "fp32"), 40020, set()),
        ((1024, 60, 1024), ("bf16", "fp32"), 10020, set()),
        ((64, 4, 21152), ("bf16", None), 10020, set()),
        ((64, 4, 21200), ("bf16", "fp32"), 20020, set()),
        ((64, 4, 21162), ("bf16", "fp32"), 20020, {"buffers_beyond_ub"}),
        ((64, 4, 42324), ("fp16", "fp32"), 20020, {"buffers_beyond_ub"}),
    ],
)
def test_where_keys_change(sizes, dtypes, key, warnings):
    if dtypes[1] is None:
        sizes = (sizes[0] * sizes[1], 1, sizes[2])
        key = 40020
    made = plan(*sizes, *dtypes)
    assert (made.tiling_key, made.kernel) == (key, "MoeFinalizeRoutingV2")
    assert made.outcome == ("overflows" if warnings else "runs")
    assert codes(made.caveats) == warnings
    assert made.workspace.total_bytes == 16777216
    assert all(order.fixed for order in made.order)
    (memory,) = made.memories
    assert (memory.used_bytes > memory.capacity_bytes) == bool(warnings)


@pytest.mark.parametrize(
    ("sizes", "probs", "warnings"),
    [
        ((4, 8, 64), "fp32", {"tokens_dropped", "reads_rows_beyond_tokens"}),
        ((1024, 8, 1024), "fp32", {"tokens_dropped"}),
        ((4096, 1, 1024), None, {"tokens_dropped", "one_expert_dropped"}),
    ],
)
def test_warnings_of_dropped_rows(sizes, probs, warnings):
    found = plan(*sizes, probs=probs, rows=sizes[0] * sizes[1] - 3).caveats
    assert codes(found) == warnings


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"padded_mode": True}, 161002),
        ({"probs": "64x7:fp32"}, 561002),
        ({"probs": "512:fp32"}, 561002),
        ({"probs": "64x0:fp32", "sorted_indices": "0:int32"}, 561002),
        ({"probs": None, "out": "64x64:bf16"}, 561002),
        ({"sorted_indices": "512:int64"}, 161002),
        ({"sorted_indices": "64x8:int32"}, 561002),
        ({"permuted_tokens": "512:bf16"}, 561002),
        ({"out": "64x65:bf16"}, 561002),
        ({"out": "64x64:fp32"}, 161002),
    ],
)
def test_refusals(changes, status):
    good = {
        "permuted_tokens": "512x64:bf16",
        "sorted_indices": "512:int32",
        "probs": "64x8:fp32",
        "product": A5,
    }
    assert npu_sim.plan(OPERATOR, **good).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(OPERATOR, **{**good, **changes})
    assert caught.value.status == status


def test_padding_is_refused_before_a_missing_tensor():
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(
            OPERATOR, product=A5, padded_mode=True, permuted_tokens="4x4:fp32", sorted_indices=None
        )
    assert caught.value.status == 161002


@pytest.mark.parametrize(("tokens", "hidden"), [(0, 64), (64, 0)])
def test_nothing_runs_without_tokens_or_columns(tokens, hidden):
    made = plan(tokens, 8, hidden)
    assert (made.outcome, made.block_dim, made.workspace.total_bytes) == ("runs", 0, 0)


def test_what_a2_refuses_runs():
    assert plan(4, 1024, 256).outcome == "runs"
    assert plan(4, 8, 256, rows=100).outcome == "runs"


@pytest.mark.parametrize(
    ("sizes", "reads"),
    [((10, 8, 128), 10), ((1024, 8, 1024), 1), ((64, 100, 4096), 1), ((9, 5, 200000), 1)],
)
def test_every_path_has_a_bound_and_steps(sizes, reads):
    """Each of the ``reads`` cores of the first path copies the rows of all tokens."""
    made = plan(*sizes)
    bound = timeline(made, load_profile(A5))
    tokens, top_k, hidden = sizes
    assert bound.bound_us > 0
    assert bound.binding_pipe == "MTE2"
    assert bound.read_bytes == pytest.approx(reads * tokens * top_k * hidden * 2, rel=2e-2)
    assert bound.written_bytes == pytest.approx(tokens * hidden * 2, rel=1e-3)
    assert steps(made)["tiles"]


@pytest.mark.parametrize(("tokens", "status"), [(3000, "undecided"), (30, "unreachable")])
def test_a_token_without_its_one_row_may_hold_anything(tokens, status):
    inputs = call(tokens, 1, 40, probs_dtype=None)
    inputs["sorted_indices"][7] = -1
    measured = run(**inputs).outputs["unpermuted_tokens"].copy()
    measured[7] = 5
    answer = npu_sim.verify(OPERATOR, product=A5, unpermuted_tokens=measured, **inputs)
    assert answer.outputs["unpermuted_tokens"].status == status
