"""Operators registered with PyTorch: compiler, tracing, meta tensors and autocast."""

import sys

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.framework.arguments import Number  # noqa: E402
from npu_sim.framework.inference import arguments_of, call_with  # noqa: E402
from npu_sim.operators.loading import load_operator  # noqa: E402
from npu_sim.operators.shared.generate import generate  # noqa: E402
from npu_sim.registry import OPERATOR_NAMES  # noqa: E402
from npu_sim.torch.library import array_as_tensor  # noqa: E402

SMALL = 8


def small_call(name):
    """Return the arguments of a small call of an operator, from its declaration."""
    operator = load_operator(name)
    values = {
        axis.name: min(axis.default, SMALL) if isinstance(axis, Number) else axis.default
        for axis in operator.axes
    }
    call = call_with(operator, values)
    arrays = generate(name, arguments_of(operator, call), 0)
    return {
        key: array_as_tensor(arrays[key]) if key in arrays else value for key, value in call.items()
    }


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()


INDICES = torch.tensor([[1, 0, 3], [2, 1, 1]])
PLACES = torch.tensor([2, 0, 5, 1, 4, 3], dtype=torch.int32)
FORWARDS = {
    "embedding": (
        lambda weight: simulated.embedding(INDICES, weight, 2, scale_grad_by_freq=True),
        lambda: (leaf(4, 8),),
    ),
    "conv_tbc": (
        lambda *tensors: simulated.conv_tbc(*tensors, 1),
        lambda: (leaf(6, 2, 4), leaf(3, 4, 5), leaf(5)),
    ),
    "rms_norm": (
        lambda x, gamma: simulated.rms_norm(x, (16,), gamma, 1e-6),
        lambda: (leaf(3, 2, 16), leaf(16)),
    ),
    "cross_entropy": (
        lambda logits: simulated.cross_entropy(logits, INDICES[0], ignore_index=0),
        lambda: (leaf(3, 5),),
    ),
    "moe_token_permute": (
        lambda tokens: simulated.moe_token_permute(tokens, INDICES)[0],
        lambda: (leaf(2, 8),),
    ),
    "moe_token_unpermute": (
        lambda rows, probs: simulated.moe_token_unpermute(rows, PLACES, probs),
        lambda: (leaf(6, 8), leaf(2, 3)),
    ),
}
REGISTERED = {
    "embedding": lambda: (INDICES, leaf(4, 8), -1, False),
    "conv_tbc": lambda: (leaf(6, 2, 4), leaf(3, 4, 5), leaf(5), 1, 0),
    "rms_norm": lambda: (leaf(3, 2, 16), leaf(16), 1e-6),
    "cross_entropy": lambda: (leaf(3, 5), INDICES[0], None, "mean", -100, 0.0),
    "moe_token_permute": lambda: (leaf(2, 8), INDICES, 0, False),
    "moe_token_unpermute": lambda: (leaf(6, 8), PLACES, leaf(2, 3), False, None),
}


def step(function, tensors):
    """Return a function's value and gradients."""
    value = function(*tensors)
    return value, *torch.autograd.grad((value * torch.cos(value.detach())).sum(), tensors)


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_opcheck_passes_for_every_operator(name):
    torch.library.opcheck(getattr(torch.ops.npu_sim, name).default, (), small_call(name))


@pytest.mark.parametrize("name", REGISTERED)
def test_opcheck_passes_for_every_function_with_a_gradient(name):
    torch.library.opcheck(getattr(torch.ops.npu_sim, name).default, REGISTERED[name]())


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_meta_tensors_give_the_shapes_of_the_results(name):
    call = small_call(name)
    function = (
        getattr(simulated, name) if name not in FORWARDS else getattr(torch.ops.npu_sim, name)
    )
    expected = function(**call)
    actual = function(
        **{
            key: value.to("meta") if torch.is_tensor(value) else value
            for key, value in call.items()
        }
    )
    pairs = (result if isinstance(result, tuple) else (result,) for result in (actual, expected))
    for tensor, right in zip(*pairs, strict=True):
        if right is None:  # an optional result that is not written
            assert tensor is None
            continue
        assert tensor.device.type == "meta"
        assert (tensor.shape, tensor.dtype) == (right.shape, right.dtype)
        assert tensor.stride() == right.stride()


def test_meta_tensors_are_checked_as_others_are():
    with pytest.raises(npu_sim.AclnnError, match="63"):
        simulated.embedding_dense_backward(
            torch.zeros(64, 4, device="meta"), torch.zeros(63, dtype=torch.int64, device="meta"), 5
        )


@pytest.mark.parametrize("name", FORWARDS)
def test_a_compiled_step_has_the_bits_of_the_plain_one(name):
    function, tensors = FORWARDS[name]
    inputs = tensors()
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for actual, right in zip(step(compiled, inputs), step(function, inputs), strict=True):
        assert torch.equal(actual, right)


@pytest.mark.parametrize("name", FORWARDS)
def test_a_traced_step_computes_with_other_values(name):
    function, tensors = FORWARDS[name]
    traced = make_fx(lambda *inputs: step(function, inputs))(*tensors())
    others = [(2 * tensor).detach().requires_grad_() for tensor in tensors()]
    for actual, right in zip(traced(*others), step(function, others), strict=True):
        assert torch.equal(actual, right)


PLAIN = {
    "conv_tbc": lambda *tensors: torch.conv_tbc(*tensors, 1),
    "embedding": lambda weight: functional.embedding(INDICES, weight, 2, scale_grad_by_freq=True),
    "cross_entropy": lambda logits: functional.cross_entropy(logits, INDICES[0], ignore_index=0),
    "rms_norm": lambda x, gamma: functional.rms_norm(x, (16,), gamma, 1e-6),
}


@pytest.mark.parametrize("name", PLAIN)
def test_autocast_converts_to_the_dtypes_of_pytorch(name):
    function, tensors = FORWARDS[name]
    results = []
    for compute in (function, PLAIN[name]):
        inputs = tensors()
        with torch.autocast("cpu", torch.bfloat16):
            value = compute(*inputs)
        value.float().sum().backward()
        results.append((value, *(tensor.grad for tensor in inputs)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-5)


ERRORS = [
    (lambda: simulated.cross_entropy(torch.zeros(5), torch.tensor(1)), "input has shape"),
    (
        lambda: simulated.cross_entropy(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int32)),
        "target is torch.int32",
    ),
    (
        lambda: simulated.cross_entropy(
            torch.zeros(2, 5), torch.zeros(2).long(), torch.ones(5).bfloat16()
        ),
        "weight is torch.bfloat16",
    ),
    (lambda: simulated.rms_norm(torch.zeros(2, 16), (16,), None), "weight = None"),
    (
        lambda: simulated.embedding_dense_backward(torch.zeros(2, 4), torch.zeros(2).long(), 2.5),
        "num_weights = 2.5",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_an_unsupported_call_raises_an_error(call, message):
    with pytest.raises(npu_sim.NpuSimError, match=message):
        call()


MODULE = """
import torch
from npu_sim.torch.flow import Formula, Term
from npu_sim.torch.fused import Forward, FusedCall
from npu_sim.torch.recorder import spec_of

__all__ = ["npu_sinc"]
FORWARD = TOPIC = "rms_norm"


def _call(x, *steps):
    inputs = {"x": spec_of(x), "gamma": "8:fp32"}
    return FusedCall(compute=x.clone, forward=[Forward(FORWARD, inputs)], steps=frozenset(steps))


def npu_sinc(x):
    return torch.sinc(x)


def _sinc(span, x):
    return _call(x)


def _term(kernel, tensor):
    return Term("x", kernel.flow.identity(tensor), tuple(tensor.shape))


def _cube(kernel, x):
    kernel.span.fuse(kernel, _call(kernel.tensors[0], *x.steps))


FORMULA = Formula({("square", "x"): "square", ("erf", "x"): _cube})


def follow(kernel):
    return FORMULA.follow(kernel, _term)


FUNCTIONS = {torch.sinc: _sinc}
"""


def test_a_module_named_after_an_operator_is_all_that_it_needs(tmp_path, monkeypatch):
    from npu_sim.torch import operators

    (tmp_path / "rms_norm_grad.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(operators, "__path__", [*operators.__path__, str(tmp_path)])
    operators.modules.cache_clear()
    try:
        with simulated.record() as recording:
            import torch_npu

            torch_npu.npu_sinc(torch.ones(2, 8))
            torch.erf(torch.ones(3, 8))
    finally:
        operators.modules.cache_clear()
        sys.modules.pop("npu_sim.torch.operators.rms_norm_grad")
    assert [call["inputs"]["x"] for call in recording] == ["2x8:fp32", "3x8:fp32"]
    assert recording.not_modelled == {"aten::ones": 2}
