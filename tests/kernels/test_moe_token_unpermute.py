import json

import ml_dtypes
import numba
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels.shared.row_copies import gather_rows
from npu_sim.kernels.vectors.lanes import STREAM_BYTES
from npu_sim.numbers.formats import storage_view
from tests.cases import every
from tests.golden import DATA
from tests.reference.moe_token_unpermute import unpermute

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("moe_token_unpermute_[0-9]*.npz"))
COMPILED = not numba.config.DISABLE_JIT


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def assert_same(result, expected):
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(result.astype(np.float32)), nan)
    assert np.array_equal(bits(result)[~nan], bits(expected)[~nan])


def typed(array, name):
    return array.view(BF16) if name == "bfloat16" else array


def case(tokens, top_k, hidden, dtype, probs_dtype, dropped=0, seed=0):
    random = np.random.default_rng([tokens, top_k, hidden, dropped, seed])
    rows = random.standard_normal((tokens * top_k - dropped, hidden), np.float32).astype(dtype)
    probs = random.standard_normal((tokens, top_k), np.float32).astype(probs_dtype)
    probs[random.random(probs.shape) < 0.1] = random.choice([0.0, -0.0])
    return rows, random.permutation(tokens * top_k).astype(np.int32), probs


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        rows, expected = (
            typed(file[key], meta["dtype"])
            for key in ("in_permuted_tokens", "out_unpermuted_tokens")
        )
        probs = typed(file["in_probs"], meta["probs_dtype"]) if meta["probs_dtype"] else None
        result = npu_sim.run(
            "moe_token_unpermute",
            permuted_tokens=rows,
            sorted_indices=file["in_sorted_indices"],
            probs=probs,
            soc=None,
        )
    assert_same(result.outputs["unpermuted_tokens"], expected)
    assert result.plan.tiling_key == meta["tiling_key"]


@pytest.mark.parametrize("probs_dtype", every(3, DTYPES), ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "top_k", "hidden", "dropped"),
    [
        (9, 1, 40, 4),
        (7, 2, 65, 3),
        (5, 4, 128, 0),
        (11, 8, 203, 20),
        (2, 512, 33, 100),
        (13, 4, 15, 4),
        (1, 8, 2049, 1),
    ],
)
def test_sums_equal_the_reference(tokens, top_k, hidden, dropped, dtype, probs_dtype):
    rows, indices, probs = case(tokens, top_k, hidden, dtype, probs_dtype, dropped)
    assert_same(npu_sim.moe_token_unpermute(rows, indices, probs), unpermute(rows, indices, probs))


@pytest.mark.parametrize("hidden", [3, 70])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_subnormals_inf_and_nan(dtype, hidden):
    """Probs decide which entries are live; the first live row decides the sign of zero."""
    tiny = (
        float(np.finfo(dtype).smallest_subnormal)
        if dtype != BF16
        else float(ml_dtypes.finfo(BF16).smallest_subnormal)
    )
    rows = (
        np.array([np.inf, np.nan, -0.0, 1.0, 0.0], np.float32)
        .astype(dtype)[:, None]
        .repeat(hidden, axis=1)
    )
    probs = np.array(
        [[0, 1], [-0.0, 1], [tiny, 0], [np.nan, 0], [1, 1], [1, 1], [1, 0], [np.inf, 0]], np.float32
    ).astype(dtype)
    indices = np.array([0, 3, 1, 3, 3, 0, 3, 1, 2, 9, 9, 2, 2, 3, 4, 0], np.int32)
    result = npu_sim.moe_token_unpermute(rows, indices, probs)
    expected = (
        np.array([1, 1, tiny, np.nan, -0.0, 0.0, -0.0, np.nan], np.float32)
        .astype(dtype)[:, None]
        .repeat(hidden, axis=1)
    )
    assert_same(result, expected)


@pytest.mark.parametrize("hidden", [1, 15, 16, 32, 33, 64, 200])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_without_probs_rows_are_copied_bit_for_bit_or_zero(dtype, hidden):
    patterns = np.random.default_rng(hidden).integers(
        0, 256, (20, hidden * dtype.itemsize), np.uint8
    )
    rows = patterns.view(dtype)
    indices = np.array([3, 3, 19, 20, 0, 2**31 - 1, 7, *range(20)], np.int32)
    result = npu_sim.moe_token_unpermute(rows, indices)
    expected = np.where((indices < 20)[:, None], bits(rows)[np.minimum(indices, 19)], 0)
    assert np.array_equal(bits(result), expected)
    nowhere = npu_sim.moe_token_unpermute(rows[:0], indices)
    assert not bits(nowhere).any()


@pytest.mark.skipif(not COMPILED, reason="large")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 3])
def test_results_beyond_the_cache_are_streamed_unchanged(offset, dtype):
    hidden = 1032
    tokens = STREAM_BYTES // (hidden * dtype.itemsize) + 1
    rows, indices, probs = case(tokens, 2, hidden, dtype, np.float32)
    out = np.zeros(offset + tokens * hidden, dtype)[offset:].reshape(tokens, hidden)
    npu_sim.moe_token_unpermute(rows, indices, probs, out=out)
    first, second = (
        np.where(one[:, None] == 0, 0, rows[indices[k::2]].astype(np.float32) * one[:, None])
        for k, one in enumerate(probs.T)
    )
    assert np.array_equal(out, (first + second).astype(dtype))
    gather_rows(storage_view(rows), indices[:tokens], storage_view(out))
    assert np.array_equal(bits(out), bits(rows)[indices[:tokens]])


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910B4"])
def test_a_token_does_not_depend_on_cores_or_on_its_place(soc):
    rows, indices, probs = case(50, 4, 96, np.dtype(np.float16), np.float16)
    whole = npu_sim.moe_token_unpermute(rows, indices, probs)
    turned = npu_sim.moe_token_unpermute(
        rows, np.roll(indices, 28), np.roll(probs, 7, axis=0), soc=soc
    )
    assert_same(turned, np.roll(whole, 7, axis=0))
