"""Models with experts, built from their configurations: every block is recorded or listed."""

import re

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import npu_sim.torch as simulated  # noqa: E402

pytestmark = pytest.mark.long

EXPERTS = re.compile(r"(Experts|MoE|Moe|MOE|SparseMLP|SparseMoeBlock)$")
"""Names of the classes of expert blocks."""
TOKENS = (2, 6)
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "d_model": 64,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_heads": 4,
    "head_dim": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Sizes of small models: those that a configuration has."""
PLAIN = [
    "mixtral",
    "gpt_oss",
    "llama4_text",
    "deepseek_v2",
    "deepseek_v32",
    "deepseek_v4",
    "aria_text",
    "cohere2_moe",
    "ernie4_5_moe",
    "exaone_moe",
    "flex_olmo",
    "glm4_moe",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "granitemoe",
    "granitemoeshared",
    "hunyuan_v1_moe",
    "jetmoe",
    "minimax",
    "minimax_m2",
    "mistral4",
    "nemotron_h",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_5_moe_text",
    "qwen3_next",
    "qwen3_vl_moe_text",
    "solar_open",
    "afmoe",
    "bailing_hybrid",
    "hy_v3",
    "kimi_linear",
    "laguna",
    "mellum",
    "muse_spark",
    "openai_privacy_filter",
    "switch_transformers",
    "axk2",
    "hy_v4",
    "inkling2_text",
    "kolibri1",
    "minimax_m3_vl_text",
]
"""Families whose small models need no sizes of their own."""
FAMILIES = {family: {} for family in PLAIN} | {
    "deepseek_v3": {"head_dim": 8},
    "dots1": {"n_shared_experts": 1},
    "flint": {"mlp_only_layers": []},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "nllb-moe": {"encoder_sparse_step": 1, "decoder_sparse_step": 1},
    "zaya": {"num_experts_per_tok": 1},
}
"""Families of models, with the sizes that differ from ``SMALL``."""


def small_model(family):
    """Return a small model of a family with random weights; the text model if there are several."""
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {family}")
    config = transformers.AutoConfig.for_model(family).get_text_config(decoder=True)
    sizes = {name: size for name, size in SMALL.items() if hasattr(config, name)}
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or []))
    if kinds:  # one layer of every kind, and at least two
        layers = (2 * kinds)[: max(2, len(kinds))]
        sizes |= {"layer_types": layers, "num_hidden_layers": len(layers)}
    config = type(config)(**(sizes | FAMILIES[family]))
    for automatic in (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModel,
    ):
        if type(config) in automatic._model_mapping:
            return automatic.from_config(config)
    raise AssertionError(f"no model of {family}")


def covers(place, block):
    """Return whether a place is a block, or a module in it or around it."""
    return f"{place}.".startswith(f"{block}.") or f"{block}.".startswith(f"{place}.")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_block_of_experts_is_recorded_or_listed(family):
    torch.manual_seed(0)
    model = small_model(family)
    ran = set()
    for name, module in model.named_modules():
        if EXPERTS.search(type(module).__name__):
            path = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
            module.register_forward_hook(lambda *_, path=path: ran.add(path))
    tokens = torch.arange(12).reshape(TOKENS) + 3
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with simulated.record() as recording:
        model(input_ids=tokens, **more)[0].float().sum().backward()
    places = {
        place["name"]
        for line in recording
        if line["op"].startswith("moe_token_permute")
        for place in line["places"]
    }
    places |= {
        place.name
        for what, _, place in recording.not_recognised
        if what in ("routing of tokens", "return of tokens")
    }
    assert ran
    assert not {block for block in ran if not any(covers(place, block) for place in places)}


def test_the_scores_of_mixtral_in_bf16_are_fp32():
    names = transformers.MixtralConfig().to_dict().keys() & SMALL.keys()
    config = transformers.MixtralConfig(**{name: SMALL[name] for name in names})
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config).to(torch.bfloat16)
        tokens = torch.zeros(TOKENS, dtype=torch.int64)
    with simulated.record() as recording:
        model(input_ids=tokens, labels=tokens).loss.backward()
    probs = [line["inputs"]["probs"] for line in recording if line["op"] == "moe_token_unpermute"]
    assert probs == ["12x2:fp32"]
