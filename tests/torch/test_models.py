"""Models from their configuration; the files of ``data/models`` have the sizes of known models."""

import json
import sys
import time
from pathlib import Path

import pytest

import npu_sim

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)
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
    experts = 0 if config["model_type"] == "llama" else LAYERS[name]
    for suffix in ("permute", "permute_grad", "unpermute", "unpermute_grad"):
        assert counts.get(f"moe_token_{suffix}", 0) == experts
    assert not matrix.faults()
    assert all(sums.bound_us > 0 for sums in matrix.totals().values())
    assert matrix.recorded["not_modelled"]["aten::mm"] > 0


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
