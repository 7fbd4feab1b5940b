"""Second derivatives and torch.func transforms: as PyTorch, or an error with the name."""

import re

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch import func  # noqa: E402
from torch.autograd import forward_ad, functional  # noqa: E402
from torch.nn.functional import cross_entropy, embedding, rms_norm, silu  # noqa: E402

import npu_sim.torch as simulated  # noqa: E402
from npu_sim.torch.operators import differentiable_functions  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:There is a performance drop",  # of PyTorch's own functions
    "ignore:`torch.jit.script` is deprecated",  # on the first call of torch.func.jvp
)

INDICES = torch.tensor([[1, 0, 3], [2, 1, 1]])
LABELS = torch.tensor([1, 0, 3])
PLACES = torch.tensor([2, 0, 5, 1, 4, 3], dtype=torch.int32)


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def permuted(tokens):
    return tokens[torch.argsort(INDICES.reshape(-1), stable=True) // INDICES.shape[1]]


def unpermuted(rows, probs):
    return (rows[PLACES.long()].reshape(2, 3, -1) * probs.unsqueeze(-1)).sum(dim=1)


def normalised(x, gamma):
    return rms_norm(x, (16,), gamma, 1e-6)


def rotated(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def gated(x):
    a, b = x.chunk(2, -1)
    return silu(a) * b


NORM = normal(3, 2, 16), normal(16)
LOGITS = (normal(3, 5),)
TOKENS = (normal(2, 8),)
ROWS = normal(6, 8), normal(2, 3)
FUNCTIONS = {
    "embedding": (
        lambda weight: simulated.embedding(INDICES, weight, 2),
        lambda weight: embedding(INDICES, weight, 2),
        (normal(4, 8),),
    ),
    "conv_tbc": (
        lambda *tensors: simulated.conv_tbc(*tensors, 1),
        lambda *tensors: torch.conv_tbc(*tensors, 1),
        (normal(6, 2, 4), normal(3, 4, 5), normal(5)),
    ),
    "rms_norm": (lambda x, gamma: simulated.rms_norm(x, (16,), gamma, 1e-6), normalised, NORM),
    "npu_rms_norm": (lambda *tensors: simulated.npu_rms_norm(*tensors)[0], normalised, NORM),
    "npu_add_rms_norm": (
        lambda *tensors: torch.stack(simulated.npu_add_rms_norm(*tensors)[::2]),
        lambda x1, x2, gamma: torch.stack((normalised(x1 + x2, gamma), x1 + x2)),
        (NORM[0], normal(3, 2, 16), NORM[1]),
    ),
    "cross_entropy": (
        lambda logits: simulated.cross_entropy(logits, LABELS),
        lambda logits: cross_entropy(logits, LABELS),
        LOGITS,
    ),
    "npu_cross_entropy_loss": (
        lambda logits: simulated.npu_cross_entropy_loss(logits, LABELS, reduction="none")[0],
        lambda logits: cross_entropy(logits, LABELS, reduction="none"),
        LOGITS,
    ),
    "moe_token_permute": (
        lambda tokens: simulated.moe_token_permute(tokens, INDICES)[0],
        permuted,
        TOKENS,
    ),
    "npu_moe_token_permute": (
        lambda tokens: simulated.npu_moe_token_permute(tokens, INDICES)[0],
        permuted,
        TOKENS,
    ),
    "moe_token_unpermute": (
        lambda rows, probs: simulated.moe_token_unpermute(rows, PLACES, probs),
        unpermuted,
        ROWS,
    ),
    "npu_moe_token_unpermute": (
        lambda rows, probs: simulated.npu_moe_token_unpermute(rows, PLACES, probs),
        unpermuted,
        ROWS,
    ),
    "npu_swiglu": (simulated.npu_swiglu, gated, (normal(3, 8),)),
    "npu_rotary_mul": (
        simulated.npu_rotary_mul,
        rotated,
        (normal(1, 3, 2, 8), *normal(2, 1, 3, 1, 8)),
    ),
}


def summed(function):
    """Return a scalar function, linear in the results."""
    return lambda *tensors: (function(*tensors) * 3).sum()


def squared(function):
    return lambda *tensors: function(*tensors).square().sum()


def every(tensors):
    return tuple(range(len(tensors)))


def twice(tensors):
    """Return a batch of two different examples."""
    return tuple(torch.stack([tensor, tensor.cos()], dim=-1) for tensor in tensors)


def batched(function, tensors):
    examples = twice(tensors)
    return func.vmap(function, in_dims=-1)(*examples)


def dual(function, tensors):
    with forward_ad.dual_level():
        value = function(*(forward_ad.make_dual(tensor, tensor.sin()) for tensor in tensors))
        return tuple(forward_ad.unpack_dual(value))


def gradients_of_a_batch(function, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    value = function(*leaves)
    weights = torch.stack([value.detach().cos(), value.detach().sin()])
    return torch.autograd.grad(value, leaves, weights, is_grads_batched=True)


SUPPORTED = {
    "grad": lambda f, x: func.grad(squared(f), every(x))(*x),
    "vjp": lambda f, x: func.vjp(f, *x)[1](f(*x)),
    "jacrev": lambda f, x: func.jacrev(f, every(x))(*x),
    "jacobian": lambda f, x: functional.jacobian(f, x, vectorize=True),
    "vmap": batched,
    "vmap of grad": lambda f, x: batched(func.grad(squared(f), every(x)), x),
    "grad of vmap": lambda f, x: func.grad(squared(func.vmap(f, in_dims=-1)), every(x))(*twice(x)),
    "vmap of vmap": lambda f, x: func.vmap(func.vmap(f, -1), -1)(*twice(twice(x))),
    "batch of gradients": gradients_of_a_batch,
}
MAY_BE_REFUSED = {
    "hessian": lambda f, x: functional.hessian(squared(f), x),
    "hessian of a sum": lambda f, x: functional.hessian(summed(f), x),
    "func.hessian": lambda f, x: func.hessian(summed(f), every(x))(*x),
    "grad of grad": lambda f, x: func.grad(
        lambda *x: func.grad(summed(f))(*x).square().sum(), every(x)
    )(*x),
    "jacrev of jacrev": lambda f, x: func.jacrev(func.jacrev(summed(f)), every(x))(*x),
    "hvp": lambda f, x: functional.hvp(summed(f), x, x),
    "jvp": lambda f, x: func.jvp(f, x, tuple(tensor.sin() for tensor in x)),
    "jacfwd": lambda f, x: func.jacfwd(f, every(x))(*x),
    "dual": dual,
    "jvp by two vjps": lambda f, x: functional.jvp(f, x, x),
    "vmap of jvp": lambda f, x: batched(lambda *x: func.jvp(f, x, x), x),
}


GRADIENTS = {"npu_moe_token_permute_grad_v2"}
"""Functions that are gradients themselves: the product has no operator for theirs."""


def test_every_differentiable_function_is_tested():
    assert FUNCTIONS.keys() == differentiable_functions().keys() - GRADIENTS


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("transform", SUPPORTED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_transform_gives_what_pytorch_gives(name, transform):
    ours, theirs, tensors = FUNCTIONS[name]
    assert_close(SUPPORTED[transform](ours, tensors), SUPPORTED[transform](theirs, tensors))


@pytest.mark.parametrize("transform", MAY_BE_REFUSED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_derivative_is_right_or_refused_by_name(name, transform):
    ours, theirs, tensors = FUNCTIONS[name]
    value, message = None, ""
    try:
        value = MAY_BE_REFUSED[transform](ours, tensors)
    except NotImplementedError as error:
        message = str(error)
    if value is None:
        operator = name.removeprefix("npu_").removesuffix("_loss").replace("swiglu", "swi_glu")
        operator = operator.replace("rotary_mul", "rotary_position_embedding")
        own = rf"npu_sim::({operator}|rms_norm)" if operator == "add_rms_norm" else operator
        assert re.search(own, message)  # AddRmsNorm has the gradient of RmsNorm
    else:
        assert_close(value, MAY_BE_REFUSED[transform](theirs, tensors))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", ["jvp", "dual", "jacfwd"])
def test_forward_mode_is_refused(name, transform):
    function, _, tensors = FUNCTIONS[name]
    with pytest.raises(NotImplementedError, match=r"npu_sim::\w+ has no forward-mode derivative"):
        MAY_BE_REFUSED[transform](function, tensors)


def test_operators_without_a_gradient_take_a_batch():
    grad, rows = normal(2, 6, 4), torch.arange(6) % 3
    value = func.vmap(lambda grad: simulated.embedding_dense_backward(grad, rows, 3))(grad)
    assert_close(value, torch.stack([torch.zeros(3, 4).index_add(0, rows, one) for one in grad]))
