import hashlib
import json

import ml_dtypes
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.kernels import moe_token_permute as kernels
from npu_sim.kernels.shared.row_copies import copy_rows
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference.moe_token_permute import as_fp32, moe_token_permute

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("moe_token_permute_[0-9]*.npz"))
COMPILED = not numba.config.DISABLE_JIT
ENDS = [
    0,
    2**24 - 1,
    2**24,
    2**24 + 1,
    2**24 + 3,
    2**31 - 1,
    2**40 + 1,
    2**40 + 2**16,
    2**40 + 2**16 + 1,
    2**63 - 2**38,
    2**63 - 1,
]
IDS = st.one_of(
    st.integers(0, 9),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([*ENDS, *(-one for one in ENDS), -(2**63)]),
)


def golden(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        return json.loads(str(file["meta"])), [file[key] for key in file.files if key != "meta"]


def random_call(tokens, top_k, columns, dtype, experts, seed=0):
    random = np.random.default_rng([tokens, top_k, columns, experts, seed])
    bits = random.integers(
        0, 256, tokens * columns * dtype.itemsize, np.uint8
    )  # any bits: subnormals, inf and many kinds of nan
    return bits.view(dtype).reshape(tokens, columns), random.integers(
        0, experts, (tokens, top_k)
    ).astype(np.int64)


def compute(tokens, indices, kept):
    places = np.empty(indices.size, np.int32)
    kernels.sort_ids(indices.reshape(-1), places)
    permuted = np.zeros((kept, tokens.shape[1]), tokens.dtype)
    copy_rows(tokens, places, permuted, indices.shape[1])
    return permuted, places


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_results_bit_for_bit(name):
    meta, (tokens, indices, permuted, places) = golden(name)
    dtype = BF16 if meta["dtype"] == "bfloat16" else np.dtype(meta["dtype"])
    result = npu_sim.run(
        "moe_token_permute",
        tokens=tokens.view(dtype),
        indices=indices,
        num_out_tokens=meta["num_out_tokens"],
        limits=meta["limits"],
        product=load_profile(None, meta["soc"]),
    )
    assert result.plan.tiling_key == meta["tiling_key"]
    assert result.outputs["permuted_tokens"].shape == permuted.shape
    assert result.outputs["permuted_tokens"].tobytes() == permuted.tobytes()
    np.testing.assert_array_equal(result.outputs["sorted_indices"], places)


def test_the_golden_files_cover_keys_dtypes_and_limits():
    metas = [golden(name)[0] for name in GOLDEN]
    assert {meta["tiling_key"] for meta in metas} == {1, 2, 3, 5, 6, 7, 8}
    assert {meta["dtype"] for meta in metas} == {"float32", "float16", "bfloat16"}
    assert {meta["indices_dtype"] for meta in metas} == {"int32", "int64"}
    assert {meta["limits"] for meta in metas} == {"documented", "hardware"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kept", [0, 1, 17, 60])
@pytest.mark.parametrize(
    ("columns", "experts"), [(1, 1), (3, 5), (31, 5000), (64, 2**31), (200, 3)]
)
def test_rows_go_to_their_places_with_their_bits(columns, experts, kept, dtype):
    tokens, indices = random_call(20, 3, columns, dtype, experts)
    permuted, places = compute(tokens, indices, kept)
    expected, expected_places = moe_token_permute(tokens, indices, kept or -60, rounds=True)
    assert permuted.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(places, expected_places)


@pytest.mark.parametrize("experts", [1, 2, 7, 2048, 2049, 2**22, 2**22 + 1])
def test_a_sort_of_one_digit_or_several_is_the_stable_one(experts):
    ids = np.random.default_rng(experts).integers(0, experts, 4000 if COMPILED else 100)
    places = np.empty(ids.size, np.int32)
    kernels.sort_ids(ids, places)
    np.testing.assert_array_equal(places[np.argsort(ids, kind="stable")], np.arange(ids.size))


@settings(max_examples=60 if COMPILED else 10)
@given(st.lists(IDS, min_size=1, max_size=60))
def test_ids_are_sorted_as_fp32_with_ties_away_from_zero(ids):
    places = np.empty(len(ids), np.int32)
    kernels.sort_ids(np.array(ids, np.int64), places)
    assert np.argsort(places).tolist() == sorted(
        range(len(ids)), key=lambda copy: as_fp32(ids[copy])
    )


@given(st.lists(IDS, min_size=1, max_size=9))
def test_ids_that_fp32_does_not_hold_are_known(ids):
    assert kernels.are_rounded(np.array(ids, np.int64)).tolist() == [
        as_fp32(one) != one for one in ids
    ]


@pytest.mark.parametrize(
    ("number", "score"),
    [(16777217, 16777218), (-16777217, -16777218), (16777219, 16777220), (2**25 + 2, 2**25 + 4)],
)
def test_a_tie_goes_away_from_zero(number, score):
    assert kernels.fp32_scores(np.array([number])).tolist() == [score]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_ends_of_integer_types_sort_to_the_ends(dtype):
    info = np.iinfo(dtype)
    places = np.empty(5, np.int32)
    kernels.sort_ids(np.array([5, info.max, 0, info.min, 5], dtype), places)
    assert places.tolist() == [2, 4, 1, 0, 3]


def digest():
    """Results of a few calls, as bits."""
    total = hashlib.sha256()
    for dtype in DTYPES:
        for tokens, top_k, columns, experts in ((9, 2, 70, 5), (30, 8, 33, 4000), (7, 1, 1, 2**40)):
            values, indices = random_call(tokens, top_k, columns, dtype, experts)
            for result in compute(values, indices, tokens * top_k - 3):
                total.update(result.tobytes())
    return total.hexdigest()


PRINT_DIGESTS = (
    ALL_THREADS
    + """
import numba
from tests.kernels.test_moe_token_permute import digest
for threads in {threads}:
    numba.set_num_threads(threads)
    print(digest())
"""
)


@pytest.mark.skipif(not COMPILED, reason="compares with compiled kernels")
@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        pytest.param({"NUMBA_NUM_THREADS": "4"}, (1, 2, 4), id="threads"),
        pytest.param({"NUMBA_DISABLE_JIT": "1"}, (1,), id="compiler off", marks=pytest.mark.long),
    ],
)
def test_the_same_bits_everywhere(variables, threads):
    assert words_printed_by(PRINT_DIGESTS.format(threads=threads), **variables) == [digest()] * len(
        threads
    )
