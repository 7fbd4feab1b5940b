"""Recording of models: recognised calls, their names and merging, and code not recognised."""

import json
import threading

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from tests.lines import check_line  # noqa: E402

TOKENS, HIDDEN, WORDS, TOP = 12, 32, 50, 2


class LibraryRMSNorm(nn.Module):
    """A normalisation as model libraries write it."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = 1e-5

    def forward(self, hidden):
        wide = hidden.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden.dtype)


class Scale(LibraryRMSNorm):
    """The same computation in a class without a telling name."""


class GatedRMSNorm(LibraryRMSNorm):
    def forward(self, hidden, gate):
        return super().forward(hidden) * torch.sigmoid(gate)


class InlineNorm(nn.Module):
    """A layer that normalises in an inner module, then by hand."""

    def __init__(self):
        super().__init__()
        self.norm = LibraryRMSNorm(8)

    def forward(self, hidden):
        inner = self.norm(hidden)
        return torch.tanh(inner * torch.rsqrt(inner.pow(2).mean(-1, keepdim=True) + 1e-6))


class Router(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, HIDDEN))

    def forward(self, hidden):
        weights, chosen = torch.topk(
            torch.softmax(functional.linear(hidden, self.weight), -1), TOP, dim=-1
        )
        return weights, chosen


class Experts(nn.Module):
    """A block of experts that computes in a given way."""

    def __init__(self, compute, experts=4):
        super().__init__()
        self.gate, self.compute = Router(experts), compute
        self.matrices = nn.Parameter(torch.randn(experts, HIDDEN, HIDDEN))

    def forward(self, hidden):
        rows = hidden.reshape(-1, HIDDEN)
        return self.compute(rows, *self.gate(rows), self.matrices).reshape(hidden.shape)


def expert_by_expert(rows, weights, chosen, matrices):
    out = torch.zeros_like(rows)
    for expert, matrix in enumerate(matrices):
        token, place = torch.where(chosen == expert)
        out.index_add_(0, token, rows[token] @ matrix * weights[token, place, None])
    return out


def sorted_by_expert(rows, weights, chosen, matrices):
    order = torch.argsort(chosen.reshape(-1))
    there = rows.index_select(0, order // TOP) * weights.reshape(-1)[order, None]
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel())
    return there[back].view(-1, TOP, HIDDEN).sum(1)


def all_rows_through_all(rows, weights, chosen, matrices):
    full = torch.zeros(rows.shape[0], len(matrices)).scatter(1, chosen, weights)
    return torch.einsum("te,ehk,th->tk", full, matrices, rows)


def calls_of(step):
    """Return the recorded inputs and counts of a step by operator, and the recording."""
    with simulated.record() as recording:
        step()
    calls = {}
    for line in recording:
        calls.setdefault(line["op"], []).append((line["inputs"], line["count"]))
    return calls, recording


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype).requires_grad_()


LOGITS = {"log_prob": "12x50:fp32", "target": "12:int64", "reduction": "mean", "ignore_index": -100}
NORMED = {"x": "2x6x32:fp32", "gamma": "32:fp32"}
LABELS = torch.arange(TOKENS)
RECOGNISED = {
    "functional.embedding": (
        lambda: functional.embedding(
            torch.zeros(2, 6, dtype=torch.int32), leaf(WORDS, HIDDEN), padding_idx=-1
        ).sum(),
        "embedding_dense_backward",
        {
            "grad": "2x6x32:fp32:strided",
            "indices": "2x6:int32",
            "num_weights": 50,
            "padding_idx": 49,
        },
    ),
    "nn.Embedding": (
        lambda: (nn.Embedding(WORDS, HIDDEN, scale_grad_by_freq=True)(LABELS) * 2).sum(),
        "embedding_dense_backward",
        {
            "grad": "12x32:fp32",
            "indices": "12:int64",
            "num_weights": 50,
            "scale_grad_by_freq": True,
        },
    ),
    "cross_entropy": (
        lambda: functional.cross_entropy(leaf(TOKENS, WORDS), LABELS),
        "cross_entropy_loss_grad",
        {"grad_loss": "scalar:fp32", **LOGITS},
    ),
    "cross_entropy of classes on an inner axis": (
        lambda: functional.cross_entropy(
            leaf(2, WORDS, 6), LABELS.reshape(2, 6), reduction="none"
        ).sum(),
        "cross_entropy_loss_grad",
        {"grad_loss": "12:fp32", **LOGITS, "reduction": "none"},
    ),
    "nn.CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(torch.ones(WORDS), ignore_index=3, reduction="sum")(
            leaf(TOKENS, WORDS), LABELS
        ),
        "cross_entropy_loss_grad",
        {
            "grad_loss": "scalar:fp32",
            **LOGITS,
            "weight": "50:fp32",
            "reduction": "sum",
            "ignore_index": 3,
        },
    ),
    "nll_loss of log-probabilities": (
        lambda: functional.nll_loss(
            functional.log_softmax(leaf(2, 6, WORDS), -1).view(TOKENS, WORDS), LABELS
        ),
        "cross_entropy_loss_grad",
        {"grad_loss": "scalar:fp32", **LOGITS},
    ),
    "functional.rms_norm": (
        lambda: functional.rms_norm(leaf(2, 6, HIDDEN), (HIDDEN,), leaf(HIDDEN)).sum(),
        "rms_norm_grad",
        {"dy": "2x6x32:fp32", **NORMED},
    ),
    "nn.RMSNorm": (
        lambda: nn.RMSNorm(HIDDEN)(leaf(2, 6, HIDDEN)).sum(),
        "rms_norm_grad",
        {"dy": "2x6x32:fp32", **NORMED},
    ),
    "a normalisation of a library": (
        lambda: LibraryRMSNorm(HIDDEN)(leaf(2, 6, HIDDEN)).sum(),
        "rms_norm_grad",
        {"dy": "2x6x32:fp32", **NORMED},
    ),
    "a normalisation without a telling name": (
        lambda: Scale(HIDDEN)(hidden=leaf(2, 6, HIDDEN)).sum(),
        "rms_norm_grad",
        {"dy": "2x6x32:fp32", **NORMED},
    ),
    "a normalisation with a gate": (
        lambda: GatedRMSNorm(HIDDEN)(leaf(2, 6, HIDDEN), leaf(2, 6, HIDDEN)).sum(),
        "rms_norm_grad",
        {"dy": "2x6x32:fp32", **NORMED},
    ),
    "conv_tbc": (
        lambda: (torch.conv_tbc(leaf(6, 2, 4), leaf(3, 4, 5), leaf(5), 1) * 2).sum(),
        "conv_tbc_backward",
        {
            "grad_output": "6x2x5:fp32",
            "input": "6x2x4:fp32",
            "weight": "3x4x5:fp32",
            "bias": "5:fp32",
            "pad": 1,
        },
    ),
    "expert by expert": (
        lambda: Experts(expert_by_expert)(leaf(2, 6, HIDDEN)).sum(),
        "moe_token_permute_grad",
        {"permuted_output_grad": "24x32:fp32", "sorted_indices": "24:int32", "num_topk": 2},
    ),
    "tokens sorted by expert": (
        lambda: Experts(sorted_by_expert)(leaf(2, 6, HIDDEN)).sum(),
        "moe_token_permute_grad",
        {"permuted_output_grad": "24x32:fp32", "sorted_indices": "24:int32", "num_topk": 2},
    ),
}


@pytest.mark.parametrize("form", RECOGNISED)
def test_a_gradient_is_recorded_for_every_form_of_the_forward(form):
    loss, operator, inputs = RECOGNISED[form]
    calls, recording = calls_of(lambda: loss().backward())
    assert calls[operator] == [(inputs, 1)]
    assert not recording.not_recognised


@pytest.mark.parametrize("form", RECOGNISED)
def test_preflight_reads_recorded_calls(form):
    _, recording = calls_of(lambda: RECOGNISED[form][0]().backward())
    checked = [check_line(json.dumps(line)) for line in recording]
    assert checked
    assert [line.outcome for line in checked] == ["runs"] * len(checked)


def test_without_a_backward_call_only_forward_calls_are_recorded():
    calls, _ = calls_of(
        lambda: (
            LibraryRMSNorm(HIDDEN)(leaf(2, HIDDEN)),
            functional.embedding(LABELS, leaf(WORDS, HIDDEN)),
        )
    )
    assert calls.keys() == {"rms_norm"}


def test_gradients_that_are_not_required_are_not_recorded():
    frozen = torch.randn(WORDS, HIDDEN)
    calls, _ = calls_of(
        lambda: (functional.embedding(LABELS, frozen) * leaf(HIDDEN)).sum().backward()
    )
    assert not calls


NOT_RECOGNISED = {
    "every row through every expert": (
        lambda: Experts(all_rows_through_all)(leaf(2, 6, HIDDEN)),
        "no rows of its tokens are gathered",
    ),
    "a choice outside of modules": (
        lambda: torch.topk(leaf(4, 8), 2).values[:, :1] * leaf(4, 64),
        "no module around it",
    ),
    "a normalisation without a weight": (
        lambda: functional.rms_norm(leaf(2, 8), (8,)),
        "no weight",
    ),
    "a normalisation in no module": (
        lambda: (x := leaf(2, 8)) * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6),
        "no weight",
    ),
    "a normalisation inside of a layer": (lambda: InlineNorm()(leaf(2, 8)), "no weight"),
    "probabilities as targets": (
        lambda: functional.cross_entropy(leaf(2, 5), torch.full((2, 5), 0.2)),
        "probabilities",
    ),
    "a sparse gradient": (
        lambda: functional.embedding(LABELS, leaf(WORDS, 4), sparse=True),
        "sparse",
    ),
    "nll_loss of anything": (
        lambda: functional.nll_loss(leaf(TOKENS, WORDS), LABELS),
        "not the whole result of log_softmax",
    ),
    "a kernel that C++ calls": (
        lambda: torch.ops.aten.embedding(leaf(WORDS, 4), LABELS).sum().backward(),
        "accounts for it",
    ),
}


@pytest.mark.parametrize("form", NOT_RECOGNISED)
def test_code_that_resembles_an_operator_is_listed_with_a_reason(form):
    run, reason = NOT_RECOGNISED[form]
    calls, recording = calls_of(run)
    assert "rms_norm_grad" not in calls
    reasons = [(why, place.file) for _, why, place in recording.not_recognised]
    assert len(reasons) == 1
    assert reason in reasons[0][0]


class Model(nn.Module):
    """A transformer without attention."""

    def __init__(self, layers=3, checkpointing=None):
        super().__init__()
        self.checkpointing = checkpointing
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList(
            nn.Sequential(LibraryRMSNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN)) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, WORDS)

    def forward(self, tokens, labels):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + (
                checkpoint(layer, hidden, use_reentrant=self.checkpointing == "reentrant")
                if self.checkpointing
                else layer(hidden)
            )
        return functional.cross_entropy(
            self.head(self.norm(hidden)).view(-1, WORDS), labels.reshape(-1)
        )


def step_of(model, device="cpu"):
    tokens = torch.zeros(2, 6, dtype=torch.int64, device=device)
    return lambda: model.to(device)(tokens, tokens).backward()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_is_recorded_by_layers_with_names_and_places(device):
    _, recording = calls_of(step_of(Model(), device))
    lines = {line["op"]: line for line in recording if line["op"].endswith(("_grad", "_backward"))}
    assert {name: line["count"] for name, line in lines.items()} == {
        "embedding_dense_backward": 1,
        "rms_norm_grad": 4,
        "cross_entropy_loss_grad": 1,
    }
    places = {place["name"]: place for place in lines["rms_norm_grad"]["places"]}
    assert {name: place["count"] for name, place in places.items()} == {"layers.*.*": 3, "norm": 1}
    assert places["norm"]["parameter"] == "norm.weight"
    assert places["norm"]["file"].endswith("test_recording.py")
    assert lines["embedding_dense_backward"]["name"] == "embedding"
    assert lines["cross_entropy_loss_grad"]["name"] == "Model"
    assert recording.not_modelled["aten::addmm"] + recording.not_modelled["aten::mm"] > 0
    assert (
        not {"aten::rsqrt", "aten::embedding_dense_backward", "aten::nll_loss_backward"}
        & recording.not_modelled.keys()
    )
    assert not recording.not_recognised


@pytest.mark.parametrize("checkpointing", ["not reentrant", "reentrant"])
def test_checkpointed_layers_have_one_gradient_and_two_forward_calls(checkpointing):
    calls, _ = calls_of(step_of(Model(checkpointing=checkpointing)))
    assert sum(count for _, count in calls["rms_norm_grad"]) == 4
    assert sum(count for _, count in calls["rms_norm"]) == 3 * 2 + 1


def test_a_checkpoint_that_ends_with_a_formula_is_recorded_twice():
    """Recomputation ends early, when the last tensor is there that the backward pass needs."""
    x, norm = torch.randn(4, HIDDEN, requires_grad=True), LibraryRMSNorm(HIDDEN)
    with simulated.record() as recording:
        checkpoint(norm, x, use_reentrant=False).sum().backward()
    assert recording.count("rms_norm") == 2
    assert not recording.not_recognised


BACKWARDS = {
    "method": lambda loss, x: loss.backward(),
    "function": lambda loss, x: torch.autograd.backward(loss),
    "gradients": lambda loss, x: torch.autograd.grad(loss, x),
}


@pytest.mark.parametrize(
    ("backward", "reentrant"),
    [*((name, False) for name in BACKWARDS), ("method", True), ("function", True)],
)
def test_a_checkpointed_function_is_recorded_in_every_backward_pass(backward, reentrant):
    x, gamma = torch.randn(4, 64, requires_grad=True), torch.ones(64, requires_grad=True)
    with simulated.record() as recording:
        y = checkpoint(lambda x: functional.rms_norm(x, (64,), gamma), x, use_reentrant=reentrant)
        BACKWARDS[backward](y.pow(2).sum(), x)
    counts = {call.operator: places.total() for call, places in recording.calls.items()}
    assert counts == {"rms_norm": 2, "rms_norm_grad": 1}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_casts_are_followed_in_inference(mode):
    x, gamma = torch.randn(4, 64).bfloat16(), torch.ones(64).bfloat16()
    with simulated.record() as recording, mode():
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        gamma * normed.to(x.dtype)
    assert [line["inputs"] for line in recording] == [
        {"x": "4x64:bf16", "gamma": "64:bf16", "epsilon": 1e-6}
    ]


def test_recording_changes_no_bit_and_ends_with_the_block():
    torch.manual_seed(3)
    model = Model()
    step_of(model)()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    _, recording = calls_of(step_of(model))
    assert all(
        torch.equal(parameter.grad, right)
        for parameter, right in zip(model.parameters(), expected, strict=True)
    )
    before = len(recording)
    step_of(model)()
    assert len(recording) == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: float(torch.ones(1, requires_grad=True)), "to a scalar"),
        (lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.empty(3)), "resized"),
        (lambda: functional.mse_loss(torch.ones(2), torch.ones(2, 1)), "target size"),
    ],
    ids=["method", "kernel", "function"],
)
def test_a_warning_names_the_line_of_the_program(call, text):
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with simulated.record(), pytest.warns(UserWarning, match=text) as caught:
            call()
    finally:
        torch.set_warn_always(always)
    line = call.__code__.co_firstlineno
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_an_exception_in_a_model_ends_the_recording_and_writes_nothing(tmp_path):
    class Broken(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), simulated.record(tmp_path / "calls.jsonl"):
        nn.Sequential(Broken())(leaf(2, 2))
    assert not list(tmp_path.iterdir())
    assert not nn.modules.module._global_forward_hooks


def test_the_determinism_switch_of_pytorch_is_recorded():
    torch.use_deterministic_algorithms(True)
    try:
        _, recording = calls_of(lambda: functional.cross_entropy(leaf(2, 5), LABELS[:2]).backward())
    finally:
        torch.use_deterministic_algorithms(False)
    assert [line["deterministic"] for line in recording] == [True]


def test_names_of_torch_npu_exist_while_recording_only():
    def step():
        import torch_npu

        y, _ = torch_npu.npu_rms_norm(leaf(4, 64), leaf(64))
        loss, *_ = torch_npu.npu_cross_entropy_loss(y, LABELS[:4])
        loss.backward()
        with pytest.raises(AttributeError, match="npu_rms_norm"):
            torch_npu.npu_no_such_function(y)

    calls, _ = calls_of(step)
    assert calls["rms_norm"] == [({"x": "4x64:fp32", "gamma": "64:fp32"}, 1)]
    assert calls["rms_norm_grad"] == [
        ({"dy": "4x64:fp32", "x": "4x64:fp32", "rstd": "4x1:fp32", "gamma": "64:fp32"}, 1)
    ]
    assert calls["cross_entropy_loss_grad"][0][1] == 1
    with pytest.raises(ImportError):
        import torch_npu  # noqa: F401


def test_a_file_starts_with_the_code_that_its_calls_do_not_cover(tmp_path):
    with simulated.record(tmp_path / "calls.jsonl") as recording:
        step_of(Model())()
    head, *lines = [
        json.loads(line)
        for line in (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert head["schema"] == "npu_sim.calls/1"
    assert head["recorded"]["not_modelled"] == dict(recording.not_modelled)
    assert lines == list(recording)
    assert isinstance(npu_sim.plan(lines[0]["op"], **lines[0]["inputs"]), npu_sim.Plan)


def test_marks_of_the_profiler_are_no_kernels():
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters())
    with simulated.record() as recording:
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert recording.not_modelled
    assert all(name.startswith("aten::") for name in recording.not_modelled)


def test_calls_of_a_thread_account_for_its_kernels_of_the_backward_pass():
    words = torch.randn(WORDS, HIDDEN, requires_grad=True)
    tokens, losses = torch.arange(TOKENS), []

    def forward():
        logits = functional.embedding(tokens, words) @ words.T
        losses.append(functional.cross_entropy(logits, tokens))

    with simulated.record() as recording:
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
        losses[0].backward()
    assert recording.count("cross_entropy_loss_grad") == 1
    assert recording.count("embedding_dense_backward") == 1
    assert not recording.not_recognised
    assert "aten::nll_loss_backward" not in recording.not_modelled
