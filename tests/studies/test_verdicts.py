import ml_dtypes
import numpy as np
import pytest

from npu_sim.studies import precision as verdicts

RNG = np.random.default_rng(4)
GOLDEN = RNG.standard_normal(5000) * np.exp2(RNG.integers(-20, 6, 5000))


def rounded(dtype):
    types = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
    return GOLDEN.astype(np.float32).astype(types[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_numbers_equal_a_direct_float64_calculation(dtype):
    actual = rounded(dtype)
    wide = actual.astype(np.float64)
    absolute, relative = np.abs(wide - GOLDEN), np.abs(wide - GOLDEN) / (np.abs(GOLDEN) + 1e-7)
    single = verdicts.single_benchmark(actual, GOLDEN, dtype).numbers
    assert single["mere"] == pytest.approx(np.mean(relative), rel=1e-12)
    assert single["mare"] == pytest.approx(np.max(relative), rel=1e-12)
    mixed = verdicts.mixed_tolerance(actual, GOLDEN, dtype)
    tolerance = verdicts.LIMITS[dtype]
    within = np.mean(absolute <= tolerance.atol + tolerance.rtol * np.abs(GOLDEN))
    assert mixed.numbers["share_within"] == pytest.approx(within, rel=1e-12)
    assert mixed.passed
    large = np.abs(GOLDEN) >= verdicts.LIMITS[dtype].small
    errors = verdicts.errors_of(actual, GOLDEN, dtype, apart=True)
    assert errors.rmse == pytest.approx(np.sqrt(np.mean(absolute[large] ** 2)), rel=1e-12)
    assert errors.small_count == np.count_nonzero(
        absolute[~large] > verdicts.LIMITS[dtype].small_error
    )


def test_one_percent_of_elements_may_exceed_the_mixed_tolerance():
    golden, actual = np.ones(1000), np.ones(1000, np.float32)
    actual[:10] += 0.005
    assert verdicts.mixed_tolerance(actual, golden, "float32").passed
    actual[10] += 0.005
    assert not verdicts.mixed_tolerance(actual, golden, "float32").passed


def test_a_single_error_beyond_the_limit_fails_unless_it_is_few_ulp():
    golden, actual = np.full(1000, 2.0**20), np.full(1000, 2.0**20, np.float32)
    actual[0] += 2.0
    assert verdicts.mixed_tolerance(actual, golden, "float32").passed
    actual[0] += 4.0
    assert not verdicts.mixed_tolerance(actual, golden, "float32").passed


def test_the_dual_benchmark_compares_with_the_second_implementation():
    golden = np.linspace(1, 2, 1000)
    first, second = (golden + error * 1e-6 for error in (3.0, 1.0))
    assert not verdicts.dual_benchmark(first, second, golden, "float32", "L0").passed
    assert verdicts.dual_benchmark(second, first, golden, "float32", "L2").passed
    assert verdicts.dual_benchmark(golden, golden, golden, "float32", "L2").passed


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_inf_and_nan_must_be_at_the_positions_of_the_golden_result(value):
    golden, actual = np.ones(10), np.ones(10, np.float32)
    golden[3] = actual[3] = value
    assert verdicts.single_benchmark(actual, golden, "float32").passed
    actual[3] = 1
    assert not verdicts.single_benchmark(actual, golden, "float32").passed
