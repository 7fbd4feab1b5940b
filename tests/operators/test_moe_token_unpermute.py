from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.status import AclnnError
from tests.operators.refusals import blame_of, refusal_of
from tests.reference.moe_token_unpermute import unpermute

OPERATOR = "moe_token_unpermute"
GOOD = {
    "permuted_tokens": "65536x2048:bf16",
    "sorted_indices": "65536:int32",
    "probs": "8192x8:bf16",
}


def plan(**changes):
    return npu_sim.plan(OPERATOR, **{**GOOD, **changes})


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "permuted_tokens", {"permuted_tokens": None, "product": "atlas_train"}),
        (161001, "sorted_indices", {"sorted_indices": None}),
        (161002, "product", {"product": "atlas_inference", "permuted_tokens": "65536x2048:fp64"}),
        (161002, "permuted_tokens", {"permuted_tokens": "65536x2048:fp64", "probs": "8192x8:fp64"}),
        (161002, "sorted_indices", {"sorted_indices": "65536:int64"}),
        (161002, "probs", {"probs": "8192x8:int32"}),
        (161002, "out", {"out": "8192x2048:fp16"}),
        (161002, "permuted_tokens", {"permuted_tokens": "65536x2048:bf16:FRACTAL_NZ"}),
        (161002, "padded_mode", {"padded_mode": True, "probs": "8192x9:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "8192x8x2048:bf16"}),
        (561002, "sorted_indices", {"sorted_indices": "8192x8:int32"}),
        (561002, "probs", {"probs": "65536:bf16"}),
        (561002, "sorted_indices", {"probs": "8192x9:bf16"}),
        (561002, "sorted_indices", {"sorted_indices": "65535:int32"}),
        (561002, "probs", {"probs": "128x513:bf16", "sorted_indices": "65664:int32"}),
        (
            561002,
            "probs",
            {
                "probs": "128x513:bf16",
                "sorted_indices": "65664:int32",
                "limits": "hardware",
                "release": "8.3",
            },
        ),
        (
            561002,
            "probs",
            {"probs": "5x0:bf16", "sorted_indices": "0:int32", "permuted_tokens": "0x8:bf16"},
        ),
        (561002, "permuted_tokens", {"permuted_tokens": "65536x0:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "65537x2048:bf16"}),
        (
            561002,
            "permuted_tokens",
            {"permuted_tokens": "1x8:bf16", "sorted_indices": "0:int32", "probs": "0x8:bf16"},
        ),
        (561002, "out", {"out": "8192x2047:bf16"}),
        (561002, "out", {"probs": None, "out": "8192x2048:bf16"}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize("profile", ["atlas_a2", "atlas_a3"])
@pytest.mark.parametrize("probs", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_all_nine_pairs_of_dtypes_run(profile, dtype, probs):
    keys = {"bf16": (0, 9, 17, 25), "fp16": (2, 11, 19, 27), "fp32": (4, 13, 21, 29)}
    same = {"bf16": 1, "fp16": 3, "fp32": 5}
    made = plan(product=profile, permuted_tokens=f"65536x2048:{dtype}", probs=f"128x512:{probs}")
    assert made.tiling_key == (
        same[dtype] if probs == dtype else keys[dtype][("", "bf16", "fp16", "fp32").index(probs)]
    )
    assert (
        plan(product=profile, permuted_tokens=f"65536x2048:{dtype}", probs=None).tiling_key
        == keys[dtype][0]
    )


def test_indices_that_tokens_and_probs_imply_need_not_be_typed():
    given = {name: GOOD[name] for name in ("permuted_tokens", "probs")}
    assert npu_sim.plan(OPERATOR, **given).as_dict() | {"arguments": None} == plan().as_dict() | {
        "arguments": None
    }


def test_beyond_512_both_bounds_are_named():
    text = str(
        refusal(probs="1x513:fp16", sorted_indices="513:int32", permuted_tokens="513x11776:fp16")
    )
    for words in ("513", "<= 512", "768 at hidden 11776", "768 at every hidden size"):
        assert words in text


@pytest.mark.parametrize(("release", "total"), [("8.3", 0), ("8.5", 16777216), ("9.1", 16777216)])
def test_the_planner_asks_for_no_workspace_at_the_first_release(release, total):
    assert plan(release=release).workspace.total_bytes == total
    assert (
        plan(release=release, sorted_indices="65536:int32:strided").workspace.total_bytes
        == total + 262144 + 512
    )


def test_no_tokens_succeed_without_a_kernel():
    empty = plan(permuted_tokens="0x2048:bf16", sorted_indices="0:int32", probs="0x8:bf16")
    assert (empty.kernel, empty.block_dim, empty.workspace.total_bytes) == ("", 0, 0)
    assert npu_sim.moe_token_unpermute(
        np.empty((0, 5), np.float32), np.empty(0, np.int32)
    ).shape == (0, 5)


@pytest.mark.parametrize("hidden", [1, 2048, 9217, 11777, 13313, 15873, 40000])
@pytest.mark.parametrize("probs", [None, "fp32", "fp16"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_plan_hangs_together(hidden, dtype, probs):
    top_k, tokens = (8, 3001) if probs else (1, 24008)
    made = plan(
        permuted_tokens=f"24008x{hidden}:{dtype}",
        sorted_indices="24008:int32",
        probs=None if probs is None else f"{tokens}x{top_k}:{probs}",
    )
    (memory,) = made.memories
    beyond = [caveat.code for caveat in made.caveats] == ["buffers_beyond_usable_ub"]
    assert (memory.used_bytes > memory.capacity_bytes) == beyond
    assert made.cores[0].ranges["tokens"][0] == 0
    assert made.cores[-1].ranges["tokens"][1] == tokens
    assert (made.path == "rows in pieces") == (made.tiling["hidden_splited_length"] < hidden)
    assert made.order[0].fixed


def test_rounded_buffers_beyond_the_unified_buffer_are_warned_of():
    """12288 columns leave 196352 - 12288 * 14 - 256 = 24064 bytes: 4 batches of 343 tokens."""
    made = plan(
        permuted_tokens="448000x12288:bf16", sorted_indices="448000:int32", probs="64000x7:bf16"
    )
    (memory,) = made.memories
    assert made.tiling["tokens_splited_length"] == 24064 // 70 == 343
    assert memory.used_bytes == 196352 - 24064 - 256 + 256 + 9632 + 4832 + 9632 == 196384
    (caveat,) = made.caveats
    assert (caveat.code, caveat.argument) == ("buffers_beyond_usable_ub", "probs")
    assert "by 32 bytes" in caveat.message


def data(tokens=20, top_k=4, hidden=50, dropped=7, dtype=np.float32, probs=np.float32):
    random = np.random.default_rng(0)
    rows = random.standard_normal((tokens * top_k - dropped, hidden), np.float32).astype(dtype)
    return (
        rows,
        random.permutation(tokens * top_k).astype(np.int32),
        random.random((tokens, top_k), np.float32).astype(probs),
    )


@pytest.mark.parametrize(
    ("probs", "expected"),
    [([[0.5, 2]], [[3.5, 6]]), ([[0, 2]], [[2, 4]]), (None, [[3, 4], [1, 2]])],
    ids=["both", "one", "none"],
)
def test_the_worked_example(probs, expected):
    tokens, indices = np.array([[1, 2], [3, 4]], np.float32), np.array([1, 0], np.int32)
    given = None if probs is None else np.array(probs, np.float32)
    assert (
        npu_sim.moe_token_unpermute(tokens, indices, given, restore_shape=(2, 2)).tolist()
        == expected
    )


def test_a_negative_index_is_a_run_time_failure_and_nothing_is_written():
    rows, indices, probs = data()
    indices[[13, 40]] = -3, -1
    out = np.full((20, 50), 7, np.float32)
    with pytest.raises(AclnnError) as refused:
        npu_sim.moe_token_unpermute(rows, indices, probs, out=out)
    assert int(refused.value.status) == 361001
    assert "sorted_indices[13] = -3" in refused.value.message
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ("nothing", []),
        ("a dropped row", ["tokens_dropped"]),
        ("an index beyond", ["indices_at_or_beyond_rows"]),
        ("a hidden nan", ["zero_prob_hides_nonfinite"]),
        ("a nan that is read", []),
        ("a hidden number", []),
    ],
)
def test_warnings_that_only_the_data_can_give(change, codes):
    rows, indices, probs = data(dropped=1 if change == "a dropped row" else 0)
    if change == "an index beyond":
        indices[5] = 80
    if "nan" in change:
        rows[indices[9], 3] = np.nan
    if "hidden" in change:
        probs.reshape(-1)[9] = -0.0
    result = npu_sim.run(OPERATOR, permuted_tokens=rows, sorted_indices=indices, probs=probs)
    assert [caveat.code for caveat in result.caveats] == codes
    np.testing.assert_array_equal(
        result.outputs["unpermuted_tokens"], unpermute(rows, indices, probs)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_strided_arrays_and_a_given_output(dtype):
    rows, indices, probs = data(dtype=dtype, probs=dtype)
    expected = unpermute(rows, indices, probs)
    apart, wide = (
        np.zeros((*rows.shape, 2), dtype)[:, :, 1],
        np.zeros((*probs.shape, 3), dtype)[:, :, 2],
    )
    apart[...], wide[...] = rows, probs
    far_indices = np.zeros((indices.size, 3), np.int32)[:, 2]
    far_indices[...] = indices
    out = np.zeros((50, 20), dtype).T
    assert npu_sim.moe_token_unpermute(apart, far_indices, wide, out=out) is out
    assert np.array_equal(out, expected)


def test_no_order_changes_the_result_and_nothing_depends_on_timing():
    rows, indices, probs = data()
    for order in ("sequential", "reverse", "random"):
        result = npu_sim.run(
            OPERATOR, permuted_tokens=rows, sorted_indices=indices, probs=probs, core_order=order
        )
        assert np.array_equal(result.outputs["unpermuted_tokens"], unpermute(rows, indices, probs))
        assert result.order_dependent["unpermuted_tokens"].count == 0
