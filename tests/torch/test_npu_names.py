"""Functions with names of torch_npu: signatures, forward values, and unsupported arguments."""

import inspect

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim  # noqa: E402
from npu_sim.torch import (  # noqa: E402
    npu_cross_entropy_loss,
    npu_moe_token_permute,
    npu_moe_token_permute_grad_v2,
    npu_moe_token_unpermute,
    npu_rms_norm,
    npu_rotary_mul,
    npu_swiglu,
)
from npu_sim.torch.library import array_as_tensor, tensor_as_array  # noqa: E402

SIGNATURES = {
    npu_rms_norm: "self gamma epsilon=1e-06",
    npu_swiglu: "self dim=-1",
    npu_rotary_mul: "input r1 r2 rotary_mode=half rotate=None",
    npu_moe_token_permute: "tokens indices num_out_tokens=None padded_mode=False",
    npu_moe_token_permute_grad_v2: (
        "grad_permuted_tokens sorted_indices tokens_size_0 tokens_dtype num_topK padded_mode=False"
    ),
    npu_moe_token_unpermute: (
        "permuted_tokens sorted_indices probs=None padded_mode=False restore_shape=None"
    ),
    npu_cross_entropy_loss: (
        "input target weight=None reduction=mean ignore_index=-100 label_smoothing=0.0 "
        "lse_square_scale_for_zloss=0.0 return_zloss=False"
    ),
}


@pytest.mark.parametrize("function", SIGNATURES)
def test_signatures(function):
    parameters = inspect.signature(function).parameters.values()
    shown = [
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default}"
        for parameter in parameters
    ]
    assert shown == SIGNATURES[function].split()


def test_the_gradient_of_the_permutation_is_that_of_its_backward():
    tokens = torch.randn(10, 8, requires_grad=True)
    permuted, places = npu_moe_token_permute(tokens, torch.randint(0, 4, (10, 3)))
    grad = torch.randn(permuted.shape)
    permuted.backward(grad)
    own = npu_moe_token_permute_grad_v2(grad, places, 10, torch.float32, 3)
    assert torch.equal(own, tokens.grad)
    for changed, argument in (
        ((9, torch.float32, 3), "tokens_size_0"),
        ((10, torch.bfloat16, 3), "tokens_dtype"),
        ((10, torch.float32, 0), "num_topk"),
    ):
        with pytest.raises(npu_sim.AclnnError) as refused:
            npu_moe_token_permute_grad_v2(grad, places, *changed)
        assert refused.value.argument == argument


@pytest.mark.parametrize(
    ("shape", "gamma", "rstd_shape"),
    [((4, 1, 96), (96,), (4, 1, 1)), ((96,), (96,), (1,)), ((3, 8, 12), (8, 12), (3, 1, 1))],
)
def test_rms_norm_returns_y_and_rstd(shape, gamma, rstd_shape):
    x, scale = torch.randn(shape), torch.randn(gamma)
    y, rstd = npu_rms_norm(x, scale, epsilon=1e-5)
    torch.testing.assert_close(y, functional.rms_norm(x, gamma, scale, eps=1e-5))
    axes = tuple(range(-len(gamma), 0))
    torch.testing.assert_close(
        rstd, 1 / torch.sqrt(x.double().pow(2).mean(axes, keepdim=True) + 1e-5).float()
    )
    assert (rstd.shape, rstd.dtype) == (rstd_shape, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rms_norm_has_the_bits_of_the_product(dtype):
    x, gamma = torch.randn(30, 300, dtype=dtype), torch.randn(300, dtype=dtype)
    arrays = npu_sim.run("rms_norm", x=tensor_as_array(x), gamma=tensor_as_array(gamma)).outputs
    for tensor, right in zip(npu_rms_norm(x, gamma), arrays.values(), strict=True):
        assert torch.equal(tensor, array_as_tensor(right))


def test_rms_norm_of_bf16_is_rounded_once():
    x, gamma = torch.randn(4, 96).bfloat16(), torch.randn(96).bfloat16()
    y, rstd = npu_rms_norm(x, gamma)
    assert torch.equal(y, (x.float() * rstd * gamma.float()).bfloat16())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_returns_loss_and_log_probabilities(reduction, smoothing):
    logits, target, weight = torch.randn(10, 6), torch.randint(0, 6, (10,)), torch.rand(6)
    loss, log_prob, zloss, lse = npu_cross_entropy_loss(
        logits, target, weight, reduction, 3, label_smoothing=smoothing
    )
    expected = functional.cross_entropy(
        logits, target, weight, ignore_index=3, reduction=reduction, label_smoothing=smoothing
    )
    assert loss.shape == ((10,) if reduction == "none" else (1,))
    torch.testing.assert_close(loss.reshape(expected.shape), expected)
    torch.testing.assert_close(log_prob, functional.log_softmax(logits, 1))
    assert zloss.numel() == lse.numel() == 0
    assert not log_prob.requires_grad


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_flow_through_every_name(reduction):
    logits = torch.randn(10, 6, requires_grad=True)
    npu_cross_entropy_loss(logits, torch.randint(0, 6, (10,)), reduction=reduction)[
        0
    ].sum().backward()
    torch.testing.assert_close(logits.grad.sum(1), torch.zeros(10), atol=1e-6, rtol=0)
    tokens = torch.randn(10, 6, requires_grad=True)
    npu_moe_token_permute(tokens, torch.randint(0, 4, (10, 3)))[0].sum().backward()
    assert torch.equal(tokens.grad, torch.full((10, 6), 3.0))
    x = torch.randn(10, 64, requires_grad=True)
    npu_rms_norm(x, torch.ones(64))[0].sum().backward()
    assert x.grad.shape == (10, 64)


def test_moe_token_permute_example():
    # tokens of experts 1, 0, 1: expert 0 first, then those of expert 1 in their order
    tokens = torch.tensor([[1.0], [7.0], [2.0]])
    permuted, sorted_indices = npu_moe_token_permute(tokens, torch.tensor([[1, 0], [0, 1], [1, 0]]))
    assert permuted.reshape(-1).tolist() == [1, 7, 2, 1, 7, 2]
    assert sorted_indices.tolist() == [3, 0, 1, 4, 5, 2]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda x: npu_moe_token_permute(x, torch.zeros(4, 2)), "indices"),
        (
            lambda x: npu_cross_entropy_loss(
                x, torch.zeros(4, dtype=torch.int64), lse_square_scale_for_zloss=0.5
            ),
            "lse_square_scale_for_zloss",
        ),
        (
            lambda x: npu_cross_entropy_loss(
                x, torch.zeros(4, dtype=torch.int64), return_zloss=True
            ),
            "return_zloss",
        ),
        (
            lambda x: npu_cross_entropy_loss(
                x, torch.zeros(4, dtype=torch.int64), label_smoothing=0.1
            ),
            "label_smoothing",
        ),
    ],
)
def test_unsupported_arguments_are_errors(call, argument):
    with pytest.raises(npu_sim.AclnnError) as raised:
        call(torch.randn(4, 6, requires_grad=True))
    assert (raised.value.status, raised.value.argument) == (161002, argument)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (
            lambda x: npu_moe_token_permute(
                x, torch.zeros(4, 2, dtype=torch.int64), padded_mode=True
            ),
            "padded_mode",
        ),
        (lambda x: npu_moe_token_permute(x, torch.zeros(5, 2, dtype=torch.int64)), "indices"),
        (lambda x: npu_moe_token_permute(x[0], torch.zeros(4, 2, dtype=torch.int64)), "tokens"),
    ],
)
def test_the_forward_has_the_statuses_of_the_product(call, argument):
    with pytest.raises(npu_sim.AclnnError) as raised:
        call(torch.randn(4, 6, requires_grad=True))
    assert (raised.value.status, raised.value.argument) == (561002, argument)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_swiglu_and_its_gradient(dim):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    result = npu_swiglu(x, dim)
    (ours,) = torch.autograd.grad(result.square().sum(), x)
    a, b = x.chunk(2, dim)
    expected = functional.silu(a) * b
    (theirs,) = torch.autograd.grad(expected.square().sum(), x)
    assert torch.allclose(result, expected)
    assert torch.allclose(ours, theirs)


def test_a_function_of_an_operator_leaves_its_gradient():
    x = torch.randn(4, 8, requires_grad=True)
    assert npu_sim.torch.swi_glu(x.detach()).shape == (4, 4)
    npu_sim.torch.npu_swiglu(x).sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("needed", [0, 1, 2])
def test_rotary_mul_and_its_gradients(mode, needed):
    """Cosines and sines are cast to the dtype of x, and have gradients where they are needed."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, 8, generator=random, requires_grad=True)
    turns = torch.randn(2, 1, 5, 1, 8, generator=random, dtype=torch.float64)
    cos, sin = (one.requires_grad_(needed > number) for number, one in enumerate(turns.unbind()))
    asked = (x, cos, sin)[: needed + 1]
    result = npu_rotary_mul(x, cos, sin, mode)
    ours = torch.autograd.grad(result.square().sum(), asked)
    if mode == "half":
        low, high = x.chunk(2, -1)
        turned = torch.cat((-high, low), -1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    expected = x * cos + turned * sin
    theirs = torch.autograd.grad(expected.square().sum(), asked)
    assert torch.allclose(result.double(), expected, atol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one.double(), other.double(), atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "argument"),
    [({"rotary_mode": "quarter"}, "rotary_mode"), ({"rotate": torch.eye(8)}, "rotate")],
)
def test_what_rotary_mul_does_not_take(changed, argument):
    x = torch.randn(1, 2, 3, 8)
    with pytest.raises(npu_sim.UsageError) as raised:
        npu_rotary_mul(x, x, x, **changed)
    assert raised.value.argument == argument
