"""What passed once is not asked again for every size: no answer depends on what was planned before."""

import gc
import random
import weakref

import pytest

import npu_sim
from npu_sim.framework import operator
from npu_sim.framework.axes import Number, Word
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.registry import OPERATOR_NAMES, load_operator
from npu_sim.status import AclnnError, NpuSimError

CALL = {"dy": "32x512:bf16", "x": "32x512:bf16", "rstd": "32:fp32", "gamma": "512:bf16"}


def refusal(changed):
    with pytest.raises(AclnnError) as caught:
        npu_sim.plan("rms_norm_grad", **{**CALL, **changed})
    return caught.value.as_dict()


@pytest.mark.parametrize(
    "changed",
    [
        {"x": None},
        {"x": "32x512:bf16:strided"},
        {"x": "32x512:bf16:FRACTAL_NZ"},
        {"gamma": "512:fp16"},
        {"gamma": "511:bf16"},
        {"rstd": "31:fp32"},
        {"dy": "0x512:bf16", "x": "0x512:bf16", "rstd": "0:fp32"},
        {"product": "atlas_inference"},
    ],
    ids=str,
)
def test_a_call_is_refused_the_same_after_another_one_passed(changed):
    operator._known.cache_clear()
    first = refusal(changed)
    npu_sim.plan("rms_norm_grad", **CALL)
    assert refusal(changed) == first


def drawn(axis, draw):
    if isinstance(axis, Number):
        return draw.randint(axis.low, min(axis.high, draw.choice((3, 40, 5000))))
    return draw.choice(axis.words) if isinstance(axis, Word) else draw.random() < 0.5


def answer(declared, values, profile):
    """What the contract says of a call: the checked call, or why not."""
    chosen = {axis.name: values[axis.name] for axis in declared.axes}
    try:
        case = declared.checked(
            declared.build(declared.call(chosen)),
            profile,
            values["deterministic"],
            values["limits"],
        )
    except NpuSimError as error:
        return (
            type(error).__name__,
            getattr(error, "status", None),
            error.argument,
            error.message,
            error.hint,
        )
    return case.specs, case.row, case.empty, case.tiling


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_a_call_gets_the_same_answer_after_others_of_its_form_passed(name):
    declared, profile, draw = (
        load_operator(name),
        npu_sim.load_profile("atlas_a2"),
        random.Random(7),
    )
    calls = [
        {
            axis.name: axis.default if draw.random() < 0.7 else drawn(axis, draw)
            for axis in declared.all_axes
        }
        for _ in range(150)
    ]
    first = []
    for values in calls:
        operator._known(declared, profile).passed.clear()
        first.append(answer(declared, values, profile))
    answer(
        declared, declared.defaults() | {"deterministic": False, "limits": "documented"}, profile
    )
    assert [answer(declared, values, profile) for values in calls] == first
    assert {len(one) for one in first} == {4, 5}, "some calls run, others are refused"


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_the_first_plan_of_a_call_goes_with_its_last_reference(name):
    declared = load_operator(name)
    arguments = fixed_call(declared, {}).arguments()
    declared.__dict__.pop("_memory", None)
    gc.disable()
    try:
        plan = npu_sim.plan(name, **arguments)
        gone = weakref.ref(plan)
        del plan
        assert gone() is None
    finally:
        gc.enable()
