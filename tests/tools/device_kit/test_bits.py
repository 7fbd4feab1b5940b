"""Verdicts of a kit on measured outputs: what is inferred is decided by the device."""

import pytest

from npu_sim.cores import load_profile
from npu_sim.operators.shared.study import study_call
from npu_sim.tools.device_kit.bits import judged_bits
from npu_sim.tools.device_kit.results import Line

GRADIENT = {"dy": "6x300:fp32", "x": "6x300:fp32", "gamma": "300:fp32", "rstd": "6:fp32"}
LINE = Line.model_construct(operator="rms_norm_grad", attributes={})


@pytest.mark.parametrize(
    ("product", "release"), [("ascend_950", "9.1.1"), ("ascend_950", "9.2"), ("ascend_350", "9.2")]
)
def test_a_device_contradicts_what_is_inferred(product, release):
    profile = load_profile(product, release=release)
    call = study_call("rms_norm_grad", {**GRADIENT, "product": profile})
    outputs = call.run().outputs
    same = judged_bits(LINE, profile, False, {**call.tensors, **outputs})
    assert (same.verdict, same.findings) == ("equal", ())
    outputs["dx"][0, 0] += 1
    found = judged_bits(LINE, profile, False, {**call.tensors, **outputs})
    assert (found.verdict, found.impossible) == ("unreachable", {"dx": 1})
    assert found.findings == ("dx: 1 of 1800 elements are impossible",)
