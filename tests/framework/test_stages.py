"""Stages of a run: kernels from the cache are reported as loaded, not compiled."""

import pytest

from npu_sim.framework import execution


@pytest.mark.parametrize(
    ("kernels", "passes", "booked"),
    [
        ((0.0, 0.0), (0.0, 0.0), {"compute"}),
        ((0.0, 0.25), (0.0, 0.0), {"compute", "load"}),
        ((1.0, 3.0), (0.5, 2.0), {"compute", "compile"}),
    ],
)
def test_time_in_numba_is_reported_as_compiling_or_loading(monkeypatch, kernels, passes, booked):
    states = iter(zip(kernels, passes, strict=True))
    monkeypatch.setattr(execution, "_kernel_seconds", lambda: next(states))
    watch = execution.Stopwatch()
    with watch.stage("compute"):
        pass
    assert set(watch.seconds) == booked
    assert watch.seconds.get("load", watch.seconds.get("compile", 0.0)) == kernels[1] - kernels[0]
