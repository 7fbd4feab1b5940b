import platform

import numpy as np
import pytest
from numba import config, from_dtype, njit

from npu_sim.kernels.shared import elementwise
from npu_sim.kernels.vectors import lanes
from npu_sim.numbers.formats import from_storage, storage_view

STORAGES = [np.float32, np.int16, np.uint16]
FORMAT = {np.float32: "float32", np.int16: "float16", np.uint16: "bfloat16"}
BITS = {np.float32: np.uint32, np.int16: np.uint16, np.uint16: np.uint16}
RANDOM = np.random.default_rng(0)


@njit
def copy_through_lanes(source, target, streams):
    step = lanes.LINE_BYTES // target.itemsize
    for index in range(0, target.size - step + 1, step):
        loaded = lanes.load(source, index)
        if streams:
            lanes.stream(target, index, loaded)
        else:
            lanes.store(target, index, loaded)
    lanes.end_streams()


@njit
def add_to(value, a, b, target):
    step = lanes.LINE_BYTES // target.itemsize
    for index in range(0, target.size - step + 1, step):
        lanes.prefetch(a, index + 1000)
        first = lanes.splat(value, target) + lanes.load(a, index)
        lanes.store(target, index, first + lanes.load(b, index))


@njit
def distance(array, index):
    return lanes.to_next_line(array, index)


def every_pattern(storage):
    """Every 16-bit element that is not nan, or random bits of fp32."""
    if storage is np.float32:
        values = RANDOM.integers(0, 2**32, 4096, np.uint32).view(np.float32)
        return values[~np.isnan(values)][:4032]
    patterns = np.arange(65536, dtype=np.uint16).view(storage)
    patterns = patterns[~np.isnan(elementwise.widen_array(from_storage(patterns, FORMAT[storage])))]
    return patterns[: patterns.size // 32 * 32] if not config.DISABLE_JIT else patterns[::64][:960]


def aligned(size, storage, offset=0):
    """Return an array that starts a number of elements after the start of a cache line."""
    memory = np.zeros(size + offset + lanes.LINE_BYTES, storage)
    start = int(-memory.ctypes.data % lanes.LINE_BYTES // memory.itemsize) + offset
    return memory[start : start + size]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("streams", [False, True])
def test_stored_elements_survive_widening_and_narrowing(storage, streams):
    source = every_pattern(storage)
    target = aligned(source.size, storage)
    copy_through_lanes(source, target, streams)
    assert np.array_equal(target.view(BITS[storage]), source.view(BITS[storage]))


@pytest.mark.skipif(
    config.DISABLE_JIT or platform.machine() != "x86_64", reason="reads x86-64 instructions"
)
@pytest.mark.parametrize("storage", STORAGES)
def test_streamed_elements_are_stored_past_the_cache(storage):
    copy_through_lanes(np.ones(64, storage), aligned(64, storage), True)
    kinds = next(
        kinds
        for kinds in copy_through_lanes.signatures
        if kinds[0].dtype == from_dtype(np.dtype(storage))
    )
    assert "movnt" in copy_through_lanes.inspect_asm(kinds)


@pytest.mark.parametrize("storage", STORAGES)
def test_lanes_round_like_scalars(storage):
    a, b = every_pattern(storage)[:960], every_pattern(storage)[::-1][:960]
    values = [
        elementwise.widen_array(from_storage(np.ascontiguousarray(one), FORMAT[storage]))
        for one in (a, b)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        total = (np.float32(0.1) + values[0]) + values[1]
    expected = storage_view(elementwise.narrow_array(total, FORMAT[storage]))
    target = np.zeros(960, storage)
    add_to(np.float32(0.1), np.ascontiguousarray(a), np.ascontiguousarray(b), target)
    number = ~np.isnan(total)
    assert np.array_equal(target.view(BITS[storage])[number], expected.view(BITS[storage])[number])


@pytest.mark.parametrize("storage", STORAGES)
def test_nan_stays_nan_and_beyond_the_range_is_inf(storage):
    step = lanes.LINE_BYTES // np.dtype(storage).itemsize
    largest = storage_view(
        elementwise.narrow_array(np.full(step, np.float32(3e38)), FORMAT[storage])
    )
    target = np.zeros(step, storage)
    add_to(np.float32(np.nan), largest, largest, target)
    assert np.isnan(elementwise.widen_array(from_storage(target, FORMAT[storage]))).all()
    add_to(np.float32(3e38), largest, largest, target)
    assert np.isposinf(elementwise.widen_array(from_storage(target, FORMAT[storage]))).all()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("offset", [0, 1, 7, 15])
def test_the_next_line_starts_where_the_address_says(storage, offset):
    array = aligned(200, storage, offset)
    for index in (0, 1, 3, 64):
        to_next = distance(array, index)
        assert 0 <= to_next < lanes.LINE_BYTES // array.itemsize
        assert array[index + to_next :].ctypes.data % lanes.LINE_BYTES == 0
