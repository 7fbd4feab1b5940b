"""What people mistake, and the frameworks' own formulas, are found by ``verify``."""

import numpy as np
import pytest
import torch

import npu_sim
from npu_sim.numbers.formats import numpy_dtype

RANDOM = np.random.default_rng(5)
SIZE = 2000
STATE = {
    "var": RANDOM.standard_normal(SIZE).astype("f4"),
    "m": (RANDOM.standard_normal(SIZE) * 0.1).astype("f4"),
    "v": (RANDOM.random(SIZE) * 0.01).astype("f4"),
    "grad": RANDOM.standard_normal(SIZE).astype("f4"),
    "step": np.array([3], np.float32),
}
X = RANDOM.standard_normal((12, 96)).astype("f4")
NORM = {"x": X, "gamma": (1 + 0.1 * RANDOM.standard_normal(96)).astype("f4")}
LOSS = {
    "log_prob": np.log(RANDOM.dirichlet(np.ones(40), 30)).astype("f4"),
    "target": RANDOM.integers(0, 40, 30),
    "grad_loss": np.ones(1, np.float32),
}
LOOKUP = {
    "grad": RANDOM.standard_normal((300, 16)).astype("f4"),
    "indices": RANDOM.integers(0, 40, 300).astype(np.int32),
    "num_weights": 40,
}
ANGLES = RANDOM.standard_normal((1, 8, 1, 16)).astype("f4")
ROTATION = {
    "x": RANDOM.standard_normal((2, 8, 4, 16)).astype("f4"),
    "cos": np.cos(ANGLES),
    "sin": np.sin(ANGLES),
}
LABEL = int(LOSS["target"][0])
MISTAKES = [
    ("apply_adam_w_v2", STATE, {"step": np.array([4], np.float32)}, "step + 1: 4 instead of 3"),
    ("apply_adam_w_v2", STATE, {"step": np.array([2], np.float32)}, "step - 1: 2 instead of 3"),
    ("apply_adam_w_v2", STATE, {"weight_decay": 0.0}, "weight_decay 0.0 instead of 0.01"),
    ("apply_adam_w_v2", STATE, {"weight_decay": 0.1}, "weight_decay 0.1 instead of 0.01"),
    ("apply_adam_w_v2", STATE, {"lr": 7.3e-4}, "lr 0.00073 instead of 0.001"),
    ("apply_adam_w_v2", STATE, {"beta2": 0.95}, "beta2 0.95 instead of 0.999"),
    ("apply_adam_w_v2", STATE, {"beta1": 0.999, "beta2": 0.9}, "beta1 and beta2 exchanged"),
    ("apply_adam_w_v2", STATE, {"eps": 1e-2}, "eps 0.01 instead of 1e-08"),
    ("apply_adam_w_v2", STATE, {"maximize": True}, "maximize True instead of False"),
    ("rms_norm", NORM, {"epsilon": 1e-5}, "epsilon 1e-05 instead of 1e-06"),
    ("cross_entropy_loss_grad", LOSS, {"ignore_index": LABEL}, f"ignore_index {LABEL} instead"),
    ("cross_entropy_loss_grad", LOSS, {"reduction": "sum"}, "reduction sum instead of mean"),
    ("embedding_dense_backward", LOOKUP, {"padding_idx": 7}, "padding_idx 7 instead of -1"),
    ("embedding_dense_backward", LOOKUP, {"scale_grad_by_freq": True}, "scale_grad_by_freq True"),
    ("rotary_position_embedding", ROTATION, {"mode": 1}, "mode 1 instead of 0"),
    (
        "rotary_position_embedding",
        ROTATION,
        {"cos": ROTATION["sin"], "sin": ROTATION["cos"]},
        "cos and sin exchanged",
    ),
]


@pytest.mark.parametrize(("operator", "call", "changed", "sentence"), MISTAKES)
def test_a_mistaken_attribute_is_named(operator, call, changed, sentence):
    made = npu_sim.run(operator, **{**call, **changed}, soc="910B3").outputs
    name, measured = next(iter(made.items()))
    answer = npu_sim.verify(operator, **call, soc="910B3", **{name: measured})
    found = answer.outputs[name]
    assert found.status == "unreachable"
    assert any(one.whole and sentence in one.alternative for one in found.explanations)


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
