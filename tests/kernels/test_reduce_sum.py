import numpy as np
import pytest
from numba import njit

from npu_sim.kernels.vectors.row_sums import LANE_COUNT, reduce_sum
from tests.reference import cross_entropy_loss_grad as reference


@njit
def compiled_total(values):
    return reduce_sum(values, np.empty(LANE_COUNT, np.float32))


def total(values):
    return np.float32(compiled_total(values))


@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65, 127, 128, 129, 1000, 4167])
def test_sums_equal_the_reference(size):
    rng = np.random.default_rng(size)
    values = (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 6, size)).astype(np.float32)
    assert total(values).view(np.uint32) == reference.reduce_sum(values).view(np.uint32)


def test_blocks_are_added_one_after_the_other():
    values = np.zeros(192, np.float32)
    values[0], values[64], values[128] = 1e8, 3, 3
    assert total(values) == np.float32(np.float32(1e8 + 3) + np.float32(3))
    assert total(values) != np.float32(1e8 + 6)


def test_neighbours_are_added_first():
    values = np.array([1e8, 3, 3, 0], np.float32)
    assert total(values) == np.float32(1e8 + 3) + np.float32(3)
    assert total(np.array([1e8, 0, 3, 3], np.float32)) == np.float32(1e8 + 6)
