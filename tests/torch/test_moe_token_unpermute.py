"""Permutation and weighted sum of experts' rows, against PyTorch in float64."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.studies import precision as verdicts  # noqa: E402
from npu_sim.torch.library import tensor_as_array  # noqa: E402

TOKENS, TOP_K, HIDDEN = 40, 4, 72
NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def drawn(dtype, probs_dtype):
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(TOKENS * TOP_K, HIDDEN, generator=generator).to(dtype)
    probs = torch.softmax(torch.randn(TOKENS, TOP_K, generator=generator), dim=1).to(probs_dtype)
    return rows, torch.randperm(TOKENS * TOP_K, generator=generator).to(torch.int32), probs


def in_pytorch(rows, indices, probs):
    """Gather, multiply and add up; an index beyond the rows reads zeros."""
    padded = torch.cat([rows, torch.zeros(1, rows.shape[1], dtype=rows.dtype)])
    gathered = padded[indices.long().clamp(max=len(rows))].reshape(*probs.shape, -1)
    return (gathered * probs.unsqueeze(-1)).sum(dim=1)


def permute_and_unpermute(kept):
    """Return a block that permutes tokens, keeps the first rows, and adds them up with weights."""

    def block(tokens, experts, probs):
        permuted, places = simulated.moe_token_permute(tokens, experts, kept)
        return simulated.moe_token_unpermute(permuted, places, probs)

    return block


def permute_and_unpermute_in_pytorch(kept):
    def block(tokens, experts, probs):
        order = torch.argsort(experts.reshape(-1), stable=True)
        rows = tokens[order[:kept] // experts.shape[1]]
        return in_pytorch(rows, torch.argsort(order), probs)

    return block


def both(function, rows, indices, probs):
    """Return the block's value, and the gradients of a weighted sum of it."""
    rows, probs = (tensor.detach().clone().requires_grad_() for tensor in (rows, probs))
    value = function(rows, indices, probs)
    weights = (
        torch.cos(torch.arange(value.numel(), dtype=torch.float32))
        .reshape(value.shape)
        .to(torch.bfloat16)
        .to(value.dtype)
    )
    (value * weights).sum().backward()
    return value.detach(), rows.grad, probs.grad


@pytest.mark.parametrize("dropped", [0, 30])
@pytest.mark.parametrize("probs_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", NAMES)
def test_the_block_agrees_with_float64(dtype, probs_dtype, dropped):
    rows, indices, probs = drawn(dtype, probs_dtype)
    rows = rows[: len(rows) - dropped]
    with simulated.use(
        "atlas_a2", release="9.0"
    ):  # later ones refuse the gradients of dropped tokens
        ours = both(simulated.moe_token_unpermute, rows, indices, probs)
    theirs = both(in_pytorch, rows.double(), indices, probs.double())
    assert_passes(ours, theirs)


@pytest.mark.parametrize("kept", [TOKENS * TOP_K, 130])
@pytest.mark.parametrize("dtype", NAMES)
def test_permute_and_unpermute_agrees_with_float64(dtype, kept):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype)
    experts = torch.rand(TOKENS, 16, generator=generator).argsort(dim=1)[:, :TOP_K].to(torch.int32)
    probs = drawn(dtype, dtype)[2]
    with simulated.use("atlas_a2", release="9.0"):
        ours = both(permute_and_unpermute(kept), tokens, experts, probs)
    assert_passes(
        ours, both(permute_and_unpermute_in_pytorch(kept), tokens.double(), experts, probs.double())
    )


@pytest.mark.filterwarnings("ignore:Input #")  # gradcheck prefers float64, which no product takes
@pytest.mark.parametrize("kept", [18, 13])
def test_gradients_are_those_of_differences(kept):
    """The block is bilinear: differences over large steps are exact except for rounding."""
    tokens = torch.randn(6, 5, generator=torch.Generator().manual_seed(8), requires_grad=True)
    experts = (
        torch.rand(6, 4, generator=torch.Generator().manual_seed(9))
        .argsort(dim=1)[:, :3]
        .to(torch.int32)
    )
    probs = torch.rand(6, 3, generator=torch.Generator().manual_seed(10), requires_grad=True)
    with simulated.use("atlas_a2", release="9.0"):
        block = permute_and_unpermute(kept)
        assert torch.autograd.gradcheck(
            lambda tokens, probs: block(tokens, experts, probs),
            (tokens, probs),
            eps=0.5,
            atol=1e-5,
            rtol=1e-5,
        )


def assert_passes(ours, theirs):
    """Check results with the verdicts of the precision page against float64."""
    for result, golden in zip(ours, theirs, strict=True):
        actual, dtype = tensor_as_array(result), NAMES[result.dtype]
        assert verdicts.mixed_tolerance(actual, golden.numpy(), dtype).passed
        assert verdicts.single_benchmark(actual, golden.numpy(), dtype).passed


def test_forward_and_backward_are_the_operators():
    rows, indices, probs = drawn(torch.bfloat16, torch.float32)
    value, rows_grad, probs_grad = both(simulated.moe_token_unpermute, rows, indices, probs)
    assert torch.equal(
        value, simulated.npu_moe_token_unpermute(rows, indices, probs, restore_shape=[1, 2])
    )
    weights = (
        torch.cos(torch.arange(value.numel(), dtype=torch.float32))
        .reshape(value.shape)
        .to(torch.bfloat16)
    )
    again = simulated.moe_token_unpermute_grad(rows, weights, indices, probs)
    assert torch.equal(rows_grad, again[0])
    assert torch.equal(probs_grad, again[1])
    assert (rows_grad.dtype, probs_grad.dtype) == (torch.bfloat16, torch.float32)


def test_without_probs_rows_are_put_in_order_and_back():
    rows, indices, _ = drawn(torch.float16, torch.float32)
    rows.requires_grad_()
    tokens = simulated.moe_token_unpermute(rows, indices)
    assert torch.equal(tokens, rows[indices.long()])
    tokens.backward(torch.arange(float(tokens.numel())).reshape(tokens.shape).half())
    assert torch.equal(
        rows.grad[indices.long()], torch.arange(float(tokens.numel())).reshape(tokens.shape).half()
    )
    gradient, nothing = simulated.moe_token_unpermute_grad(None, tokens.detach(), indices)
    assert nothing is None
    assert gradient.shape == rows.shape


def test_permute_and_unpermute_is_the_identity_times_the_weights():
    tokens = torch.randn(12, 16, generator=torch.Generator().manual_seed(2), requires_grad=True)
    experts = torch.randint(0, 5, (12, 3), generator=torch.Generator().manual_seed(3))
    permuted, places = simulated.moe_token_permute(tokens, experts)
    weights = torch.tensor([0.25, 0.25, 0.5]).repeat(12, 1)
    back = simulated.moe_token_unpermute(permuted, places, weights)
    assert torch.allclose(back, tokens, rtol=1e-6)
    back.sum().backward()
    assert torch.allclose(tokens.grad, torch.ones(12, 16))


def test_gradients_of_dropped_tokens_are_an_error_at_9_1():
    rows, indices, probs = drawn(torch.float32, torch.float32)
    with pytest.raises(npu_sim.AclnnError, match="159 rows"):
        both(simulated.moe_token_unpermute, rows[:-1], indices, probs)
