import json

import ml_dtypes
import numpy as np
import pytest

from npu_sim.kernels import add_rms_norm as kernels
from npu_sim.kernels.shared.elementwise import saturate
from npu_sim.kernels.shared.square_sums import FOLDED, LISTS, PIECES, Split
from npu_sim.numbers.formats import storage_view
from npu_sim.tiling import plan_kernel
from tests.cases import every
from tests.golden import DATA
from tests.reference import add_rms_norm as reference

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = (F, np.float16, BF16)
GOLDEN = sorted((DATA / "kernels").glob("add_rms_norm_*.npz"))


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def same(got, expected):
    """Same bits, nan anywhere standing for any nan."""
    nan = np.isnan(expected.astype(F))
    return np.array_equal(np.isnan(got.astype(F)), nan) and np.array_equal(
        bits(got)[~nan], bits(expected)[~nan]
    )


def rows_of(*arrays):
    return kernels.Rows(*map(storage_view, arrays))


def compute(x1, x2, gamma, epsilon=1e-6, key=0, piece=0, saturates=False, asks_x=True):
    dtype = x1.dtype
    largest = F(65504 if dtype == np.float16 else np.finfo(F).max) if saturates else F(np.inf)
    is_unrounded = key in (0, 1)
    arithmetic = kernels.Arithmetic(
        squares_rounded=dtype == np.float16 or (dtype == BF16 and not is_unrounded),
        rereads=key == 1,
        rounds_twice=dtype != F,
        scales_squares=True,
        clears_sign=dtype == F and is_unrounded,
        largest=largest,
    )
    y, rstd = np.empty_like(x1), np.empty(len(x1), F)
    x = np.empty_like(x1 if asks_x else x1[:0])
    split = Split(PIECES, piece if key == 1 else x1.shape[1])
    kernels.add_rms_norm(rows_of(x1, x2, gamma, y, rstd, x), split, arithmetic, F(epsilon))
    if saturates:
        saturate(y)
        saturate(x)
    return y, rstd, x


def inputs(rows, columns, dtype):
    random = np.random.default_rng([rows, columns])
    x1, x2 = (random.standard_normal((rows, columns), F) * 3 for _ in range(2))
    gamma = random.normal(1, 0.2, columns).astype(F)
    return x1.astype(dtype), x2.astype(dtype), gamma.astype(dtype)


def check(*given, **options):
    expected = reference.add_rms_norm(*given, **{"epsilon": 1e-6, "key": 0} | options)
    for got, right in zip(compute(*given, **options), expected, strict=True):
        assert same(got, right)


@pytest.mark.parametrize("path", every(4, GOLDEN), ids=lambda path: path.stem)
def test_golden_results_bit_for_bit(path):
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        arrays = {
            name: array.view(BF16) if array.dtype == np.uint16 else array
            for name, array in file.items()
            if name != "meta"
        }
    shape, gamma, key = tuple(meta["x1_shape"]), arrays["in_gamma"], meta["tiling_key"]
    is_short = key >= 100
    rank = 1 if is_short else gamma.ndim
    rstd = (0,) if is_short else shape[: len(shape) - rank] + (1,) * rank
    call = {f"{name}_shape": shape for name in ("x1", "x2", "y", "x")}
    call |= {"gamma_shape": gamma.shape, "rstd_shape": rstd, "epsilon": meta["epsilon"]}
    call |= dict.fromkeys(("x_dtype", "gamma_dtype"), meta["dtype"])
    plan = plan_kernel("add_rms_norm", meta["soc"], call)
    assert (plan["tiling_key"], plan["block_dim"]) == (key, meta["block_dim"])
    x1, x2 = (arrays[f"in_{name}"].reshape(-1, gamma.size) for name in ("x1", "x2"))
    results = compute(
        x1,
        x2,
        gamma.reshape(-1),
        meta["epsilon"],
        key % 10,
        plan["tiling"]["ub_factor"],
        meta["soc"].startswith("Ascend310P"),
    )
    for name, result in zip(("y", "rstd", "x"), results, strict=True):
        if f"out_{name}" in arrays:
            assert same(result, arrays[f"out_{name}"].reshape(result.shape))


def test_the_golden_results_cover_templates_and_dtypes():
    metas = [json.loads(str(np.load(path)["meta"])) for path in GOLDEN]
    assert {meta["tiling_key"] for meta in metas} == {
        10, 11, 12, 14, 20, 21, 23, 30, 31, 32, 33, 113,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", [0, 3])
def test_every_narrow_width_agrees_with_the_reference(dtype, key):
    for columns in (*range(1, 131), 200, 255, 1000, 2001):
        check(*inputs(2, columns, dtype), key=key)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "piece"), [(500, 80), (12289, 6160), (161, 80), (70, 24)])
def test_rows_in_pieces_agree_with_the_reference(dtype, columns, piece):
    check(*inputs(3, columns, dtype), key=1, piece=piece)


@pytest.mark.parametrize("dtype", [F, np.float16])
@pytest.mark.parametrize("key", [0, 1, 4])
def test_saturating_products_agree_with_the_reference(dtype, key):
    x1, x2, gamma = inputs(4, 100, dtype)
    x1[0, 3], x2[1, 4], x1[2, 5] = np.inf, np.nan, np.finfo(dtype).max
    x2[2, 5], gamma[7] = np.finfo(dtype).max, -np.inf
    check(x1, x2, gamma, key=key, piece=48, saturates=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", [0, 1, 3])
@pytest.mark.parametrize("epsilon", every(4, [1e-6, 0, 1e-45, np.inf, np.nan]))
def test_special_values_spread_as_ieee_says(dtype, key, epsilon):
    rows = ([np.inf, 1], [np.nan, 1], [2e19, 1], [0, -0.0], [1e-30, 0], [1e-40, 5e-45], [-0.0, 1])
    with np.errstate(over="ignore"):
        x1 = np.array([values * 40 for values in rows], F).astype(dtype)
    gamma = np.ones(80, dtype)
    gamma[3:6] = np.inf, np.nan, -0.0
    check(x1, -np.zeros_like(x1), gamma, key=key, epsilon=epsilon, piece=48)


def test_negative_zeros_are_kept_where_no_zero_is_added():
    x1, gamma = np.full((1, 64), -0.0, F), np.ones(64, F)
    x1[0, 1:] = 1
    signs = {key: np.signbit(compute(x1, x1, gamma, key=key, piece=64)[2][0, 0]) for key in (0, 3)}
    assert signs == {0: False, 3: True}
    y = {key: np.signbit(compute(x1, x1, gamma, key=key, piece=64)[0][0, 0]) for key in (0, 1)}
    assert y == {0: True, 1: False}


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_past_the_cache_are_the_same(monkeypatch, dtype):
    given = inputs(5, 700, dtype)
    expected = compute(*given)
    monkeypatch.setattr(kernels, "streams_rows", lambda y: True)
    for got, right in zip(compute(*given), expected, strict=True):
        assert np.array_equal(bits(got), bits(right))


def test_a_sum_that_is_not_asked_for_is_not_written():
    given = inputs(5, 100, BF16)
    y, rstd, x = compute(*given, asks_x=False)
    assert len(x) == 0
    assert same(y, compute(*given)[0])
    assert same(rstd, compute(*given)[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("columns", "split"), [(100, Split(FOLDED, 0, 64)), (20000, Split(LISTS, 4096, 0, 4, 128))]
)
def test_ascend_950_normalises_the_unrounded_sum(dtype, columns, split):
    x1, x2, gamma = inputs(3, columns, dtype)
    arithmetic = kernels.Arithmetic()
    y, rstd, x = np.empty_like(x1), np.empty(3, F), np.empty_like(x1)
    kernels.add_rms_norm(rows_of(x1, x2, gamma, y, rstd, x), split, arithmetic, F(1e-6))
    total = x1.astype(F) + x2.astype(F)
    assert same(x, total.astype(dtype))
    assert same(y, ((total * rstd[:, None]) * gamma.astype(F)).astype(dtype))
    exact = 1 / np.sqrt(np.mean(total.astype(np.float64) ** 2, axis=1) + 1e-6)
    assert np.allclose(rstd, exact, rtol=1e-6)
