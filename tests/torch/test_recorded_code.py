"""Code that nobody wrote for the recorder: recorded or listed; scripts in their own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim.torch  # noqa: E402
from npu_sim.torch.torch_npu_functions import npu_fusion_attention, npu_grouped_matmul  # noqa: E402

ROOT = Path(__file__).parents[2]
HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

H, E = 32, 4
def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()

def labels(rows, classes=7):
    return torch.arange(rows) % classes
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.router = nn.Linear(H, E, bias=False, dtype=dtype)
        self.experts = nn.ModuleList(nn.Linear(H, H, bias=False, dtype=dtype) for _ in range(E))

    def through(self, x, chosen, weights):
        rows, out = x.reshape(-1, H), torch.zeros_like(x.reshape(-1, H))
        for e, expert in enumerate(self.experts):
            token, place = torch.where(chosen.reshape(len(rows), -1) == e)
            scale = 1 if weights is None else weights.reshape(len(rows), -1)[token, place, None]
            out.index_add_(0, token, (expert(rows[token]) * scale).to(x.dtype))
        return out.reshape(x.shape)

    def scores(self, x):
        return torch.softmax(self.router(x).float(), -1)
"""


def recorded(directory, program, *options, environment=None):
    """Run ``npu-sim record`` on a program; return its calls by operator, the head and the text."""
    script = directory / "train.py"
    script.write_text(HEAD + program, encoding="utf-8")
    out = directory / "calls.jsonl"
    process = subprocess.run(
        [sys.executable, "-m", "npu_sim", "record", "--out", str(out), *options, str(script)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NPU_SIM_LANG": "en", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return *content(out), process.stdout


def recorded_here(directory, program):
    """Record a program in this process; return its calls by operator, and the head."""
    out = directory / "calls.jsonl"
    with npu_sim.torch.record(out):
        exec(HEAD + program, {})
    return content(out)


def content(out):
    """Return the calls of a file by operator, and its head."""
    head, *lines = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    calls = {}
    for line in lines:
        calls.setdefault(line["op"], []).append((line["inputs"], line["count"]))
    return calls, head["recorded"]


ROUTED = {
    "a topk of three axes": (
        "s = self.scores(x); w, c = s.topk(2); return self.through(x, c, w)",
        2,
        "fp32",
    ),
    "argmax": (
        "s = self.scores(x); c = s.argmax(-1)\n"
        "        return self.through(x, c, s.gather(-1, c[..., None]).to(x.dtype))",
        1,
        "bf16",
    ),
    "a table of hashes": (
        "c = torch.tensor([3, 1, 0, 2])[torch.arange(12) % E]; return self.through(x, c, None)",
        1,
        None,
    ),
    "sort": (
        "s, c = self.scores(x).sort(-1, descending=True)\n"
        "        return self.through(x, c[..., :3], s[..., :3])",
        3,
        "fp32",
    ),
    "a max and a mask": (
        "s = self.scores(x); w, a = s.max(-1)\n"
        "        v, b = s.masked_fill(F.one_hot(a, E).bool(), 0).max(-1)\n"
        "        return self.through(x, torch.stack((a, b), -1), torch.stack((w, v), -1))",
        2,
        "fp32",
    ),
    "rows at true elements of a mask": (
        "s = self.scores(x).reshape(-1, E); c = s.argmax(-1); rows = x.reshape(-1, H)\n"
        "        out = torch.zeros_like(rows)\n"
        "        for e, expert in enumerate(self.experts):\n"
        "            out[c == e] = (expert(rows[c == e]) * s[c == e, e, None]).to(x.dtype)\n"
        "        return out.reshape(x.shape)",
        1,
        "fp32",
    ),
    "rows sorted by expert, in one product": (
        "s = self.scores(x).reshape(-1, E); w, c = s.topk(2); rows = x.reshape(-1, H)\n"
        "        order = c.reshape(-1).argsort(); out = torch.zeros_like(rows)\n"
        "        y = self.experts[0](rows[order // 2]) * w.reshape(-1)[order, None]\n"
        "        return out.index_add(0, order // 2, y.to(x.dtype)).reshape(x.shape)",
        2,
        "fp32",
    ),
}


@pytest.mark.parametrize("form", ROUTED)
def test_rows_that_go_to_experts_and_back_are_recorded(tmp_path, form):
    body, topk, probs = ROUTED[form]
    program = (
        f"{BLOCK}\n    def forward(self, x):\n        {body}\n"
        "Block(torch.bfloat16)(leaf(2, 6, H, dtype=torch.bfloat16)).float().sum().backward()\n"
    )
    calls, beside = recorded_here(tmp_path, program)
    rows = 12 * topk
    assert calls["moe_token_permute"] == [
        ({"tokens": "12x32:bf16", "indices": f"12x{topk}:int64"}, 1)
    ]
    unpermute = {"permuted_tokens": f"{rows}x32:bf16", "sorted_indices": f"{rows}:int32"}
    unpermute |= {"probs": f"12x{topk}:{probs}"} if probs else {}
    assert calls["moe_token_unpermute"] == [(unpermute, 1)]
    assert calls["moe_token_permute_grad"][0][0]["num_topk"] == topk
    assert calls["moe_token_unpermute_grad"][0][1] == 1
    assert not beside["not_recognised"]


ATTENTION = """
class Attention(nn.Module):
    def __init__(self, heads, keys):
        super().__init__()
        self.heads, self.keys = heads, keys
        self.index = nn.Linear(H, 8, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q = self.index(x)
        chosen = (q @ q.transpose(-1, -2)).relu().topk(self.keys).indices
        mask = torch.full((batch, tokens, tokens), -torch.inf).scatter(-1, chosen, 0.0)[:, None]
        heads = x.reshape(batch, tokens, self.heads, -1).transpose(1, 2)
        return self.attend(heads, mask).transpose(1, 2).reshape(x.shape)
"""
ATTENDS = {
    "by hand": "torch.softmax(h @ h.transpose(-1, -2) + m, -1) @ h",
    "masked": "torch.softmax((h @ h.transpose(-1, -2)).masked_fill(m < 0, -1e9), -1) @ h",
    "with a sink": "torch.softmax(torch.cat((h @ h.transpose(-1, -2) + m, h[..., :1]), -1), -1)"
    "[..., :-1] @ h",
    "and others": "torch.softmax((h @ torch.cat((h, h), 2).transpose(-1, -2)) + "
    "torch.cat((m, torch.zeros_like(m)), -1), -1) @ torch.cat((h, h), 2)",
    "fused": "F.scaled_dot_product_attention(h, h, h, attn_mask=m)",
}


@pytest.mark.parametrize("attend", ATTENDS)
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("keys", [2, 6])
def test_a_choice_of_keys_hides_no_experts(tmp_path, attend, heads, keys):
    """As in sparse attention, where the hidden state depends on the choice."""
    program = (
        f"{BLOCK}\n    def forward(self, x):\n        {ROUTED['a topk of three axes'][0]}\n"
        f"{ATTENTION}\n    def attend(self, h, m):\n        return {ATTENDS[attend]}\n"
        f"nn.Sequential(Attention({heads}, {keys}), Block())(leaf(2, 6, H)).sum().backward()\n"
    )
    calls, beside = recorded_here(tmp_path, program)
    assert {name: len(found) for name, found in calls.items()} == {
        "moe_token_permute": 1,
        "moe_token_unpermute": 1,
        "moe_token_permute_grad": 1,
        "moe_token_unpermute_grad": 1,
    }
    assert not beside["not_recognised"]


LISTED_BLOCKS = {
    "every row through every expert": (
        "s = self.scores(x); full = F.one_hot(s.argmax(-1), E) * s\n"
        "        y = torch.stack([expert(x) for expert in self.experts], -1)\n"
        "        return (y * full[..., None, :].to(x.dtype)).sum(-1)",
        "no rows of its tokens are gathered",
    ),
    "a matrix of weights for every token": (
        "c = self.scores(x).argmax(-1).reshape(-1)\n"
        "        return torch.bmm(self.all[c], x.reshape(-1, H, 1)).reshape(x.shape)",
        "no rows of its tokens are gathered",
    ),
    "rows that do not return": (
        "w, c = self.scores(x.reshape(-1, H)).topk(2)\n"
        "        y = x.reshape(-1, H)[c.reshape(-1).argsort() // 2]\n"
        "        return x + y.sum()",
        "brings 24 back",
    ),
}


@pytest.mark.parametrize("form", LISTED_BLOCKS)
def test_experts_whose_rows_do_not_move_are_listed(tmp_path, form):
    body, reason = LISTED_BLOCKS[form]
    program = (
        f"{BLOCK}\n    def forward(self, x):\n        {body}\n"
        "block = Block(); block.all = nn.Parameter(torch.randn(E, H, H))\n"
        "block(leaf(2, 6, H)).sum().backward()\n"
    )
    _, beside = recorded_here(tmp_path, program)
    assert [(one["name"], reason in one["why"]) for one in beside["not_recognised"]] == [
        ("Block", True)
    ]


NORMS = {
    "a quotient by sqrt": "x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w",
    "a power of -0.5": "w * (x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).pow(-0.5))",
    "1 / sqrt": "x * (1 / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()) * w",
    "a sum divided by n": "x * torch.rsqrt((x * x).sum(-1, keepdim=True) / H + 1e-5) * w",
    "a sum times 1/n": "x * torch.rsqrt((x * x).sum(-1, True) * (1 / H) + 1e-5) * w",
    "a mean without its axis": "x * torch.rsqrt((x ** 2).mean(-1) + 1e-5)[..., None] * w",
    "casts": "(x.double().float() * torch.rsqrt(x.float().pow(2).mean(-1, True) + 1e-5)) * w",
    "the output of another": "(y := F.relu(x) ** 2) * torch.rsqrt(y.pow(2).mean(-1, True)"
    " + 1e-5) * w",
}


@pytest.mark.parametrize("form", NORMS)
def test_rms_norms_are_recognised_by_what_they_compute(tmp_path, form):
    program = f"x, w = leaf(2, 6, H), leaf(H)\n({NORMS[form]}).sum().backward()\n"
    calls, beside = recorded_here(tmp_path, program)
    normed = {"x": "2x6x32:fp32", "gamma": "32:fp32"}
    assert calls["rms_norm"] == [({**normed, "epsilon": 1e-5}, 1)]
    assert calls["rms_norm_grad"] == [({"dy": "2x6x32:fp32", **normed}, 1)]
    assert not beside["not_recognised"]
    assert not {"aten::rsqrt", "aten::sqrt", "aten::mean"} & beside["not_modelled"].keys()


def test_a_mean_of_a_scalar_is_recorded_as_nothing(tmp_path):
    calls, beside = recorded_here(tmp_path, "leaf(3).sum().mean(-1).backward()\n")
    assert not calls
    assert not beside["not_recognised"]


def test_a_layer_norm_is_no_rms_norm(tmp_path):
    program = (
        "x, w = leaf(2, 6, H), leaf(H); d = x - x.mean(-1, keepdim=True)\n"
        "(d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * w).sum().backward()\n"
    )
    calls, beside = recorded_here(tmp_path, program)
    assert not calls
    assert not beside["not_recognised"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_default_epsilon_is_that_of_this_pytorch(tmp_path, dtype):
    program = f"""
norm = nn.RMSNorm(64).to(torch.{dtype})
norm(leaf(3, 64, dtype=torch.{dtype})).float().sum().backward()
"""
    calls, _ = recorded_here(tmp_path, program)
    epsilon = calls["rms_norm"][0][0]["epsilon"]
    x = (torch.randn(8, 64) * 1e-3).to(getattr(torch, dtype))
    expected = torch.nn.functional.rms_norm(x, (64,))
    assert torch.equal(torch.nn.functional.rms_norm(x, (64,), eps=epsilon), expected)


@pytest.mark.long
def test_gammas_offset_is_remarked(tmp_path):
    program = """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(H))
    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x)
nn.Sequential(Norm())(leaf(4, H, dtype=torch.bfloat16)).float().sum().backward()
"""
    calls, beside, shown = recorded(tmp_path, program)
    assert calls["rms_norm"] == [({"x": "4x32:bf16", "gamma": "32:fp32", "epsilon": 1e-6}, 1)]
    assert [(one["what"], one["parameter"]) for one in beside["remarks"]] == [
        ("rms_norm", "*.weight")
    ]
    assert "1.0 + weight" in beside["remarks"][0]["why"]
    assert "remark on" in shown


LOSSES = {
    "log_softmax and gather": "x.log_softmax(-1).gather(-1, y[:, None]).mean()",
    "log_softmax and an index": "-x.log_softmax(-1)[torch.arange(6), y].sum()",
    "logsumexp": "(x.logsumexp(-1) - x.gather(-1, y[:, None])[:, 0]).mean()",
    "logsumexp, subtracted first": "(x - x.logsumexp(-1, True)).gather(-1, y[:, None]).mean()",
    "sums of exponentials": "((s := x - x.amax(-1, True)).exp().sum(-1).log()"
    " - s.gather(-1, y[:, None])[:, 0]).mean()",
}


@pytest.mark.parametrize("form", LOSSES)
def test_cross_entropies_are_recognised_by_what_they_compute(tmp_path, form):
    program = f"x, y = leaf(6, 7), labels(6)\n({LOSSES[form]}).backward()\n"
    calls, beside = recorded_here(tmp_path, program)
    assert calls["cross_entropy_loss_grad"] == [
        (
            {
                "grad_loss": "6:fp32",
                "log_prob": "6x7:fp32",
                "target": "6:int64",
                "reduction": "none",
                "ignore_index": -100,
            },
            1,
        )
    ]
    assert not beside["not_recognised"]


LISTED_LOSSES = {
    "probabilities of labels": "x.softmax(-1).gather(-1, y[:, None]).log().mean().backward()",
    "one_hot": "(x.log_softmax(-1) * F.one_hot(y, 7).float()).sum().backward()",
    "a gradient by hand": "p = x.detach().softmax(-1); p[torch.arange(6), y] -= 1",
}
if hasattr(torch.nn.functional, "linear_cross_entropy"):
    LISTED_LOSSES["linear_cross_entropy"] = (
        "F.linear_cross_entropy(leaf(6, 5), leaf(7, 5), y).backward()"
    )


@pytest.mark.parametrize("form", LISTED_LOSSES)
def test_other_cross_entropies_are_listed(tmp_path, form):
    program = f"x, y = leaf(6, 7), labels(6)\n{LISTED_LOSSES[form]}\n"
    calls, beside = recorded_here(tmp_path, program)
    assert not calls
    assert beside["not_recognised"]


STEP = """
def step():
    embedding = nn.Embedding(7, H)
    F.cross_entropy(embedding(labels(6)) @ leaf(H, 7), labels(6)).backward()
"""
BOTH = ("cross_entropy_loss_grad", "embedding_dense_backward")
THREADS = {
    "Thread": "import threading\nt = threading.Thread(target=step); t.start(); t.join()",
    "a subclass": "import threading\nclass T(threading.Thread):\n    def run(self): step()\n"
    "t = T(); t.start(); t.join()",
    "a pool": "from concurrent.futures import ThreadPoolExecutor as P\n"
    "with P(2) as p: list(p.map(lambda _: step(), range(1)))",
}


@pytest.mark.long
@pytest.mark.parametrize("form", THREADS)
def test_calls_of_other_threads_are_recorded(tmp_path, form):
    calls, beside, _ = recorded(tmp_path, f"{STEP}\n{THREADS[form]}\n")
    assert {name: calls[name][0][1] for name in calls} == dict.fromkeys(BOTH, 1)
    assert not beside["not_recognised"]


FORKS = {
    "os.fork": "import os\nstep()\npid = os.fork()\nif pid == 0:\n    step()\n    os._exit(0)\n"
    "os.waitpid(pid, 0)",
    "a child that ends as the script does": "import os, time\nstep()\npid = os.fork()\n"
    "if pid == 0:\n    step(); step()\nelse:\n    os.waitpid(pid, 0)",
    "multiprocessing": "import multiprocessing as m\nstep()\n"
    "p = m.get_context('fork').Process(target=step, name='worker'); p.start(); p.join()",
    "a DataLoader": "import multiprocessing as m\nstep()\n"
    "class D(torch.utils.data.Dataset):\n    def __len__(self): return 2\n"
    "    def __getitem__(self, i): step(); return i\n"
    "list(torch.utils.data.DataLoader(D(), num_workers=1, multiprocessing_context='fork'))",
}


@pytest.mark.long
@pytest.mark.parametrize("form", FORKS)
def test_forked_processes_that_made_calls_are_named(tmp_path, form):
    calls, beside, shown = recorded(tmp_path, f"torch.set_num_threads(1)\n{STEP}\n{FORKS[form]}\n")
    assert {name: calls[name][0][1] for name in calls} == dict.fromkeys(BOTH, 1)
    assert len(beside["processes"]) == 1
    assert "(pid " in beside["processes"][0]
    assert "forked processes made calls" in shown


@pytest.mark.long
def test_a_child_without_calls_is_not_named(tmp_path):
    program = "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\n"
    assert "processes" not in recorded(tmp_path, program)[1]


@pytest.mark.long
def test_a_script_may_change_its_directory(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "train.py"
    script.write_text(f"{HEAD}{STEP}\nimport os\nos.chdir('elsewhere')\nstep()\n", encoding="utf-8")
    (tmp_path / "calls.jsonl").write_text("old", encoding="utf-8")
    options = ("--out", "calls.jsonl", "--overwrite")
    command = [sys.executable, "-m", "npu_sim", "record", *options, "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    lines = (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["op"] for line in lines[1:]) == sorted(BOTH)
    assert json.loads(lines[1])["places"][0]["file"] == "train.py"
    assert not list((tmp_path / "elsewhere").iterdir())


NPU_LOOKUPS = """
import importlib.util, sys
assert importlib.util.find_spec("torch_npu") is None
import torch_npu
assert importlib.util.find_spec("torch_npu") is None and "torch_npu" not in sys.modules
from torch_npu import npu_rms_norm
npu_rms_norm(leaf(4, 64), leaf(64))[0].sum().backward()
sys.modules.pop("torch_npu", None)
"""


@pytest.mark.long
def test_libraries_that_look_for_an_npu_find_none(tmp_path):
    calls, _, _ = recorded(tmp_path, NPU_LOOKUPS)
    assert calls.keys() == {"rms_norm", "rms_norm_grad"}


@pytest.mark.long
def test_a_script_with_transformers_is_recorded(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    program = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2)
model, optimizer = LlamaForCausalLM(config), None
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.arange(12).reshape(2, 6)
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
"""
    calls, beside, _ = recorded(tmp_path, program)
    assert sum(count for _, count in calls["rms_norm_grad"]) == 5
    assert set(BOTH) <= calls.keys()
    assert not beside["not_recognised"]


OWN_BACKWARD = """
import torch_npu

places = torch.arange(12, dtype=torch.int32)
torch_npu.npu_moe_token_permute_grad_v2(torch.ones(12, 8), places, 4, torch.float32, 3)
torch.ops.npu.npu_moe_token_permute_grad_v2(torch.ones(12, 8), places, 4, torch.float32, 3)
"""


def test_the_gradient_that_a_backward_of_ones_own_calls_is_recorded(tmp_path):
    calls, beside, _ = recorded(tmp_path, OWN_BACKWARD)
    assert sum(count for _, count in calls["moe_token_permute_grad"]) == 2
    assert not beside["not_recognised"]


START = """
import torch_npu
from torch_npu.contrib import transfer_to_npu
import torch_npu.npu
from torch_npu.npu.amp import GradScaler, autocast

torch.npu.set_device("npu:0")
torch_npu.npu.manual_seed_all(1)
torch.npu.synchronize()
assert not torch.npu.is_available() and torch.npu.device_count() == 0
with autocast(dtype=torch.bfloat16):
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
y, _ = torch.ops.npu.npu_rms_norm(leaf(4, 64), leaf(64), 1e-6)
y.sum().backward()
try:
    torch_npu.npu.no_such_name
except AttributeError as error:
    print(error)
try:
    import torch_npu.no_such_module
except ModuleNotFoundError as error:
    print(error)
"""


STAND_IN = """
import torch_npu

assert torch_npu.__version__ == torch.__version__.partition("+")[0]
name = torch.npu.get_device_name(0)
assert name.startswith("Ascend910B") and torch.npu.get_device_properties(0).name == name
assert torch.npu.mem_get_info()[1] > 2**30 and torch.npu.is_bf16_supported()
torch.npu.matmul.allow_hf32 = False
torch.npu.conv.allow_hf32 = False
torch.npu.set_rng_state(torch.npu.get_rng_state())
start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
start.record()
with torch.npu.stream(torch.npu.Stream(device=torch.npu.current_device())) as _:
    torch.npu.current_stream().wait_event(torch.npu.current_stream().record_event())
end.record()
assert end.query() and start.elapsed_time(end) == 0
torch.cuda.set_device(0)
torch.cuda.synchronize()
assert torch.cuda.Event(enable_timing=True).query()
assert torch.device("cuda", torch.cuda.current_device()).type == "cpu"
assert torch.cuda.get_device_name(0) == name and not torch.cuda.is_available()
with torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.NPU],
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("trace"),
    experimental_config=torch_npu.profiler._ExperimentalConfig(
        profiler_level=torch_npu.profiler.ProfilerLevel.Level1
    ),
) as profiler:
    profiler.step()
assert torch_npu.optim.NpuFusedAdamW is torch.optim.AdamW

q = torch.randn(1, 64, 4, 64, dtype=torch.bfloat16, device="npu", requires_grad=True)
gamma = torch.ones(64, dtype=torch.bfloat16, device="npu")
q = torch_npu.npu_rms_norm(q, gamma)[0]
torch_npu.npu_fusion_attention(q, q, q, 4, "BSND", scale=.125)[0].sum().backward()
"""


def test_other_functions_of_torch_npu_run_and_are_listed(tmp_path):
    calls, beside = recorded_here(tmp_path, STAND_IN)
    assert {name: count for name, [(_, count)] in calls.items()} == {
        "rms_norm": 1,
        "rms_norm_grad": 1,
    }
    assert beside["not_modelled"]["torch_npu.npu_fusion_attention"] == 1


@pytest.mark.parametrize(
    ("layout", "axes"),
    [("BSND", "bsnd"), ("BNSD", "bnsd"), ("BSH", "bs(nd)"), ("SBH", "sb(nd)"), ("TND", "(bs)nd")],
)
@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_of_torch_npu_is_that_of_pytorch_in_every_layout(layout, axes, causal):
    query, key, value = (torch.randn(2, heads, 6, 8) for heads in (4, 2, 2))
    expected = functional.scaled_dot_product_attention(
        query, key, value, is_causal=causal, scale=0.5, enable_gqa=True
    )
    to_layout = {
        "bsnd": lambda x: x.transpose(1, 2),
        "bnsd": lambda x: x,
        "bs(nd)": lambda x: x.transpose(1, 2).flatten(2),
        "sb(nd)": lambda x: x.permute(2, 0, 1, 3).flatten(2),
        "(bs)nd": lambda x: x.transpose(1, 2).flatten(0, 1),
    }[axes]
    masked = {"sparse_mode": 2, "atten_mask": torch.ones(6, 6).triu(1).bool()} if causal else {}
    if layout == "TND":
        masked |= {"actual_seq_qlen": [6, 12], "actual_seq_kvlen": [6, 12]}
    found = npu_fusion_attention(
        *map(to_layout, (query, key, value)), 4, layout, scale=0.5, **masked
    )[0]
    torch.testing.assert_close(found, to_layout(expected))


def test_grouped_products_are_those_of_the_groups():
    rows, weights = torch.randn(6, 4), torch.randn(3, 4, 5)
    expected = torch.cat([rows[:1] @ weights[0], rows[1:3] @ weights[1], rows[3:] @ weights[2]])
    for ends, kind in (([1, 3, 6], 0), ([1, 2, 3], 1)):
        (found,) = npu_grouped_matmul(
            [rows], [weights], group_list=torch.tensor(ends), split_item=3, group_list_type=kind
        )
        torch.testing.assert_close(found, expected)


HCCL = """
import os
import torch.distributed as dist
import torch_npu
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
dist.init_process_group("hccl", device_id=torch.device("npu:0"))
group = dist.new_group([0], backend="hccl")
assert dist.get_backend() == dist.get_backend(group) == "gloo"
torch_npu.npu_swiglu(leaf(4, 8)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.long
def test_process_groups_of_the_npu_are_gloo(tmp_path):
    calls, _, _ = recorded(tmp_path, HCCL)
    assert calls.keys() == {"swi_glu", "swi_glu_grad"}


@pytest.mark.parametrize(
    "line",
    ["torch_npu.npu_ring_mla()", "torch.npu.no_such_name", "import torch_npu.no_such_module"],
)
def test_a_name_that_is_not_available_ends_with_the_calls_up_to_there(tmp_path, line):
    out = tmp_path / "calls.jsonl"
    program = f"import torch_npu\ntorch_npu.npu_swiglu(leaf(4, 8)).sum().backward()\n{line}\n"
    with (
        pytest.raises((AttributeError, ModuleNotFoundError), match="is not available"),
        npu_sim.torch.record(out),
    ):
        exec(HEAD + program, {})
    calls, _ = content(out)
    assert calls.keys() == {"swi_glu", "swi_glu_grad"}


@pytest.mark.long
def test_a_script_that_ends_at_such_a_name_leaves_the_calls(tmp_path):
    script, out = tmp_path / "train.py", tmp_path / "calls.jsonl"
    program = "import torch_npu\ntorch_npu.npu_swiglu(leaf(4, 8))\ntorch_npu.npu_ring_mla()\n"
    script.write_text(HEAD + program, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "npu_sim", "record", "--out", str(out), str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NPU_SIM_LANG": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert "has the 1 calls up to this name" in process.stderr
    assert content(out)[0].keys() == {"swi_glu"}


ON_AN_NPU = """
import pickle

import torch_npu

device = torch.device("npu:0")
model = nn.Sequential(nn.Embedding(9, 64), nn.RMSNorm(64)).to("npu").npu()
tokens = torch.arange(8, device="npu").to(device, non_blocking=True).npu()
with torch.autocast("npu", dtype=torch.bfloat16), torch.amp.autocast(device_type="npu"):
    assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2)).dtype == torch.bfloat16
with device:
    loss = model(tokens).sum() + torch.zeros(())
torch.amp.GradScaler("npu", enabled=False).scale(loss).backward()
assert tokens.device.type == "cpu" and isinstance(tokens.device, torch.device)
assert b"npu_sim" not in pickle.dumps(device)
if not torch.cuda.is_available():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        moved = nn.Linear(2, 2).cuda()(torch.ones(2, 2, device="cuda").cuda())
    assert (moved.dtype, moved.device.type) == (torch.bfloat16, "cpu")
assert torch.einsum("npu,npu->n", *[torch.ones(2, 3, 4)] * 2).tolist() == [12, 12]
"""


@pytest.mark.long
def test_what_a_program_puts_on_an_npu_is_on_the_cpu(tmp_path):
    calls, _, _ = recorded(tmp_path, ON_AN_NPU)
    assert {name: count for name, [(_, count)] in calls.items()} == {
        "embedding_dense_backward": 1,
        "rms_norm": 1,
        "rms_norm_grad": 1,
    }


@pytest.mark.long
def test_what_programs_for_the_npu_do_at_their_start_works(tmp_path):
    calls, _, text = recorded(tmp_path, START)
    assert {name: count for name, [(_, count)] in calls.items()} == {
        "rms_norm": 1,
        "rms_norm_grad": 1,
    }
    assert "torch_npu.npu.no_such_name is not available while npu_sim records" in text
    assert "torch_npu.no_such_module is not available while npu_sim records" in text


ROUTER_LOSS = """
class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(H, E, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.gate(x * self.scale / self.scale)

scores = F.softmax(Router()(leaf(12, H)), -1)
_, chosen = torch.topk(scores, 2)
((F.one_hot(chosen, E).float().mean(0) * scores.mean(0)).sum() * E).backward()
"""


@pytest.mark.long
def test_the_loss_of_a_router_is_no_routing_and_warns_of_nothing(tmp_path):
    calls, head, _ = recorded(tmp_path, ROUTER_LOSS, environment={"PYTHONWARNINGS": "error"})
    assert not calls
    assert head["not_recognised"] == []


@pytest.mark.parametrize(
    ("dtype", "remarked"), [(torch.bfloat16, True), (torch.float16, True), (torch.float32, False)]
)
def test_a_norm_that_rounds_before_gamma_is_remarked(dtype, remarked):
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64, dtype=dtype))

        def forward(self, x):
            wide = x.float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * (wide * scale).to(dtype)

    norm = Norm()
    with npu_sim.torch.record() as recording:
        norm(torch.randn(4, 64, dtype=dtype)).sum().backward()
    found = [why for (operator, why, _) in recording.remarks if operator == "rms_norm"]
    assert any("rounds x*rstd to 16 bits before gamma" in why for why in found) == remarked
