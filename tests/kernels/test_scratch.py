"""Scratch that is kept for the next call."""

import numpy as np

from npu_sim.kernels.engine.scratch import MOST_KEPT, kept


def test_scratch_is_kept_by_what_it_was_asked_with_until_there_is_too_much():
    scratch = kept(np.empty)
    first = scratch(1)
    assert scratch(1) is first
    others = [scratch(size) for size in range(2, MOST_KEPT + 2)]
    assert scratch(MOST_KEPT + 1) is others[-1]
    assert scratch(1) is not first
