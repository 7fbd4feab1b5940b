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
