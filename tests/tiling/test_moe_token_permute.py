from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import moe_token_permute as tiler
from npu_sim.tiling import plan_kernel
from npu_sim.tiling.common import FAILED, FP16, FP32, SUCCESS, element_bytes, table
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines

LINES = tiling_lines("moe_token_permute")
A2, SMALL_A2, A3 = (
    load_profile(None, soc).device for soc in ("Ascend910B1", "Ascend910B4", "Ascend910_9391")
)


class Rules:
    """What the newest release decides."""

    switches = load_profile("atlas_a2").release_switches("moe_token_permute")
    schedule_mode, position_bytes = switches["schedule_mode"], switches["position_bytes"]


counts = st.one_of(st.integers(0, 100), st.integers(0, 10000), st.integers(0, 2**24))
columns = st.one_of(
    st.sampled_from((0, 1, 24288, 24289, 48576, 48577)),
    st.integers(1, 9000),
    st.integers(1, 200000),
)
devices = st.sampled_from((A2, SMALL_A2, A3))


@st.composite
def problems(draw):
    top_k = draw(st.integers(0, tiler.MOST_TOPK))
    tokens = min(draw(counts), tiler.MOST_ENTRIES // max(top_k, 1))
    kept = draw(st.sampled_from((tokens * top_k, tokens * top_k // 2, 0)))
    return tiler.Problem(tokens, top_k, draw(columns), draw(st.sampled_from((FP16, FP32))), kept)


def problem(tokens, top_k=8, wide=1024, dtype=FP16, kept=None):
    return tiler.Problem(tokens, top_k, wide, dtype, tokens * top_k if kept is None else kept)


def plan(one, device=A2):
    return tiler.tile(one, device, Rules)


def test_the_golden_data_has_every_kind_of_line():
    assert len(LINES) == 326
    succeeded = [line["expect"] for line in LINES if line["expect"]["status"] == "success"]
    assert len(succeeded) == 293
    assert {expect["tiling_key"] for expect in succeeded} == set(range(1, 9))
    assert {line["group"] for line in LINES} == {
        "random",
        "edge",
        "sort",
        "split",
        "drop",
        "limit",
        "no_buffer",
        "empty",
        "invalid",
    }


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


@pytest.mark.parametrize("release", ["8.3", "8.5", "9.0"])
def test_every_golden_line_is_reproduced_at_every_release(release):
    for line in LINES:
        expected = line["expect"]
        if release in line.get("releases", {}):
            differs, tiling = line["releases"][release], expected["tiling"]
            copies = {**tiling["indexCopyComputeParamsOp"], "indicesUB": differs["indicesUB"]}
            expected = {
                **expected,
                "schedule_mode": differs["schedule_mode"],
                "tiling": {**tiling, "indexCopyComputeParamsOp": copies},
            }
        assert (
            plan_kernel(line["op"], line["soc"], line["inputs"], line["deterministic"], release)
            == expected
        )


def test_the_oldest_release_has_a_smaller_buffer_of_positions():
    differing = [line["releases"] for line in LINES if "releases" in line]
    assert len(differing) == 293
    assert any(found["8.3"]["indicesUB"] < found["8.5"]["indicesUB"] for found in differing)


@given(problems(), devices)
def test_every_token_is_moved_by_exactly_one_core(one, device):
    copies = plan(one, device).copies
    assert copies.cores <= device.vector_cores
    ranges = [tiler.token_range(copies, core) for core in range(copies.cores)]
    assert ranges[0][0] == 0
    assert all(left[1] == right[0] for left, right in pairwise([*ranges, (one.num_tokens, None)]))
    assert {stop - start for start, stop in ranges} <= {copies.front_tokens, copies.tail_tokens}


@given(problems(), devices)
def test_every_id_is_sorted_by_exactly_one_core(one, device):
    sort, entries = plan(one, device).sort, one.num_tokens * one.num_topk
    assert 1 <= sort.cores <= device.vector_cores
    ranges = [tiler.sort_range(sort, core) for core in range(sort.cores)]
    assert all(
        left[1] == right[0] for left, right in pairwise([(None, 0), *ranges, (entries, None)])
    )
    for share, loops, piece, last in (sort.core, sort.last):
        assert (loops - 1) * piece + last == share
        assert piece <= sort.most_entries
        assert entries == 0 or 0 < last <= piece
    assert tiler.sorts_at_once(sort) == (entries <= sort.most_entries)


@given(problems(), devices)
def test_groups_of_tokens_add_up(one, device):
    tiling = plan(one, device)
    copies = tiling.copies
    if not tiler.leaves_room(tiling) or not copies.group_tokens:
        return
    for loops, tokens in ((copies.front, copies.front_tokens), (copies.tail, copies.tail_tokens)):
        assert (loops.groups - 1) * copies.group_tokens + loops.last_tokens == tokens
        assert (loops.last_copies - 1) * copies.copy_rows + loops.last_rows == loops.last_tokens


@given(problems(), devices)
def test_the_unified_buffer_holds_every_stage(one, device):
    tiling = plan(one, device)
    assert tiler.sort_bytes(tiling) <= device.ub_bytes
    assert tiler.copy_bytes(tiling) <= device.ub_bytes


@given(problems(), devices)
def test_the_key_says_how_ids_are_sorted_and_rows_moved(one, device):
    tiling = plan(one, device)
    key, entries = tiling.tiling_key - 1, one.num_tokens * one.num_topk
    assert bool(key & 1) == (entries > tiling.sort.most_entries)
    assert bool(key & 2) == (
        2 * -(-one.hidden * element_bytes(one.dtype) // 32) * 32 > device.ub_bytes - 2048
    )
    assert bool(key & 4) == (one.kept_rows != entries)
    assert tiling.block_dim == max(tiling.sorters, tiling.copies.cores)
    assert tiling.workspace_bytes == 24 * entries + 64 * tiling.sorters + 2**24


@pytest.mark.parametrize(
    ("one", "device", "cap", "cores"),
    [
        (problem(4, 8), A2, 6112, 1),
        (problem(760, 8), A2, 6080, 1),
        (problem(761, 8), SMALL_A2, 6080, 4),
        (problem(4 * 760 + 1, 8), A3, 6080, 16),
        (problem(16 * 760 + 1, 8), A2, 6080, 48),
        (problem(16 * 760 + 1, 8), SMALL_A2, 6080, 40),
    ],
)
def test_cores_that_sort_by_hand(one, device, cap, cores):
    sort = plan(one, device).sort
    assert (sort.most_entries, sort.cores) == (cap, cores)


@pytest.mark.parametrize(
    ("lists", "rounds"), [(1, 1), (2, 1), (4, 1), (5, 2), (16, 2), (17, 3), (64, 3), (65, 4)]
)
def test_rounds_of_merging(lists, rounds):
    assert tiler.merge_rounds(lists) == rounds


@pytest.mark.parametrize(
    ("columns", "top_k", "rows", "pieces"),
    [
        (48064, 512, 1, 1),
        (48065, 504, 1, 1),
        (48065, 505, 0, 1),
        (48576, 256, 1, 1),
        (48576, 257, 0, 1),
        (48577, 512, 1, 2),
    ],
)
def test_where_positions_leave_no_room(columns, top_k, rows, pieces):
    """Two rows of 96128 bytes leave 8 bytes for 512 positions; rows above 97152 bytes are split."""
    tiling = plan(problem(10, top_k, columns))
    assert (tiling.copies.copy_rows, tiling.copies.pieces) == (rows, pieces)
    assert tiler.leaves_room(tiling) == (rows > 0)
    assert pieces > 1 or tiler.leaves_room(tiling) == (
        top_k <= tiler.most_topk(tiling.copies.row_bytes, A2.ub_bytes)
    )


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (0, 40),
        (7, 7),
        (40, 40),
        (41, 40),
        (-7, 33),
        (-40, 0),
        (-41, 0),
        (2**63 - 1, 40),
        (-(2**63), 0),
    ],
)
def test_rows_that_are_kept(wanted, kept):
    assert tiler.kept_rows(wanted, 40) == kept


@given(problems(), devices, st.integers(-1000, 300000), st.integers(0, 64))
def test_a_what_if_soc_is_planned_or_refused(one, device, ub_bytes, cores):
    device = device._replace(ub_bytes=ub_bytes, vector_cores=cores)
    tiling = tiler.tile(one, device, Rules)
    if tiling.status == FAILED:
        assert tiling == tiler.NO_TILING
        assert cores == 0 or tiler.most_entries(one.num_tokens * one.num_topk, device) <= 0
    else:
        assert tiling.sort.most_entries > 0


def test_a_merge_needs_four_buffers():
    small = A2._replace(ub_bytes=131072 - 32)
    assert tiler.stage_bytes(tiler.tile(problem(10), small, Rules)) <= small.ub_bytes
    tiling = tiler.tile(problem(1000), small, Rules)
    assert tiling.status == SUCCESS
    assert tiler.stage_bytes(tiling) == 131072


def test_a_piece_of_a_row_needs_room_beside_the_positions():
    for ub_bytes, fits in ((3072 - 32, False), (3072, True)):
        device = A2._replace(ub_bytes=ub_bytes, vector_cores=1)
        assert (
            tiler.stage_bytes(tiler.tile(problem(1, 1, 2000), device, Rules)) <= ub_bytes
        ) == fits


@pytest.mark.long
@settings(max_examples=200)
@given(problems(), devices)
@example(problem(0), A2)
@example(problem(5, 3, 60000, 4, 7), A3)
def test_the_compiled_planner_gives_the_same_tiling(one, device):
    for function in (compiled(tiler.split_sort), tiler.split_sort):
        assert function(one.num_tokens * one.num_topk, device) == plan(one, device).sort
    copies = compiled(tiler.split_copies)(one, device, Rules.position_bytes)
    assert copies == plan(one, device).copies


def test_every_field_of_the_vendor_has_one_name():
    for part in (tiler.Tiling, tiler.Sort, tiler.Copies):
        names = [name for column in table(part) for name in column.field.vendor.split()]
        assert len(names) == len(set(names))
    structure, golden = (
        tiler.vendor_structure(plan(problem(5)), {}, Rules),
        LINES[0]["expect"]["tiling"],
    )
    assert structure.keys() == golden.keys()
    for name, group in golden.items():
        assert not isinstance(group, dict) or structure[name].keys() == group.keys()
