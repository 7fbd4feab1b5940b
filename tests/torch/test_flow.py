"""Views between the kernels of a formula: those that only change the shape, and all others."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim.torch as simulated  # noqa: E402

SIZE, COLUMNS = 8, 128
"""Axes are as long as others, so that a tensor and its transpose have the same shape."""
GAMMA = torch.nn.Parameter(torch.linspace(0.5, 1.5, SIZE))
LABELS = torch.arange(SIZE).flip(0) // 2
ROWS = torch.arange(SIZE)
ANGLES = torch.outer(torch.arange(SIZE), torch.linspace(0, 1, COLUMNS // 2)).repeat(1, 2)
SPREAD = torch.linspace(-1, 1, SIZE * COLUMNS).reshape(SIZE, COLUMNS)


def square(x):
    return x.pow(2)


def rstd(mean_square):
    return torch.rsqrt(mean_square + 1e-6)


def mean(x):
    return x.mean(-1, keepdim=True)


def log_prob(x, axis=-1):
    return functional.log_softmax(x, axis)


def picked(x):
    return x.gather(-1, LABELS[:, None])


def images(x):
    """Return logits of shape (2, SIZE, SIZE)."""
    return torch.stack((x, x.cos()))


def heads(x):
    """Return rows of shape (1, SIZE, SIZE, COLUMNS)."""
    return (x[..., None] * SPREAD)[None]


def half_turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rotated(x, other):
    return x * ANGLES.cos() + half_turned(other) * ANGLES.sin()


def rotated_halves(x, other):
    (first, second), (_, second_of_other) = x.chunk(2, -1), other.chunk(2, -1)
    cos, sin = (turn[:, : COLUMNS // 2] for turn in (ANGLES.cos(), ANGLES.sin()))
    return torch.cat((first * cos - second_of_other * sin, second * cos + first * sin), -1)


IN_ORDER = {
    "a norm of a transpose": lambda x: x.t() * rstd(mean(square(x.t()))) * GAMMA,
    "a norm in another shape": lambda x: (x * rstd(mean(square(x)))).view(2, 4, SIZE) * GAMMA,
    "a mean without its axis": lambda x: x * rstd(square(x).mean(-1)).view(-1, 1) * GAMMA,
    "log-probabilities in rows": lambda x: functional.nll_loss(
        log_prob(images(x)).view(-1, SIZE), LABELS.repeat(2)
    ),
    "log-probabilities in columns": lambda x: functional.nll_loss(
        log_prob(images(x)).transpose(1, 2), LABELS.repeat(2, 1)
    ),
    "columns": lambda x: functional.nll_loss(log_prob(images(x), 1), LABELS.repeat(2, 1)),
    "every row": lambda x: x.logsumexp(-1) - x[ROWS, LABELS],
    "every row of two axes": lambda x: log_prob(images(x))[torch.arange(2)[:, None], ROWS, LABELS],
    "a rotation of a transpose": lambda x: rotated(*[heads(x).transpose(1, 2)] * 2),
}
IN_ANOTHER_ORDER = {
    "a transposed gate": lambda x: functional.silu(x).t() * x,
    "transposed squares": lambda x: x * rstd(mean(square(x).t())) * GAMMA,
    "rstd in columns": lambda x: x * rstd(mean(square(x))).t() * GAMMA,
    "rstd without its axis": lambda x: x * rstd(square(x).mean(-1)) * GAMMA,
    "a transposed x": lambda x: x.t() * rstd(mean(square(x))) * GAMMA,
    "a transposed norm": lambda x: (x * rstd(mean(square(x)))).t() * GAMMA,
    "gamma in a column": lambda x: x * rstd(mean(square(x))) * GAMMA[:, None],
    "a part of the rows": lambda x: functional.nll_loss(log_prob(x)[1:], LABELS[1:]),
    "a part of the classes": lambda x: functional.nll_loss(log_prob(x)[:, :4], LABELS),
    "transposed rows": lambda x: functional.nll_loss(log_prob(x).t(), LABELS),
    "probabilities of another axis": lambda x: functional.nll_loss(log_prob(x, 0), LABELS),
    "labels of transposed rows": lambda x: picked(log_prob(x).t()),
    "labels of other rows": lambda x: log_prob(x)[ROWS.flip(0), LABELS],
    "labels of columns": lambda x: log_prob(x).gather(0, LABELS[:, None]),
    "sums of columns": lambda x: x.exp().t().sum(-1).log() - picked(x).squeeze(-1),
    "sums of more classes": lambda x: x.view(4, -1).logsumexp(-1) - x.view(4, -1)[:, 0],
    "differences of all rows": lambda x: x.logsumexp(-1) - picked(x),
    "a maximum in columns": lambda x: (
        (x - x.amax(-1, keepdim=True).t()).exp().sum(-1).log() + x.amax(-1) - picked(x).squeeze(-1)
    ),
    "a rotation of x and its transpose": lambda x: rotated(heads(x), heads(x).transpose(1, 2)),
    "halves of x and its transpose": lambda x: (
        rotated_halves(heads(x), heads(x).transpose(1, 2))
        + (lambda y: rotated_halves(y, y.transpose(1, 2)))(heads(x))
    ),
}


def leaf(x):
    return x.detach().clone().requires_grad_()


LEAVES = {
    "x of a norm": lambda x: x * rstd(mean(square(x))) * GAMMA,
    "a gate": lambda x: functional.silu(x) * GAMMA,
    "a computed gate": lambda x: leaf(functional.silu(x)) * GAMMA,
}


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.filterwarnings("ignore:no call was replaced")
def test_a_gradient_ends_at_a_tensor_that_the_block_makes_a_leaf(name):
    values = torch.linspace(-1, 2, SIZE * SIZE).reshape(SIZE, SIZE)
    x = leaf(values)
    LEAVES[name](x).square().sum().backward()
    with simulated.emulate("atlas_a2", deterministic=True):
        own = leaf(values)
        LEAVES[name](own).square().sum().backward()
    assert (own.grad is None) == (x.grad is None)
    if x.grad is not None:
        torch.testing.assert_close(own.grad, x.grad)


def computed(program):
    x = torch.sin(torch.arange(SIZE * SIZE).float().view(SIZE, SIZE)).requires_grad_()
    result = program(x)
    result.square().sum().backward()
    return result, x.grad


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        *(pytest.param(program, 2, id=name) for name, program in IN_ORDER.items()),
        *(pytest.param(program, 0, id=name) for name, program in IN_ANOTHER_ORDER.items()),
    ],
)
@pytest.mark.filterwarnings("ignore:no call was replaced")
def test_a_view_in_another_order_is_no_part_of_a_formula(program, calls):
    expected = computed(program)
    with simulated.emulate("atlas_a2", deterministic=True) as report:
        found = computed(program)
    assert len(report.counts()) <= calls
    assert bool(report.counts()) == bool(calls)
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own, plain)
