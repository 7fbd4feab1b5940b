"""Models from their configuration; the files of ``data/models`` have the sizes of known models."""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import npu_sim
from npu_sim.show.forms.layout import Bars
from npu_sim.show.preflight import calls_table, preflight_report
from tests.cli import runner

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)
pytestmark = pytest.mark.long  # the tests in CI that have transformers

MODELS = Path(__file__).parents[1] / "data" / "models"
LAYERS = {"llama_3_8b": 32, "qwen3_30b_a3b": 48, "mixtral_8x7b": 32}


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(npu_sim.UsageError, match="pip install transformers"):
        npu_sim.model("llama")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch": 0}, "batch = 0 is less than 1"), ({"dtype": "int8"}, "one of: bf16, fp16, fp32")],
)
def test_illegal_options_are_named(options, message):
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.model("llama", **options)


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize(
    ("name", "layers", "norms"), [("llama_3_8b", 32, 1), ("qwen3_0_6b", 28, 1 + 2 * 28)]
)
def test_an_inference_has_the_calls_of_engines(transformers, tmp_path, name, layers, norms):
    file = tmp_path / "calls.jsonl"
    npu_sim.model(MODELS / f"{name}.json", inference=True, sequence=512, products="A2", out=file)
    counts = Counter()
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        call = json.loads(line)
        tokens = next(iter(call["inputs"].values())).split("x")[1]
        counts[call["op"], tokens] += call["count"]
    for tokens in ("512", "1"):
        assert counts["add_rms_norm", tokens] == 2 * layers
        assert counts["rms_norm", tokens] == norms
    assert not any(operator.endswith("_grad") for operator, _ in counts)


def test_prefill_and_decode_have_calls_and_sums_of_their_own(transformers):
    """In text and page: the decode is a hundredth of the sum, and has bars of its own."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024}
    found = npu_sim.model("llama", inference=True, sequence=4096, products="A2", **sizes)
    groups = found.groups()
    assert list(groups) == ["prefill", "decode"]
    prefill, decode = (part.totals()["atlas_a2"].bound_us for part in groups.values())
    assert 0 < decode < prefill / 50
    assert prefill + decode == pytest.approx(found.totals()["atlas_a2"].bound_us)
    for part in groups.values():
        assert sum(row.count for row in part.rows) == 11
    text, page = str(found), preflight_report(found, "llama")
    assert "add_rms_norm decode model.layers.*" in text
    shown = [line for line in text.splitlines() if line.startswith(("prefill  ", "decode   "))]
    assert ["at least" in line for line in shown] == [True, True]
    blocks = page.sections[0].blocks
    assert sum(isinstance(block, Bars) for block in blocks) == 2
    assert not npu_sim.model("llama", sequence=64, products="A2", **sizes).groups()


def test_lines_of_calls_are_named_only_where_a_file_has_them(
    transformers, tmp_path, capsys, monkeypatch
):
    """The lines are those of the file of --out, never of the configuration."""
    sizes = [f"--set={name}=2" for name in ("num_hidden_layers", "vocab_size")]
    model = ["model", "llama", *sizes, "--sequence", "64", "--products", "A2,950", "--lines"]
    file = tmp_path / "calls.jsonl"
    for options, start in (((), "rotary_position_embedding, line "), (("--out", file), f"{file}:")):
        printed = runner.npu_sim(capsys, monkeypatch, *model, *options)
        assert printed.code == 0
        assert start in printed.out
        assert "llama:" not in printed.out


def test_an_inference_updates_nothing(transformers):
    with pytest.raises(npu_sim.UsageError, match="an inference updates no parameters"):
        npu_sim.model("llama", inference=True, optimizer="adamw")


@pytest.mark.parametrize("name", LAYERS)
def test_a_whole_model_has_an_answer_in_a_minute(name, transformers):
    started = time.monotonic()
    matrix = npu_sim.model(MODELS / f"{name}.json", products="A2,A3", sequence=4096)
    assert time.monotonic() - started < 60
    counts = {}
    for row in matrix.rows:
        counts[row.op] = counts.get(row.op, 0) + row.count
    config = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    norms = 4 if config["model_type"] == "qwen3_moe" else 2
    assert counts["rms_norm"] == counts["rms_norm_grad"] == norms * LAYERS[name] + 1
    assert counts["cross_entropy_loss_grad"] == counts["embedding_dense_backward"] == 1
    for forward, times in (("rotary_position_embedding", 2), ("swi_glu", 1)):
        assert counts[forward] == counts[f"{forward}_grad"] == times * LAYERS[name]
    experts = 0 if config["model_type"] == "llama" else LAYERS[name]
    for suffix in ("permute", "permute_grad", "unpermute", "unpermute_grad"):
        assert counts.get(f"moe_token_{suffix}", 0) == experts
    assert not matrix.faults()
    assert all(sums.bound_us > 0 for sums in matrix.totals().values())
    assert matrix.recorded["not_modelled"]["aten::mm"] > 0


def test_a_dense_step_has_the_launches_of_a_public_profile(transformers):
    """Specification page dense_step: 4 norms, 2 rotations and 1 SwiGlu in each of 28 layers.

    Its count leaves the last norm out; its 57 updates are of tensors that the trainer joined.
    """
    matrix = npu_sim.model(MODELS / "qwen3_0_6b.json", sequence=4096, optimizer="adamw")
    counts: dict[str, int] = {}
    for row in matrix.rows:
        counts[row.op] = counts.get(row.op, 0) + row.count
    assert counts == {
        "rms_norm": 4 * 28 + 1,
        "rms_norm_grad": 4 * 28 + 1,
        "rotary_position_embedding": 2 * 28,
        "rotary_position_embedding_grad": 2 * 28,
        "swi_glu": 28,
        "swi_glu_grad": 28,
        "apply_adam_w_v2": 11 * 28 + 2,
        "cross_entropy_loss_grad": 1,
        "embedding_dense_backward": 1,
    }
    shapes = {row.inputs.partition(",")[0] for row in matrix.rows if row.op != "apply_adam_w_v2"}
    assert {"x 1x16x4096x128:bf16", "x 1x8x4096x128:bf16", "x 1x4096x6144:bf16"} <= shapes
    assert not matrix.faults()


def test_a_type_takes_sizes(transformers, tmp_path):
    out = tmp_path / "calls.jsonl"
    sizes = {"num_hidden_layers": 2, "hidden_size": 512, "vocab_size": 1000}
    matrix = npu_sim.model(
        "llama", **sizes, batch=2, sequence=64, dtype="fp16", deterministic=True, out=out
    )
    inputs = {row.op: row.inputs for row in matrix.rows}
    assert "x 2x64x512:fp16" in inputs["rms_norm"]
    assert "num_weights 1000" in inputs["embedding_dense_backward"]
    assert all(cell.facts["deterministic"] for _, _, cell in matrix.cells())
    written = npu_sim.preflight(out)
    assert [row.inputs for row in written.rows] == [row.inputs for row in matrix.rows]
    assert all(cell.facts["deterministic"] for _, _, cell in written.cells())


@pytest.mark.parametrize(
    ("config", "sizes", "message"),
    [
        ("lama", {}, "did you mean llama"),
        ("llama", {"hiden_size": 8}, "did you mean hidden_size"),
        ("t5", {}, "not a causal language model"),
    ],
)
def test_what_cannot_be_built_is_a_usage_error(transformers, config, sizes, message):
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.model(config, **sizes)


CODE = {
    "attn_implementation": "anyorg/anyrepo",
    "_attn_implementation": {"": "anyorg/anyrepo"},
    "_attn_implementation_internal": "anyorg/anyrepo",
    "experts_implementation": "anyorg/anyrepo",
    "auto_map": {"AutoModelForCausalLM": "anyorg/anyrepo--modeling.Model"},
}
"""Values with which transformers would load code from the hub."""
SMALL = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def calls(config) -> list:
    rows = npu_sim.model(config, sequence=16).rows
    return [(row.op, row.inputs, row.count) for row in rows]


@pytest.mark.parametrize("name", CODE)
def test_a_configuration_loads_no_code(transformers, monkeypatch, name):
    from transformers.integrations import hub_kernels

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *_, **__: pytest.fail("loads code"))
    assert calls({**SMALL, name: CODE[name]}) == calls(SMALL)
    inner = {"model_type": "gemma3", "text_config": {**SMALL, name: CODE[name]}}
    inner["text_config"]["model_type"] = "gemma3_text"
    assert calls(inner)
    assert "HF_HUB_OFFLINE" not in os.environ
    with pytest.raises(npu_sim.UsageError, match="is not a value of the configuration"):
        npu_sim.model(SMALL, **{name: CODE[name]})


NESTED: list = []
for _ in range(500):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "values",
    [
        {"num_attention_heads": 0},
        {"hidden_size": 2**40},
        {"hidden_size": NESTED},
        {"vocab_size": -5},
        {"hidden_act": "__import__"},
        {"dtype": "x"},
        {"rope_scaling": 5},
        {"layer_types": 3},
        {"self": 1},
        {"to_dict": 3},
        {"model_type": ["llama"]},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 2000},
        {"num_hidden_layers": 10**12},
        {"quantization_config": 3},
    ],
    ids=str,
)
def test_invalid_configurations_are_usage_errors(transformers, values):
    with pytest.raises(npu_sim.UsageError) as error:
        npu_sim.model({**SMALL, **values}, sequence=16)
    assert error.value.argument == "config"
    (name,) = values
    assert name == "model_type" or error.value.message.startswith(f"{name} = ")


FAMILIES = ["llama", "qwen3", "mixtral", "gemma2", "gemma3_text", "qwen3_moe", "gpt_oss", "glm4"]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("kind", FAMILIES)
def test_equal_layers_in_a_row_count_as_if_each_ran(transformers, monkeypatch, kind, inference):
    from npu_sim.torch import models

    default = transformers.AutoConfig.for_model(kind).to_dict()
    small = {
        **SMALL,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "num_hidden_layers": 5,
        "pad_token_id": 0,
    }
    values = {name: value for name, value in small.items() if name in default}
    values |= {"model_type": kind} | {
        name: 2 for name in default if name.startswith(("num_experts", "n_routed", "num_local_exp"))
    }
    step = models.Step(batch=1, sequence=8, inference=inference)
    merged = models.recorded_model(values, step, {}).as_dict()
    monkeypatch.setattr(models, "_merge_equal_layers", lambda model: {})
    assert merged == models.recorded_model(values, step, {}).as_dict()


def test_a_thousand_layers_are_counted(transformers):
    counts = {op: count for op, _, count in calls({**SMALL, "num_hidden_layers": 1000})}
    assert counts["rms_norm"] == counts["rms_norm_grad"] == 2001


def test_a_value_that_prevents_building_is_found_without_recording(transformers, monkeypatch):
    from npu_sim.torch import models

    monkeypatch.setattr(models, "_recorded", lambda *_: pytest.fail("records"))
    with pytest.raises(npu_sim.UsageError, match="hidden_act = 'x': the model cannot be built"):
        npu_sim.model({**SMALL, "hidden_act": "x", "rms_norm_eps": 1e-6}, sequence=16)


def test_a_configuration_that_returns_tuples_is_answered(transformers):
    assert calls({**SMALL, "return_dict": False}) == calls(SMALL)


def test_numbers_of_labels_are_ignored(transformers):
    assert calls({**SMALL, "num_labels": 10**12, "id2label": 3}) == calls(SMALL)


def test_remarks_and_lines_are_shown(transformers):
    """The lines that notes name are those of the table; what is not modelled is counted."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
    answer = npu_sim.model("llama", sequence=64, products="A2,950", **sizes)
    text = str(answer)
    assert "remark on 2x swi_glu: the code computes silu(a) * b in two kernels" in text
    lines = {call.row.line for call in calls_table(answer).rows}
    assert calls_table(answer).columns[0].name == "line"
    assert lines == set(range(1, len(answer.rows) + 1))
    page = str(preflight_report(answer, "llama").sentence)
    assert "not modelled, so unknown" in page
    assert str(preflight_report(answer, "llama").title) == "llama: calls and times"


def test_blocks_of_keys_that_attention_chooses_are_no_routing(transformers):
    from npu_sim.torch import models

    if "minimax_m3_vl_text" not in transformers.CONFIG_MAPPING:
        pytest.skip("this version of transformers has no minimax_m3_vl_text")
    layers = ["full_attention", "minimax_m3_sparse"]
    sizes = {"num_hidden_layers": 2, "layer_types": layers, "mlp_layer_types": ["dense"] * 2}
    step = models.Step(batch=2, sequence=64)
    recording = models.recorded_model("minimax_m3_vl_text", step, sizes)
    assert not recording.not_recognised
