import numpy as np
import pytest
from numba import config, njit

from npu_sim.kernels.shared.elementwise import ulp_error
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    exp_fp32,
    exp_moderate,
    exp_rounded,
    load_block,
    store_numbers,
)
from npu_sim.numbers.scalars import has_features

F = np.float32
HAS_FUSED = has_features("fma")
"""Whether the processor that is compiled for fuses: elsewhere a library function does, one number
at a time."""
STRIDE = 431 if not config.DISABLE_JIT else 4_000_037
"""Every how many fp32 patterns are tried: ten million of them, some of every exponent."""


@njit
def apply(function, values, out):
    for index in range(values.size):
        out[index] = function(values[index])


@njit
def apply_to_blocks(values, out):
    step = block_length(values)
    for index in range(0, values.size - step + 1, step):
        store_numbers(out, index, exp_moderate(load_block(values, index)))


def results(function, values):
    out = np.empty_like(values)
    with np.errstate(all="ignore"):
        apply(function, values, out)
    return out


def sample(first, last, stride=STRIDE):
    return np.arange(first, last, stride, dtype=np.uint64).astype(np.uint32).view(F)


def exact(values):
    with np.errstate(all="ignore"):
        return np.exp(values.astype(np.float64))


@pytest.mark.parametrize(
    ("first", "last"), [(0, 2**31), (2**31, 2**32)], ids=["positive", "negative"]
)
def test_at_most_one_ulp_over_all_of_fp32(first, last):
    values = sample(first, last)
    error = ulp_error(results(exp_fp32, values), exact(values), "float32")
    assert error.max() <= 1


@pytest.mark.parametrize(("low", "high"), [(-104.5, -86.0), (-88.0, -0.3), (0.3, 89.5)], ids=str)
def test_at_most_one_ulp_where_exp_is_neither_one_nor_a_limit(low, high):
    first, last = sorted(int(F(end).view(np.uint32)) for end in (low, high))
    values = sample(first, last, max(1, (last - first) // (2_000_000 if STRIDE < 1000 else 300)))
    assert ulp_error(results(exp_fp32, values), exact(values), "float32").max() < 0.99
    assert ulp_error(results(exp_rounded, values), exact(values), "float32").max() <= 0.5


@pytest.mark.parametrize("function", [exp_fp32, exp_rounded])
def test_limits_zeros_and_subnormals(function):
    values = np.array(
        [-np.inf, -1e38, -104, 1e38, np.inf, 89, 0.0, -0.0, 1e-45, -103.9, -100, -87.5], F
    )
    expected = np.array(
        [0, 0, 0, np.inf, np.inf, np.inf, 1, 1, 1, 1.4e-45, 3.783e-44, 9.982e-39], F
    )
    got = results(function, values)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1.5e-45)
    assert (got[-3:] > 0).all()
    assert np.isnan(results(function, np.array([np.nan, -np.nan], F))).all()


def test_the_last_finite_result():
    # ln of the largest finite fp32 number lies between these neighbours.
    finite, beyond = results(exp_fp32, np.array([88.72283, 88.72284], F))
    assert np.isfinite(finite)
    assert np.isinf(beyond)


def test_moderate_numbers_get_the_same_bits_as_all_others():
    values = np.concatenate(
        [sample(2**31, int(F(-87).view(np.uint32)) + 1, 10 * STRIDE), np.array([-87, -0.0], F)]
    )
    expected = results(exp_fp32, values).view(np.uint32)
    assert np.array_equal(results(exp_moderate, values).view(np.uint32), expected)
    blocks = np.zeros_like(values)
    apply_to_blocks(values, blocks)
    whole = (
        values.size
        // (64 if config.DISABLE_JIT else block_count())
        * (64 if config.DISABLE_JIT else block_count())
    )
    assert np.array_equal(blocks[:whole].view(np.uint32), expected[:whole])


def block_count():
    @njit
    def length(array):
        return block_length(array)

    return length(np.empty(1, F))


def test_a_loop_over_it_becomes_vector_instructions():
    if config.DISABLE_JIT:
        pytest.skip("nothing is compiled")

    @njit(error_model="numpy")
    def loop(values, out):
        for index in range(out.size):
            out[index] = exp_fp32(values[index])

    loop(np.zeros(8, F), np.zeros(8, F))
    module = next(iter(loop.inspect_llvm().values()))
    if HAS_FUSED:
        assert "x float>" in module
    assert "@llvm.exp" not in module
    assert "@expf" not in module
