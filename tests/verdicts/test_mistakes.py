"""What people mistake is found by ``verify``."""

import numpy as np
import pytest

import npu_sim

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
LOGITS = {
    "input": RANDOM.standard_normal((30, 40)).astype("f4"),
    "target": RANDOM.integers(0, 40, 30),
    "weight": RANDOM.uniform(0.5, 2, 40).astype("f4"),
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
    ("cross_entropy_loss", LOGITS, {"reduction": "sum"}, "reduction sum instead of mean"),
    ("cross_entropy_loss", LOGITS, {"label_smoothing": 0.1}, "label_smoothing 0.1 instead of 0.0"),
    ("cross_entropy_loss", LOGITS, {"weight": None}, "weight ignored"),
    ("embedding_dense_backward", LOOKUP, {"padding_idx": 7}, "padding_idx 7 instead of -1"),
    ("embedding_dense_backward", LOOKUP, {"scale_grad_by_freq": True}, "scale_grad_by_freq True"),
    ("rotary_position_embedding", ROTATION, {"mode": 1}, "mode 1 instead of 0"),
    (
        "rotary_position_embedding",
        ROTATION,
        {"cos": ROTATION["sin"], "sin": ROTATION["cos"]},
        "cos and sin exchanged",
    ),
    (
        "rotary_position_embedding",
        ROTATION,
        {"sin": -ROTATION["sin"]},
        "rotated backwards: sin negated",
    ),
    ("swi_glu", {"x": X}, {"x": np.roll(X, 48, axis=1)}, "halves exchanged"),
]


@pytest.mark.parametrize(("operator", "call", "changed", "sentence"), MISTAKES)
def test_a_mistaken_attribute_is_named(operator, call, changed, sentence):
    made = npu_sim.run(operator, **{**call, **changed}, soc="910B3").outputs
    name, measured = next(iter(made.items()))
    answer = npu_sim.verify(operator, **call, soc="910B3", **{name: measured})
    found = answer.outputs[name]
    assert found.status == "unreachable"
    assert any(one.whole and sentence in one.alternative for one in found.explanations)
