"""Where a declaration says that calls are certain to have a tiling, the planner agrees; a call without one is refused as ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.cores import load_profile, shipped_products
from npu_sim.framework.axes import Number, Word
from npu_sim.framework.rows import PASSES
from npu_sim.registry import OPERATORS, load_operator
from npu_sim.status import AclnnError, Status

CERTAIN = [entry.name for entry in OPERATORS if load_operator(entry.name).has_tiling is not None]
MOST = 1 << 40


def codes_of(axis):
    if isinstance(axis, Number):
        high = min(axis.high, MOST)
        return st.one_of(st.integers(axis.low, min(high, 300)), st.integers(axis.low, high))
    return st.integers(0, len(axis.words) - 1 if isinstance(axis, Word) else 1)


@pytest.mark.parametrize("name", CERTAIN)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_certain_to_have_a_tiling_has_one(name, data):
    operator, profile = (
        load_operator(name),
        load_profile(data.draw(st.sampled_from(shipped_products()))),
    )
    row = operator.planner.make_row(
        **{axis.name: data.draw(codes_of(axis), label=axis.name) for axis in operator.all_axes}
    )
    question = row, profile.device, operator.rules(profile)
    if operator.planner.refused(*question) == PASSES and operator.has_tiling(*question):
        assert operator.tile(*question).status == 0


def with_little_l1(profile):
    socs = {
        name: chip.model_copy(update={"l1_bytes": 1 << 14})
        for name, chip in profile.product.socs.items()
    }
    return profile.model_copy(
        update={"product": profile.product.model_copy(update={"name": "little_l1", "socs": socs})}
    )


def test_a_call_without_a_tiling_is_refused_before_and_after_one_that_has_one():
    profile, statuses = with_little_l1(load_profile("atlas_a2")), []
    for taps in (101, 3, 101):
        call = {
            "grad_output": "16x2x8:fp32",
            "input": "16x2x8:fp32",
            "weight": f"{taps}x8x8:fp32",
            "bias": "8:fp32",
            "pad": taps // 2,
        }
        try:
            npu_sim.plan("conv_tbc_backward", product=profile, **call)
            statuses.append(Status.ACLNN_SUCCESS)
        except AclnnError as error:
            statuses.append(error.status)
    refused = load_operator("conv_tbc_backward").planner_failure
    assert statuses == [refused, Status.ACLNN_SUCCESS, refused]
