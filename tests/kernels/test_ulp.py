"""Distance in units of the last place, against counting and against fp64 arithmetic."""

import numpy as np
import pytest
from numba import config

from npu_sim.kernels.shared import elementwise
from npu_sim.numbers.formats import FORMATS, numpy_dtype, storage_view
from tests.rounding_reference import EVERY_16_BITS, fp32_sample, round_to, to_fp64, unit

NAN = elementwise.NAN_DISTANCE


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_distance_counts_representable_values(name):
    """An ordered integer is the rank of its value among all values; +0 and -0 share one."""
    every = EVERY_16_BITS.view(numpy_dtype(name))
    numbers = (
        every[~np.isnan(every.astype(np.float32))]
        if name == "bfloat16"
        else every[~np.isnan(every)]
    )
    wide = elementwise.widen_array(numbers)
    places = np.searchsorted(np.unique(wide), wide)
    other = np.random.default_rng(1).permutation(numbers.size)
    for permutation in (other, np.roll(np.arange(numbers.size), 1)):
        expected = np.abs(places - places[permutation])
        np.testing.assert_array_equal(
            elementwise.ulp_distance(numbers, numbers[permutation], name), expected
        )


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "hf32"])
def test_distance_of_special_values(name):
    largest, smallest = FORMATS[name].largest_finite, FORMATS[name].smallest_subnormal
    nan, inf = np.nan, np.inf
    pairs = [
        (0.0, -0.0, 0),
        (nan, nan, 0),
        (nan, 1, NAN),
        (inf, nan, NAN),
        (inf, inf, 0),
        (-inf, -inf, 0),
    ]
    pairs += [
        (largest, inf, 1),
        (-largest, -inf, 1),
        (smallest, -smallest, 2),
        (0.0, smallest, 1),
        (1, 1, 0),
    ]
    pairs += [
        (1, 2, 1 << FORMATS[name].mantissa_bits),
        (1 + FORMATS[name].epsilon, 1, 1),
        (-1, -2, 1 << FORMATS[name].mantissa_bits),
    ]
    first, second, expected = zip(*pairs, strict=True)
    dtype = numpy_dtype(name)
    first, second = (np.array(side, np.float32).astype(dtype) for side in (first, second))
    assert elementwise.ulp_distance(first, second, name).tolist() == list(expected)
    assert elementwise.ulp_distance(second, first, name).tolist() == list(expected)
    negated = elementwise.ulp_distance(
        (-first.astype(np.float32)).astype(dtype), (-second.astype(np.float32)).astype(dtype), name
    )
    assert negated.tolist() == list(expected)


def test_distance_accepts_storage_and_any_stride():
    first = np.arange(1, 25, dtype=np.float16).reshape(4, 6)
    second = np.nextafter(first, np.float16(np.inf))
    expected = np.ones((6, 2), np.int64)
    np.testing.assert_array_equal(
        elementwise.ulp_distance(first.T[:, ::2], second.T[:, ::2], "fp16"), expected
    )
    stored = elementwise.ulp_distance(storage_view(first.T[:, ::2]), second.T[:, ::2], "fp16")
    np.testing.assert_array_equal(stored, expected)
    assert elementwise.ulp_distance(first[:0], second[:0], "fp16").shape == (0, 6)


@pytest.mark.parametrize("function", [elementwise.ulp_distance, elementwise.ulp_error])
def test_mismatch_is_refused(function):
    with pytest.raises(ValueError, match="shapes differ"):
        function(np.ones(3, np.float16), np.ones(4, np.float16), "fp16")
    with pytest.raises(ValueError, match="expected an array of bfloat16, not of float16"):
        function(np.ones(3, np.float16), np.ones(3, np.float16), "bf16")
    with pytest.raises(ValueError, match="int32"):
        function(np.ones(3, np.int32), np.ones(3, np.int32), "int32")


@pytest.fixture(scope="module")
def sample():
    values = fp32_sample(0)
    return values if not config.DISABLE_JIT else values[:: values.size // 20_000]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "hf32"])
def test_error_of_correct_rounding_is_at_most_half(name, sample):
    reference = to_fp64(sample)
    rounded = (
        elementwise.round_to_hf32(sample)
        if name == "hf32"
        else elementwise.narrow_array(sample, name)
    )
    error = elementwise.ulp_error(rounded, reference, name)
    assert error.max() == 0.5
    assert error.min() == 0
    number = np.isfinite(reference) & np.isfinite(round_to(sample, name))
    one = FORMATS[name]
    difference = np.abs(to_fp64(rounded[number]) - reference[number])
    np.testing.assert_array_equal(error[number], difference / unit(reference[number], one))
    assert not error[~number].any()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "hf32"])
def test_error_of_special_values(name):
    one = FORMATS[name]
    largest, smallest, nan, inf = one.largest_finite, one.smallest_subnormal, np.nan, np.inf
    last = largest - np.float64(largest) / (2 - one.epsilon) * (
        2 - 2 * one.epsilon
    )  # distance of the two largest
    rows = [
        (nan, nan, 0),
        (nan, 1, inf),
        (1, nan, inf),
        (inf, inf, 0),
        (inf, -inf, inf),
        (1, inf, inf),
        (inf, 1, inf),
    ]
    rows += [
        (inf, largest + last / 2, 0),
        (inf, largest, inf),
        (largest, largest + last, 1),
        (-inf, largest + last, inf),
    ]
    rows += [
        (0, smallest / 4, 0.25),
        (smallest, 0, 1),
        (-0.0, 0, 0),
        (1, 1 + one.epsilon / 8, 0.125),
        (1, 1 - one.epsilon / 2, 1),
    ]
    value, reference, expected = zip(*rows, strict=True)
    stored = np.array(value, np.float32).astype(numpy_dtype(name))
    assert elementwise.ulp_error(stored, np.array(reference), name).tolist() == list(expected)
    with np.errstate(invalid="ignore"):
        assert elementwise.ulp_error(
            np.negative(stored), -np.array(reference), name
        ).tolist() == list(expected)
