"""Names of operators as people write them, words for modes, and inputs that others imply."""

import pytest

import npu_sim
from npu_sim.registry import called_operator, find_operator

NAMES = {
    "npu_rotary_mul": "rotary_position_embedding",
    "torch_npu.npu_swiglu": "swi_glu",
    "torch.ops.npu.npu_rotary_mul": "rotary_position_embedding",
    "npu_rotary_mul_backward": "rotary_position_embedding_grad",
    "npu_rms_norm": "rms_norm",
    "npu_swiglu": "swi_glu",
    "npu_swiglu_grad": "swi_glu_grad",
    "npu_moe_token_permute": "moe_token_permute",
    "npu_moe_token_permute_grad_v2": "moe_token_permute_grad",
    "npu_moe_token_unpermute_grad": "moe_token_unpermute_grad",
    "_fused_adamw_": "apply_adam_w_v2",
    "aclnnRotaryPositionEmbeddingV2": "rotary_position_embedding",
    "RotaryPositionEmbedding": "rotary_position_embedding",
    "aclnnApplyAdamWV2": "apply_adam_w_v2",
}


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_found_as_people_write_it(name):
    assert called_operator(name).name == NAMES[name]


def test_the_loss_of_torch_npu_is_an_operator():
    assert called_operator("npu_cross_entropy_loss").name.startswith("cross_entropy_loss")


@pytest.mark.parametrize("name", ["npu_fusion_attention", "aclnnSwiGluV", "npu", "v2", ""])
def test_other_names_are_no_operator(name):
    assert called_operator(name) is None


def test_names_of_the_product_documents_are_exact():
    assert find_operator("aclnnRotaryPositionEmbeddingV2") is None


ROTATION = {"x": "2x8x64x128:bf16", "cos": "1x1x64x128:bf16", "sin": "1x1x64x128:bf16"}


@pytest.mark.parametrize(("word", "number"), [("half", 0), ("interleave", 1), ("1", 1)])
def test_a_mode_is_a_number_or_its_word(word, number):
    plans = (
        npu_sim.plan("npu_rotary_mul", mode=mode, **ROTATION).as_dict() for mode in (word, number)
    )
    first, second = plans
    assert first == second


def test_an_unknown_mode_names_the_words():
    with pytest.raises(npu_sim.UsageError, match=r"did you mean interleave.*half, interleave"):
        npu_sim.plan("rotary_position_embedding", mode="interleaved", **ROTATION)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_parameter_implies_its_state(dtype):
    spec = f"1024:{dtype}"
    given = dict.fromkeys(("var", "m", "v", "grad"), spec)
    implied = npu_sim.plan("apply_adam_w_v2", var=spec)
    assert implied.as_dict() == npu_sim.plan("apply_adam_w_v2", **given, step="1:fp32").as_dict()


def test_a_given_moment_does_not_change_the_others():
    given = {"var": "1024:bf16", "m": "1024:fp32"}
    implied = npu_sim.plan("apply_adam_w_v2", **given)
    others = {"v": "1024:bf16", "grad": "1024:bf16", "step": "1:fp32"}
    assert implied.as_dict() == npu_sim.plan("apply_adam_w_v2", **given, **others).as_dict()
    assert implied.as_dict() != npu_sim.plan("apply_adam_w_v2", var="1024:bf16").as_dict()
