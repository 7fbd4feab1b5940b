"""Scripts that call torch_npu by themselves, as adapters do: the stand-in computes."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

import npu_sim.torch as simulated  # noqa: E402
from tests.torch.test_emulation import COLUMNS, FusedNorm, Norm  # noqa: E402


def attribute(norm, x):
    """Call a function of the module."""
    import torch_npu

    return torch_npu.npu_rms_norm(x, norm.weight, epsilon=1e-6)[0]


def transferred(norm, x):
    """Name the GPU, as scripts do that begin with transfer_to_npu."""
    import torch_npu
    from torch_npu.contrib import transfer_to_npu  # noqa: F401

    on_device = x.cuda().to("npu:0", non_blocking=True)
    return torch_npu.npu_rms_norm(on_device, norm.weight.npu(), epsilon=1e-6)[0]


def replaced_forward(norm, x):
    """Replace the forward method of a class, as verl and ms-swift do."""
    forward = type(norm).forward
    type(norm).forward = attribute
    try:
        return norm(x)
    finally:
        type(norm).forward = forward


def registered(norm, x):
    """Call the registered operator."""
    return torch.ops.npu.npu_rms_norm(x, norm.weight, 1e-6)[0]


@pytest.mark.parametrize("adapter", [attribute, transferred, replaced_forward, registered])
@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_an_adapter_computes_with_the_arithmetic_of_the_product(adapter, product):
    torch.manual_seed(0)
    norm, x = Norm().bfloat16(), torch.randn(4, COLUMNS).bfloat16()
    with simulated.emulate(product) as report:
        y = adapter(norm, x)
        y.sum().backward()
    by_hand = FusedNorm().bfloat16()
    by_hand.weight.data = norm.weight.data
    with simulated.use(product):
        expected = by_hand(x)
        expected.sum().backward()
    assert torch.equal(y, expected)
    assert torch.equal(norm.weight.grad, by_hand.weight.grad)
    assert report.counts() == {"rms_norm": 1, "rms_norm_grad": 1}


def test_every_modelled_function_of_torch_npu_computes():
    x = torch.randn(2, 8, 64, requires_grad=True)
    with simulated.emulate("atlas_a2") as report:
        import torch_npu

        rows = torch_npu.npu_swiglu(torch.cat((x, x), -1))
        rows = torch_npu.npu_rotary_mul(
            rows[:, :, None], torch.ones(1, 8, 1, 64), torch.zeros(1, 8, 1, 64)
        )
        rows, _, _ = torch_npu.npu_add_rms_norm(rows[:, :, 0], x, torch.ones(64))
        experts = torch.randint(4, (16, 2))
        permuted, places = torch_npu.npu_moe_token_permute(rows.reshape(16, 64), experts)
        rows = torch_npu.npu_moe_token_unpermute(permuted, places, torch.rand(16, 2))
        torch_npu.npu_cross_entropy_loss(rows, torch.randint(64, (16,)))[0].sum().backward()
        torch_npu.npu_fusion_attention(*[x.detach()] * 3, 4, "BSH")
    forward = ("swi_glu", "rotary_position_embedding", "moe_token_permute", "moe_token_unpermute")
    expected = {name for one in forward for name in (one, f"{one}_grad")}
    expected |= {"add_rms_norm", "rms_norm_grad", "cross_entropy_loss", "cross_entropy_loss_grad"}
    assert set(report.counts()) == expected
    assert report.recording.not_modelled["torch_npu.npu_fusion_attention"] == 1
    assert not report.left
