import numpy as np
import pytest
from numba import config, njit

from npu_sim.kernels.shared import elementwise
from npu_sim.kernels.vectors import lane_blocks as blocks
from npu_sim.numbers.formats import from_storage, storage_view

FORMATS = {np.float32: "float32", np.int16: "float16", np.uint16: "bfloat16"}


@njit
def copy(source, target):
    step = blocks.block_length(target)
    for index in range(0, target.size - step + 1, step):
        blocks.store_numbers(target, index, blocks.load_block(source, index))


@njit
def combine(source, number, target):
    step = blocks.block_length(source)
    for index in range(0, source.size - step + 1, step):
        block = blocks.load_block(source, index)
        blocks.store_numbers(
            target, index, ((block * block - number) + (number * block + number)) - block
        )


@njit
def largest_of(array):
    step = blocks.block_length(array)
    found = blocks.patterns_at(array, 0)
    for index in range(0, array.size - step + 1, step):
        found = blocks.larger(found, blocks.patterns_at(array, index))
    return blocks.largest(found)


@njit
def powers(shifted, out):
    for index in range(out.size):
        out[index] = blocks.power_of_two(shifted[index])


def every_number(storage):
    """Every 16-bit element that is not nan, or fp32 numbers of random bits."""
    if storage is np.float32:
        values = np.random.default_rng(0).integers(0, 2**32, 20000, np.uint32).view(np.float32)
        numbers = values[~np.isnan(values)]
        return numbers[: numbers.size // 128 * 128]
    patterns = np.arange(65536, dtype=np.uint16).view(storage)
    numbers = patterns[~np.isnan(elementwise.widen_array(from_storage(patterns, FORMATS[storage])))]
    return (
        numbers[: numbers.size // 128 * 128]
        if not config.DISABLE_JIT
        else numbers[::32][:1920].copy()
    )


@pytest.mark.parametrize("storage", FORMATS)
def test_numbers_survive_widening_and_narrowing(storage):
    source = every_number(storage)
    target = np.zeros_like(source)
    copy(source, target)
    assert np.array_equal(target.view(np.uint8), source.view(np.uint8))


@pytest.mark.parametrize("offset", [0, 1, 3, 64])
@pytest.mark.parametrize("storage", FORMATS)
def test_arithmetic_is_that_of_single_numbers_and_rounds_to_nearest_even(storage, offset):
    rng = np.random.default_rng(offset)
    wide = (rng.standard_normal(1024 + offset) * 4).astype(np.float32)
    stored = storage_view(elementwise.narrow_array(wide, FORMATS[storage]))[offset:]
    target = np.zeros(1024 + offset, storage)[offset:]
    number = np.float32(1.7)
    combine(stored, number, target)
    x = elementwise.widen_array(from_storage(stored, FORMATS[storage]))
    expected = elementwise.narrow_array(
        ((x * x - number) + (number * x + number)) - x, FORMATS[storage]
    )
    assert np.array_equal(target, storage_view(expected))


def test_bf16_ties_go_to_even_and_beyond_the_range_to_infinity():
    @njit
    def narrow_one(value, target):
        zeros = blocks.load_block(target, 0)
        blocks.store_numbers(target, 0, zeros + value)

    for bits, expected in (
        (0x3F808000, 0x3F80),
        (0x3F818000, 0x3F82),
        (0x3F808001, 0x3F81),
        (0x7F7FFFFF, 0x7F80),
        (0x00018000, 0x0002),
    ):
        target = np.zeros(256, np.uint16)
        narrow_one(np.uint32(bits).view(np.float32), target)
        assert target[0] == expected


@pytest.mark.parametrize("storage", FORMATS)
def test_the_largest_pattern(storage):
    signed = np.int32 if storage is np.float32 else np.int16
    rng = np.random.default_rng(3)
    info = np.iinfo(signed)
    for _ in range(20):
        patterns = rng.integers(info.min, info.max // 2, 256, signed)
        patterns[rng.integers(256)] = rng.integers(0, info.max)
        assert largest_of(patterns.view(storage)) == patterns.max()


def test_powers_of_two():
    exponents = np.arange(-126, 128)
    out = np.empty(exponents.size, np.float32)
    powers((1.5 * 2.0**23 + 127 + exponents).astype(np.float32), out)
    assert np.array_equal(out, np.ldexp(np.float32(1), exponents))
