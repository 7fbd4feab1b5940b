"""StageCounter of computations."""

import numpy as np
import pytest

from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.tools.explorer import jobs
from npu_sim.tools.explorer.jobs import CountingGenerator, StageCounter, drawn_elements
from npu_sim.tools.explorer.state import catalog

MAXIMUM_SIZE = 32


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_progress_of_generated_data_grows_to_completion(monkeypatch, name):
    monkeypatch.setattr(jobs, "REPORT_SECONDS", 0)
    operator = load_operator(name)
    entry = next(operator for operator in catalog({})["operators"] if operator["name"] == name)
    small = {
        axis["name"]: min(int(axis["default"]), MAXIMUM_SIZE)
        for axis in entry["axes"]
        if axis["kind"] == "number"
    }
    arguments = arguments_of(operator, call_with(operator, {**operator.defaults(), **small}))
    fractions = []
    progress = StageCounter(
        "generating data",
        drawn_elements(operator, arguments),
        lambda stage, fraction: fractions.append(fraction),
    )
    data = generate(name, arguments, CountingGenerator(np.random.PCG64(0), progress))
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert 0.8 < fractions[-1] <= 1  # cos and sin of a rotation are not drawn
    as_always = generate(name, arguments, 0)
    assert all(data[key].tobytes() == as_always[key].tobytes() for key in data)
