"""Unmodified models of transformers with the product's arithmetic: all that is recorded."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import npu_sim.torch as simulated  # noqa: E402
from tests.torch.test_recorded_dense_families import FAMILIES, SIZES  # noqa: E402

pytestmark = pytest.mark.long

COLUMNS, BATCH, TOKENS = 64, 2, 6
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
"""Columns of a head, so that bf16 rotations are accepted, and sizes of a layer of experts."""


def model_of(family, dtype):
    """Return a small model, and tokens."""
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {family}")
    config = transformers.AutoConfig.for_model(family)
    wanted = SIZES | EXPERTS | {"hidden_size": 4 * COLUMNS, "head_dim": COLUMNS}
    wanted |= {"moe_intermediate_size": 32}
    sizes = {name: size for name, size in wanted.items() if hasattr(config, name)}
    more = {"moe_layers": []} if family == "llama4_text" else {}
    torch.manual_seed(0)
    built = transformers.AutoModelForCausalLM.from_config(
        type(config)(**sizes, **more), dtype=dtype
    )
    return built, torch.arange(BATCH * TOKENS).reshape(BATCH, TOKENS) + 3


def counts(recording):
    names = {call.operator for call in recording.calls}
    return {name: recording.count(name) for name in names}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_recorded_of_a_dense_family_is_replaced(family, dtype):
    model, tokens = model_of(family, dtype)
    with simulated.record() as recording:
        model(input_ids=tokens, labels=tokens).loss.backward()
    plain = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    with simulated.emulate() as report:
        model(input_ids=tokens, labels=tokens).loss.backward()
    assert report.counts() == counts(recording)
    assert not report.left
    wide = {torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype]
    for parameter, grad in zip(model.parameters(), plain, strict=True):
        difference = (parameter.grad - grad).float().norm()
        assert difference <= wide * grad.float().norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_experts_are_replaced_where_they_are_named(family, dtype):
    model, tokens = model_of(family, dtype)
    with simulated.record() as recording:
        model(input_ids=tokens, labels=tokens).loss.backward()
    plain = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    fused = ["moe_token_permute", "moe_token_unpermute", "rms_norm"]
    with simulated.emulate(fused=fused) as report:
        model(input_ids=tokens, labels=tokens).loss.backward()
    chosen = {
        name: count
        for name, count in counts(recording).items()
        if name.startswith(("moe_", "rms_norm"))
    }
    assert report.counts() == chosen
    assert not report.left
    wide = {torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype]
    for parameter, grad in zip(model.parameters(), plain, strict=True):
        difference = (parameter.grad - grad).float().norm()
        assert difference <= wide * grad.float().norm() + 1e-6


class Texts(torch.utils.data.Dataset):
    """Texts of 32 tokens, which are their own labels."""

    def __len__(self):
        return 16

    def __getitem__(self, number):
        tokens = (torch.arange(32) + number) % 60 + 3
        return {"input_ids": tokens, "labels": tokens}


def test_a_trainer_runs_with_its_optimizer_workers_evaluation_and_checkpoints(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    model, _ = model_of("llama", torch.float32)
    arguments = transformers.TrainingArguments(
        tmp_path,
        max_steps=2,
        per_device_train_batch_size=4,
        dataloader_num_workers=2,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=Texts(), eval_dataset=Texts())
    with simulated.emulate() as report:
        trainer.train()
    assert not report.left
    assert report.counts()["apply_adam_w_v2"] == 2 * len(list(model.parameters()))
    assert report.counts()["cross_entropy_loss_grad"] == 2
    assert report.compilation == ""
    assert (tmp_path / "checkpoint-2").is_dir()
