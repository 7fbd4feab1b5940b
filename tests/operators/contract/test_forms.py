"""What passed once is not asked again for every size: no refusal depends on what was planned before."""

import pytest

import npu_sim
from npu_sim.registry import load_operator
from npu_sim.status import AclnnError

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
    load_operator("rms_norm_grad")._passed_forms.clear()
    first = refusal(changed)
    npu_sim.plan("rms_norm_grad", **CALL)
    assert refusal(changed) == first
