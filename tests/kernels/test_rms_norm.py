import json

import ml_dtypes
import numpy as np
import pytest

from npu_sim.cores import load_profile
from npu_sim.kernels import rms_norm as kernels
from npu_sim.kernels.shared.elementwise import saturate
from npu_sim.numbers.formats import storage_view
from npu_sim.tiling import rms_norm as tiler
from tests.cases import every
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import rms_norm as reference
from tests.rules import rules_of
from tests.tiling.test_rms_norm import problem_of

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
PATHS = {"lanes": kernels.LANES, "halving": kernels.HALVING, "pieces": kernels.PIECES}
PATH_OF_KEY = {0: kernels.HALVING, 1: kernels.PIECES, 2: kernels.LANES, 3: kernels.HALVING}
DTYPE_PAIRS = [(F, F), (np.float16, F), (np.float16, np.float16), (BF16, F), (BF16, BF16)]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("rms_norm_[0-9]*.npz"))
TAILS = [(1, 1), (3, 3), (50, 16), (63, 64), (64, 65), (129, 200), (639, 641), (700, 705)]
WIDE = [1000, 1984, 2000, 2001, 2048, 3071, 4096, 4097, 6080, 10240, 12161, 12288, 13904]


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def same(got, expected):
    """Same bits, nan anywhere standing for any nan."""
    nan = np.isnan(expected.astype(F))
    return np.array_equal(np.isnan(got.astype(F)), nan) and np.array_equal(
        bits(got)[~nan], bits(expected)[~nan]
    )


def compute(path, x, gamma, epsilon=1e-6, length=0, y=None):
    y, rstd = np.empty(x.shape, x.dtype) if y is None else y, np.empty(len(x), F)
    split = kernels.Split(path, length)
    kernels.rms_norm(storage_view(x), storage_view(gamma), split, F(epsilon), storage_view(y), rstd)
    return y, rstd


def expected(path, x, gamma, epsilon=1e-6, length=0):
    y, rstd = reference.rms_norm(
        x.astype(F), gamma.astype(F), epsilon, reference.TOTALS[path](length)
    )
    with np.errstate(over="ignore"):
        return y.astype(x.dtype), rstd


def random_inputs(rows, columns, dtype, gamma_dtype=None):
    rng = np.random.default_rng([rows, columns])
    x = rng.standard_normal((rows, columns), F) * rng.uniform(0.01, 10, (rows, 1)).astype(F)
    return x.astype(dtype), rng.normal(1, 0.2, columns).astype(
        dtype if gamma_dtype is None else gamma_dtype
    )


def check(path, x, gamma, **options):
    got, right = compute(PATHS[path], x, gamma, **options), expected(path, x, gamma, **options)
    assert same(got[1], right[1])
    assert same(got[0], right[0])


@pytest.mark.parametrize("name", every(3, GOLDEN))
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta, arrays = (
            json.loads(str(file["meta"])),
            {key: file[key] for key in file.files if key != "meta"},
        )
    x, gamma, y, rstd = (
        arrays[key].view(BF16) if arrays[key].dtype == np.uint16 else arrays[key] for key in arrays
    )
    profile = load_profile(None, meta["soc"])
    tiling = tiler.tile(
        problem_of(x.shape, gamma.shape, meta["dtype"], meta["gamma_dtype"]),
        profile.device,
        rules_of("rms_norm"),
    )
    assert tiling.tiling_key == meta["tiling_key"]
    got = compute(
        PATH_OF_KEY[tiling.tiling_key],
        x.reshape(tiling.rows, -1),
        gamma.reshape(-1),
        meta["epsilon"],
        tiling.ub_factor,
    )
    for one, right in zip(got, (y, rstd), strict=True):
        if profile.saturates:
            saturate(one)
        assert np.array_equal(bits(one), bits(right.reshape(one.shape)))


def test_the_golden_results_cover_keys_and_dtypes():
    metas = [json.loads(str(np.load(DATA / "kernels" / f"{name}.npz")["meta"])) for name in GOLDEN]
    assert {meta["tiling_key"] for meta in metas} == {0, 1, 2, 3}
    assert len({(meta["dtype"], meta["gamma_dtype"]) for meta in metas}) == len(DTYPE_PAIRS)


@pytest.mark.parametrize("path", ["lanes", "halving"])
@pytest.mark.parametrize("dtype", [F, np.float16, BF16])
def test_every_narrow_width_agrees_with_the_reference(path, dtype):
    for columns in (*range(1, 201), 639, 640, 641):
        check(path, *random_inputs(2, columns, dtype))


@pytest.mark.parametrize("path", ["lanes", "halving"])
@pytest.mark.parametrize("columns", WIDE)
def test_wide_rows_agree_with_the_reference(path, columns):
    for dtype, gamma_dtype in (DTYPE_PAIRS[columns % 5], DTYPE_PAIRS[(columns + 2) % 5]):
        check(path, *random_inputs(3, columns, dtype, gamma_dtype))


@pytest.mark.parametrize(
    ("columns", "length"),
    [
        (12289, 6160),
        (12305, 6160),
        (13905, 12048),
        (24097, 12048),
        (20481, 6832),
        (500, 80),
        (161, 80),
        (80, 80),
    ],
)
def test_rows_in_pieces_agree_with_the_reference(columns, length):
    for dtype, gamma_dtype in (DTYPE_PAIRS[columns % 5], DTYPE_PAIRS[(columns + 1) % 5]):
        check("pieces", *random_inputs(3, columns, dtype, gamma_dtype), length=length)


@pytest.mark.parametrize(("dtype", "gamma_dtype"), DTYPE_PAIRS)
@pytest.mark.parametrize(
    ("path", "columns"), [("lanes", 200), ("lanes", 31), ("halving", 700), ("pieces", 6100)]
)
def test_every_dtype_pair_agrees_with_the_reference(path, columns, dtype, gamma_dtype):
    check(path, *random_inputs(5, columns, dtype, gamma_dtype), length=2048)


@pytest.mark.parametrize(("dtype", "gamma_dtype"), DTYPE_PAIRS)
@pytest.mark.parametrize("offset", [0, 1, 40])
def test_results_past_the_cache_are_the_same(monkeypatch, dtype, gamma_dtype, offset):
    monkeypatch.setattr(kernels, "streams_rows", lambda y: True)
    for columns in (1, 15, 16, 31, 32, 33, 63, 64, 100, 128, 511, 704):
        x, gamma = random_inputs(5, columns, dtype, gamma_dtype)
        memory = np.full(x.size + offset + 64, 7, dtype)
        y = memory[offset : offset + x.size].reshape(x.shape)
        compute(kernels.LANES, x, gamma, y=y)
        assert same(y, expected("lanes", x, gamma)[0])
        assert (memory[:offset] == 7).all()
        assert (memory[offset + x.size :] == 7).all()


@pytest.mark.parametrize(
    ("columns", "dtype", "is_streamed"),
    [(2048, F, True), (512, F, True), (500, F, False), (1001, F, True)],
)
def test_which_results_go_past_the_cache(columns, dtype, is_streamed):
    rows = 1 + (1 << 23) // (4 * columns)
    memory = np.empty(rows * columns + 16, dtype)
    first = -memory.ctypes.data % 64 // 4
    assert (
        kernels.streams_rows(memory[first : first + rows * columns].reshape(rows, columns))
        == is_streamed
    )
    assert not kernels.streams_rows(memory[: 10 * columns].reshape(10, columns))


def test_large_results_are_those_of_their_rows():
    x, gamma = random_inputs(7, 700, BF16)
    y, rstd = expected("halving", x, gamma)
    many = np.tile(x, (1000, 1))
    got, got_rstd = compute(kernels.HALVING, many, gamma)
    assert many.nbytes > 1 << 23
    assert np.array_equal(bits(got), bits(np.tile(y, (1000, 1))))
    assert np.array_equal(bits(got_rstd), bits(np.tile(rstd, 1000)))


SPECIAL_ROWS = {
    "inf": [np.inf, 1, -2],
    "nan": [np.nan, 1, 0],
    "beyond the range of squares": [2e19, -3e38, 1],
    "zeros": [0, -0.0, 0],
    "squares that vanish": [1e-30, -1e-25, 0],
    "subnormals": [1e-40, 5e-45, 2e-39],
    "largest": [3.4028235e38, 1.8446743e19, -65504],
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("dtype", "gamma_dtype"), DTYPE_PAIRS)
@pytest.mark.parametrize("epsilon", every(4, [1e-6, 0, 1e-45, np.inf, np.nan]))
def test_special_values_spread_as_ieee_says(path, dtype, gamma_dtype, epsilon):
    with np.errstate(over="ignore"):
        x = np.array([values * 31 for values in SPECIAL_ROWS.values()], F).astype(dtype)
    gamma = np.ones(x.shape[1], gamma_dtype)
    gamma[3:6] = np.inf, np.nan, -0.0
    check(path, x, gamma, epsilon=epsilon, length=48)


def test_what_the_page_says_of_special_values():
    x = np.zeros((4, 100), F)
    x[0, 5], x[1, 6], x[2, 7] = np.inf, np.nan, 2e19
    for path in PATHS.values():
        y, rstd = compute(
            path, x + F(1) * (np.arange(4) < 3)[:, np.newaxis], np.ones(100, F), 0, length=48
        )
        assert np.isnan(y[0, 5])
        assert (np.delete(y[0], 5) == 0).all()
        assert np.isnan(y[1]).all()
        assert rstd[2] == 0
        assert (y[2] == 0).all()
        assert np.isinf(rstd[3])
        assert np.isnan(y[3]).all()


def test_lanes_and_halving_agree_up_to_128_columns():
    for columns in (1, 64, 65, 100, 127, 128):
        x, gamma = random_inputs(50, columns, F)
        lanes, halving = (compute(path, x, gamma) for path in (kernels.LANES, kernels.HALVING))
        assert np.array_equal(bits(lanes[0]), bits(halving[0]))
    x, gamma = random_inputs(200, 2000, F)
    lanes, halving = (compute(path, x, gamma)[1] for path in (kernels.LANES, kernels.HALVING))
    assert 0 < np.count_nonzero(lanes != halving) < 100


@pytest.mark.parametrize(("path", "columns"), [("lanes", 130), ("halving", 2100), ("pieces", 4500)])
def test_a_row_does_not_depend_on_the_others(path, columns):
    x, gamma = random_inputs(9, columns, np.float16)
    y, rstd = compute(PATHS[path], x, gamma, length=2048)
    for row in range(9):
        alone = compute(PATHS[path], x[row : row + 1], gamma, length=2048)
        assert np.array_equal(bits(alone[0][0]), bits(y[row]))
        assert alone[1][0] == rstd[row]


def test_no_rows():
    y, rstd = compute(kernels.HALVING, np.empty((0, 8), F), np.ones(8, F))
    assert (y.size, rstd.size) == (0, 0)


SCRIPT = (
    ALL_THREADS
    + """
import sys, hashlib
import numba
import numpy as np
from npu_sim.kernels import rms_norm as kernels
from npu_sim.kernels.shared.elementwise import narrow_array
from npu_sim.numbers.formats import storage_view
SIZES = {"large": ((41, 100), (30, 2001), (700, 6500)), "small": ((3, 70), (2, 700), (2, 300))}
for threads in sys.argv[2:]:
    numba.set_num_threads(int(threads))
    digest = hashlib.sha256()
    for path, (rows, columns) in enumerate(SIZES[sys.argv[1]]):
        rng = np.random.default_rng(path)
        values = rng.standard_normal((rows, columns), np.float32)
        weights = rng.standard_normal(columns, np.float32)
        dtypes = ("float32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16")
        for dtype, gamma_dtype in dtypes:
            x = storage_view(narrow_array(values, dtype))
            gamma = storage_view(narrow_array(weights, gamma_dtype))
            y, rstd = np.empty_like(x), np.empty(rows, np.float32)
            kernels.rms_norm(x, gamma, kernels.Split(path, 128), np.float32(1e-6), y, rstd)
            digest.update(y.tobytes())
            digest.update(rstd.tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.long
def test_the_number_of_threads_does_not_matter():
    digests = words_printed_by(SCRIPT, "large", 1, 2, 4, NUMBA_NUM_THREADS="4")
    assert len(digests) == 3
    assert len(set(digests)) == 1


@pytest.mark.long
def test_uncompiled_kernels_give_the_same_bits():
    assert words_printed_by(SCRIPT, "small", 1, NUMBA_DISABLE_JIT="1") == words_printed_by(
        SCRIPT, "small", 1, NUMBA_DISABLE_JIT="0"
    )
