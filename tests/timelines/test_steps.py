"""The data of the page that steps through the tiles of one core."""

import json
from itertools import islice
from math import prod

import pytest

import npu_sim
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.timelines import program_of, steps
from npu_sim.timelines import tracks as tile_steps
from npu_sim.timelines.program import Program, Step, Tile, tiles, vector_phase, vector_tile
from tests.timelines.calls import (
    CALLS,
    conv,
    cross_entropy,
    moe,
    permute,
    rms,
    unpermute,
    unpermute_grad,
)

SMALL = {
    "rms, short": ("rms_norm_grad", "atlas_a2", rms(301, 640, "bf16")),
    "rms, long": ("rms_norm_grad", "atlas_a2", rms(130, 8100, "fp16")),
    "rms forward": ("rms_norm", "atlas_a2", {"x": "100x1024:bf16", "gamma": "1024:bf16"}),
    "rms forward, pieces": (
        "rms_norm",
        "atlas_inference",
        {"x": "30x30000:fp16", "gamma": "30000:fp16"},
    ),
    "cross entropy": ("cross_entropy_loss_grad", "atlas_a2", cross_entropy(70, 50000, "bf16")),
    "moe": ("moe_token_permute_grad", "atlas_a2", moe(100, 3, 70000, "fp32")),
    "unpermute": ("moe_token_unpermute", "atlas_a2", unpermute(100, 4, 512, "bf16", "fp32")),
    "unpermute gradient": (
        "moe_token_unpermute_grad",
        "atlas_a3",
        unpermute_grad(100, 3, 20000, "fp32", "fp32"),
    ),
    "permute": ("moe_token_permute", "atlas_a2", permute(100, 3, 50000, "fp16")),
}
WRITTEN_ONCE = {
    "rms_norm_grad": "dx",
    "rms_norm": "y",
    "cross_entropy_loss_grad": "out",
    "moe_token_permute_grad": "input_grad",
    "moe_token_unpermute": "unpermuted_tokens",
    "moe_token_unpermute_grad": "probs_grad",
}
READ_ONCE = {"moe_token_permute": "tokens"}


def made(call):
    operator, product, arguments = call
    return npu_sim.plan(operator, product=product, **arguments)


def all_tiles(nodes, axes=()):
    """Yield (axes, tile) in order."""
    for node in nodes:
        if isinstance(node, Tile):
            yield dict(axes), node
            continue
        for turn in range(node.count):
            own = ((node.axis, (node.start + turn * node.step, node.step)),) if node.axis else ()
            yield from all_tiles(node.body, (*axes, *own))


def extent(walk, size, axes, ranges):
    """Where a tile stands along one side of a tensor, as :class:`View` says."""
    start, length = 0, None
    for axis, factor in walk.items():
        if axis in axes:
            start, length = start + round(factor * axes[axis][0]), round(factor * axes[axis][1])
    own = next((axis for axis in walk if axis in ranges), None)
    if length is None and own:
        start, stop = (round(walk[own] * end) for end in ranges[own])
        length = stop - start
    return (0, size) if length is None else (start, min(length, size - start))


def touched(plan, most=None):
    """Yield tile, step, view, rows and columns of all reads and writes of all tiles."""
    program = program_of(plan)
    views = {view.name: view for view in program.views}
    for phase in program.phases:
        for core, nodes in phase.cores.items():
            ranges = dict(plan.cores[core].ranges) if core < len(plan.cores) else {}
            for axes, tile in islice(all_tiles(nodes), most):
                step = tile.step
                for name in (*step.reads, *step.writes):
                    view = views[name]
                    rows, columns = (
                        extent(view.by_row, view.rows, axes, ranges),
                        extent(view.by_column, view.columns, axes, ranges),
                    )
                    yield tile, step, view, rows, columns


@pytest.mark.parametrize("name", CALLS)
def test_every_tile_says_what_it_does_with_names_that_the_plan_has(name):
    plan = made(CALLS[name])
    program = program_of(plan)
    views = {view.name for view in program.views}
    kinds = {
        (phase.name, tile.step.note): tile.step
        for phase in program.phases
        for nodes in set(phase.cores.values())
        for tile in kinds_of(nodes)
    }
    segments = {allocation.name for memory in plan.memories for allocation in memory.allocations}
    assert {part for step in kinds.values() for part in step.live} >= (segments if kinds else set())
    for step in kinds.values():
        assert step.says
        assert {*step.reads, *step.writes, *step.holds, *step.by_data} <= views


def kinds_of(nodes):
    for node in nodes:
        if isinstance(node, Tile):
            yield node
        else:
            yield from kinds_of(node.body)


@pytest.mark.parametrize("name", CALLS)
def test_the_data_of_a_page_has_the_tiles_of_every_core(name):
    plan = made(CALLS[name])
    drawn = steps(plan)
    program = program_of(plan)
    assert [phase["name"] for phase in drawn["phases"]] == [phase.name for phase in program.phases]
    for drawn_phase, phase in zip(drawn["phases"], program.phases, strict=True):
        assert {
            core: count(drawn_phase["programs"][number])
            for core, number in drawn_phase["of_core"].items()
        } == {core: tiles(nodes) for core, nodes in phase.cores.items()}


def count(nodes):
    return sum(1 if isinstance(node, int) else node[3] * count(node[5]) for node in nodes)


@pytest.mark.parametrize("name", CALLS)
def test_every_part_lies_in_its_tensor(name):
    for _, _, view, (top, height), (left, width) in touched(made(CALLS[name]), 50):
        assert top >= 0
        assert 0 <= height <= view.rows - top
        assert left >= 0
        assert 0 <= width <= view.columns - left


@pytest.mark.parametrize("name", SMALL)
def test_results_are_written_once_and_inputs_read_once(name):
    plan = made(SMALL[name])
    wanted = WRITTEN_ONCE.get(plan.operator) or READ_ONCE[plan.operator]
    area, size = 0, None
    for _, step, view, rows, columns in touched(plan):
        if view.name == wanted and view.name not in step.by_data:
            area, size = area + rows[1] * columns[1], view.rows * view.columns
    assert area == size


@pytest.mark.parametrize("name", [name for name in SMALL if "rms" in name or "cross" in name])
def test_tiles_move_the_elements_that_their_parts_have(name):
    plan = made(SMALL[name])
    parts = {}
    for tile, step, view, rows, columns in touched(plan, 40):
        copied = parts.setdefault(id(tile), [tile, 0])
        if view.name in step.reads:
            copied[1] += rows[1] * columns[1]
    compared = 0
    for tile, area in parts.values():
        moved = sum(work.elements * work.times for work in tile.work[0])
        turns = area / moved if moved else 0
        assert turns == int(turns)  # a tile of a loop is met once in every iteration
        compared += bool(moved)
    assert compared


def test_matrix_blocks_of_convolutions_hold_what_is_multiplied():
    plan = made(("conv_tbc_backward", "atlas_a2", conv((1024, 16, 512, 512, 3, 1), "bf16")))
    views = {view.name: view for view in program_of(plan).views}
    for gradient, other in (("gradInput", "weight"), ("gradWeight", "input")):
        m, n, k = (
            plan.tiling[gradient][field] for field in ("single_m", "single_n", "single_reduction")
        )
        own, factor, result = (
            views[f"grad_output of a {gradient} block"],
            views[f"{other} of a {gradient} block"],
            views[f"{gradient} block"],
        )
        assert [(view.rows, view.columns) for view in (own, factor, result)] == [
            (m, k),
            (k, n),
            (m, n),
        ]


def test_billions_of_tiles_are_a_few_bytes():
    plan = made(CALLS["billions of rows"])
    assert max(tiles(nodes) for nodes in program_of(plan).phases[0].cores.values()) > 40_000_000
    assert len(json.dumps(steps(plan))) < 20_000


def test_rows_of_the_gradient_are_as_many_as_the_call_has():
    plan = made(CALLS["small dim"])
    grad = TensorSpec.parse(plan.arguments["grad"])
    rows = sum(rows[1] for _, _, view, rows, _ in touched(plan) if view.name == "grad")
    assert rows == prod(grad.shape[:-1])


def test_a_tile_that_is_not_described_keeps_its_name_and_every_buffer_is_live():
    plan = made(CALLS["rms, long"])
    phase = vector_phase("rows", {0: (vector_tile(step=Step("dx")),)})
    (tile,) = tile_steps.steps(plan, Program((phase,)))["tiles"]
    assert (tile["note"], tile["says"]) == ("dx", "dx")
    assert tile["live"] == tuple(area.name for area in plan.memories[0].allocations)


def test_gradient_of_unpermute_without_expert_rows_has_steps():
    call = {"unpermuted_tokens_grad": "100x512:bf16", "sorted_indices": "100:int32"}
    plan = npu_sim.plan("moe_token_unpermute_grad", permuted_tokens=None, **call)
    views = [(view.name, view.rows) for view in program_of(plan).views]
    assert views == [
        ("unpermuted_tokens_grad", 100),
        ("sorted_indices", 100),
        ("permuted_tokens_grad", 100),
    ]
    assert list(touched(plan))
