"""A small Llama learns the text of Python's own help: a script to try ``npu-sim emulate`` with.

    npu-sim emulate --product A2 examples/train_llama.py
    npu-sim emulate --product A2 --ablate examples/train_llama.py

It knows nothing of npu_sim, and needs transformers. The second command takes about two minutes on
two cores.
"""

from pydoc_data.topics import topics

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, TOKENS, STEPS = 4, 64, 20

text = torch.tensor(list("".join(topics.values()).encode()))
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step in range(1, STEPS + 1):
    starts = torch.randint(len(text) - TOKENS, (BATCH, 1))
    tokens = text[starts + torch.arange(TOKENS)]
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
