import json

import ml_dtypes
import numba
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.kernels.vectors.lanes import STREAM_BYTES
from npu_sim.numbers.arrays import aligned
from tests.cases import every
from tests.golden import DATA
from tests.kernels.test_moe_token_unpermute import DTYPES, assert_same, bits, case, typed
from tests.reference.moe_token_unpermute import unpermute_grad

GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("moe_token_unpermute_grad_*.npz"))
COMPILED = not numba.config.DISABLE_JIT
WIDTHS = [
    1,
    7,
    15,
    16,
    63,
    64,
    65,
    127,
    128,
    129,
    136,
    192,
    257,
    500,
    511,
    512,
    513,
    1024,
    1025,
    1031,
    3072,
    4095,
    4096,
    4103,
    4608,
]


def gradients(rows, g, indices, probs, **options):
    call = {
        "permuted_tokens": rows,
        "unpermuted_tokens_grad": g,
        "sorted_indices": indices,
        "probs": probs,
    }
    outputs = npu_sim.run("moe_token_unpermute_grad", **call, **options).outputs
    return outputs["permuted_tokens_grad"], outputs.get("probs_grad")


def drawn(tokens, top_k, hidden, dtype, probs_dtype, seed=0):
    rows, indices, probs = case(tokens, top_k, hidden, dtype, probs_dtype, 0, seed)
    return (
        rows,
        np.random.default_rng(seed).standard_normal((tokens, hidden), np.float32).astype(dtype),
        indices,
        probs,
    )


@pytest.mark.parametrize("name", every(3, GOLDEN))
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        rows, g, expected = (
            typed(file[key], meta["dtype"])
            for key in (
                "in_permuted_tokens",
                "in_unpermuted_tokens_grad",
                "out_permuted_tokens_grad",
            )
        )
        weights = [
            typed(file[key], meta["probs_dtype"])
            for key in ("in_probs", "out_probs_grad")
            if key in file.files
        ]
        profile = load_profile(None, meta["soc"], meta["release"])
        found = gradients(
            rows, g, file["in_sorted_indices"], weights[0] if weights else None, product=profile
        )
    assert_same(found[0], expected)
    if weights:
        assert_same(found[1], weights[1])
    else:
        assert found[1] is None


def test_the_golden_files_cover_an_older_release_split_rows_and_no_probs():
    metas = []
    for name in GOLDEN:
        with np.load(DATA / "kernels" / f"{name}.npz") as file:
            metas.append(json.loads(str(file["meta"])))
    assert {"9.0", "9.1"} == {meta["release"] for meta in metas}
    assert {meta["tiling_key"] for meta in metas} == {0, 1}


@pytest.mark.parametrize("hidden", WIDTHS if COMPILED else WIDTHS[:8])
@pytest.mark.parametrize(
    ("dtype", "probs_dtype"), every(3, zip(DTYPES, [*DTYPES[1:], DTYPES[0]], strict=True)), ids=str
)
def test_gradients_equal_the_reference(hidden, dtype, probs_dtype):
    rows, g, indices, probs = drawn(3, 2, hidden, dtype, probs_dtype)
    for found, expected in zip(
        gradients(rows, g, indices, probs), unpermute_grad(rows, g, indices, probs), strict=True
    ):
        assert_same(found, expected)


@pytest.mark.skipif(not COMPILED, reason="large")
@pytest.mark.parametrize(
    ("hidden", "dtype", "piece"), [(8192, 2, 7936), (9000, 2, 7936), (5378, 4, 5376)]
)
def test_rows_in_pieces_are_summed_piece_by_piece(hidden, dtype, piece):
    dtype = DTYPES[0] if dtype == 4 else DTYPES[2]
    rows, g, indices, probs = drawn(2, 3, hidden, dtype, np.float32)
    result = npu_sim.run(
        "moe_token_unpermute_grad",
        permuted_tokens=rows,
        unpermuted_tokens_grad=g,
        sorted_indices=indices,
        probs=probs,
    )
    assert result.plan.tiling["hiddenSizeAlign"] == piece
    assert [caveat.code for caveat in result.plan.caveats] == ["hidden_split_changes_sums"]
    for found, expected in zip(
        result.outputs.values(), unpermute_grad(rows, g, indices, probs, piece=piece), strict=True
    ):
        assert_same(found, expected)


@pytest.mark.parametrize("release", ["9.0", "9.1"])
@pytest.mark.parametrize("probs", [True, False])
def test_dropped_entries(release, probs):
    """An index is dropped at or beyond the number of indices (9.1) or of rows (before)."""
    rows, g, indices, weights = drawn(6, 4 if probs else 1, 40, np.dtype(np.float32), np.float32)
    if release == "9.0":
        rows = rows[:-2]
    else:
        indices[indices == 0] = 1000
    g[2, 5] = np.inf
    count = len(rows) if release == "9.0" else len(indices)
    expected = unpermute_grad(rows, g, indices, weights if probs else None, rows=count)
    found = gradients(rows, g, indices, weights if probs else None, release=release)
    assert_same(found[0], expected[0])
    if probs:
        assert_same(found[1], expected[1])


@pytest.mark.parametrize("hidden", [5, 70])
def test_zero_probs_multiply_and_signs_of_zero_stay(hidden):
    rows = np.zeros((4, hidden), np.float32)
    g = np.array([[np.inf], [-1.0]], np.float32).repeat(hidden, axis=1)
    probs = np.array([[0, 1], [0, -0.0]], np.float32)
    tokens_grad, probs_grad = gradients(rows, g, np.arange(4, dtype=np.int32), probs)
    expected = np.array([np.nan, np.inf, -0.0, 0.0], np.float32)[:, None].repeat(hidden, axis=1)
    assert_same(tokens_grad, expected)
    assert_same(probs_grad, np.array([[np.nan, np.nan], [0.0, 0.0]], np.float32))


@pytest.mark.parametrize("hidden", [1, 15, 32, 33, 200])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_probs_rows_go_where_their_indices_say_bit_for_bit(dtype, hidden):
    g = (
        np.random.default_rng(hidden)
        .integers(0, 256, (20, hidden * dtype.itemsize), np.uint8)
        .view(dtype)
    )
    indices = np.random.default_rng(1).permutation(20).astype(np.int32)
    for rows in (None, np.zeros((20, hidden), dtype)):
        found, nothing = gradients(rows, g, indices, None)
        assert nothing is None
        assert np.array_equal(bits(found)[indices], bits(g))


@pytest.mark.skipif(not COMPILED, reason="large")
@pytest.mark.parametrize("dtype", every(3, DTYPES), ids=str)
@pytest.mark.parametrize(
    ("offset", "hidden"), every(3, [(0, 1024), (0, 1032), (3, 1024), (3, 1032)])
)
def test_results_beyond_the_cache_are_streamed_unchanged(hidden, offset, dtype):
    tokens = STREAM_BYTES // (2 * hidden * dtype.itemsize) + 1
    rows, g, indices, probs = drawn(tokens, 2, hidden, dtype, np.float32)
    g[0, 5], g[1, 6], probs[2, 1] = np.inf, np.nan, np.nan
    out = aligned((offset + rows.size,), np.dtype(dtype))[offset:].reshape(rows.shape)
    gradients(rows, g, indices, probs, out=(out, np.empty_like(probs)))
    assert_same(
        out[indices],
        (np.repeat(g, 2, axis=0).astype(np.float32) * probs.reshape(-1, 1)).astype(dtype),
    )
    assert ml_dtypes.finfo(dtype).bits == 8 * out.itemsize
