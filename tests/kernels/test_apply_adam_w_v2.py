"""ApplyAdamWV2: golden samples, the reference, ties of bf16, and memory in place."""

import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels import apply_adam_w_v2 as kernel
from npu_sim.status import UsageError
from tests.cases import every
from tests.golden import DATA
from tests.reference import apply_adam_w_v2 as reference

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
FILES = sorted(path.stem for path in (DATA / "kernels").glob("apply_adam_w_v2*.npz"))
ATTRIBUTES = ("lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize")
SPECIAL = F([np.nan, np.inf, -np.inf, 0, -0.0, 2e19, -2e19, 1e-40, -1e-40, 1e38, 3e-39])


def values(array):
    return array.view(BF16) if array.dtype == np.uint16 else array


def same(got, expected):
    """Same bits, nan anywhere standing for any nan."""
    nan = np.isnan(expected.astype(F))
    kind = np.uint16 if got.itemsize == 2 else np.uint32
    return np.array_equal(np.isnan(got.astype(F)), nan) and np.array_equal(
        got.view(kind)[~nan], expected.view(kind)[~nan]
    )


def state(size, dtype=F, special=0.02, seed=0):
    """Random numbers of several magnitudes, with special ones among them."""
    random = np.random.default_rng([size, seed])
    tensors = {}
    for name in ("var", "m", "v", "grad", "max_grad_norm"):
        x = random.standard_normal(size, F) * F(8) ** random.integers(-4, 2, size)
        x = np.abs(x) if name in ("v", "max_grad_norm") else x
        places = random.random(size) < special
        x[places] = random.choice(SPECIAL, places.sum())
        with np.errstate(over="ignore"):
            tensors[name] = x.astype(dtype)
    return tensors


@pytest.mark.parametrize("name", every(5, FILES))
def test_golden_results_bit_for_bit(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        arrays = {key: values(file[key]) for key in file.files if key != "meta"}
    inputs = {key[3:]: array for key, array in arrays.items() if key.startswith("in_")}
    attributes = {key: meta[key] for key in ATTRIBUTES}
    result = npu_sim.run("apply_adam_w_v2", soc=meta["soc"], **inputs, **attributes)
    assert result.plan.tiling_key == meta["tiling_key"]
    assert (result.plan.path == "cast") is meta["cast"]
    expected = {key[4:]: array for key, array in arrays.items() if key.startswith("out_")}
    assert {f"{key}_out" for key in expected} <= result.outputs.keys()
    for key, array in expected.items():
        assert same(result.outputs[f"{key}_out"], array), key


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
@pytest.mark.parametrize("size", [1, 7, 1023, 1025, 5000])
def test_like_the_reference(size, product, maximize, amsgrad):
    tensors = state(size)
    call = {"lr": 3e-3, "beta1": 0.9, "beta2": 0.98, "weight_decay": 0.1, "eps": 1e-6}
    result = npu_sim.run(
        "apply_adam_w_v2",
        product=product,
        step=np.full(1, 4, np.int64),
        amsgrad=amsgrad,
        maximize=maximize,
        **tensors,
        **call,
    )
    function = reference.step if product == "atlas_a2" else reference.step_950
    norm = tensors.pop("max_grad_norm")
    expected = function(*tensors.values(), 5, norm if amsgrad else None, maximize=maximize, **call)
    for name, array in zip(("var", "m", "v"), expected, strict=False):
        assert same(result.outputs[f"{name}_out"], array), name
    assert same(result.outputs["max_grad_norm_out"], expected[3] if amsgrad else norm)


def test_ties_of_bf16_go_away_from_zero_but_on_ascend_950_and_after_casts():
    ones = np.ones(64, BF16)
    grad = (1 + np.arange(64) / 64).astype(BF16)
    call = {"var": ones, "m": ones, "v": ones, "grad": grad, "step": np.zeros(1, F), "beta1": 0.5}
    exact = 1 + np.arange(64) / 128

    def stored(**changed):
        return npu_sim.run("apply_adam_w_v2", **{**call, **changed}).outputs["m_out"]

    assert np.array_equal(stored().astype(float), exact)
    half = {"m": (1 + 2.0**-7 * np.arange(64)).astype(BF16), "grad": ones}
    halfway = 1 + 2.0**-8 * np.arange(64)
    away = np.floor(halfway * 128 + 0.5) / 128
    even = halfway.astype(F).astype(BF16).astype(float)
    assert np.array_equal(stored(**half).astype(float), away)
    assert np.array_equal(stored(**half, product="ascend_950").astype(float), even)
    assert np.array_equal(stored(**half, v=ones.astype(F)).astype(float), even)
    assert not np.array_equal(away, even)


@pytest.mark.parametrize("dtype", [F, np.float16, BF16], ids=str)
def test_results_may_have_the_memory_of_the_state(dtype):
    tensors = state(300_000, dtype, special=0)
    call = {"step": np.zeros(1, F), "amsgrad": True}
    new = npu_sim.run("apply_adam_w_v2", **tensors, **call).outputs
    own = tuple(tensors[name] for name in ("var", "m", "v", "max_grad_norm"))
    npu_sim.apply_adam_w_v2(**tensors, **call, out=own)
    for name, array in new.items():
        assert same(tensors[name.removesuffix("_out")], array)
    with pytest.raises(UsageError, match="shares memory"):
        npu_sim.apply_adam_w_v2(**tensors, **call, out=(tensors["m"], tensors["var"], None, None))
    with pytest.raises(UsageError, match="shares memory"):
        npu_sim.apply_adam_w_v2(**tensors, **call, out=(tensors["grad"], None, None, None))


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("grad_dtype", [F, np.float16, BF16], ids=str)
@pytest.mark.parametrize("dtype", [F, np.float16, BF16], ids=str)
def test_non_temporal_stores_have_the_same_bits(monkeypatch, dtype, grad_dtype, aligned):
    size = 1001
    tensors = state(size, dtype, special=0)
    tensors["grad"] = tensors["grad"].astype(grad_dtype)
    tensors["max_grad_norm"] = tensors["max_grad_norm"].astype(grad_dtype)
    call = {**tensors, "step": np.zeros(1, F), "amsgrad": True}
    expected = npu_sim.run("apply_adam_w_v2", **call).outputs.values()
    monkeypatch.setattr(kernel, "STREAM_BYTES", 0)
    places = [on_a_line(size, array.dtype, 0 if aligned else 1) for array in expected]
    npu_sim.apply_adam_w_v2(**call, out=tuple(places))
    for place, array in zip(places, expected, strict=True):
        assert same(place, array)


def on_a_line(size, dtype, offset):
    """An array ``offset`` elements after the start of a cache line."""
    memory = np.empty(size + 128, dtype)
    first = -memory.ctypes.data % 64 // memory.itemsize + offset
    return memory[first : first + size]


@pytest.mark.parametrize("places", [[0], [15, 16], [36], [1, 2, 17, 33, 34]])
def test_every_infinite_square_and_lost_moment_is_counted(places):
    def counted(code, dtype, value):
        grad = np.zeros(37, dtype)
        grad[places] = value
        zeros = {name: np.zeros(37, dtype) for name in ("var", "m", "v")}
        result = npu_sim.run("apply_adam_w_v2", grad=grad, step=np.zeros(1, F), **zeros)
        (found,) = [caveat for caveat in result.caveats if caveat.code == code]
        return int(str(found.message).split()[0])

    assert counted("squares_overflow", F, -(2.0**64)) == len(places)
    assert counted("second_moment_underflows", np.float16, 1e-4) == len(places)
    with pytest.raises(ValueError, match="not enough values"):
        counted("squares_overflow", F, np.inf)
    with pytest.raises(ValueError, match="not enough values"):
        counted("squares_overflow", F, np.nextafter(F(2.0**64), F(0)))


def test_the_power_function():
    from npu_sim.operators.apply_adam_w_v2.compute import power

    with np.errstate(all="ignore"):
        assert power(F(0.9), F(0)) == 1
        assert power(F(1), F(np.inf)) == 1
        assert power(F(-0.5), F(3)) == -power(F(0.5), F(3))
        assert power(F(-0.5), F(2)) == power(F(0.5), F(2))
        assert np.isnan(power(F(-0.5), F(2.5)))
        assert power(F(0), F(2)) == 0
