"""Small calls of kernels: compiled code reads from the tuple of arguments what Python would have laid out, whatever is in it."""

from typing import NamedTuple

import numpy as np
import pytest

from npu_sim.kernels.engine import compile as engine
from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.engine.entry import Layout
from npu_sim.kernels.engine.guards import MOST_GUARDS, MOST_STEPS, OFTEN, guard_of

needs_guards = pytest.mark.skipif(
    engine.PLAIN or engine.config.DISABLE_JIT, reason="kernels run through Numba's public interface"
)


class Pair(NamedTuple):
    first: int
    second: int


NUMBERS = [0, 1, -1, 2**30 - 1, 2**30, -(2**30), 2**60, -(2**62), 2**63 - 1, -(2**63), True, False]


@kernel
def _whole(share, value, out):
    out[share] = value


@kernel
def _fraction(share, value, out):
    out[share] = value


@kernel
def _nested(share, pair, source, out):
    out[share] = pair.first + pair.second * source[0, 1]


@pytest.mark.parametrize("value", NUMBERS, ids=str)
def test_whole_numbers_arrive_as_they_are_every_time(value):
    for _ in range(OFTEN + 1):
        out = np.full(1, 77, np.int64)
        _whole.over(1, value, out)
        assert out[0] == value


@needs_guards
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**90, 2**200])
def test_a_whole_number_that_is_no_word_is_an_error_every_time(value):
    out = np.zeros(1, np.int64)
    for number in (1, value) * (OFTEN + 1):
        if number == 1:
            _whole.over(1, number, out)
        else:
            with pytest.raises(OverflowError):
                _whole.over(1, number, out)


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -1e30, float("inf"), float("nan"), 1e-40])
def test_fractions_arrive_bit_for_bit(kind, value):
    for _ in range(OFTEN + 1):
        out = np.full(1, 77, np.float64)
        _fraction.over(1, kind(value), out)
        assert out.tobytes() == np.float64(kind(value)).tobytes()


@pytest.mark.parametrize(
    "source",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(3, 2).T,
        np.arange(12).reshape(2, 6)[:, ::2],
    ],
)
def test_tuples_and_arrays_of_any_memory(source):
    for _ in range(OFTEN + 1):
        out = np.zeros(2, np.float64)
        _nested.over(2, Pair(10, 3), source, out)
        assert out.tolist() == [10 + 3 * source[0, 1]] * 2


def test_other_types_than_the_first_ones_are_told_apart():
    @kernel
    def double(share, values, factor, out):
        out[share] = values[share] * factor

    kinds = [np.float32, np.int16, np.float64, np.int64, np.int32, np.uint8, np.float32] * OFTEN
    for factor in (2, np.float32(2), 2.0, np.int64(2), np.int32(2)):
        for kind in kinds:
            out = np.zeros(3, kind)
            double.over(3, np.arange(1, 4).astype(kind), factor, out)
            assert out.tolist() == [2, 4, 6]
    assert len(double._guards) <= MOST_GUARDS


@needs_guards
def test_tuples_in_tuples_are_read_in_their_order():
    arguments = (1, (2, (np.float32(3.5), Pair(4, 5)), np.zeros(1)), 6)
    guard, words = guard_of(0, arguments, Layout(arguments)), np.zeros(MOST_STEPS, np.int64)
    assert engine.run_guarded(guard.address, id(arguments), 0, words.ctypes.data)
    assert words[:7].tolist() == Layout(arguments).words.tolist()


@needs_guards
def test_a_guard_remembers_no_more_than_it_may():
    arguments = (*range(MOST_STEPS + 1), np.zeros(1))
    assert guard_of(0, arguments, Layout(arguments)) is None
    assert guard_of(0, arguments[2:], Layout(arguments[2:])) is not None
    assert guard_of(0, (np.int32(1),), Layout((np.int32(1),))) is None


@needs_guards
@pytest.mark.parametrize(
    "other",
    [
        (1.0, np.zeros(1)),
        (1, np.zeros((1, 1))),
        (1, np.zeros(1, np.int64)),
        (1, np.zeros(4)[::2]),
        (1,),
        (1, np.zeros(1), 2),
    ],
)
def test_a_guard_takes_nothing_else(other):
    arguments = (1, np.zeros(1))
    guard = guard_of(0, arguments, Layout(arguments))
    words = np.zeros(MOST_STEPS, np.int64)
    assert engine.run_guarded(guard.address, id(arguments), 0, words.ctypes.data)
    assert not engine.run_guarded(guard.address, id(other), 0, words.ctypes.data)
