"""Planners of SwiGlu and SwiGluGrad: golden results, and what holds for every tiling."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import plan_kernel, swi_glu, swi_glu_grad
from npu_sim.tiling.ascend_950 import swi_glu_grad as later
from npu_sim.tiling.common import BF16, FP16, FP32, ceil_div
from tests.cases import every
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, release_lines, tiling_lines
from tests.rules import rules_at_any_release, rules_of

FILES = ("swi_glu", "swi_glu_grad", "swi_glu_inference", "swi_glu_grad_inference")
PLANNERS = {"swi_glu": swi_glu, "swi_glu_grad": swi_glu_grad}
DEVICES = [load_profile(None, soc).device for soc in ("Ascend910B1", "Ascend910B4", "Ascend310P3")]
LATER = load_profile(None, "Ascend950PR_9589").device
planners = st.sampled_from(list(PLANNERS.values()))
sizes = st.one_of(st.integers(1, 100), st.integers(1, 40000), st.integers(1, 600000))
problems = st.builds(swi_glu.Problem, sizes, sizes, st.sampled_from((FP32, FP16, BF16)))
any_rules = rules_at_any_release("swi_glu")


@pytest.mark.parametrize("name", FILES)
def test_every_golden_line_is_reproduced(name):
    lines = tiling_lines(name)
    assert {line["expect"]["status"] for line in lines} == {"success", "failed"}
    assert not_reproduced(lines) == []


@pytest.mark.parametrize(("name", "found"), [("swi_glu", 23), ("swi_glu_grad", 14)])
def test_release_8_3_overlooks_the_gap_of_the_last_piece(name, found):
    lines = release_lines(name)
    assert Counter(line["release"] for line in lines) == {"8.3": found}
    for line in lines:
        planned = [
            plan_kernel(name, line["soc"], line["inputs"], release=release)
            for release in ("8.3", "8.5", "9.0", "9.1")
        ]
        assert planned[0] == line["expect"]
        assert planned[1] != planned[0]
        assert planned[1] == planned[2] == planned[3]


@given(planners, problems, st.sampled_from(DEVICES), any_rules)
@settings(max_examples=200)
def test_tiles_cover_the_problem_and_fit_the_buffer(planner, problem, device, rules):
    tiling = planner.tile(problem, device, rules)
    if tiling.status != 0:
        assert device is DEVICES[2]
        return
    down = ceil_div(problem.row, tiling.tile_rows)
    tiles = down * ceil_div(problem.col, tiling.tile_columns)
    assert tiling.block_dim == min(tiles, device.vector_cores)
    assert tiling.tile_rows <= problem.row
    assert tiling.tile_columns <= problem.col
    buffers = swi_glu.buffers(tiling, problem.dtype, planner.BUFFERS)
    assert sum(buffers.values()) <= device.ub_bytes
    taken = [swi_glu.tiles_of_core(tiling, core) for core in range(tiling.block_dim)]
    assert sum(map(len, taken)) == tiles
    assert max(map(len, taken)) - min(map(len, taken)) <= 1
    if rules.checks_last_gap:
        assert not swi_glu.wraps_last_gap(tiling, problem)


@pytest.mark.parametrize("name", every(2, PLANNERS))
def test_compiled_planners_agree(name):
    planner, rules = PLANNERS[name], rules_of(name)
    fast = compiled(planner.tile)
    random = np.random.default_rng(0)
    for _ in range(200):
        row, col = (int(number) for number in np.exp(random.uniform(0, 11, 2)))
        problem = swi_glu.Problem(row, col, int(random.integers(3)))
        for device in DEVICES:
            assert fast(problem, device, rules) == planner.tile(problem, device, rules)


@pytest.mark.parametrize(
    ("planner", "problem", "cores", "tile", "tiles"),
    [
        (swi_glu, (4096, 3072, BF16), 1, (19, 512), 1296),
        (swi_glu, (8, 3072, FP16), 0, (7, 1280), 6),
        (swi_glu_grad, (4096, 3072, BF16), 1, (19, 256), 2592),
    ],
)
def test_worked_examples_of_the_pages(planner, problem, cores, tile, tiles):
    tiling = planner.tile(swi_glu.Problem(*problem), DEVICES[cores], rules_of("swi_glu"))
    assert (tiling.tile_rows, tiling.tile_columns) == tile
    numbers = [swi_glu.tiles_of_core(tiling, core) for core in range(tiling.block_dim)]
    assert sum(map(len, numbers)) == tiles


@given(problems)
@settings(max_examples=200)
def test_parts_of_ascend_950_cover_the_problem(problem):
    tiling = later.tile(problem, LATER, None)
    assert 1 <= tiling.block_dim <= LATER.vector_cores
    rows, columns = set(), set()
    for core in range(tiling.block_dim):
        own_rows, own_columns = later.part_of(tiling, core)
        assert own_rows.stop <= problem.row
        assert own_columns.stop <= problem.col
        rows.add((own_rows.start, own_rows.stop))
        columns.add((own_columns.start, own_columns.stop))
    for parts, size in ((rows, problem.row), (columns, problem.col)):
        end = 0
        for start, stop in sorted(parts):
            assert start <= end
            end = max(end, stop)
        assert end == size


def test_a_core_of_ascend_950_redoes_rows_of_the_next_part():
    """97 rows in 3 parts of 32: the last column core of the second part takes 33."""
    tiling = later.tile(swi_glu.Problem(97, 256, BF16), LATER, None)
    assert (tiling.row_parts, tiling.column_parts) == (3, 1)
    parts = [later.part_of(tiling, core)[0] for core in range(3)]
    assert parts == [range(32), range(32, 65), range(64, 97)]
