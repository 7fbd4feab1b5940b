"""Code that computes silu(a) * b by itself is recorded as SwiGlu."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim.torch  # noqa: E402


@pytest.mark.parametrize("halves", ["two tensors", "chunks", "in place"])
def test_silu_times_a_tensor_is_recorded_as_the_fused_call(halves):
    x = torch.randn(3, 2, 16, requires_grad=True)
    a, b = x.chunk(2, -1)
    if halves == "two tensors":
        a, b = a.contiguous(), b.contiguous()
    with npu_sim.torch.record() as recording:
        gate = functional.silu(a.clone() if halves == "in place" else a, halves == "in place")
        (gate * b).sum().backward()
    found = [(line["op"], line["inputs"]) for line in recording]
    assert found == [
        ("swi_glu", {"x": "3x2x16:fp32"}),
        ("swi_glu_grad", {"y_grad": "3x2x8:fp32", "x": "3x2x16:fp32"}),
    ]
    left = recording.not_covered()
    assert not {"aten::silu", "aten::silu_", "aten::mul"} & left["not_modelled"].keys()
    if halves != "in place":
        assert "aten::silu_backward" not in left["not_modelled"]
    assert "npu_swiglu" in left["remarks"][0]["why"]


@pytest.mark.parametrize(
    "other",
    [2.0, torch.ones(8), torch.ones(3, 2, 8, dtype=torch.float64)],
    ids=["a number", "another shape", "another dtype"],
)
def test_silu_times_something_else_is_no_call(other):
    with npu_sim.torch.record() as recording:
        functional.silu(torch.randn(3, 2, 8)) * other
    assert len(recording) == 0
