"""Record training steps of models of the transformers package; check them on all products.

Run by hand where transformers is installed: python benchmarks/record_models.py FOLDER
"""

import resource
import sys
import time
from collections import Counter
from pathlib import Path

import torch
import transformers

import npu_sim.torch
from npu_sim.questions.preflight import check_file, chosen_columns

EXPERTS = {"num_experts_per_tok": 2, "num_hidden_layers": 3, "hidden_size": 64, "vocab_size": 100}
EXPERTS |= {"num_attention_heads": 4, "num_key_value_heads": 2}
MODELS = {
    "llama-3-8b": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            hidden_size=4096,
            num_hidden_layers=32,
            vocab_size=128256,
            intermediate_size=14336,
            num_attention_heads=32,
            num_key_value_heads=8,
        ),
    ),
    "qwen3-0.6b": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(
            hidden_size=1024,
            num_hidden_layers=28,
            vocab_size=151936,
            intermediate_size=3072,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
        ),
    ),
    "qwen3-moe": (
        transformers.Qwen3MoeForCausalLM,
        transformers.Qwen3MoeConfig(
            num_experts=8, moe_intermediate_size=32, head_dim=16, intermediate_size=64, **EXPERTS
        ),
    ),
    "mixtral": (
        transformers.MixtralForCausalLM,
        transformers.MixtralConfig(num_local_experts=8, intermediate_size=64, **EXPERTS),
    ),
    "mixtral, batched": (
        transformers.MixtralForCausalLM,
        transformers.MixtralConfig(
            num_local_experts=8,
            intermediate_size=64,
            experts_implementation="batched_mm",
            **EXPERTS,
        ),
    ),
}


def record_step(name, folder):
    """Record one step on the meta device; return the seconds, the recording and its file."""
    kind, config = MODELS[name]
    with torch.device("meta"):
        model, tokens = kind(config).to(torch.bfloat16), torch.zeros(1, 4096, dtype=torch.int64)
    file = folder / f"{name.replace(', ', '_')}.jsonl"
    started = time.perf_counter()
    with npu_sim.torch.record(file) as recording:
        model(input_ids=tokens, labels=tokens).loss.backward()
    return time.perf_counter() - started, recording, file


def main(folder):
    for name in MODELS:
        seconds, recording, file = record_step(name, folder)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name}: {seconds:.1f} s, {memory:.2f} GiB at most so far")
        for line in recording:
            print(f"  {line['count']:4} {line['op']} {line['inputs']}")
        print(
            "  not recognised:",
            {
                (what, place.name): count
                for (what, _, place), count in recording.not_recognised.items()
            },
        )
        blocks = Counter(
            {
                kind: count
                for kind, count in recording.not_modelled.items()
                if not kind.startswith("aten::")
            }
        )
        print("  operators not modelled:", dict(blocks))
        with file.open("rb") as lines:
            matrix = check_file(lines, chosen_columns("all"))
        print(
            "  preflight:",
            {
                label: f"{one.runs} run, {one.refused} refused"
                for label, one in matrix.summaries().items()
            },
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
