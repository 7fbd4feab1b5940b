"""Planners of ApplyAdamWV2: golden results, and what holds for every tiling."""

from collections import Counter, namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import apply_adam_w_v2 as tiler
from npu_sim.tiling import decode_tiling, find_structure, layout, pack, plan_kernel
from npu_sim.tiling.ascend_950 import apply_adam_w_v2 as later
from npu_sim.tiling.common import BF16, FP32
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, release_lines, tiling_lines
from tests.rules import rules_of

NAME = "apply_adam_w_v2"
DEVICES = [load_profile(None, soc).device for soc in ("Ascend910B1", "Ascend910B4")]
LATER = load_profile(None, "Ascend950PR_9589").device
switches = st.integers(0, 1)
dtypes = st.integers(0, 2)
Problem = namedtuple(
    "Problem",
    "elements dtype m_dtype v_dtype grad_dtype norm_dtype step_dtype with_norm amsgrad maximize",
)
problems = st.builds(Problem, st.integers(1, 1 << 34), *(dtypes,) * 5, *(switches,) * 4)


@pytest.mark.parametrize("name", [NAME, f"ascend_950/{NAME}"])
def test_every_golden_line_is_reproduced(name):
    assert not_reproduced(tiling_lines(name)) == []


def test_the_shape_of_step_matters_before_9_1():
    lines = release_lines(NAME)
    assert Counter(line["release"] for line in lines) == {"8.3": 23, "8.5": 23, "9.0": 23}
    for line in lines:
        call = NAME, line["soc"], line["inputs"], line["deterministic"]
        assert plan_kernel(*call, release=line["release"]) == line["expect"]
        assert plan_kernel(*call)["status"] == "success"


@given(problems, st.sampled_from(DEVICES))
@settings(max_examples=200)
def test_cores_take_all_elements(problem, device):
    tiling = tiler.tile(problem, device, rules_of(NAME))
    counts = [
        tiling.tiles_per_core + (core < tiling.longer_cores) for core in range(tiling.block_dim)
    ]
    tiles = sum(counts)
    numbers = [range(core, tiles, tiling.block_dim) for core in range(tiling.block_dim)]
    assert list(map(len, numbers)) == counts
    assert max(one[-1] for one in numbers) == tiles - 1
    assert numbers[tiling.longer_cores - 1][-1] == tiles - 1
    assert (tiles - 1) * 2432 + tiling.last_elements == problem.elements
    assert 1 <= tiling.last_elements <= 2432
    assert sum(tiler.buffers(tiling.tiling_key).values()) <= device.ub_bytes


@given(problems)
@settings(max_examples=200)
def test_cores_of_ascend_950_take_all_elements(problem):
    tiling = later.tile(problem, LATER, None)
    ranges = [later.range_of_core(tiling, core) for core in range(tiling.block_dim)]
    assert [one.start for one in ranges[1:]] == [one.stop for one in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, problem.elements)
    assert 1 <= tiling.block_dim <= LATER.vector_cores


@given(problems)
@settings(max_examples=50)
def test_compiled_planners_agree(problem):
    for planner, device in ((tiler, DEVICES[0]), (later, LATER)):
        rules = rules_of(NAME)
        assert compiled(planner.tile)(problem, device, rules) == planner.tile(
            problem, device, rules
        )


@pytest.mark.parametrize(
    ("amsgrad", "grad", "step", "elements"),
    [
        *((0, FP32, 0, 2880), (0, BF16, 0, 2816), (0, FP32, 1, 1408), (0, BF16, 1, 1408)),
        *((1, FP32, 0, 2432), (1, BF16, 0, 2432), (1, FP32, 1, 1216), (1, BF16, 1, 1152)),
    ],
)
def test_tiles_of_ascend_950(amsgrad, grad, step, elements):
    problem = Problem(1 << 20, FP32, FP32, FP32, grad, grad, step, 1, amsgrad, 0)
    assert later.tile(problem, LATER, None).tile_elements == elements


def test_the_structure():
    laid = layout(find_structure("ApplyAdamWV2"), "8.3")
    offsets = {member.name: member.offset for member in laid.members}
    assert (offsets["lr"], offsets["amsgrad"], offsets["tilingKey"]) == (56, 80, 96)
    assert laid.bytes == 104
    line = next(one for one in tiling_lines(NAME) if one["expect"]["status"] == "success")
    tiling = line["expect"]["tiling"]
    assert decode_tiling(NAME, pack(NAME, tiling, "9.1")) == pytest.approx(tiling, rel=1e-8)
