import os

import numpy as np
import pytest

from npu_sim.numbers.formats import TensorSpec
from npu_sim.numbers.values import CHUNK, normal


@pytest.mark.parametrize("size", [1000, 3 * CHUNK + 5])
def test_what_is_drawn_does_not_depend_on_how_many_threads_draw(monkeypatch, size):
    drawn = []
    for count in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        drawn.append(normal(np.random.default_rng(7), TensorSpec((size,), "float32")))
    assert np.array_equal(*drawn)


def test_chunks_are_drawn_from_one_distribution_and_are_not_alike():
    drawn = normal(np.random.default_rng(7), TensorSpec((2 * CHUNK,), "bfloat16"), 2.0).astype(
        np.float64
    )
    first, second = drawn[:CHUNK], drawn[CHUNK:]
    for part in (first, second):
        assert abs(part.mean()) < 0.02
        assert abs(part.std() - 2) < 0.02
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
