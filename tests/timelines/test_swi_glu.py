"""Timelines of SwiGlu and SwiGluGrad: the page's cycles, bounds, and tiles that are counted."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.operators.shared.gated_halves import timeline
from npu_sim.operators.shared.gated_halves.timeline import _Tiles
from npu_sim.operators.swi_glu.timeline import program
from npu_sim.timelines.program import weighted_tiles

SMALL_CLOCK = 1650


@pytest.mark.parametrize(
    ("operator", "x", "soc", "release", "cycles"),
    [
        ("swi_glu", "4096x6144:bf16", "Ascend910B4", "8.3", 69931.45),
        ("swi_glu", "2x1x6144:fp16", "Ascend910B2", "9.0", 1434.23),
        ("swi_glu", "4x1x6144:fp16", "Ascend910B2", "9.0", 810.23),
        ("swi_glu", "8x1x6144:fp16", "Ascend910B2", "9.0", 1018.23),
        ("swi_glu_grad", "4096x6144:bf16", "Ascend910B4", "8.3", 181625.2),
    ],
)
def test_cycles_of_the_pages(operator, x, soc, release, cycles):
    (launch,) = npu_sim.timeline(operator, x=x, soc=soc, release=release).launches
    assert launch.estimate.vector_cycles == pytest.approx(cycles, abs=0.1)


@pytest.mark.parametrize(
    ("operator", "busy"), [("swi_glu", (28.9, 7.1, 4.5)), ("swi_glu_grad", (62.9, 10.5, 8.9))]
)
def test_bounds_of_the_pages_at_1650_mhz(operator, busy):
    answer = npu_sim.timeline(operator, x="4096x6144:bf16", soc="Ascend910B4", release="8.3")
    scale = answer.kernel_us * answer.clock_mhz / SMALL_CLOCK
    found = [answer.busy_share[pipe] * scale for pipe in ("V", "MTE2", "MTE3")]
    assert found == pytest.approx(busy, abs=0.06)


@given(
    st.integers(1, 3000), st.integers(1, 30000), st.sampled_from(("fp32", "bf16")), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_counted_tiles_are_those_that_are_listed(rows, columns, dtype, forward):
    operator = "swi_glu" if forward else "swi_glu_grad"
    plan = npu_sim.plan(operator, x=f"{rows}x{2 * columns}:{dtype}")
    tiles = _Tiles(plan)
    for core in range(plan.block_dim):
        numbers = tiles.of_core(core)
        assert tiles.shapes(core) == Counter(tiles.place(number)[2:] for number in numbers)
    covered = sum(
        shape[0] * shape[1] * count
        for core in range(plan.block_dim)
        for shape, count in tiles.shapes(core).items()
    )
    assert covered == rows * columns


def test_many_tiles_are_counted_instead_of_listed(monkeypatch):
    plan = npu_sim.plan("swi_glu", x="4096x6150:fp32")

    def work(limit):
        monkeypatch.setattr(timeline, "SHOWN_TILES", limit)
        (phase,) = program(plan).phases
        counts = {core: Counter() for core in phase.cores}
        for core, nodes in phase.cores.items():
            for times, tile in weighted_tiles(nodes):
                counts[core][tile] += times
        return counts

    assert work(0) == work(10**6)


def test_the_bound_of_ascend_950_is_that_of_its_copies():
    answer = npu_sim.timeline("swi_glu_grad", x="4096x6144:bf16", product="ascend_950")
    assert answer.binding_pipe == "MTE2"
    assert answer.launches[0].estimate is None
    assert answer.read_bytes == 3 * 4096 * 3072 * 2
    assert answer.written_bytes == 2 * 4096 * 3072 * 2


def test_tiles_are_counted_without_looking_at_each(monkeypatch):
    monkeypatch.setattr(_Tiles, "place", lambda *_: pytest.fail("looks at a tile"))
    plan = npu_sim.plan("swi_glu", x=f"8x{2**54}:bf16")
    tiles = _Tiles(plan)
    counts = [tiles.shapes(core) for core in range(tiles.cores)]
    elements = sum(
        rows * columns * count for shapes in counts for (rows, columns), count in shapes.items()
    )
    assert elements == 8 * 2**53


def test_shapes_are_those_of_the_tiles():
    for x in ("1x4098:bf16", "7x130:fp32", "300x1002:fp16", "4097x66:bf16"):
        tiles = _Tiles(npu_sim.plan("swi_glu", x=x))
        for core in range(tiles.cores):
            places = Counter(tiles.place(number)[2:] for number in tiles.of_core(core))
            assert tiles.shapes(core) == places
