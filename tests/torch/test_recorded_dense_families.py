"""Unmodified dense models of transformers: rotations and SwiGlu are recorded as the fused calls."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import npu_sim.torch as simulated  # noqa: E402

pytestmark = pytest.mark.long

LAYERS, BATCH, TOKENS, HEADS, KEYS, COLUMNS = 2, 2, 6, 4, 2, 16
SIZES = {
    "vocab_size": 64,
    "hidden_size": HEADS * COLUMNS,
    "intermediate_size": 96,
    "intermediate_size_mlp": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "head_dim": COLUMNS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HALF, PAIRS = 0, 1
FAMILIES = {
    "llama": (COLUMNS, HALF, True),
    "llama4_text": (COLUMNS, PAIRS, True),  # products of complex numbers
    "qwen2": (COLUMNS, HALF, True),
    "qwen3": (COLUMNS, HALF, True),
    "mistral": (COLUMNS, HALF, True),
    "gemma": (COLUMNS, HALF, False),  # its gate is a gelu: GeGlu is another operator
    "gemma2": (COLUMNS, HALF, False),
    "gemma3_text": (COLUMNS, HALF, False),
    "phi": (COLUMNS // 2, HALF, False),  # half of the columns are rotated; no gate
    "phi3": (COLUMNS, HALF, True),  # gate and up are one projection
    "glm": (COLUMNS // 2, PAIRS, True),
    "glm4": (COLUMNS // 2, PAIRS, True),
}
"""Columns of a head that are rotated, the mode, and whether the gate is SwiGlu's."""


def small_model(family, dtype):
    """Return a model of a family with small sizes and random weights."""
    kind = type(transformers.AutoConfig.for_model(family))
    sizes = {name: size for name, size in SIZES.items() if hasattr(kind(), name)}
    more = {"moe_layers": []} if family == "llama4_text" else {}
    return transformers.AutoModelForCausalLM.from_config(kind(**sizes, **more), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_recorded_as_adapters_of_the_vendor_would_run_it(family, dtype):
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {family}")
    columns, mode, has_swi_glu = FAMILIES[family]
    model = small_model(family, dtype)
    tokens = torch.arange(BATCH * TOKENS).reshape(BATCH, TOKENS) + 3
    with simulated.record() as recording:
        model(input_ids=tokens)[0].float().sum().backward()
    name = "fp32" if dtype is torch.float32 or family == "llama4_text" else "bf16"
    heads_last = family == "llama4_text"
    expected = {}
    for heads in (HEADS, KEYS):
        axes = (TOKENS, heads) if heads_last else (heads, TOKENS)
        turns = (TOKENS, 1) if heads_last else (1, TOKENS)
        x = f"{BATCH}x{axes[0]}x{axes[1]}x{columns}:{name}"
        turn = f"1x{turns[0]}x{turns[1]}x{columns}:{name}"
        expected["rotary_position_embedding", x, turn, turn, mode] = LAYERS
        expected["rotary_position_embedding_grad", x, turn, turn, mode] = LAYERS
    if has_swi_glu:
        name = "fp32" if dtype is torch.float32 else "bf16"
        x, half = (f"{BATCH}x{TOKENS}x{size}:{name}" for size in (192, 96))
        expected["swi_glu", x] = expected["swi_glu_grad", half, x] = LAYERS
    found = {
        (line["op"], *line["inputs"].values()): line["count"]
        for line in recording
        if line["op"].startswith(("rotary", "swi_glu"))
    }
    assert found == expected
    fused = {what for what, why, _ in recording.remarks if "npu_" in why}
    assert fused >= {"rotary_position_embedding", *(["swi_glu"] if has_swi_glu else [])}
    left = recording.not_covered()["not_modelled"]
    assert ("aten::silu" in left, "aten::gelu" in left) == (False, "gemma" in family)
