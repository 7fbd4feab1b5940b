"""The schedule against a slow simulation that walks through every tile."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.timelines.program import Copy, Hold, Loop, Phase, Tile, tiles
from npu_sim.timelines.schedule import Scheduler

PROFILE = load_profile("atlas_a2")
FAR = partial(Copy, tensor_bytes=2**100)
"""A copy of a part of a tensor beyond the L2: 32 bytes a cycle."""
PIPES = ("A", "B", "C")
RATE = PROFILE.chip.l2_read_bytes_per_cycle


def expanded(nodes):
    for node in nodes:
        if isinstance(node, Tile):
            yield node
        else:
            for _ in range(node.count):
                yield from expanded(node.body)


def simulate(nodes, holds):
    """Walk through the tiles one by one; return every event as (pipe, start, end), and the end."""
    events, ends, freed = [], [0.0] * len(PIPES), {hold: [] for hold in holds}
    for tile in expanded(nodes):
        used = [pipe for pipe in range(len(PIPES)) if tile.work[pipe]]
        own = [hold for hold in holds if hold.filled_by in used and hold.freed_by in used]
        before, old = None, list(ends)
        for pipe in used:
            start = ends[pipe]
            if before is not None:
                start = max(start, ends[before])
            elif pipe:
                start = max(start, old[pipe - 1])
            for hold in own:
                if hold.filled_by == pipe and len(freed[hold]) >= hold.count:
                    start = max(start, freed[hold][-hold.count])
            ends[pipe] = start + sum(work.times * work.bytes / RATE for work in tile.work[pipe])
            events.append((pipe, start, ends[pipe]))
            before = pipe
        for hold in own:
            freed[hold].append(ends[hold.freed_by])
    return events, max(ends)


work = st.tuples() | st.tuples(st.integers(1, 9).map(lambda blocks: Copy(32 * blocks, 8 * blocks)))
tile = st.tuples(work, work, work).filter(any).map(Tile)
nodes = st.recursive(
    st.lists(tile, min_size=1, max_size=4).map(tuple),
    lambda inner: st.lists(
        tile | st.builds(Loop, inner, st.integers(1, 5), st.just("rows"), st.integers(1, 3)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    max_leaves=8,
)
holds = st.lists(
    st.builds(Hold, st.just(0), st.just(1), st.integers(1, 3))
    | st.builds(Hold, st.just(1), st.just(2), st.integers(1, 2)),
    max_size=2,
)


def scheduler_of(holds):
    return Scheduler(Phase("phase", PIPES, tuple(holds), {}), PROFILE)


@settings(max_examples=150)
@given(nodes, holds.map(lambda some: tuple(dict.fromkeys(some))))
def test_a_core_ends_when_a_walk_through_its_tiles_ends(nodes, holds):
    events, end = simulate(nodes, holds)
    scheduler = scheduler_of(holds)
    assert scheduler.finish(nodes) == pytest.approx(end)
    for pipe in range(len(PIPES)):
        assert scheduler.busy(nodes)[pipe] == pytest.approx(
            sum(stop - start for one, start, stop in events if one == pipe)
        )


@settings(max_examples=100)
@given(nodes, st.integers(1, 12))
def test_pieces_cover_every_tile_without_overlap(nodes, most):
    scheduler = scheduler_of((Hold(0, 1, 1), Hold(1, 2, 1)))
    pieces = list(scheduler.pieces(nodes, most))
    assert sum(piece.tiles for piece in pieces) == tiles(nodes)
    for pipe in range(len(PIPES)):
        last = 0.0
        for piece in pieces:
            if piece.busy[pipe]:
                assert piece.start[pipe] >= last - 1e-9
                last = piece.start[pipe] + piece.busy[pipe]
        assert sum(piece.busy[pipe] for piece in pieces) == pytest.approx(
            scheduler.busy(nodes)[pipe]
        )


def test_single_pieces_start_where_a_walk_starts_them():
    nodes = (Loop((Tile(((Copy(320, 80),), (Copy(64, 16),), (Copy(96, 24),))),), 7, "rows", 2),)
    holds = (Hold(0, 1, 2), Hold(1, 2, 1))
    events, _ = simulate(nodes, holds)
    pieces = list(scheduler_of(holds).pieces(nodes, 100))
    assert [piece.name for piece in pieces] == [
        f"rows {2 * one}..{2 * one + 2}" for one in range(7)
    ]
    starts = [(pipe, piece.start[pipe]) for piece in pieces for pipe in range(3)]
    assert [pipe for pipe, _ in starts] == [pipe for pipe, _, _ in events]
    assert [start for _, start in starts] == pytest.approx([start for _, start, _ in events])


def test_two_buffers_hide_the_shorter_pipe_and_one_does_not():
    loop = (Loop((Tile(((FAR(320, 80),), (FAR(160, 40),), ())),), 10),)
    assert scheduler_of((Hold(0, 1, 1),)).finish(loop) == 10 * (10 + 5)
    assert scheduler_of((Hold(0, 1, 2),)).finish(loop) == 10 * 10 + 5


def test_a_billion_tiles_are_timed_exactly():
    loop = (Loop((Tile(((FAR(320, 80),), (FAR(160, 40),), ())),), 10**9),)
    assert scheduler_of((Hold(0, 1, 1),)).finish(loop) == 10**9 * 15
    assert len(list(scheduler_of((Hold(0, 1, 1),)).pieces(loop, 50))) <= 51
