"""The frameworks' own formulas are found by ``verify``."""

import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import numpy_dtype

torch = pytest.importorskip("torch", reason="frameworks are those of PyTorch")


def stored(tensor):
    """A tensor of PyTorch as an array of NumPy."""
    wide = tensor.detach().float().numpy()
    return (
        wide if tensor.dtype == torch.float32 else wide.astype(numpy_dtype(str(tensor.dtype)[6:]))
    )


def explanations(operator, name, measured, /, **call):
    answer = npu_sim.verify(operator, **call, soc="910B3", **{name: stored(measured)})
    found = answer.outputs[name]
    assert found.status == "unreachable"
    return {one.alternative: one for one in found.explanations}


def norm(x, weight, epsilon=1e-6):
    """RMSNorm of transformers."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_norm_rounded_before_gamma_is_named(dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(32, 512).to(dtype), (1 + 0.1 * torch.randn(512)).to(dtype)
    call = {"x": stored(x), "gamma": stored(weight), "epsilon": 1e-6}
    ((text, one),) = explanations("rms_norm", "y", norm(x, weight), **call).items()
    assert "before gamma" in text
    assert one.whole


def test_gamma_of_gemma_is_named():
    torch.manual_seed(0)
    x, weight = torch.randn(32, 512).bfloat16(), (0.1 * torch.randn(512)).bfloat16()
    wide = x.float()
    y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + weight.float())
    call = {"x": stored(x), "gamma": stored(weight)}
    ((text, one),) = explanations("rms_norm", "y", y.bfloat16(), **call).items()
    assert "gamma + 1" in text
    assert one.whole


def through_the_norm(dtype):
    """The gradients of autograd through the norm of transformers, and the call of RmsNormGrad."""
    x = torch.randn(64, 512).to(dtype).requires_grad_()
    weight = (1 + 0.1 * torch.randn(512)).to(dtype).requires_grad_()
    dy = torch.randn(64, 512).to(dtype)
    norm(x, weight).backward(dy)
    rstd = torch.rsqrt(x.detach().float().pow(2).mean(-1) + 1e-6)
    tensors = {"dy": dy, "x": x, "gamma": weight, "rstd": rstd}
    return "rms_norm_grad", tensors, {"dx": x.grad}, {}


def through_the_gate(dtype):
    a, b = (torch.randn(64, 256).to(dtype).requires_grad_() for _ in range(2))
    gradient = torch.randn(64, 256).to(dtype)
    (torch.nn.functional.silu(a) * b).backward(gradient)
    tensors = {"x": torch.cat((a, b), 1), "y_grad": gradient}
    return "swi_glu_grad", tensors, {"x_grad": torch.cat((a.grad, b.grad), 1)}, {}


def with_a_rounded_sigmoid(dtype):
    a, b = torch.randn(64, 256).to(dtype), torch.randn(64, 256).to(dtype)
    return "swi_glu", {"x": torch.cat((a, b), 1)}, {"y": a * torch.sigmoid(a) * b}, {}


def through_the_rotation(dtype):
    x = torch.randn(2, 16, 4, 64).to(dtype).requires_grad_()
    cos, sin = (torch.randn(1, 16, 1, 64).to(dtype) for _ in range(2))
    turned = torch.cat((-x[..., 32:], x[..., :32]), -1)
    dy = torch.randn(2, 16, 4, 64).to(dtype)
    (x * cos + turned * sin).backward(dy)
    return "rotary_position_embedding_grad", {"dy": dy, "cos": cos, "sin": sin}, {"dx": x.grad}, {}


def experts(dtype, loops):
    tokens, top_k = 64, 4
    rows, probs = torch.randn(tokens * top_k, 96).to(dtype), torch.rand(tokens, top_k).to(dtype)
    places = torch.randperm(tokens * top_k)
    products = rows[places].view(tokens, top_k, 96) * probs[..., None]
    total = products.sum(1)
    if loops:
        total = torch.zeros(tokens, 96).to(dtype)
        for expert in range(top_k):
            total = total + products[:, expert]
    call = {"sorted_indices": places.int().numpy()}
    tensors = {"permuted_tokens": rows, "probs": probs}
    return "moe_token_unpermute", tensors, {"unpermuted_tokens": total}, call


def experts_summed(dtype):
    return experts(dtype, loops=False)


def experts_in_a_loop(dtype):
    return experts(dtype, loops=True)


def gradient_of_the_experts(dtype):
    tokens, top_k = 64, 4
    rows, places = torch.randn(tokens * top_k, 96).to(dtype), torch.randperm(tokens * top_k)
    total = torch.zeros(tokens, 96).to(dtype)
    for row, token in enumerate((torch.argsort(places) // top_k).tolist()):
        total[token] += rows[row]
    call = {"sorted_indices": places.int().numpy(), "num_topk": top_k}
    return "moe_token_permute_grad", {"permuted_output_grad": rows}, {"input_grad": total}, call


def gradient_of_probs(dtype):
    tokens, top_k = 64, 4
    rows = torch.randn(tokens * top_k, 96).to(dtype)
    probs = torch.rand(tokens, top_k).to(dtype).requires_grad_()
    places, gradient = torch.randperm(tokens * top_k), torch.randn(tokens, 96).to(dtype)
    (rows[places].view(tokens, top_k, 96) * probs[..., None]).sum(1).backward(gradient)
    tensors = {"permuted_tokens": rows, "unpermuted_tokens_grad": gradient, "probs": probs}
    call = {"sorted_indices": places.int().numpy()}
    return "moe_token_unpermute_grad", tensors, {"probs_grad": probs.grad}, call


def loss(dtype):
    log_prob = torch.log_softmax(torch.randn(100, 200).to(dtype), -1)
    target, grad_loss = torch.randint(1, 200, (100,)), torch.tensor([0.77]).to(dtype)
    row = (grad_loss.float() / 100).to(dtype).float()
    gradient = log_prob.float().exp() * row
    gradient[torch.arange(100), target] -= row
    call = {"target": target.numpy(), "ignore_index": 0}
    tensors = {"log_prob": log_prob, "grad_loss": grad_loss}
    return "cross_entropy_loss_grad", tensors, {"x_grad": gradient.to(dtype)}, call


def lookup(dtype):
    weight = torch.randn(40, 64).to(dtype).requires_grad_()
    indices, gradient = torch.randint(0, 40, (600,)), torch.randn(600, 64).to(dtype)
    torch.nn.functional.embedding(indices, weight).backward(gradient)
    call = {"indices": indices.int().numpy(), "num_weights": 40}
    return "embedding_dense_backward", {"grad": gradient}, {"grad_weight": weight.grad}, call


def optimizer(dtype):
    var = torch.randn(4000).to(dtype).requires_grad_()
    adam = torch.optim.AdamW([var], lr=1e-2, weight_decay=0.1, foreach=False)
    for _ in range(3):
        var.grad = torch.randn(4000).to(dtype)
        before = [var.detach().clone(), *(
            adam.state[var][name].clone() if adam.state[var] else torch.zeros(4000).to(dtype)
            for name in ("exp_avg", "exp_avg_sq")
        )]  # fmt: skip
        adam.step()
    tensors = {**dict(zip(("var", "m", "v"), before, strict=True)), "grad": var.grad}
    call = {"step": np.array([2], np.float32), "lr": 1e-2, "weight_decay": 0.1}
    outputs = {
        "var_out": var, "m_out": adam.state[var]["exp_avg"], "v_out": adam.state[var]["exp_avg_sq"],
    }  # fmt: skip
    return "apply_adam_w_v2", tensors, outputs, call


FRAMEWORKS = {
    through_the_norm: "gradient of the unfused chain",
    through_the_gate: "gradient of the unfused chain",
    with_a_rounded_sigmoid: "sigmoid(a) and silu(a) rounded to bf16",
    through_the_rotation: "products rounded to bf16",
    experts_summed: "products rounded to bf16",
    experts_in_a_loop: "expert after expert",
    gradient_of_the_experts: "row after row",
    gradient_of_probs: "products rounded to bf16",
    loss: "as PyTorch's nll_loss does",
    lookup: "row after row, as PyTorch does",
    optimizer: "PyTorch's AdamW",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_formula_of_a_framework_is_named(framework):
    torch.manual_seed(0)
    operator, tensors, outputs, call = framework(torch.bfloat16)
    arguments = {**{name: stored(tensor) for name, tensor in tensors.items()}, **call}
    for name, measured in outputs.items():
        answer = npu_sim.verify(operator, **arguments, soc="910B3", **{name: stored(measured)})
        found = answer.outputs[name]
        assert found.status == "unreachable", name
        named = {one.alternative: one for one in found.explanations}
        text = next((text for text in named if FRAMEWORKS[framework] in text), None)
        assert text is not None, (name, named)
        assert named[text].whole, (name, named[text])


@pytest.mark.filterwarnings("error")
def test_an_update_that_moves_nothing_has_no_other_learning_rate():
    zero = np.zeros(8, np.float32)
    call = {**dict.fromkeys(("m", "v", "grad"), zero), "step": np.array([1], np.float32)}
    given = np.ones(8, np.float32)
    still = {**call, "var": given, "weight_decay": 0.0}
    answer = npu_sim.verify("apply_adam_w_v2", var_out=2 * given, **still)
    assert answer.outputs["var_out"].status == "unreachable"
