"""Planners of RotaryPositionEmbedding and its gradient: golden results, and what always holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.operators.rotary_position_embedding.plan import ranges_of
from npu_sim.operators.rotary_position_embedding_grad.declaration import overflows
from npu_sim.operators.rotary_position_embedding_grad.plan import ranges_of as ranges_of_gradient
from npu_sim.tiling import rotary_position_embedding as forward
from npu_sim.tiling import rotary_position_embedding_grad as gradient
from npu_sim.tiling.common import BF16, FP16, FP32
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines

DEVICES = [load_profile(None, soc).device for soc in ("Ascend910B1", "Ascend910B4")]
sizes = st.one_of(st.integers(1, 4), st.integers(1, 300))
dims = st.one_of(st.integers(1, 440), st.sampled_from((32, 40, 64)))
dtypes = st.sampled_from((FP32, FP16, BF16))
repeated = st.lists(st.booleans(), min_size=3, max_size=3)


@st.composite
def problems(draw, of_gradient):
    axes = [draw(sizes) for _ in range(3)]
    own = [1 if one else size for one, size in zip(draw(repeated), axes, strict=True)]
    problem = (*axes, 2 * draw(dims), *own, draw(st.integers(0, 1)), draw(dtypes))
    if of_gradient:
        return gradient.Problem(*problem, int(draw(st.booleans())))
    return forward.Problem(*problem)


@pytest.mark.parametrize("name", ["rotary_position_embedding", "rotary_position_embedding_grad"])
def test_every_golden_line_is_reproduced(name):
    lines = tiling_lines(name)
    assert {line["expect"]["status"] for line in lines} == {"success", "failed"}
    assert not_reproduced(lines) == []


def test_reasons_of_refusals_are_those_of_the_golden_lines():
    for line in tiling_lines("rotary_position_embedding"):
        given, found = line["inputs"], ""
        shapes = [tuple(given[f"{name}_shape"]) for name in ("x", "cos", "sin")]
        found = forward.shape_refusal(*shapes, given["mode"])
        problem = None if found else forward.problem_of(given, None)
        if problem is not None:
            code = forward.refusal(problem, load_profile(None, line["soc"]).device)
            found = forward.REFUSALS[code]
        elif not found:
            found = "dtype_differ"
        assert found == line.get("refused", ""), line


def test_reasons_of_refused_gradients_are_those_of_the_golden_lines():
    for line in tiling_lines("rotary_position_embedding_grad"):
        given = line["inputs"]
        shapes = [tuple(given[f"{name}_shape"]) for name in ("dy", "cos", "sin")]
        x = given["x_shape"] and tuple(given["x_shape"])
        found = gradient.shape_refusal(*shapes, x, given["mode"])
        if not found:
            device = load_profile(None, line["soc"]).device
            code = gradient.refusal(gradient.problem_of(given, None), device)
            found = gradient.REFUSALS[code]
        assert found == line.get("refused", ""), line


@given(problems(of_gradient=False), st.sampled_from(DEVICES))
@settings(max_examples=200)
def test_cores_cover_the_rows_and_buffers_fit(problem, device):
    tiling = forward.tile(problem, device, None)
    assert (tiling.status == 0) == (forward.refusal(problem, device) == 0)
    if tiling.status != 0 or tiling.block_dim == 0:
        return
    rows = tiling.half.lines or tiling.interleaved.positions
    ranges = ranges_of(tiling)
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, rows)
    assert all(stop > start for start, stop in ranges)
    assert sum(forward.buffers(tiling, problem.dtype).values()) <= device.ub_bytes


@given(problems(of_gradient=True), st.sampled_from(DEVICES))
@settings(max_examples=200)
def test_cores_of_the_gradient_cover_the_rows_and_buffers_fit(problem, device):
    tiling = gradient.tile(problem, device, None)
    assert (tiling.status == 0) == (gradient.refusal(problem, device) == 0)
    if tiling.status != 0 or overflows(problem, device):
        return
    ranges = ranges_of_gradient(tiling)
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert all(stop > start for start, stop in ranges)
    used = sum(gradient.buffers(tiling, problem.dtype, bool(problem.has_x)).values())
    assert used <= device.ub_bytes


@pytest.mark.long
@pytest.mark.parametrize("planner", [forward, gradient])
def test_compiled_planners_agree(planner):
    fast = compiled(planner.tile)
    for line in tiling_lines(planner.__name__.rpartition(".")[2])[:300]:
        problem = planner.problem_of(line["inputs"], None)
        if problem is not None:
            for device in DEVICES:
                assert fast(problem, device, None) == planner.tile(problem, device, None)


@pytest.mark.parametrize(
    ("rows", "dim", "refused"),
    [
        ((4, 16, 8), 128, ""),
        ((4, 17, 8), 128, "bnsd_aligned"),
        ((2, 2, 280), 72, "bnsd_unaligned"),
        ((2, 2, 280), 80, ""),
        ((2, 2, 281), 72, ""),
        ((1, 64, 2), 128, ""),
        ((64, 64, 1), 128, ""),
    ],
)
def test_the_refusal_of_bnsd(rows, dim, refused):
    problem = forward.Problem(*rows, dim, 1, 1, rows[2], 0, BF16)
    assert forward.REFUSALS[forward.refusal(problem, DEVICES[1])] == refused


def test_the_refusal_of_bnsd_depends_on_the_cores():
    problem = forward.Problem(2, 2, 281, 72, 1, 1, 281, 0, BF16)
    many, few = (forward.REFUSALS[forward.refusal(problem, one)] for one in DEVICES)
    assert (many, few) == ("bnsd_unaligned", "")
