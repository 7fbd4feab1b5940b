"""Programs that run with the product's arithmetic: what is replaced, what is left, and the bits."""

import copy
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.framework.target import current_device  # noqa: E402
from npu_sim.torch.library import array_as_tensor, tensor_as_array  # noqa: E402
from npu_sim.torch.recording import Place  # noqa: E402

nothing_is_replaced = pytest.mark.filterwarnings("ignore:no call was replaced")
WORDS, COLUMNS, HIDDEN, HEADS = 40, 64, 96, 2
TARGETS = {
    "A2": {"product": "atlas_a2"},
    "A2, deterministic": {"product": "atlas_a2", "deterministic": True},
    "A2, a random order": {"product": "atlas_a2", "core_order": "random", "seed": 5},
    "950": {"product": "ascend_950"},
}


class Norm(torch.nn.Module):
    """RMS norm as models compute it."""

    def __init__(self, columns=COLUMNS):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normed.to(x.dtype)


class FusedNorm(Norm):
    """The same norm as an adapter computes it."""

    def forward(self, x):
        return simulated.npu_rms_norm(x, self.weight, 1e-6)[0]


class Gate(torch.nn.Module):
    """SwiGlu as models compute it."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(COLUMNS, HIDDEN) for _ in range(2))
        self.down = torch.nn.Linear(HIDDEN, COLUMNS)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class FusedGate(Gate):
    """The same gate as an adapter computes it."""

    def forward(self, x):
        return self.down(simulated.npu_swiglu(torch.cat((self.gate(x), self.up(x)), -1)))


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Rotary(torch.nn.Module):
    """Rotary position embedding as models compute it."""

    @staticmethod
    def turns(tokens, columns, dtype):
        angles = torch.arange(tokens)[:, None] / torch.arange(1, columns // 2 + 1)
        angles = torch.cat((angles, angles), -1)[None, :, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, x):
        rows = x.unflatten(-1, (HEADS, -1))
        cos, sin = self.turns(x.shape[1], rows.shape[-1], x.dtype)
        return self.turned(rows, cos, sin).flatten(-2)

    def turned(self, x, cos, sin):
        return x * cos + rotate_half(x) * sin


class FusedRotary(Rotary):
    """The same rotation as an adapter computes it."""

    def turned(self, x, cos, sin):
        return simulated.npu_rotary_mul(x, cos, sin)


class Model(torch.nn.Module):
    """A language model of one block without attention."""

    parts = (Norm, Gate, Rotary)
    embedding, loss = staticmethod(functional.embedding), staticmethod(functional.cross_entropy)

    def __init__(self):
        super().__init__()
        norm, gate, rotary = self.parts
        self.words = torch.nn.Parameter(torch.randn(WORDS, COLUMNS))
        self.first, self.last, self.gate, self.rotary = norm(), norm(), gate(), rotary()
        self.head = torch.nn.Linear(COLUMNS, WORDS)

    def forward(self, tokens):
        x = self.embedding(tokens, self.words)
        x = x + self.rotary(self.first(x))
        x = x + self.gate(x)
        return self.loss(self.head(self.last(x)).flatten(0, 1), tokens.roll(-1, 1).flatten())


class FusedModel(Model):
    """The model, with an adapter for the product by hand."""

    parts = (FusedNorm, FusedGate, FusedRotary)
    embedding, loss = staticmethod(simulated.embedding), staticmethod(simulated.cross_entropy)


def trained(kind, dtype, steps=6, step=None):
    """Return the losses and parameters after some steps with AdamW."""
    torch.manual_seed(0)
    model = kind().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    losses = []
    for _ in range(steps):
        loss = model(torch.randint(WORDS, (2, 12)))
        loss.backward()
        (step or optimizer.step)()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in model.parameters()]


def left_of(report):
    """Return the reasons why calls were left to PyTorch, by operator."""
    return {operator: str(why) for operator, why, _ in report.left}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_model_trains_as_one_with_an_adapter_by_hand(target, dtype):
    with simulated.emulate(**target) as report:
        losses, parameters = trained(Model, dtype)
    is_950 = target["product"] == "ascend_950"
    parts = (*FusedModel.parts[:2], Rotary) if is_950 else FusedModel.parts
    by_hand = type("ByHand", (FusedModel,), {"parts": parts})
    fused = {"fused": ["apply_adam_w_v2"]}
    with simulated.emulate(**target, **fused) as adapter:
        expected, expected_parameters = trained(by_hand, dtype)
    assert losses == expected
    assert all(map(torch.equal, parameters, expected_parameters))
    assert report.counts() == adapter.counts()
    assert set(left_of(report)) == ({"rotary_position_embedding"} if is_950 else set())


def test_without_emulation_the_model_trains_otherwise():
    with simulated.emulate():
        emulated = trained(Model, torch.bfloat16)
    plain = trained(Model, torch.bfloat16)
    assert emulated[0] != plain[0]


def as_given(value):
    """Return an argument as an array that the program does not change."""
    return tensor_as_array(value.detach().clone()) if isinstance(value, torch.Tensor) else value


class Captured(TorchDispatchMode):
    """Calls of operators of npu_sim with their tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        if function.namespace == "npu_sim":
            name = function.name().partition("::")[2]
            if name not in ("embedding", "cross_entropy"):  # PyTorch's own forward passes
                names = [argument.name for argument in function._schema.arguments]
                given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
                arrays = {key: as_given(value) for key, value in given.items()}
                listed = results if isinstance(results, tuple) else (results,)
                self.calls.append((name, arrays, listed))
        return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_call_has_the_bits_that_run_computes(target, dtype):
    captured = Captured()
    with simulated.emulate(**target), captured:
        trained(Model, dtype, steps=1)
    assert len(captured.calls) >= 8
    for name, arrays, results in captured.calls:
        expected = npu_sim.run(name, **target, **arrays).outputs.values()
        written = [tensor for tensor in results if tensor.numel()]
        for tensor, array in zip(written, (a for a in expected if a.size), strict=True):
            bits = array_as_tensor(array).view(torch.uint8)
            assert torch.equal(tensor.detach().contiguous().view(torch.uint8), bits)


def gated(gate, up):
    return functional.silu(gate) * up


def pair(dtype=torch.float32, requires_grad=True):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(8, 32, generator=generator).to(dtype).requires_grad_(requires_grad)
        for _ in range(2)
    ]


def fused_gated(gate, up):
    return simulated.npu_swiglu(torch.cat((gate, up), -1))


def test_the_strides_of_the_program_stay():
    gate, up = (torch.randn(2, 6, 3, 16, requires_grad=True) for _ in range(2))
    with simulated.emulate() as report:
        y = gated(gate.transpose(1, 2), up.transpose(1, 2))
        rows = y.transpose(1, 2).view(2, 6, 48)  # refused for a result that is contiguous
        rows.sum().backward()
    assert y.stride() == gate.transpose(1, 2).stride()
    torch.testing.assert_close(rows, gated(gate, up).flatten(2))
    assert report.counts() == {"swi_glu": 1, "swi_glu_grad": 1}


def test_the_dtype_of_the_program_stays():
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    gamma = torch.rand(32)
    with simulated.emulate() as report:
        wide = x.float()
        y = gamma * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6))
    assert y.dtype == torch.float32
    assert torch.equal(y, simulated.npu_rms_norm(x, gamma, 1e-6)[0].float())
    ((operator, dtypes, _),) = report.widened
    assert (operator, dtypes) == ("rms_norm", "torch.bfloat16 to torch.float32")


def in_place_input(gate, up):
    gate = gate.detach()
    silu = functional.silu(gate)
    gate.add_(1)
    return silu * up


def in_place_last_kernel(gate, up):
    return functional.silu(gate).mul_(up)


def in_torch_func(gate, up):
    return torch.func.vmap(gated)(gate.detach(), up.detach())


def in_forward_mode(gate, up):
    with forward_ad.dual_level():
        result = gated(forward_ad.make_dual(gate.detach(), up.detach()), up.detach())
        return forward_ad.unpack_dual(result).tangent


def while_traced(gate, up):
    make_fx(gated)(gate.detach(), up.detach())
    return gate + up


class OwnGradient(torch.autograd.Function):
    """A function whose backward is the user's."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return gated(gate, up)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            gate, up = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
            return torch.autograd.grad(gated(gate, up), (gate, up), gradient)


apply_own_gradient = OwnGradient.apply


def detached_part(gate, up):
    return functional.silu(gate).detach() * up


def without_gradient(gate, up):
    with torch.no_grad():
        silu = functional.silu(gate)
    return silu * up


def on_the_meta_device(gate, up):
    return gated(gate.detach().to("meta"), up.detach().to("meta"))


@torch.overrides.wrap_torch_function(lambda gate, up: (gate, up))
def in_another_function(gate, up):
    return gated(gate, up) + 1


DETACHED_PART = (
    "a part of the formula is detached, has a hook or is an autograd.Function: its gradient is "
    "another one"
)
LEFT = {
    in_place_input: "an input is changed in place before the last kernel of the formula",
    in_place_last_kernel: "its last kernel writes in place",
    in_torch_func: "a transform of torch.func computes it",
    while_traced: "it is traced, or runs on fake tensors: there are no values",
    in_forward_mode: "it is in a block of forward-mode differentiation",
    apply_own_gradient: "the autograd.Function OwnGradient computes it, whose gradient is its own",
    detached_part: DETACHED_PART,
    without_gradient: DETACHED_PART,
    on_the_meta_device: "its tensors are on the device meta",
    in_another_function: "another function or compiled code computes it",
}


@nothing_is_replaced
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("program", LEFT, ids=lambda program: getattr(program, "__name__", "apply"))
def test_code_that_cannot_be_replaced_is_listed_and_computes_as_before(program):
    expected = program(*(tensor * 1 for tensor in pair()))
    with simulated.emulate() as report:
        found = program(*(tensor * 1 for tensor in pair()))
        if found.requires_grad:
            found.sum().backward()
    assert left_of(report) == {"swi_glu": LEFT[program]}
    assert report.counts() == {}
    assert found.device.type == "meta" or torch.equal(found, expected)


def of_no_gradient(x):
    with torch.no_grad():
        silu = functional.silu(x)
    return silu * torch.ones(4, 6)


def with_a_hook(x):
    silu = functional.silu(x)
    silu.register_hook(lambda gradient: 2 * gradient)
    return silu * torch.ones(4, 6)


class Reversed(torch.autograd.Function):
    """The identity, with the opposite gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


def normed(x, squared, other):
    return x * torch.rsqrt((squared * other).mean(-1, keepdim=True) + 1e-6) * torch.ones(6)


def normed_after_a_cast(x):
    wide = x.bfloat16().float()
    return normed(wide.detach(), wide, wide)


def turned(x, first, second):
    joined = torch.cat((-second[None, :, 3:], first[None, :, :3]), -1)
    return x[None] * torch.ones(1, 4, 6) + joined * torch.full((1, 4, 6), 0.5)


def turned_by_halves(x):
    first, second = x[None, :, :3], x[None, :, 3:]
    cos, sin = torch.ones(1, 4, 3), torch.full((1, 4, 3), 0.5)
    return torch.cat((first.detach() * cos - second * sin, second * cos + first * sin), -1)


def leaf(x):
    return x.detach().requires_grad_()


def turned_by_halves_of_a_leaf(x):
    first, second = x[None, :, :3], x[None, :, 3:]
    cos, sin = torch.ones(1, 4, 3), torch.full((1, 4, 3), 0.5)
    return torch.cat((first * cos - leaf(second) * sin, second * cos + first * sin), -1)


CLASSES = torch.tensor([3, 1, 5, 0])
DETACHED = {
    "a numerator that is a leaf": lambda x: normed(leaf(x), x, x),
    "a numerator with a gradient of its own": lambda x: normed(Reversed.apply(x), x, x),
    "what sin multiplies has a gradient of its own": lambda x: turned(x, *[Reversed.apply(x)] * 2),
    "a half that is a leaf in one of two products": turned_by_halves_of_a_leaf,
    "logits of a sum with a gradient of their own": lambda x: (
        x[torch.arange(4), CLASSES] - Reversed.apply(x).logsumexp(-1)
    ),
    "a numerator": lambda x: normed(x.detach(), x, x),
    "a numerator after a cast": normed_after_a_cast,
    "a denominator": lambda x: normed(x, x.detach(), x.detach()),
    "one of two factors of a square": lambda x: normed(x, x, x.detach()),
    "what cos multiplies": lambda x: turned(x.detach(), x, x),
    "what sin multiplies": lambda x: turned(x, x.detach(), x.detach()),
    "a half of what sin multiplies": lambda x: turned(x, x.detach(), x),
    "a half in one of two products": turned_by_halves,
    "log-probabilities": lambda x: functional.nll_loss(x.log_softmax(-1).detach(), CLASSES),
    "a gate": of_no_gradient,
    "a gate with a gradient of its own": lambda x: Reversed.apply(functional.silu(x)) * x,
    "a gate with a hook": with_a_hook,
    "labels' logits": lambda x: x.detach()[torch.arange(4), CLASSES] - x.logsumexp(-1),
    "logits of a sum": lambda x: x[torch.arange(4), CLASSES] - x.detach().logsumexp(-1),
}


@nothing_is_replaced
@pytest.mark.parametrize("name", DETACHED)
def test_the_gradient_is_the_programs_where_a_part_of_the_formula_has_another(name):
    def program(x):
        return DETACHED[name](x).sum() + x.sum()

    logits = torch.randn(4, 6, requires_grad=True)
    expected = gradients(program, logits)
    with simulated.emulate() as report:
        found = gradients(program, logits)
    assert "detached" in " ".join(left_of(report).values())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_part_without_gradients_is_recomputed_as_the_rest(reentrant):
    x, weight = torch.randn(4, 6), torch.ones(6, requires_grad=True)

    def block(x, weight):
        with torch.no_grad():
            copied = x.clone()
        return copied * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    with simulated.emulate() as report:
        checkpoint(block, x, weight, use_reentrant=reentrant).sum().backward()
    assert report.counts() == {"rms_norm": 2, "rms_norm_grad": 1}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_halves_of_a_parameter_are_rotated_without_gradients(mode):
    x = torch.nn.Parameter(torch.randn(1, 4, 64))
    cos, sin = torch.ones(1, 4, 32), torch.full((1, 4, 32), 0.5)
    with simulated.emulate() as report, mode():
        first, second = x.chunk(2, -1)
        torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    assert report.counts() == {"rotary_position_embedding": 1}
    assert not report.left


@nothing_is_replaced
def test_a_numerator_with_an_offset_is_another_formula():
    x = torch.randn(4, 6)
    expected = normed(x + 0.25, x, x)
    with simulated.emulate() as report:
        assert torch.equal(normed(x + 0.25, x, x), expected)
    assert report.counts() == {}


@nothing_is_replaced
def test_a_part_that_keeps_its_gradient_has_it():
    gate, up = pair()
    with simulated.emulate() as report:
        silu = functional.silu(gate)
        silu.retain_grad()
        (silu * up).sum().backward()
    assert torch.equal(silu.grad, up)
    assert left_of(report) == {"swi_glu": DETACHED_PART}


def in_a_thread(function):
    """Return the result of a function that runs in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("number", range(6))
def test_nodes_of_another_thread_are_not_those_of_the_same_number(number):
    x = torch.randn(4, 6, requires_grad=True)

    def numbered():
        for _ in range(number):
            x.sin()
        return x.cos()

    def formula(x):
        return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * x * torch.ones(6)

    with simulated.emulate() as report:
        before = in_a_thread(numbered)
        in_a_thread(lambda: formula(before))
    assert not report.left
    assert report.counts() == {"rms_norm": 1}


@nothing_is_replaced
def test_a_formula_of_a_loop_without_gradients_does_not_keep_its_tensors():
    with simulated.emulate() as report, torch.no_grad():
        gate, up = pair(requires_grad=False)
        silu = functional.silu(gate)
        x = up
        for _ in range(200):
            x = x * up
        silu * up
    assert left_of(report) == {"swi_glu": "its first kernel ran too long before its last"}


@nothing_is_replaced
def test_an_adamw_that_is_not_fused_is_listed():
    weight = torch.nn.Parameter(torch.randn(4))
    with simulated.emulate() as report:
        optimizer = torch.optim.AdamW([weight])
        weight.sum().backward()
        optimizer.step()
    assert "with fused=True" in left_of(report)["apply_adam_w_v2"]


def test_a_second_derivative_is_an_error():
    gate, up = pair()
    with simulated.emulate():
        (first,) = torch.autograd.grad(gated(gate, up).sum(), gate, create_graph=True)
        with pytest.raises(NotImplementedError, match="second derivatives"):
            first.sum().backward()


def gradients(program, *tensors):
    return torch.autograd.grad(program(*tensors).square().sum(), tensors)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("in_module", [False, True])
def test_checkpoints_have_the_gradients_of_the_same_code_without(reentrant, in_module):
    module = torch.nn.Identity()

    def block(gate, up):
        return gated(module(gate) if in_module else gate, up) * 2

    def checkpointed(gate, up):
        return checkpoint(block, gate, up, use_reentrant=reentrant)

    with simulated.emulate() as report:
        gate, up = pair()
        checkpointed(gate, up).square().sum().backward()
    expected = gradients(lambda *both: fused_gated(*both) * 2, *pair())
    assert all(map(torch.equal, (gate.grad, up.grad), expected))
    assert report.counts() == {"swi_glu": 2, "swi_glu_grad": 1}
    assert not report.left
    assert not report.compilation


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_is_replaced(mode):
    torch.manual_seed(0)
    norm = Norm().bfloat16()
    x = torch.randn(4, COLUMNS).bfloat16()
    with simulated.emulate() as report, mode():
        y = norm(x)
    assert torch.equal(y, simulated.npu_rms_norm(x, norm.weight, 1e-6)[0])
    assert report.counts() == {"rms_norm": 1}


def test_autocast_casts_as_pytorch_does():
    torch.manual_seed(0)
    model, tokens = Model(), torch.randint(WORDS, (2, 12))
    with simulated.emulate() as report, torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens)
        loss.backward()
    assert loss.dtype == torch.float32
    assert not report.left
    assert report.counts()["cross_entropy_loss_grad"] == 1
    (call,) = (call for call in report.recording if call["op"] == "cross_entropy_loss_grad")
    assert call["inputs"]["log_prob"] == f"24x{WORDS}:fp32"


LOGITS, LABELS = torch.randn(6, WORDS), torch.tensor([3, 1, -100, 0, 7, -100])


@nothing_is_replaced
def test_labels_that_950_refuses_are_left_before_the_backward_pass():
    logits = LOGITS.clone().requires_grad_()
    with simulated.emulate("ascend_950") as report:
        loss = functional.cross_entropy(logits, LABELS)
        loss.backward()
    assert "masks nothing on Ascend 950" in left_of(report)["cross_entropy_loss_grad"]
    assert loss == functional.cross_entropy(LOGITS, LABELS)
    with simulated.emulate("atlas_a2") as report:
        functional.cross_entropy(logits, LABELS).backward()
    assert report.counts() == {"cross_entropy_loss_grad": 1}


def test_a_refused_call_raises_if_that_is_wanted():
    logits = LOGITS.clone().requires_grad_()
    with pytest.raises(npu_sim.AclnnError), simulated.emulate("ascend_950", strict=True):
        functional.cross_entropy(logits, LABELS)


IMAGES = torch.randn(2, 5, 3)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: functional.cross_entropy(x, y),
        lambda x, y: functional.cross_entropy(x, y, reduction="none").sum(),
        lambda x, y: functional.nll_loss(functional.log_softmax(x, 1), y, reduction="sum"),
        lambda x, y: functional.cross_entropy(x[0, :, 0], y[0, 0]),
        lambda x, y: -functional.log_softmax(x[..., 0], -1).gather(-1, y[:, :1]).mean(),
        lambda x, y: (x[..., 0].logsumexp(-1) - x[..., 0].gather(-1, y[:, :1]).squeeze(-1)).sum(),
    ],
)
def test_every_form_of_a_cross_entropy_has_the_products_gradient(program):
    labels = torch.tensor([[1, 0, 4], [2, 2, 3]])
    with simulated.emulate() as report:
        x = IMAGES.clone().requires_grad_()
        loss = program(x, labels)
        loss.backward()
    plain = IMAGES.clone().requires_grad_()
    expected = program(plain, labels)
    expected.backward()
    assert report.counts() == {"cross_entropy_loss_grad": 1}
    assert not report.left
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(x.grad, plain.grad)


def halves_apart(x, cos, sin):
    first, second = x.chunk(2, -1)
    cos, sin = (turn.chunk(2, -1)[0] for turn in (cos, sin))
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def pairs_apart(x, cos, sin):
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = (turn.chunk(2, -1)[0] for turn in (cos, sin))
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), -1)
    return turned.flatten(-2)


def complex_pairs(x, cos, sin):
    turn = torch.polar(torch.ones(()), sin.atan2(cos).chunk(2, -1)[0])
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


def inverse(x, cos, sin):
    return halves_apart(x, cos, -sin)


def partial(x, cos, sin):
    turned, rest = x.chunk(2, -1)
    cos, sin = (turn[..., : turned.shape[-1]] for turn in (cos, sin))
    first, second = turned.chunk(2, -1)
    cos, sin = (turn.chunk(2, -1)[0] for turn in (cos, sin))
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


@pytest.mark.parametrize("program", [halves_apart, pairs_apart, complex_pairs, inverse, partial])
def test_every_form_of_a_rotation_is_replaced(program):
    cos, sin = Rotary.turns(6, 32, torch.float32)
    data = torch.randn(2, 6, 2, 32)
    results = []
    for emulated in (True, False):
        x = data.clone().requires_grad_()
        with simulated.emulate() if emulated else torch.enable_grad() as report:
            y = program(x, cos, sin)
            y.square().sum().backward()
        results.append((y, x.grad))
        if emulated:
            assert not report.left
            assert set(report.counts()) == {
                "rotary_position_embedding",
                "rotary_position_embedding_grad",
            }
    (y, grad), (plain, plain_grad) = results
    torch.testing.assert_close(y, plain)
    torch.testing.assert_close(grad, plain_grad)


def test_only_the_operators_that_are_named_are_replaced():
    with simulated.emulate(fused=["swi_glu"]) as report:
        trained(Model, torch.float32, steps=1)
    assert set(report.counts()) == {"swi_glu", "swi_glu_grad"}
    with (
        pytest.raises(npu_sim.UsageError, match="did you mean rms_norm"),
        simulated.emulate(fused=["rmsnorm"]),
    ):
        pass


def test_a_block_in_which_nothing_is_replaced_warns():
    with pytest.warns(UserWarning, match="no call was replaced"), simulated.emulate():
        torch.ones(2) + 1


@pytest.mark.parametrize("name", ["add_rms_norm", "rms_norm_grad", "embedding"])
def test_a_name_that_replaces_nothing_is_a_usage_error(name):
    with pytest.raises(npu_sim.UsageError, match="one of: "), simulated.emulate(fused=[name]):
        pass


def test_threads_of_the_program_are_emulated():
    tensors, found = pair(), []
    with simulated.emulate("atlas_a3", deterministic=True) as report:
        thread = threading.Thread(target=lambda: found.append(gated(*tensors)))
        thread.start()
        thread.join()
    with simulated.use("atlas_a3", deterministic=True):
        assert torch.equal(found[0], fused_gated(*tensors))
    assert report.counts() == {"swi_glu": 1}


def test_calls_for_another_target_are_not_counted_as_the_blocks():
    x = torch.randn(4, 16, requires_grad=True)
    with simulated.emulate("atlas_a2") as report:
        y = simulated.npu_swiglu(x)
        with simulated.use("ascend_950"):
            simulated.npu_swiglu(x)
            y.sum().backward()
        with simulated.use("atlas_a2"):
            simulated.npu_swiglu(x)
    assert report.counts() == {"swi_glu": 2}
    remarks = {operator: str(why) for operator, why, _ in report.recording.remarks}
    assert set(remarks) == {"swi_glu", "swi_glu_grad"}
    assert all("a target of its own, ascend_950" in why for why in remarks.values())


@nothing_is_replaced
def test_a_call_by_hand_in_a_thread_has_the_blocks_target():
    found = []
    with simulated.emulate("ascend_950", fused=[]) as report:
        thread = threading.Thread(target=lambda: found.append(current_device()))
        thread.start()
        thread.join()
    assert found == [report.target]


@pytest.mark.parametrize("block", [simulated.record, simulated.emulate], ids=["record", "emulate"])
def test_a_thread_that_outlives_the_block_runs_as_without_it(block):
    tensors, expected = pair(requires_grad=False), gated(*pair(requires_grad=False))
    with ThreadPoolExecutor(1) as pool:
        with block() as report:
            pool.submit(gated, *tensors).result()
        seen = str(report)
        assert torch.equal(pool.submit(gated, *tensors).result(), expected)
    assert str(report) == seen


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (simulated.record, simulated.emulate),
        (simulated.emulate, simulated.record),
        (simulated.emulate, simulated.emulate),
    ],
)
def test_a_block_in_another_one_would_count_calls_twice(outer, inner):
    with outer() as report:
        with pytest.raises(npu_sim.UsageError, match="runs already"), inner():
            pass
        gated(*pair())
    assert getattr(report, "recording", report).count("swi_glu") == 1


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda report: pickle.loads(pickle.dumps(report))]
)
def test_a_report_can_be_copied(copied):
    with simulated.emulate(seed=3) as report:
        gated(*pair())
    other = copied(report)
    assert other == report
    assert str(other) == str(report)
    other.recording.add("swi_glu", {"x": "8x16:fp32"}, Place("", "", "", 0))
    assert other.counts() == {"swi_glu": 2}
    assert report.counts() == {"swi_glu": 1}


def test_the_report_says_that_compilation_was_off():
    with simulated.emulate() as report:
        torch.compile(gated, backend="eager")(*pair())
    assert "does not compile" in report.compilation
    assert report.counts() == {"swi_glu": 1}


@pytest.mark.parametrize(("compare", "calls"), [("first", 1), (True, 3), (False, None)])
def test_calls_are_compared_with_what_the_program_computes(compare, calls):
    gate, up = pair(torch.bfloat16, requires_grad=False)
    with simulated.emulate(compare=compare) as report:
        for _ in range(3):
            gated(gate, up)
    changes = report.changes_of("swi_glu")
    assert (changes and changes.calls) == calls
    if changes:
        before, after = gated(gate, up).double(), fused_gated(gate, up).double()
        assert changes.differing == calls * int((before != after).sum())
        relative = (after - before).norm() / before.norm()
        assert changes.relative_rms == pytest.approx(float(relative))


def test_infinities_and_nan_on_both_sides_are_no_difference():
    gate, up = (torch.full((4, 8), 300.0, dtype=torch.float16) for _ in range(2))
    up[0], up[1] = torch.nan, -1
    with simulated.emulate() as report:
        result = functional.silu(gate) * up
    assert not result[[0, 2, 3]].isfinite().any()
    changes = report.changes_of("swi_glu")
    assert (changes.differing, changes.largest_ulp) == (0, 0)
    assert changes.relative_rms == 0
    changes.add(torch.tensor([1.0, torch.nan, 2.0]), torch.tensor([torch.inf, 1.0, 2.0]))
    assert changes.differing == 2
    assert changes.relative_rms == 0


def test_the_first_line_names_what_is_the_products_and_what_is_this_cpus():
    with simulated.emulate("A2") as report:
        gate, up = pair()
        (gated(gate, up) @ up.T).softmax(-1).sum().backward()
    first = str(report).partition("\nDifferences")[0].replace("\n", " ")
    assert first.startswith("as atlas_a2: swi_glu, swi_glu_grad; as this CPU: matmul, softmax, sum")


def test_calls_are_written_as_a_recording_has_them(tmp_path):
    with simulated.emulate(deterministic=True, path=tmp_path / "calls.jsonl"):
        gated(*pair())
        in_place_last_kernel(*pair())
    head, *lines = map(json.loads, (tmp_path / "calls.jsonl").read_text().splitlines())
    assert [entry["what"] for entry in head["recorded"]["left"]] == ["swi_glu"]
    ((line),) = lines
    assert (line["op"], line["count"]) == ("swi_glu", 1)
    assert line["deterministic"] is True
    assert npu_sim.preflight(tmp_path / "calls.jsonl").rows


def test_nothing_grows_over_many_steps():
    with simulated.emulate(compare=False) as report:
        for _ in range(30):
            gated(*pair()).sum().backward()
    assert sum(report.counts().values()) == 60
    assert len(report.recording.calls) == 2
