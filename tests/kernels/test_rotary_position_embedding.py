"""Kernels of RotaryPositionEmbedding and its gradient: golden results and a slow reference."""

import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels import rotary_position_embedding_grad as kernels
from npu_sim.kernels.shared import rotation
from npu_sim.numbers.formats import storage_view
from tests.cases import every
from tests.golden import DATA
from tests.reference import rotary as reference

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
FILES = sorted(path.stem for path in (DATA / "kernels").glob("rotary*.npz"))
SHAPES = [
    *(((2, 3, 4, 8), (1, 3, 1, 8)), ((2, 3, 4, 66), (2, 3, 4, 66)), ((1, 5, 2, 34), (1, 1, 2, 34))),
    *(((3, 1, 7, 2), (3, 1, 1, 2)), ((2, 2, 2, 3000), (1, 1, 1, 3000))),
]
SPECIAL = F([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-40, -1e-40])
ORDERS = {"from zero": kernels.FROM_ZERO, "from first": kernels.FROM_FIRST}


def same(got, expected):
    """Same bits, nan anywhere standing for any nan."""
    nan = np.isnan(expected.astype(F))
    kind = np.uint16 if got.itemsize == 2 else np.uint32
    return np.array_equal(np.isnan(got.astype(F)), nan) and np.array_equal(
        got.view(kind)[~nan], expected.view(kind)[~nan]
    )


def values(array):
    return array.view(BF16) if array.dtype == np.uint16 else array


def draw(shape, dtype, seed):
    random = np.random.default_rng([*shape, seed])
    x = random.standard_normal(shape, F)
    places = random.random(shape) < 0.02
    x[places] = random.choice(SPECIAL, places.sum())
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("name", every(3, FILES))
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        tensors = {key: values(file[key]) for key in file.files if key != "meta"}
    inputs = {key[3:]: array for key, array in tensors.items() if key.startswith("in_")}
    expected = {key[4:]: array for key, array in tensors.items() if key.startswith("out_")}
    result = npu_sim.run(meta["op"], soc=meta["soc"], mode=meta["mode"], **inputs)
    assert result.plan.tiling_key == meta["tiling_key"]
    assert expected
    for output, array in expected.items():
        assert same(result.outputs[output], array), output


@pytest.mark.parametrize("interleaves", [False, True])
@pytest.mark.parametrize("dtype", [F, np.float16, BF16], ids=str)
def test_rotations_like_the_reference(dtype, interleaves):
    for turns_back, of in ((False, reference.forward), (True, reference.gradient)):
        for shape, own in SHAPES:
            x, cos, sin = (draw(*of_tensor) for of_tensor in _three(shape, own, dtype))
            y = np.empty_like(x)
            stored = map(storage_view, (x, cos, sin, y.reshape(-1)))
            rotation.rotate(rotation.Tensors(*stored), interleaves, turns_back)
            with np.errstate(over="ignore"):
                wide = of(*(one.astype(F) for one in (x, cos, sin)), interleaves)
                assert same(y, wide.astype(dtype))


def _three(shape, own, dtype):
    return (shape, dtype, 0), (own, dtype, 1), (own, dtype, 2)


@pytest.mark.parametrize("interleaves", [False, True])
@pytest.mark.parametrize("order", ["from zero", "from first", "by head"])
@pytest.mark.parametrize("dtype", [F, BF16], ids=str)
def test_sums_like_the_reference(dtype, order, interleaves):
    code = ORDERS.get(order, kernels.BY_HEAD)
    for shape, own in SHAPES:
        if order == "by head" and own[1] != shape[1]:
            continue  # an order of layout BSND alone
        dy, x = draw(shape, dtype, 3), draw(shape, dtype, 4)
        found = [np.empty(own, dtype) for _ in range(2)]
        stored = map(storage_view, (dy, x, *found))
        kernels.sum_products(kernels.Sums(*stored), interleaves, code)
        wide = reference.sums(dy.astype(F), x.astype(F), own, interleaves, order)
        with np.errstate(over="ignore"):
            for result, expected in zip(found, wide, strict=True):
                assert same(result, expected.astype(dtype))


def test_a_sum_of_negative_zeros_keeps_its_sign_unless_it_starts_from_zero():
    dy, x = np.full((2, 1, 3, 4), -0.0, F), np.ones((2, 1, 3, 4), F)
    for order, is_negative in (("from zero", False), ("from first", True), ("by head", True)):
        dcos, dsin = np.empty((1, 1, 1, 4), F), np.empty((1, 1, 1, 4), F)
        sums = kernels.Sums(dy, x, dcos, dsin)
        kernels.sum_products(sums, False, ORDERS.get(order, kernels.BY_HEAD))
        assert np.signbit(dcos).all() == is_negative


def test_large_results_have_the_bits_of_small_ones():
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 1100, 7, 100), F)
    cos, sin = random.standard_normal((2, 1, 1100, 1, 100), F)
    whole, parts = np.empty_like(x), np.empty_like(x)
    rotation.rotate(rotation.Tensors(x, cos, sin, whole.reshape(-1)), False, False)
    for batch in range(3):
        one = slice(batch, batch + 1)
        rotation.rotate(rotation.Tensors(x[one], cos, sin, parts[one].reshape(-1)), False, False)
    assert whole.nbytes > 1 << 23
    assert np.array_equal(whole, parts)
