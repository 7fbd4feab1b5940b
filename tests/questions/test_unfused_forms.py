"""``explain`` states how frameworks compute a call in several kernels, for every operator."""

import pytest

import npu_sim
from npu_sim.registry import OPERATORS

CALLS = {
    "add_rms_norm": (
        {"x1": "64x1024:bf16", "x2": "64x1024:bf16", "gamma": "1024:bf16"},
        {"rstd": "x1 + x2 rounded, then RmsNorm"},
    ),
    "embedding_dense_backward": (
        {"grad": "64x32:bf16", "indices": "64:int64", "num_weights": 10},
        {"grad_weight": "every sum rounded to bf16, row after row, as PyTorch does"},
    ),
    "rms_norm": (
        {"x": "64x1024:bf16", "gamma": "1024:bf16"},
        {"y": "x*rstd rounded to bf16 before gamma, as transformers and PyTorch do"},
    ),
    "rms_norm_grad": (
        {"dy": "64x1024:fp16", "gamma": "1024:fp16"},
        dict.fromkeys(
            ("dx", "dgamma"), "gradient of the unfused chain: x*rstd rounded to fp16 before gamma"
        ),
    ),
    "cross_entropy_loss": (
        {"input": "64x100:bf16"},
        {
            "loss": "log_prob rounded to bf16 before the loss, as log_softmax and nll_loss do",
            "log_prob": "(x - maximum) - ln(sum), as PyTorch's log_softmax does",
        },
    ),
    "cross_entropy_loss_grad": (
        {"log_prob": "64x100:bf16"},
        {"x_grad": "the gradient of a row rounded to bf16, as PyTorch's nll_loss does"},
    ),
    "moe_token_permute_grad": (
        {"permuted_output_grad": "64x32:bf16", "sorted_indices": "64:int32", "num_topk": 4},
        {"input_grad": "every product and sum rounded to bf16, expert after expert"},
    ),
    "moe_token_unpermute": (
        {"permuted_tokens": "64x32:bf16", "sorted_indices": "64:int32", "probs": "16x4:bf16"},
        {"unpermuted_tokens": "products rounded to bf16 before the sum"},
    ),
    "moe_token_unpermute_grad": (
        {
            "unpermuted_tokens_grad": "16x32:bf16",
            "permuted_tokens": "64x32:bf16",
            "sorted_indices": "64:int32",
            "probs": "16x4:bf16",
        },
        {"probs_grad": "products rounded to bf16 before the sum"},
    ),
    "swi_glu": ({"x": "64x1024:bf16"}, {"y": "silu rounded before the product"}),
    "swi_glu_grad": (
        {"y_grad": "64x512:bf16"},
        {"x_grad": "gradient of the unfused chain: silu(a) and its gradient rounded to bf16"},
    ),
    "rotary_position_embedding": (
        {"x": "1x64x4x128:bf16", "cos": "1x64x1x128:bf16"},
        {"y": "products rounded before the sum"},
    ),
    "rotary_position_embedding_grad": (
        {"dy": "1x64x4x128:bf16", "cos": "1x64x1x128:bf16"},
        {"dx": "products rounded to bf16 before the sum"},
    ),
    "apply_adam_w_v2": (
        {"var": "64:bf16"},
        {"var_out": "PyTorch's AdamW, every operation rounded to bf16"},
    ),
}
MOVES_OR_MULTIPLIES = {"moe_token_permute", "conv_tbc_backward"}
"""Operators that only move rows, and whose unfused form is one matrix product as well."""


@pytest.mark.parametrize("operator", CALLS)
def test_an_explanation_has_the_forms_of_frameworks(operator):
    arguments, forms = CALLS[operator]
    found = npu_sim.explain(operator, product="atlas_a2", **arguments)
    assert forms.items() <= {*found.unfused}
    for form in found.as_dict()["unfused"]:
        assert form["form"] in " ".join(str(found).split())


def test_every_operator_has_a_form_but_those_without_roundings_between():
    assert {entry.name for entry in OPERATORS} == CALLS.keys() | MOVES_OR_MULTIPLIES


def test_a_call_whose_kernel_does_not_run_has_none():
    assert npu_sim.explain("swi_glu", x="0x64:bf16").unfused == ()
