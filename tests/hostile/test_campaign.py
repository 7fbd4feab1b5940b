"""A few trials of the campaign (``python -m tests.hostile --minutes N``), always the same ones."""

import numpy as np
import pytest

from tests.hostile.campaign import TRIALS, attempt
from tests.hostile.guarded import guarded

COUNTS = {"plan": 300, "run": 8, "profile": 15, "tensor": 100, "line": 150}


@pytest.mark.parametrize("kind", TRIALS)
def test_trials_end_in_answers_and_refusals(kind):
    answers = [attempt(TRIALS[kind], seed) for seed in range(COUNTS[kind])]
    assert any(answers) or kind == "profile"
    assert not all(answers) or kind == "run"


@pytest.mark.parametrize("at_end", [False, True])
def test_guarded_arrays_hold_what_they_are_given(at_end):
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    assert guarded(values, at_end).tolist() == values.tolist()
