"""A few trials of the campaign (``python -m tests.hostile --minutes N``) with fixed seeds."""

import numpy as np
import pytest

from tests.hostile.calls import same_bits
from tests.hostile.guarded import guarded
from tests.hostile.trials import TRIALS, attempt

COUNTS = {"plan": 300, "run": 8, "profile": 15, "tensor": 100, "line": 150}
COUNTS |= {"changed": 20, "reentrant": 60, "shared": 80, "torch": 60, "names": 60, "forks": 20}
RACES = ("changed", "shared")
"""Trials whose outcome depends on the order in which threads run."""


@pytest.mark.parametrize("kind", TRIALS)
def test_trials_end_in_answers_and_refusals(kind):
    if kind == "torch":
        pytest.importorskip("torch")
    answers = [attempt(TRIALS[kind], seed) for seed in range(COUNTS[kind])]
    assert any(answers) or kind in ("profile", *RACES)
    assert not all(answers) or kind in ("run", "reentrant", "forks", *RACES)


@pytest.mark.parametrize("at_end", [False, True])
def test_guarded_arrays_hold_their_values(at_end):
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    assert guarded(values, at_end).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (1.0, 1.0, True),
        (0.0, -0.0, False),
        (np.nan, -np.nan, True),
        (np.nan, 1.0, False),
        (1.0, 2.0, False),
    ],
)
def test_results_are_compared_bit_for_bit_except_nan(first, second, same):
    assert (
        same_bits(np.full((2, 2), first, np.float32), np.full((2, 2), second, np.float32)) == same
    )
