import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels.shared import sigmoid
from npu_sim.kernels.swi_glu import swi_glu
from npu_sim.kernels.swi_glu_grad import swi_glu_grad
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    load_block,
    one_plus_exp_of_opposite,
    store_block,
)
from npu_sim.numbers.formats import storage_view
from tests.cases import every
from tests.golden import DATA
from tests.reference import swi_glu as reference

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
NONE = F(np.nan)
FILES = sorted(path.stem for path in (DATA / "kernels").glob("swi_glu*.npz"))
SHAPES = [(1, 1), (3, 7), (5, 64), (2, 2047), (3, 2048), (2, 2049), (1, 6001)]
SPECIAL = F([np.nan, np.inf, -np.inf, 0, -0.0, 88.73, -88.73, -87.4, -86, 1e-40, -1e-40, 200, -200])


def same(got, expected):
    """Same bits, nan anywhere standing for any nan."""
    nan = np.isnan(expected.astype(F))
    kind = np.uint16 if got.itemsize == 2 else np.uint32
    return np.array_equal(np.isnan(got.astype(F)), nan) and np.array_equal(
        got.view(kind)[~nan], expected.view(kind)[~nan]
    )


def values(array):
    return array.view(BF16) if array.dtype == np.uint16 else array


def draw(rows, columns, dtype, seed=0):
    """Random numbers of several magnitudes, with special ones among them."""
    random = np.random.default_rng([rows, columns, seed])
    x = random.standard_normal((rows, columns), F) * F(8) ** random.integers(-2, 3, (rows, columns))
    places = random.random(x.shape) < 0.02
    x[places] = random.choice(SPECIAL, places.sum())
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("name", every(4, FILES))
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        inputs = {key[3:]: values(file[key]) for key in file.files if key.startswith("in_")}
        expected = values(file["out_out"])
    result = npu_sim.run(meta["op"], soc=meta["soc"], dim=meta["dim"], **inputs)
    assert result.plan.tiling_key == meta["tiling_key"]
    assert result.plan.block_dim == meta["block_dim"]
    assert result.plan.tiling["isDoubleBuffer"] == meta["isDoubleBuffer"]
    assert same(next(iter(result.outputs.values())), expected)


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("dtype", [F, np.float16, BF16], ids=str)
def test_forward_like_the_reference(dtype, flushes):
    for rows, columns in SHAPES:
        x = draw(rows, 2 * columns, dtype)
        out = np.empty((rows, columns), dtype)
        swi_glu(storage_view(x), flushes, NONE, storage_view(out))
        a, b = x[:, :columns].astype(F), x[:, columns:].astype(F)
        with np.errstate(over="ignore"):
            expected = reference.forward(a, b, is_fp32=dtype is F, flushes=flushes).astype(dtype)
        assert same(out, expected)


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("dtype", [F, np.float16, BF16], ids=str)
def test_gradient_like_the_reference(dtype, flushes):
    for rows, columns in SHAPES:
        x, grad = draw(rows, 2 * columns, dtype), draw(rows, columns, dtype, 1)
        out = np.empty_like(x)
        stored = map(storage_view, (x, grad))
        swi_glu_grad(*stored, flushes, flushes, NONE, NONE, storage_view(out))
        a, b = x[:, :columns].astype(F), x[:, columns:].astype(F)
        halves = reference.gradient(a, b, grad.astype(F), is_fp32=dtype is F, flushes=flushes)
        with np.errstate(over="ignore"):
            assert same(out, np.concatenate(halves, axis=1).astype(dtype))


def test_large_results_have_the_bits_of_small_ones():
    """Large results are written with non-temporal stores; rows begin within cache lines."""
    x = np.random.default_rng(0).standard_normal((1200, 2 * 3001), F)
    whole, rows = np.empty((1200, 3001), F), np.empty((1200, 3001), F)
    swi_glu(x, False, NONE, whole)
    for row in range(1200):
        swi_glu(x[row : row + 1], False, NONE, rows[row : row + 1])
    assert whole.nbytes > 1 << 23
    assert np.array_equal(whole, rows)


def test_counts_name_values_of_the_first_half_only():
    x = np.zeros((3, 8), F)
    x[0, :4] = [-90, -88, -np.inf, np.inf]
    x[1, :4] = [-1.2784, np.nan, -200, -1.28]
    x[:, 4:] = -np.inf
    low, root, out = F(-88.72283), F(-1.2784645), np.empty((3, 4), F)
    assert swi_glu(x, False, low, out) == [2, 1]
    assert swi_glu_grad(x, out, False, False, low, root, np.empty_like(x)) == [2, 2, 1]


@pytest.mark.parametrize("offset", [0, 1, 5, 12])
@pytest.mark.parametrize("columns", every(3, [3, 64, 100, 128, 257, 2048, 2100]))
@pytest.mark.parametrize("dtype", [F, np.float16, BF16])
def test_streamed_results_have_the_same_bits_and_nothing_beside_them_changes(
    monkeypatch, dtype, columns, offset
):
    x, grad = draw(3, 2 * columns, dtype, 1), draw(3, columns, dtype, 2)
    stored = storage_view(x), storage_view(grad)
    results = []
    for most_bytes in (sigmoid.STREAM_BYTES, 0):
        monkeypatch.setattr(sigmoid, "STREAM_BYTES", most_bytes)
        memory = np.full(9 * columns + 128, 7, stored[0].dtype)
        begin = -memory.ctypes.data // memory.itemsize % (64 // memory.itemsize) + offset
        out = memory[begin : begin + 3 * columns].reshape(3, columns)
        x_grad = memory[begin + 3 * columns : begin + 9 * columns].reshape(3, 2 * columns)
        swi_glu(stored[0], False, NONE, out)
        swi_glu_grad(*stored, False, False, NONE, NONE, x_grad)
        results.append(values(np.concatenate((out, x_grad), axis=1)).view(dtype))
        memory[begin : begin + 9 * columns] = 7
        assert (memory == 7).all()
    assert same(*results)


@pytest.mark.long
def test_exp_is_rounded_correctly_nearly_everywhere():
    from npu_sim.kernels.engine.compile import kernel

    @kernel
    def apply(chunk, x, out):
        for index in range(0, x.size, block_length(x)):
            store_block(out, index, one_plus_exp_of_opposite(load_block(x, index)))

    random = np.random.default_rng(0)
    x = np.concatenate((random.uniform(-30, 89, 1 << 20), random.standard_normal(1 << 20)))
    x, out = x.astype(F), np.empty(x.size, F)
    apply.over(1, -x, out)
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64)).astype(F) + F(1)
    assert np.count_nonzero(out != exact) <= 1
