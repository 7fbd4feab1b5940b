"""Values that mean nothing are mistakes of the caller: no product is asked."""

import pytest

import npu_sim
from tests.small_calls import small_call

MISTAKES = [
    ("embedding_dense_backward", "num_weights", 2.5),
    ("embedding_dense_backward", "scale_grad_by_freq", 1),
    ("embedding_dense_backward", "limits", "none"),
    ("conv_tbc_backward", "pad", 1.0),
    ("conv_tbc_backward", "cube_math_type", True),
    ("rms_norm", "epsilon", "small"),
    ("cross_entropy_loss_grad", "label_smoothing", "much"),
    ("cross_entropy_loss_grad", "ignore_index", 2.5),
    ("moe_token_permute", "num_out_tokens", 2.5),
    ("moe_token_permute_grad", "num_topk", 2.0),
    ("moe_token_permute_grad", "padded_mode", 0),
    ("moe_token_unpermute", "restore_shape", "a,b"),
]


@pytest.mark.parametrize(("operator", "argument", "value"), MISTAKES)
def test_a_value_of_no_meaning_is_a_mistake(operator, argument, value):
    with pytest.raises(npu_sim.UsageError) as mistake:
        npu_sim.plan(operator, **{**small_call(operator), argument: value})
    assert mistake.value.argument == argument
    assert mistake.value.hint


TOO_MUCH = [
    ("moe_token_permute", {"tokens": "4x64:bf16", "indices": "4x600:int32"}, "num_topk <= 512"),
    ("cross_entropy_loss", {"label_smoothing": 1.5}, "0 <= label_smoothing <= 1"),
    (
        "moe_token_unpermute",
        {"permuted_tokens": "600x8:bf16", "sorted_indices": "600:int32", "probs": "1x600:bf16"},
        "numTopk <= 512",
    ),
    ("cross_entropy_loss_grad", {"ignore_index": 99}, "ignore_index <= "),
    ("rotary_position_embedding", {"cos": "1x9x1x64:bf16"}, "each axis of cos but the last: 1"),
]


@pytest.mark.parametrize(("operator", "changes", "limit"), TOO_MUCH)
def test_a_limit_stands_in_the_hint_alone(operator, changes, limit):
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan(operator, **{**small_call(operator), **changes})
    assert refused.value.hint.startswith(limit)
    assert limit not in refused.value.message
    assert "<=" not in refused.value.message
