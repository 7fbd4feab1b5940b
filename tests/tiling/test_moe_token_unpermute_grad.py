from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import moe_token_unpermute_grad as tiler
from npu_sim.tiling.common import DTYPE_CODES, FAILED, SUCCESS
from npu_sim.tiling.moe_token_unpermute import NO_PROBS
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, release_lines, tiling_lines

LINES = tiling_lines("moe_token_unpermute_grad") + release_lines("moe_token_unpermute_grad")
A2 = load_profile(None, "Ascend910B1").device
FP32, FP16, BF16 = (DTYPE_CODES[name] for name in ("float32", "float16", "bfloat16"))

problems = st.builds(
    lambda tokens, top_k, hidden, size, probs: tiler.Problem(
        tokens, 1 if probs == NO_PROBS else top_k, hidden, tokens * top_k, size, probs
    ),
    st.one_of(st.integers(1, 200), st.integers(1, 2**31)),
    st.one_of(st.integers(1, 16), st.integers(1, 512)),
    st.one_of(
        st.integers(1, 70),
        st.integers(1, 20000),
        st.sampled_from((3585, 5376, 5377, 6128, 6129, 7936, 7937)),
    ),
    st.sampled_from((2, 4)),
    st.sampled_from((NO_PROBS, FP32, FP16, BF16)),
)
devices = st.builds(
    lambda cores, ub_bytes: A2._replace(vector_cores=cores, ub_bytes=ub_bytes),
    st.integers(1, 96),
    st.one_of(st.just(A2.ub_bytes), st.integers(0, 1 << 20)),
)


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


def test_the_golden_data_has_both_keys_every_release_and_refusals():
    assert {line.get("release") for line in LINES} == {None, "8.3", "8.5", "9.0"}
    assert {line["expect"].get("tiling_key") for line in LINES} == {0, 1, None}


@pytest.mark.long
@given(problems, devices)
def test_the_compiled_planner_gives_the_same_tiling(problem, device):
    assert tuple(compiled(tiler.tile)(problem, device, None)) == tuple(
        tiler.tile(problem, device, None)
    )


@given(problems, devices)
def test_tokens_and_pieces_add_up_and_every_buffer_fits(problem, device):
    tiling = tiler.tile(problem, device, None)
    if tiling.status == FAILED:
        assert tiling == tiler.NO_TILING
        return
    ranges = [tiler.token_range(tiling, core) for core in range(tiling.block_dim)]
    assert (ranges[0][0], ranges[-1][1]) == (0, problem.tokens)
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert {stop - start for start, stop in ranges} <= {tiling.core_tokens, tiling.tail_tokens}
    assert (tiling.pieces - 1) * tiling.piece_columns + tiling.last_columns == problem.hidden
    assert (
        0
        < tiling.last_columns
        <= max(tiling.piece_columns, problem.hidden if tiling.pieces == 1 else 0)
    )
    buffers = tiler.buffers(tiling, problem.element_bytes, problem.probs)
    assert sum(buffers.values()) <= device.ub_bytes


@given(problems)
def test_groups_are_whole_tokens_and_rows_divide_them(problem):
    tiling = tiler.tile(problem, A2, None)
    assert tiling.status == SUCCESS
    if problem.probs != NO_PROBS:
        assert tiling.group_entries % problem.top_k == 0
        assert problem.top_k % tiling.input_rows == 0
        assert tiling.group_entries <= max(256, problem.top_k)
    else:
        assert tiling.group_entries % 8 == 0


@pytest.mark.parametrize(
    ("size", "probs", "longest"),
    [
        (2, BF16, {272: 7936, 273: 7680, 512: 7680}),
        (2, FP32, {200: 7936, 201: 7680, 416: 7680, 417: 7424}),
        (4, FP16, {128: 5376, 129: 5248, 352: 5248, 353: 5120}),
        (4, FP32, {88: 5376, 89: 5248, 256: 5248, 257: 5120, 416: 5120, 417: 4992}),
        (2, NO_PROBS, {1: 6128}),
        (4, NO_PROBS, {1: 3064}),
    ],
)
def test_the_longest_pieces_of_published_socs(size, probs, longest):
    for top_k, columns in longest.items():
        tiling = tiler.tile(tiler.Problem(1, top_k, 100000, top_k, size, probs), A2, None)
        assert (tiling.piece_columns, tiling.input_rows) == (columns, 8 if probs == NO_PROBS else 1)


@pytest.mark.parametrize("zero", ["tokens", "top_k", "hidden", "rows"])
def test_the_raw_planner_refuses_zeros(zero):
    problem = tiler.Problem(8, 2, 64, 16, 4, FP32)
    assert tiler.tile(problem, A2, None).status == SUCCESS
    assert tiler.tile(problem._replace(**{zero: 0}), A2, None) == tiler.NO_TILING
