"""Sweeps of Ascend 950 against plans of single calls."""

import pytest

import npu_sim
from npu_sim.registry import OPERATORS
from npu_sim.sweeps.runner import sampled_rows
from tests.cases import every
from tests.sweeps.compared import mismatches
from tests.sweeps.wide_grids import WIDE_GRIDS

MODELLED = [one.name for one in OPERATORS if one.kernels_on("ascend_950")]


def sample(operator, rows):
    everywhere = {"product": "ascend_950", "soc": "all"}
    return npu_sim.sweep(operator, {**WIDE_GRIDS[operator], **everywhere}, sample=rows, seed=950)


@pytest.mark.parametrize("operator", every(len(MODELLED), sorted(MODELLED)))
def test_rows_equal_the_plan_of_a_single_call(operator):
    records = sample(operator, 1000)
    assert mismatches(records, sampled_rows(30, len(records), seed=1)) == []


@pytest.mark.long
@pytest.mark.parametrize("operator", MODELLED)
def test_two_thousand_rows_equal_the_plan_of_a_single_call(operator):
    records = sample(operator, 2000)
    assert mismatches(records, range(len(records))) == []
