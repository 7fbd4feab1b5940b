"""AdamW in PyTorch: the function, recorded steps of optimizers, and models with an optimizer."""

from typing import NamedTuple

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

import npu_sim.torch  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.torch.models import Step, _recorded  # noqa: E402

LISTS = ("params", "grads", "exp_avgs", "exp_avg_sqs")
ARGUMENTS = ("var", "m", "v", "max_grad_norm")


def calls(recording):
    return [(line["op"], line["inputs"]) for line in recording]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_function_updates_as_the_optimizer_nearly(dtype, amsgrad):
    torch.manual_seed(0)
    own, theirs = (torch.nn.Parameter(torch.zeros(40, 30, dtype=dtype)) for _ in range(2))
    with torch.no_grad():
        own.copy_(torch.randn(40, 30))
        theirs.copy_(own)
    m, v, norm = (torch.zeros_like(own.detach()) for _ in range(3))
    optimizer = torch.optim.AdamW([theirs], lr=1e-2, amsgrad=amsgrad)
    for step in range(1, 4):
        grad = torch.randn(40, 30).to(dtype)
        theirs.grad = grad.clone()
        optimizer.step()
        npu_sim.torch.fused_adamw_(
            [own],
            [grad],
            [m],
            [v],
            [norm] if amsgrad else [],
            [torch.tensor(float(step))],
            lr=1e-2,
            amsgrad=amsgrad,
        )
    tolerance = 1e-5 if dtype is torch.float32 else 0.05
    assert torch.allclose(own, theirs, rtol=tolerance, atol=tolerance)
    assert torch.allclose(m, optimizer.state[theirs]["exp_avg"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "tensors", "message"),
    [
        ("grads", [torch.ones(3)], "grads has 1 tensors, params has 2"),
        ("state_steps", [torch.ones(1)] * 3, "state_steps has 3 tensors, params has 2"),
        ("state_steps", [torch.ones(1), torch.ones(2)], "a tensor of 2 elements"),
        ("exp_avgs", [torch.ones(3), torch.ones(4)], "m is 4:fp32"),
        ("exp_avg_sqs", [torch.ones(3), torch.ones(1).expand(3)], "share memory"),
        ("grads", [torch.ones(3), torch.ones(3, device="meta")], "dense CPU tensors"),
    ],
)
def test_nothing_is_updated_when_one_parameter_cannot_be(name, tensors, message):
    lists = {
        **{name: [torch.ones(3), torch.ones(3)] for name in LISTS},
        "max_exp_avg_sqs": [],
        "state_steps": [torch.ones(1), torch.ones(1)],
    }
    lists[name] = tensors
    with pytest.raises((npu_sim.NpuSimError, TypeError), match=message):
        npu_sim.torch.fused_adamw_(**lists)
    assert all(torch.equal(tensor, torch.ones(3)) for tensor in lists["params"])


@pytest.mark.parametrize("amsgrad", [False, True])
def test_a_fused_step_is_recorded_as_a_call_for_each_parameter(amsgrad):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, amsgrad=amsgrad)
    model(torch.randn(2, 4)).sum().backward()
    with npu_sim.torch.record() as recording:
        optimizer.step()
    found = calls(recording)
    assert [operator for operator, _ in found] == ["apply_adam_w_v2"] * 2
    assert [inputs["var"] for _, inputs in found] == ["12:fp32", "3:fp32"]
    assert found[0][1]["step"] == "1:fp32"
    assert ("max_grad_norm" in found[0][1]) is amsgrad
    assert "aten::_fused_adamw_" not in recording.not_covered()["not_modelled"]
    operator, inputs = found[0]
    assert npu_sim.plan(operator, **inputs).launches


@pytest.mark.parametrize("kind", [torch.optim.AdamW, simulated.AdamW])
@pytest.mark.parametrize("block", [simulated.record, simulated.emulate])
def test_a_step_of_either_optimizer_is_a_call_for_each_parameter_with_and_without_axes(kind, block):
    scale, weight = (torch.nn.Parameter(value) for value in (torch.tensor(2.0), torch.ones(4)))
    options = {"fused": True} if kind is torch.optim.AdamW else {}
    optimizer = kind([scale, weight], lr=0.1, **options)
    (scale * weight).sum().backward()
    with block() as report:
        optimizer.step()
    found = calls(getattr(report, "recording", report))
    assert [inputs["var"] for _, inputs in found] == ["1:fp32", "4:fp32"]
    assert scale.item() == pytest.approx(1.898, abs=1e-4)
    assert not getattr(report, "left", None)


@pytest.mark.parametrize(
    "numbers", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1.0}, {"weight_decay": -1.0}]
)
def test_the_optimizer_refuses_the_numbers_that_pytorchs_refuses(numbers):
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="Invalid"):
        torch.optim.AdamW([parameter], **numbers)
    with pytest.raises(ValueError, match="Invalid"):
        simulated.AdamW([parameter], **numbers)


def test_a_learning_rate_that_is_a_tensor_has_no_call():
    parameter = torch.nn.Parameter(torch.randn(8))
    parameter.grad = torch.randn(8)
    with npu_sim.torch.record() as recording:
        torch.optim.AdamW([parameter], lr=torch.tensor(0.1), fused=True).step()
    assert len(recording) == 0
    (entry,) = recording.not_covered()["not_recognised"]
    assert "lr is a tensor" in entry["why"]


def test_an_unfused_step_is_a_remark():
    parameter = torch.nn.Parameter(torch.randn(8))
    parameter.grad = torch.randn(8)
    with npu_sim.torch.record() as recording:
        torch.optim.AdamW([parameter]).step()
        torch.optim.SGD([parameter], lr=0.1).step()
    assert len(recording) == 0
    (remark,) = recording.not_covered()["remarks"]
    assert "fused=True" in remark["why"]


class Output(NamedTuple):
    loss: torch.Tensor


class Small(torch.nn.Module):
    """A model as transformers makes them, in as far as its loss is read."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 1, bias=False, dtype=torch.float32)

    def forward(self, input_ids, labels, attention_mask):
        hidden = input_ids.unsqueeze(-1).expand(-1, -1, 4).float()
        return Output(self.last(self.layer(hidden)).sum())


@pytest.mark.parametrize("optimizer", [None, "adamw"])
def test_a_model_with_an_optimizer_updates_every_parameter(optimizer):
    model = Small().to("meta")
    recording = _recorded(model, Step(1, 16, optimizer=optimizer), {model.layer: 3})
    assert recording.count("apply_adam_w_v2") == (7 if optimizer else 0)
    elements = [line["inputs"]["var"] for line in recording if line["op"] == "apply_adam_w_v2"]
    assert sorted(elements) == (["16:fp32", "4:fp32"] if optimizer else [])
    names = [line["name"] for line in recording if line["op"] == "apply_adam_w_v2"]
    assert names == (["layer.weight", "layer.bias (+1)"] if optimizer else [])


def test_another_optimizer_is_an_error():
    with pytest.raises(npu_sim.UsageError, match="optimizer"):
        npu_sim.model("llama", optimizer="sgd")


def trained(kind, steps, state=None, **options):
    """Return parameters after some steps, and the optimizer."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3))]
    unused = torch.nn.Parameter(torch.randn(2))
    optimizer = kind([*weights, unused], lr=0.01, **options)
    if state is not None:
        optimizer.load_state_dict(state)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(weight.square().sum() for weight in weights).backward()
        optimizer.step()
    return [*weights, unused], optimizer


OPTIONS = [{}, {"amsgrad": True}, {"maximize": True, "weight_decay": 0.1, "betas": (0.8, 0.9)}]


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_optimizer_has_the_bits_of_fused_updates(options, product):
    def fused(*arguments, **named):
        return torch.optim.AdamW(*arguments, **named, fused=True)

    with simulated.emulate(product):
        expected, pytorch = trained(fused, 3, **options)
    with simulated.use(product):
        found, own = trained(simulated.AdamW, 3, **options)
        again, _ = trained(simulated.AdamW, 2, pytorch.state_dict(), **options)
        once_more, _ = trained(simulated.AdamW, 2, own.state_dict(), **options)
    assert all(map(torch.equal, found, expected))
    assert all(map(torch.equal, again, once_more))
    assert own.state_dict()["state"].keys() == pytorch.state_dict()["state"].keys()


def test_a_closure_of_the_optimizer_is_evaluated_with_gradients():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = simulated.AdamW([weight], lr=0.5)

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    with simulated.use("atlas_a2"):
        assert optimizer.step(closure) == 4
    assert (weight < 1).all()


def test_a_refused_update_changes_neither_parameters_nor_steps():
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    weight.sum().backward()
    optimizer = simulated.AdamW([weight])
    with simulated.use("atlas_a2"), pytest.raises(npu_sim.NpuSimError):
        optimizer.step()
    assert (weight == 1).all()
    assert optimizer.state[weight]["step"] == 0
