"""Arguments of kernels arrive in compiled code as they are."""

from typing import NamedTuple

import numpy as np
import pytest

from npu_sim.kernels.engine import compile as engine
from npu_sim.kernels.engine.compile import kernel

needs_words = pytest.mark.skipif(
    engine.PLAIN or engine.config.DISABLE_JIT, reason="kernels run through Numba's public interface"
)


class Pair(NamedTuple):
    first: int
    second: int


NUMBERS = [0, 1, -1, 2**30 - 1, 2**30, -(2**30), 2**60, -(2**62), 2**63 - 1, -(2**63), True, False]


@kernel
def _write(chunk, value, out):
    out[chunk] = value


@kernel
def _nested(chunk, pair, source, out):
    out[chunk] = pair.first + pair.second * source[0, 1]


@kernel
def _deep(chunk, arguments, out):
    first, (second, (third, pair, array)), last = arguments
    out[chunk] = first + second + third + pair.first + pair.second + array[0] + last


@pytest.mark.parametrize("value", NUMBERS, ids=str)
def test_integers_arrive_as_they_are(value):
    out = np.full(1, 77, np.int64)
    _write.over(1, value, out)
    assert out[0] == value


@needs_words
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**90, 2**200])
def test_an_integer_of_more_than_64_bits_is_an_error(value):
    with pytest.raises(OverflowError):
        _write.over(1, value, np.zeros(1, np.int64))


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -1e30, float("inf"), float("nan"), 1e-40])
def test_floating_point_numbers_arrive_bit_for_bit(kind, value):
    out = np.full(1, 77, np.float64)
    _write.over(1, kind(value), out)
    assert out.tobytes() == np.float64(kind(value)).tobytes()


@pytest.mark.parametrize(
    "source",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(3, 2).T,
        np.arange(12).reshape(2, 6)[:, ::2],
        np.broadcast_to(np.float32(4), (2, 3)),
    ],
)
def test_tuples_and_arrays_of_any_memory(source):
    out = np.zeros(2, np.float64)
    _nested.over(2, Pair(10, 3), source, out)
    assert out.tolist() == [10 + 3 * source[0, 1]] * 2


def test_tuples_in_tuples_are_read_in_their_order():
    out = np.zeros(1)
    _deep.over(1, (1, (2, (np.float32(3.5), Pair(40, 500), np.full(1, 6e3))), 70_000), out)
    assert out[0] == 76546.5


def test_every_argument_type_has_its_own_code():
    @kernel
    def double(chunk, values, factor, out):
        out[chunk] = values[chunk] * factor

    for factor in (2, np.float32(2), 2.0, np.int64(2), np.int32(2)):
        for kind in (np.float32, np.int16, np.float64, np.int64, np.int32, np.uint8, np.float32):
            out = np.zeros(3, kind)
            double.over(3, np.arange(1, 4).astype(kind), factor, out)
            assert out.tolist() == [2, 4, 6]
