import numpy as np
import pytest
from numba import njit

from npu_sim.kernels.vectors.lanes import LINE_BYTES
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from tests.kernels.test_lane_blocks import FORMATS


@njit
def through_lanes(source, target, at, read, written):
    store_some(target, at, load_some(source, at, read[0], read[1], source), written[0], written[1])


@pytest.mark.parametrize("offset", [0, 1, 7])
@pytest.mark.parametrize("storage", FORMATS)
def test_some_elements_of_a_line_are_read_and_written_and_no_others(storage, offset):
    line = LINE_BYTES // np.dtype(storage).itemsize
    source = np.arange(1, 3 * line + 1).astype(storage)
    bounds = [(first, stop) for first in range(line + 1) for stop in range(first, line + 1)]
    for first, stop in bounds:
        for read, written in (((first, stop), (0, line)), ((0, line), (first, stop))):
            target = np.full(3 * line, 99, storage)
            through_lanes(source, target, line + offset, read, written)
            expected = np.full(3 * line, 99, storage)
            at = line + offset
            if written == (0, line):
                expected[at : at + line] = 0
            expected[at + first : at + stop] = source[at + first : at + stop]
            np.testing.assert_array_equal(target, expected)
