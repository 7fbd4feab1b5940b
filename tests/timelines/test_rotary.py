"""Timelines of RotaryPositionEmbedding and its gradient: the page's cycles, and what is covered."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.operators.rotary_position_embedding import timeline as forward
from npu_sim.operators.rotary_position_embedding_grad import timeline as gradient
from npu_sim.status import AclnnError
from npu_sim.timelines.program import weighted_tiles

FORWARD, GRADIENT = "rotary_position_embedding", "rotary_position_embedding_grad"
sizes = st.one_of(st.integers(1, 5), st.integers(1, 80))


@pytest.mark.parametrize(
    ("operator", "first", "heads", "cycles"),
    [
        (FORWARD, "x", 16, 38975.9),
        (FORWARD, "x", 8, 19870.6),
        (GRADIENT, "dy", 16, 40946.6),
        (GRADIENT, "dy", 8, 20738.5),
    ],
)
def test_cycles_of_the_pages(operator, first, heads, cycles):
    cos = "4096x1x1x128:bf16"
    call = {first: f"4096x1x{heads}x128:bf16", "cos": cos, "sin": cos}
    answer = npu_sim.timeline(operator, **call, soc="Ascend910B4", release="8.3")
    assert answer.launches[-1].estimate.vector_cycles == pytest.approx(cycles, abs=0.1)


@pytest.mark.parametrize(
    ("call", "cycles"),
    [
        # Per head: two copies of 4 repeats, two mul and one add of 8; once 4 muls of a repeat.
        ({"x": "1x2x3x512:fp32"}, 4 * 24.10 + 3 * (2 * 17.0 + 2 * 39.23 + 39.22)),
        # The sums are made once and copied out as whole rows of 8 repeats.
        (
            {"dy": "1x2x3x512:fp32", "x": "1x2x3x512:fp32"},
            2 * 25.0 + 3 * (4 * 39.23 + 2 * 31.10 + 4 * 17.0 + 2 * 39.22 + 39.22) + 2 * 21.0,
        ),
    ],
)
def test_cycles_of_one_row_of_cos(call, cycles):
    cos = "1x2x1x512:fp32"
    operator = GRADIENT if "dy" in call else FORWARD
    (launch,) = npu_sim.timeline(operator, **call, cos=cos, sin=cos).launches
    assert launch.estimate.vector_cycles == pytest.approx(cycles, abs=0.01)


@pytest.mark.parametrize(("operator", "first"), [(FORWARD, "x"), (GRADIENT, "dy")])
def test_interleave_has_a_bound_and_no_estimate(operator, first):
    call = {first: "2x64x8x64:bf16", "cos": "1x64x1x64:bf16", "sin": "1x64x1x64:bf16"}
    answer = npu_sim.timeline(operator, **call, mode=1)
    assert answer.kernel_us > 0
    assert answer.launches[-1].estimate is None
    assert answer.launches[-1].estimate_missing
    assert "gather float32" in answer.unknown_rates


@given(sizes, sizes, sizes, st.integers(1, 60), st.integers(0, 1), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_steps_cover_the_tensors(x0, x1, x2, half, mode, is_forward, data):
    x = (x0, x1, x2, 2 * half)
    own = tuple(data.draw(st.sampled_from((1, size))) for size in x[:3])
    spec, cos = ("x".join(map(str, shape)) + ":fp16" for shape in (x, (*own, 2 * half)))
    operator, first = (FORWARD, "x") if is_forward else (GRADIENT, "dy")
    try:
        plan = npu_sim.plan(operator, **{first: spec, "cos": cos, "sin": cos}, mode=mode)
    except AclnnError:
        return
    (phase,) = (forward if is_forward else gradient).program(plan).phases
    read = written = 0
    for nodes in phase.cores.values():
        for times, tile in weighted_tiles(nodes):
            if tile.step.note == "piece":
                read += times * sum(copy.elements for copy in tile.work[0])
                written += times * sum(copy.elements for copy in tile.work[2])
    assert read == written == x0 * x1 * x2 * 2 * half
