"""npu_add_rms_norm: results, gradients, and how its calls are recorded."""

import pytest

torch = pytest.importorskip("torch")

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from tests.torch.test_transforms import normal  # noqa: E402


def test_results_are_those_of_the_operator():
    x1, x2, gamma = normal(50, 300), normal(50, 300), normal(300)
    found = simulated.npu_add_rms_norm(x1, x2, gamma)
    expected = npu_sim.add_rms_norm(*(tensor.numpy() for tensor in (x1, x2, gamma)))
    for tensor, array in zip(found, expected, strict=True):
        assert torch.equal(tensor, torch.from_numpy(array))


def test_gradients_are_those_of_rms_norm_grad_and_of_the_sum():
    x1, x2, gamma = (one.requires_grad_() for one in (normal(5, 64), normal(5, 64), normal(64)))
    y, rstd, x = simulated.npu_add_rms_norm(x1, x2, gamma)
    assert not rstd.requires_grad
    dy, dx = normal(5, 64) + 1, normal(5, 64)
    found = torch.autograd.grad((y, x), (x1, x2, gamma), (dy, dx))
    of_norm, dgamma = simulated.rms_norm_grad(dy, x.detach(), rstd, gamma.detach())
    for gradient, wanted in zip(found, (of_norm + dx, of_norm + dx, dgamma), strict=True):
        assert torch.equal(gradient, wanted)


def test_calls_are_recorded(tmp_path):
    from npu_sim.torch import record

    with record(tmp_path / "calls.jsonl") as recording:
        import torch_npu

        tensors = (one.requires_grad_() for one in (normal(5, 64), normal(5, 64), normal(64)))
        y, _, x = torch_npu.npu_add_rms_norm(*tensors)
        (y + x).sum().backward()
    text = (tmp_path / "calls.jsonl").read_text()
    assert '"op": "add_rms_norm"' in text
    assert '"op": "rms_norm_grad"' in text
    assert "torch_npu.npu_add_rms_norm" not in recording.not_modelled


@pytest.mark.parametrize("adds", [True, False])
def test_an_addition_before_a_norm_is_remarked_in_training(adds):
    weight = torch.nn.Parameter(torch.ones(64))
    x, residual = torch.randn(4, 64, requires_grad=True), torch.randn(4, 64)
    with npu_sim.torch.record() as recording:
        total = x + residual if adds else x
        scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
        (weight * (total * scale)).sum().backward()
    assert {line["op"] for line in recording} == {"rms_norm", "rms_norm_grad"}
    found = [why for operator, why, _ in recording.remarks if operator == "rms_norm"]
    assert any("npu_add_rms_norm" in why for why in found) == adds
