import hashlib
import json

import ml_dtypes
import numba
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels.shared import token_sums as kernels
from npu_sim.kernels.vectors.lanes import STREAM_BYTES
from npu_sim.numbers.formats import storage_view
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference.moe_token_permute_grad import input_grad

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("moe_token_permute_grad_*.npz"))
COMPILED = not numba.config.DISABLE_JIT


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def case(tokens, top_k, hidden, dtype, dropped=0, seed=0):
    random = np.random.default_rng([tokens, top_k, hidden, dropped, seed])
    grad = random.standard_normal((tokens * top_k - dropped, hidden), np.float32).astype(dtype)
    return grad, random.permutation(tokens * top_k).astype(np.int32)


def compute(grad, indices, top_k, out=None):
    out = np.empty((len(indices) // top_k, grad.shape[1]), grad.dtype) if out is None else out
    entries = kernels.Entries(storage_view(grad).reshape(-1), grad.shape[1], indices, top_k)
    kernels.sum_tokens(entries, storage_view(out).reshape(-1))
    return out


def assert_same(result, expected):
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(result.astype(np.float32)), nan)
    assert np.array_equal(bits(result)[~nan], bits(expected)[~nan])


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta, grad, indices, expected = (
            json.loads(str(file["meta"])),
            *(file[key] for key in file.files if key != "meta"),
        )
    dtype = BF16 if meta["dtype"] == "bfloat16" else np.dtype(meta["dtype"])
    profile = npu_sim.load_profile("atlas_a2", meta["soc"])
    result = npu_sim.moe_token_permute_grad(
        grad.view(dtype), indices, meta["num_topk"], product=profile
    )
    assert np.array_equal(bits(result), bits(expected.view(dtype)))


def test_the_golden_files_cover_dropped_tokens_and_every_dtype():
    seen = set()
    for name in GOLDEN:
        with np.load(DATA / "kernels" / f"{name}.npz") as file:
            meta = json.loads(str(file["meta"]))
            dead = file["in_sorted_indices"].reshape(-1, meta["num_topk"]) >= len(
                file["in_permuted_output_grad"]
            )
            seen |= (
                {meta["dtype"]}
                | ({"first"} if dead[:, 0].any() else set())
                | ({"later"} if dead[:, 1:].any() else set())
            )
    assert seen >= {"float32", "float16", "bfloat16", "first", "later"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "top_k", "hidden", "dropped"),
    [
        (9, 1, 40, 0),
        (9, 1, 40, 4),
        (7, 2, 64, 0),
        (7, 2, 65, 3),
        (5, 3, 33, 1),
        (5, 4, 128, 0),
        (6, 5, 17, 7),
        (6, 6, 100, 0),
        (5, 7, 31, 2),
        (11, 8, 1000, 0),
        (11, 8, 1003, 20),
        (3, 9, 129, 5),
        (4, 16, 48, 0),
        (2, 512, 33, 0),
        (2, 512, 20, 100),
        (13, 2, 1, 4),
        (13, 4, 15, 4),
        (13, 4, 16, 4),
        (1, 8, 2049, 1),
        (5, 2, 63, 10),
    ],
)
def test_sums_equal_the_reference(tokens, top_k, hidden, dropped, dtype):
    grad, indices = case(tokens, top_k, hidden, dtype, dropped)
    assert_same(compute(grad, indices, top_k), input_grad(grad, indices, top_k))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(12 if COMPILED else 2))
def test_random_cases_equal_the_reference(seed, dtype):
    random = np.random.default_rng(seed)
    tokens, top_k, hidden = (int(random.integers(1, most)) for most in (40, 14, 90))
    dropped = int(random.integers(0, tokens * top_k))
    grad, indices = case(tokens, top_k, hidden, dtype, dropped, seed)
    assert_same(compute(grad, indices, top_k), input_grad(grad, indices, top_k))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 5, 24])
def test_arrays_may_start_anywhere(offset, dtype):
    """Vectors never write beyond the ends of a row: memory around the output is unchanged."""
    grad, indices = case(6, 3, 70, dtype)
    moved = np.zeros(offset + grad.size, dtype)[offset:].reshape(grad.shape)
    moved[...] = grad
    memory = np.full(offset + 6 * 70 + 40, 7, dtype)
    out = memory[offset : offset + 6 * 70].reshape(6, 70)
    assert_same(compute(moved, indices, 3, out), input_grad(grad, indices, 3))
    assert (memory[:offset] == 7).all()
    assert (memory[offset + 6 * 70 :] == 7).all()


@pytest.mark.skipif(not COMPILED, reason="large")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 3])
def test_results_beyond_the_cache_are_streamed_unchanged(offset, dtype):
    hidden = 1031
    tokens = STREAM_BYTES // (hidden * dtype.itemsize) + 1
    grad, indices = case(tokens, 2, hidden, dtype)
    out = np.zeros(offset + tokens * hidden, dtype)[offset:].reshape(tokens, hidden)
    rows = grad.astype(np.float32)
    expected = (rows[indices[0::2]] + rows[indices[1::2]]).astype(dtype)
    assert_same(compute(grad, indices, 2, out), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", [3, 64])
def test_signed_zeros(hidden, dtype):
    grad = np.zeros((4, hidden), dtype)
    grad[:3] = -0.0
    indices = np.array([0, 1, 2, 3, 9, 0, 0, 9, 9, 9], np.int32)
    expected = [-0.0, 0.0, 0.0, -0.0, 0.0]  # both -0; -0 and +0; +0 and -0; copied; nothing live
    result = compute(grad, indices, 2)
    assert np.array_equal(
        bits(result), bits(np.repeat(np.array(expected, dtype)[:, None], hidden, axis=1))
    )


@pytest.mark.parametrize("hidden", [5, 70])
def test_overflow_and_nan(hidden):
    grad = np.array([65504, 65504, -65504, np.inf, -np.inf, np.nan], np.float16)[:, None].repeat(
        hidden, axis=1
    )
    indices = np.array([0, 1, 2, 0, 1, 2, 3, 4, 2, 5, 0, 1], np.int32)
    expected = np.array([65504, 65504, np.nan, np.nan], np.float16)[:, None].repeat(hidden, axis=1)
    assert_same(compute(grad, indices, 3), expected)
    assert np.isposinf(compute(grad, np.array([0, 1], np.int32), 2)).all()


def digest():
    """Results of a few cases, as bits."""
    total = hashlib.sha256()
    for dtype in DTYPES:
        for tokens, top_k, hidden, dropped in (
            (9, 2, 70, 0),
            (5, 8, 64, 3),
            (3, 5, 9, 4),
            (1, 1, 33, 0),
        ):
            grad, indices = case(tokens, top_k, hidden, dtype, dropped)
            total.update(compute(grad, indices, top_k).tobytes())
    return total.hexdigest()


PRINT_DIGESTS = (
    ALL_THREADS
    + """
import numba
from tests.kernels.test_moe_token_permute_grad import digest
for threads in {threads}:
    numba.set_num_threads(threads)
    print(digest())
"""
)


@pytest.mark.skipif(not COMPILED, reason="compares with compiled kernels")
@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"NUMBA_NUM_THREADS": "4"}, (1, 2, 4)),
        ({"NUMBA_DISABLE_JIT": "1"}, (1,)),
        ({"NUMBA_CPU_NAME": "generic"}, (1,)),
    ],
    ids=["threads", "compiler off", "processor without fp16 conversions"],
)
@pytest.mark.long
def test_the_same_bits_everywhere(variables, threads):
    assert words_printed_by(PRINT_DIGESTS.format(threads=threads), **variables) == [digest()] * len(
        threads
    )
