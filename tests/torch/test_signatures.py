"""Functions under PyTorch's names: its parameters and defaults, in its place, with clear errors."""

import inspect

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim.torch as simulated  # noqa: E402
from npu_sim.status import NpuSimError  # noqa: E402


@pytest.mark.parametrize("name", ["embedding", "rms_norm", "cross_entropy"])
def test_parameters_and_defaults_are_those_of_pytorch(name):
    theirs, own = (
        [(p.name, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (getattr(functional, name), getattr(simulated, name))
    )
    assert own == theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_default_epsilon_of_rms_norm_is_that_of_pytorch(dtype):
    x, gamma = (torch.randn(8, 64) * 1e-3).to(dtype), torch.ones(64, dtype=dtype)
    own, theirs = (
        function(x, (64,), gamma) for function in (simulated.rms_norm, functional.rms_norm)
    )
    torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_pytorch(reduction, smoothing):
    """Bit by bit, but for the sum of a smoothed row, whose order PyTorch does not fix."""
    logits, target, weight = torch.randn(300, 50) * 9, torch.arange(300) % 50, torch.rand(50)
    target[::7] = -100
    options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    own = simulated.cross_entropy(logits, target, **options)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if smoothing else {"rtol": 0.0, "atol": 0.0}
    expected = functional.cross_entropy(logits, target, **options)
    torch.testing.assert_close(own, expected, **tolerance)


@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_deprecated_reductions_are_those_of_pytorch():
    logits, target = torch.randn(3, 5), torch.tensor([0, 1, 2])
    for options in ({"size_average": False}, {"reduce": False}, {"size_average": True}):
        expected = functional.cross_entropy(logits, target, **options)
        assert torch.equal(simulated.cross_entropy(logits, target, **options), expected)


X, GAMMA, LABELS = torch.ones(2, 8), torch.ones(8), torch.zeros(2, dtype=torch.int64)
REFUSED = {
    "the weight in place of the shape": (lambda: simulated.rms_norm(X, GAMMA), "as in PyTorch"),
    "no weight": (lambda: simulated.rms_norm(X, (8,)), "weight = None"),
    "another shape": (lambda: simulated.rms_norm(X, (4,), GAMMA), "weight has shape"),
    "max_norm": (lambda: simulated.embedding(LABELS, X, max_norm=1.0), "max_norm"),
    "sparse": (lambda: simulated.embedding(LABELS, X, sparse=True), "sparse"),
    "smoothed gradient": (
        lambda: simulated.cross_entropy(X.clone().requires_grad_(), LABELS, label_smoothing=0.1),
        "label_smoothing = 0.1",
    ),
    "probabilities": (lambda: simulated.cross_entropy(X, X), "target is torch.float32"),
    "reduction": (lambda: simulated.cross_entropy(X, LABELS, reduction="avg"), "none, mean, sum"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_the_product_lacks_is_named(call):
    function, message = REFUSED[call]
    with pytest.raises(NpuSimError, match=message):
        function()


def test_functions_may_stand_in_for_those_of_pytorch(monkeypatch):
    for module, name in (
        (functional, "embedding"),
        (torch, "embedding"),
        (functional, "cross_entropy"),
        (functional, "rms_norm"),
        (torch, "conv_tbc"),
    ):
        monkeypatch.setattr(module, name, getattr(simulated, name))
    model = torch.nn.Sequential(torch.nn.Embedding(9, 16), torch.nn.RMSNorm(16))
    loss = functional.cross_entropy(model(torch.arange(5)), torch.arange(5))
    loss.backward()
    assert model[0].weight.grad.any()
    assert torch.conv_tbc(torch.ones(4, 1, 2), torch.ones(3, 2, 2), torch.ones(2)).shape == (
        2,
        1,
        2,
    )
