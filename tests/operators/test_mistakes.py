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
