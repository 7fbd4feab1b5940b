"""The cache of checked calls: no result depends on what was checked before."""

import random

import pytest

import npu_sim
from npu_sim.framework import checking
from npu_sim.framework.arguments import Number, Word
from npu_sim.framework.checking import check, check_uncached, checked_call
from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.framework.target import Target
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
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
def test_a_call_is_refused_the_same_after_another_call_passed(changed):
    checking._cached_case.cache_clear()
    first = refusal(changed)
    npu_sim.plan("rms_norm_grad", **CALL)
    assert refusal(changed) == first


def drawn(axis, draw):
    if isinstance(axis, Number):
        return draw.randint(axis.low, min(axis.high, draw.choice((3, 40, 5000))))
    return draw.choice(axis.words) if isinstance(axis, Word) else draw.random() < 0.5


def answer(checked, declared, values, profile):
    """Return the checked call, or its error."""
    chosen = {axis.name: values[axis.name] for axis in declared.axes}
    target = Target(profile, values["deterministic"], limits=values["limits"])
    try:
        case = checked(declared, arguments_of(declared, call_with(declared, chosen)), target)
    except NpuSimError as error:
        status = getattr(error, "status", None)
        return type(error).__name__, status, error.argument, error.message, error.hint
    return case.specs, case.row, case.empty, case.tiling


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_cached_and_uncached_checks_agree(name):
    declared, draw = load_operator(name), random.Random(7)
    profile = npu_sim.load_profile("atlas_a2")
    calls = [
        {
            axis.name: axis.default if draw.random() < 0.7 else drawn(axis, draw)
            for axis in declared.all_axes
        }
        for _ in range(150)
    ]
    first = [answer(check_uncached, declared, values, profile) for values in calls]
    for _ in range(2):
        assert [answer(check, declared, values, profile) for values in calls] == first
    runs, is_refused = {4}, {5} if name != "swi_glu" else set()  # which takes all sizes and dtypes
    assert {len(outcome) for outcome in first} == runs | is_refused


def test_a_checked_call_is_cached():
    declared = load_operator("rms_norm_grad")
    target, built = Target(npu_sim.load_profile()), arguments_of(declared, CALL)
    assert check(declared, built, target) is checked_call(declared, CALL, target)
