"""Functions with a simulated backward pass, against PyTorch's own gradients."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.torch.library import array_as_tensor, tensor_as_array  # noqa: E402

A2_BOTH_MODES = [("atlas_a2", False), ("atlas_a2", True), ("atlas_a3", False)]
RELATIVE = 2e-5
"""Tolerance of fp32 sums of some hundred terms in another order."""


def gradients(function, *inputs):
    """Return a function's value, and the gradients of a weighted sum of it."""
    copies = [
        value.detach().clone().requires_grad_(value.requires_grad)
        if torch.is_tensor(value)
        else value
        for value in inputs
    ]
    value = function(*copies)
    weights = (
        torch.cos(torch.arange(value.numel(), dtype=torch.float32))
        .reshape(value.shape)
        .to(value.dtype)
    )
    (value * weights).sum().backward()
    return value, [copy.grad for copy in copies if torch.is_tensor(copy) and copy.requires_grad]


def assert_same_gradients(ours, theirs, *inputs, relative=RELATIVE):
    value, grads = gradients(ours, *inputs)
    expected, expected_grads = gradients(theirs, *inputs)
    torch.testing.assert_close(value, expected, rtol=relative, atol=relative)
    assert grads
    for grad, right in zip(grads, expected_grads, strict=True):
        assert grad.dtype == right.dtype
        torch.testing.assert_close(
            grad, right, rtol=relative, atol=relative * float(right.abs().max())
        )


def normal(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


def integers(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high + len(shape)))


@pytest.fixture(params=A2_BOTH_MODES, ids=["a2", "a2 deterministic", "a3"])
def device(request):
    product, deterministic = request.param
    with simulated.use(product, deterministic=deterministic, core_order="reverse") as settings:
        yield settings


@pytest.mark.parametrize("dim", [12, 600])
@pytest.mark.parametrize(("padding_idx", "scale"), [(None, False), (3, False), (-2, True)])
def test_embedding(device, dim, padding_idx, scale):
    def theirs(indices, weight):
        return functional.embedding(
            indices, weight, padding_idx=padding_idx, scale_grad_by_freq=scale
        )

    assert_same_gradients(
        lambda indices, weight: simulated.embedding(
            indices, weight, padding_idx, scale_grad_by_freq=scale
        ),
        theirs,
        integers(20, 6, 50),
        normal(20, dim),
    )


def test_embedding_of_one_index_and_of_none():
    for indices in (torch.tensor(3), torch.zeros((0,), dtype=torch.int64)):
        assert_same_gradients(simulated.embedding, functional.embedding, indices, normal(5, 8))
    with pytest.raises(ValueError, match="padding_idx = 5"):
        simulated.embedding(torch.tensor([1]), normal(5, 8), 5)


@pytest.mark.parametrize(("taps", "pad"), [(1, 0), (3, 1), (4, 3), (20, 0)])
def test_conv_tbc(device, taps, pad):
    assert_same_gradients(
        lambda *inputs: simulated.conv_tbc(*inputs, pad),
        lambda *inputs: torch.conv_tbc(*inputs, pad),
        normal(20, 4, 10),
        normal(taps, 10, 12),
        normal(12),
    )


def test_conv_tbc_of_lower_precision_is_close():
    inputs = normal(20, 4, 10), normal(3, 10, 12), normal(12)
    _, exact = gradients(lambda *tensors: torch.conv_tbc(*tensors, 1), *inputs)
    _, rounded = gradients(
        lambda *tensors: simulated.conv_tbc(*tensors, 1, cube_math_type=1), *inputs
    )
    assert not torch.equal(exact[0], rounded[0])
    for grad, right in zip(rounded, exact, strict=True):
        torch.testing.assert_close(grad, right, rtol=2**-9, atol=2**-9 * float(right.abs().max()))


@pytest.mark.parametrize(
    ("shape", "gamma"),
    [((30, 128), (128,)), ((5, 6, 700), (700,)), ((7, 4, 5, 6), (5, 6)), ((40, 6100), (6100,))],
)
def test_rms_norm(device, shape, gamma):
    def theirs(x, weight):
        return functional.rms_norm(x, gamma, weight, eps=1e-5)

    assert_same_gradients(
        lambda x, weight: simulated.rms_norm(x, weight.shape, weight, 1e-5),
        theirs,
        normal(*shape),
        normal(*gamma),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(device, reduction, weighted):
    weight = normal(40).detach().abs() if weighted else None
    target = integers(40, 64)

    def ours(logits):
        return simulated.cross_entropy(logits, target, weight, ignore_index=7, reduction=reduction)

    def theirs(logits):
        return functional.cross_entropy(logits, target, weight, ignore_index=7, reduction=reduction)

    assert_same_gradients(ours, theirs, normal(64, 40))


def permuted_in_pytorch(tokens, indices, num_out_tokens=None):
    topk = indices.shape[1] if indices.dim() == 2 else 1
    order = torch.argsort(indices.reshape(-1), stable=True)[: num_out_tokens or None]
    return tokens[order // topk]


@pytest.mark.parametrize(
    ("shape", "dropped"), [((30, 2), None), ((30,), None), ((30, 4), 100), ((30, 3), -7)]
)
def test_moe_token_permute(device, shape, dropped):
    indices = integers(8, *shape)
    for tokens in (normal(30, 24), normal(30, 4, 6)):
        assert_same_gradients(
            lambda tokens: simulated.moe_token_permute(tokens, indices, dropped)[0],
            lambda tokens: permuted_in_pytorch(tokens, indices, dropped),
            tokens,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_moe_token_permute_has_the_bits_of_the_product_both_ways(device, dtype):
    tokens, indices = normal(50, 33, dtype=dtype), integers(8, 50, 4)
    permuted, places = simulated.moe_token_permute(tokens, indices, 170)
    first, second = npu_sim.run(
        "moe_token_permute",
        tokens=tensor_as_array(tokens),
        indices=indices.numpy(),
        num_out_tokens=170,
    ).outputs.values()
    assert torch.equal(permuted, array_as_tensor(first))
    assert torch.equal(places, array_as_tensor(second))
    grad = normal(170, 33, dtype=dtype).detach()
    permuted.backward(grad)
    exact = torch.zeros(200, 33, dtype=torch.float64)
    exact[:170] = grad.double()
    expected = (
        exact[places.long()].reshape(50, 4, 33).sum(1)
    )  # float64, by PyTorch's index operations
    torch.testing.assert_close(
        tokens.grad,
        expected.to(dtype),
        rtol=2e-6 if dtype == torch.float32 else 0,
        atol=1e-6 if dtype == torch.float32 else 0,
    )


def test_sorted_indices_are_the_rows_of_the_copies():
    tokens, indices = normal(9, 4), integers(5, 9, 3)
    permuted, places = simulated.moe_token_permute(tokens, indices)
    assert places.dtype == torch.int32
    assert not places.requires_grad
    for copy, place in enumerate(places.tolist()):
        assert torch.equal(permuted[place], tokens[copy // 3])
    experts = indices.reshape(-1)[torch.argsort(places)]
    assert torch.equal(experts, experts.sort().values)


def test_bf16_gradients_are_close_and_have_the_dtype_of_their_inputs():
    assert_same_gradients(
        lambda indices, weight: simulated.embedding(indices, weight).float(),
        lambda indices, weight: functional.embedding(indices, weight).float(),
        integers(20, 30),
        normal(20, 16, dtype=torch.bfloat16),
        relative=2.0**-6,
    )
    x, gamma = normal(30, 128, dtype=torch.bfloat16), normal(128, dtype=torch.bfloat16)
    simulated.rms_norm(x, gamma.shape, gamma).sum().backward()
    assert x.grad.dtype == gamma.grad.dtype == torch.bfloat16


def test_the_device_is_that_of_the_backward_call_or_else_of_the_forward_call():
    indices, weight = integers(2, 5000), normal(2, 12)

    def grad_of(forward, backward):
        leaf = weight.detach().clone().requires_grad_()
        with simulated.use(**forward):
            loss = (simulated.embedding(indices, leaf) * normal(5000, 12).detach()).sum()
        if backward is None:
            loss.backward()
        else:
            with simulated.use(**backward):
                loss.backward()
        return leaf.grad

    fixed, timed = {"deterministic": True}, {"core_order": "reverse"}
    assert not torch.equal(grad_of(fixed, fixed), grad_of(timed, timed))
    assert torch.equal(grad_of(fixed, None), grad_of(fixed, fixed))
    assert torch.equal(grad_of(timed, fixed), grad_of(fixed, fixed))


def test_an_unsupported_product_raises_in_the_backward_call():
    x, gamma = normal(4, 64), normal(64)
    with (
        simulated.use("atlas_train"),
        pytest.raises(npu_sim.AclnnError, match="not supported on Atlas"),
    ):
        simulated.rms_norm(x, gamma.shape, gamma).sum().backward()


def test_second_derivatives_raise():
    x, gamma = normal(4, 64), normal(64)
    (grad,) = torch.autograd.grad(
        simulated.rms_norm(x, gamma.shape, gamma).pow(2).sum(), x, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="rms_norm_grad has no gradient"):
        grad.sum().backward()


def test_second_derivatives_of_cross_entropy_are_refused():
    def loss(logits):
        return simulated.cross_entropy(logits, torch.tensor([1, 0]))

    with pytest.raises(NotImplementedError, match="cross_entropy_loss_grad has no gradient"):
        torch.autograd.functional.hessian(loss, normal(2, 3).detach())


class TwoLayers(torch.nn.Module):
    """Embedding, two layers of normalisation and temporal convolution, and a cross entropy."""

    def __init__(self, functions):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.functions = functions
        self.table = torch.nn.Parameter(torch.randn(50, 16, generator=generator))
        self.gammas = torch.nn.ParameterList([torch.ones(16) for _ in range(2)])
        self.weights = torch.nn.ParameterList(
            [torch.randn(3, 16, width, generator=generator) / 7 for width in (16, 50)]
        )
        self.biases = torch.nn.ParameterList([torch.zeros(width) for width in (16, 50)])

    def forward(self, tokens, targets):
        embedding, rms_norm, conv_tbc, cross_entropy = self.functions
        x = embedding(tokens, self.table)
        for gamma, weight, bias in zip(self.gammas, self.weights, self.biases, strict=True):
            x = torch.tanh(conv_tbc(rms_norm(x, gamma.shape, gamma, 1e-6), weight, bias))
        return cross_entropy(x.reshape(-1, 50), targets.reshape(-1))


PLAIN = (
    functional.embedding,
    functional.rms_norm,
    lambda x, weight, bias: torch.conv_tbc(x, weight, bias, 1),
    functional.cross_entropy,
)
SIMULATED = (
    simulated.embedding,
    simulated.rms_norm,
    lambda x, weight, bias: simulated.conv_tbc(x, weight, bias, 1),
    simulated.cross_entropy,
)


def losses(functions, steps=10):
    model = TwoLayers(functions)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    tokens, targets = integers(50, 12, 8), integers(50, 12, 8).flip(0)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


@pytest.mark.parametrize("deterministic", [False, True])
def test_ten_training_steps_follow_plain_pytorch(deterministic):
    expected = losses(PLAIN)
    with simulated.use("atlas_a2", deterministic=deterministic):
        measured = losses(SIMULATED)
    assert expected[-1] < 0.9 * expected[0], "the model learns"
    assert measured == pytest.approx(expected, rel=1e-5)
