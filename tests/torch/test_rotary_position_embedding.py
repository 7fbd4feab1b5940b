"""Code that computes x*cos + rotate_half(x)*sin by itself is recorded as npu_rotary_mul."""

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

import npu_sim.torch  # noqa: E402


def half(x):
    low, high = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-high, low), dim=-1)


def pairs(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


@pytest.mark.parametrize(("rotate", "mode"), [(half, 0), (pairs, 1)])
@pytest.mark.parametrize("columns", [8, 12])
def test_the_formula_is_recorded_as_the_fused_call(rotate, mode, columns):
    """Also where only the first columns of a head are rotated."""
    heads = torch.randn(2, 6, 4, 12, requires_grad=True)
    cos, sin = torch.randn(2, 2, 6, 1, columns)
    with npu_sim.torch.record() as recording:
        x = heads[..., :columns]
        ((x * cos) + (rotate(x) * sin)).sum().backward()
    x = f"2x6x4x{columns}:fp32"
    turns = {"cos": f"2x6x1x{columns}:fp32", "sin": f"2x6x1x{columns}:fp32", "mode": mode}
    assert [(line["op"], line["inputs"]) for line in recording] == [
        ("rotary_position_embedding", {"x": x, **turns}),
        ("rotary_position_embedding_grad", {"dy": x, **turns}),
    ]
    left = recording.not_covered()
    assert not {"aten::neg", "aten::cat", "aten::mul"} & left["not_modelled"].keys()
    slices = left["not_modelled"].get("aten::slice_backward", 0)
    assert slices == (1 if columns < 12 else 0)  # that of the rotated columns, which stays
    assert "npu_rotary_mul" in left["remarks"][0]["why"]


def halves_of(x):
    return x.chunk(2, -1)


def pairs_of(x):
    return x[..., ::2], x[..., 1::2]


def unbound(x):
    return x.unflatten(-1, (-1, 2)).unbind(-1)


def products(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


def interleaved(parts):
    return torch.stack(parts, -1).flatten(-2)


def joined(parts):
    return torch.cat(parts, -1)


SPLIT_FORMS = {
    "gpt_oss": (lambda x, cos, sin: joined(products(*halves_of(x), cos, sin)), 0),
    "deepseek_v3": (lambda x, cos, sin: joined(products(*pairs_of(x), cos, sin)), 1),
    "pairs stay": (lambda x, cos, sin: interleaved(products(*pairs_of(x), cos, sin)), 1),
    "unbound pairs": (lambda x, cos, sin: interleaved(products(*unbound(x), cos, sin)), 1),
    "inverse": (lambda x, cos, sin: joined(products(*halves_of(x), cos, -sin)), 0),
    "inverse by signs": (
        lambda x, cos, sin: joined(
            (x[..., :6] * cos + x[..., 6:] * sin, x[..., 6:] * cos - x[..., :6] * sin)
        ),
        0,
    ),
    "negated part": (
        lambda x, cos, sin: joined(
            (x[..., :6] * cos + -x[..., 6:] * sin, sin * x[..., :6] + cos * x[..., 6:])
        ),
        0,
    ),
    "cast parts": (
        lambda x, cos, sin: joined(products(*(p.double().float() for p in halves_of(x)), cos, sin)),
        0,
    ),
    "three parts": (
        lambda x, cos, sin: joined((*products(*halves_of(x), cos, sin), torch.ones(2, 6, 4, 3))),
        0,
    ),
}


@pytest.mark.parametrize("form", SPLIT_FORMS)
def test_products_of_halves_or_pairs_are_recorded_as_the_fused_call(form):
    """With one cos and sin for each pair, which the fused call takes twice."""
    formula, mode = SPLIT_FORMS[form]
    x = torch.randn(2, 6, 4, 12, requires_grad=True)
    angles = torch.randn(1, 6, 1, 6)
    with npu_sim.torch.record() as recording:
        formula(x, angles.cos(), angles.sin()).sum().backward()
    turns = {"cos": "1x6x1x12:fp32", "sin": "1x6x1x12:fp32", "mode": mode}
    assert [(line["op"], line["inputs"]) for line in recording] == [
        ("rotary_position_embedding", {"x": "2x6x4x12:fp32", **turns}),
        ("rotary_position_embedding_grad", {"dy": "2x6x4x12:fp32", **turns}),
    ]
    assert not recording.not_recognised
    assert "aten::mul" not in recording.not_covered()["not_modelled"]


@pytest.mark.parametrize("rotate", [half, pairs])
def test_casts_hide_no_rotation(rotate):
    """As Ernie 4.5 and DeepSeek V4 compute in fp32, also after a norm, which is a product."""
    x = torch.randn(1, 4, 6, 8, dtype=torch.bfloat16, requires_grad=True)
    cos, sin = torch.randn(2, 1, 1, 6, 8)
    with npu_sim.torch.record() as recording:
        normed = x * x.mean(-1, keepdim=True)
        (normed.float() * cos + rotate(normed).float() * sin).to(x.dtype).sum().backward()
    assert [line["op"] for line in recording] == [
        "rotary_position_embedding",
        "rotary_position_embedding_grad",
    ]


def test_complex_products_of_pairs_are_recorded_as_the_fused_call():
    """As Llama 4 computes them."""
    x = torch.randn(2, 6, 4, 12, requires_grad=True)
    turns = torch.polar(torch.ones(1, 6, 1, 6), torch.randn(1, 6, 1, 6))
    with npu_sim.torch.record() as recording:
        pairs = torch.view_as_complex(x.reshape(2, 6, 4, 6, 2))
        torch.view_as_real(pairs * turns).flatten(3).sum().backward()
    called = {"cos": "1x6x1x12:fp32", "sin": "1x6x1x12:fp32", "mode": 1}
    assert [(line["op"], line["inputs"]) for line in recording] == [
        ("rotary_position_embedding", {"x": "2x6x4x12:fp32", **called}),
        ("rotary_position_embedding_grad", {"dy": "2x6x4x12:fp32", **called}),
    ]
    assert "aten::mul" not in recording.not_covered()["not_modelled"]


def test_products_of_spectra_are_no_call():
    with npu_sim.torch.record() as recording:
        torch.fft.fft(torch.randn(2, 6, 4, 8)) * torch.fft.fft(torch.randn(2, 6, 4, 8))
    assert len(recording) == 0


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, cos, sin: x * cos + half(2 * x) * sin,
        lambda x, cos, sin: x * cos + half(x),
        lambda x, cos, sin: x * cos + torch.cat((x[..., :4], -x[..., 4:]), -1) * sin,
        lambda x, cos, sin: x * cos - half(x) * sin,
    ],
)
def test_other_formulas_are_no_call(formula):
    cos, sin = torch.randn(2, 1, 6, 1, 8)
    with npu_sim.torch.record() as recording:
        formula(torch.randn(1, 6, 4, 8), cos, sin)
    assert len(recording) == 0


def written_to_slices(x, cos, sin):
    result = torch.empty_like(x)
    result[..., ::2], result[..., 1::2] = products(*pairs_of(x), cos, sin)
    return result


OTHER_FORMS = {
    "slices": written_to_slices,
    "cos alone": lambda x, cos, sin: x[..., :4] * cos,
    "other pairs": lambda x, cos, sin: joined(
        (x[..., :4] * cos - x[..., 4:] * sin, x[..., 4:] * cos - x[..., :4] * sin)
    ),
    "addcmul": lambda x, cos, sin: torch.addcmul(x[..., :4], x[..., 4:], sin),
    "matrix": lambda x, cos, sin: x @ torch.diag(cos[0, 0, 0].repeat(2)),
    "five axes": lambda x, cos, sin: joined(products(*halves_of(x[None]), cos, sin)),
    "complex, two axes": lambda x, cos, sin: (
        torch.view_as_complex(x[0, :, 0].unflatten(-1, (4, 2)).contiguous())
        * torch.complex(cos, sin)[0, :, 0]
    ),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_other_products_with_cos_and_sin_of_positions_are_listed(form):
    angles = torch.randn(1, 6, 1, 4)
    with npu_sim.torch.record() as recording:
        OTHER_FORMS[form](torch.randn(1, 6, 6, 8), angles.cos(), angles.sin())
    assert len(recording) == 0
    assert {what for what, _, _ in recording.not_recognised} == {"rotation"}


def test_an_embedding_of_sines_is_no_rotation():
    with npu_sim.torch.record() as recording:
        angles = torch.arange(6.0)[:, None] * torch.rand(4)
        embedded = torch.cat((angles.cos(), angles.sin()), -1)
        torch.nn.Linear(8, 8)(embedded) + torch.randn(2, 6, 8) + embedded
    assert not recording.not_recognised
