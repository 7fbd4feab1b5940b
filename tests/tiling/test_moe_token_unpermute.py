from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import moe_token_unpermute as tiler
from npu_sim.tiling import moe_token_unpermute as token_sums
from npu_sim.tiling.common import SUCCESS, align
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, release_lines, tiling_lines
from tests.rules import rules_of

LINES = release_lines("moe_token_unpermute") + tiling_lines("moe_token_unpermute")
A2 = load_profile(None, "Ascend910B1").device
RULES = rules_of("moe_token_unpermute")
FP32, FP16, BF16 = (tiler.DTYPE_CODES[name] for name in ("float32", "float16", "bfloat16"))

sizes = st.one_of(st.integers(0, 200), st.integers(0, 2**31))
columns = st.one_of(
    st.integers(0, 70),
    st.integers(0, 20000),
    st.sampled_from((9216, 9217, 10241, 11776, 11777, 13313, 15873)),
)
topks = st.one_of(st.integers(1, 16), st.integers(1, 512))
dtypes = st.sampled_from((FP32, FP16, BF16))
factors = st.sampled_from((tiler.NO_PROBS, FP32, FP16, BF16))
devices = st.builds(
    lambda cores, ub_bytes: A2._replace(vector_cores=cores, ub_bytes=ub_bytes),
    st.integers(0, 96),
    st.one_of(st.just(A2.ub_bytes), st.integers(0, 1 << 20)),
)


def plan(tokens, hidden, top_k, dtype=FP32, probs=FP32, device=A2):
    problem = tiler.sum_problem(tokens, tokens * top_k, hidden, top_k, dtype, probs, RULES)
    return tiler.tile(problem, device, RULES)


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


def test_the_golden_data_has_every_key_and_kind_of_line():
    succeeded = [line["expect"] for line in LINES if line["expect"]["status"] == "success"]
    assert {expect["tiling_key"] for expect in succeeded} == {
        0,
        1,
        2,
        3,
        4,
        5,
        11,
        13,
        17,
        21,
        25,
        27,
    }
    assert {expect["tiling"]["buffer_num"] for expect in succeeded} == {2, 3, 4}
    assert {line["group"] for line in LINES} > {"dropped", "empty", "topk_limit", "invalid"}
    assert {line.get("release") for line in LINES} == {None, "8.3"}


@given(sizes, columns, topks, dtypes, factors, devices)
def test_the_compiled_planner_gives_the_same_tiling(tokens, hidden, top_k, dtype, probs, device):
    key, entry = tiler.key_with_probs(dtype, probs), tiler.bytes_of_entry(probs)
    problem = tiler.sum_problem(tokens, tokens * top_k, hidden, top_k, dtype, probs, RULES)
    assert (problem.tiling_key, problem.entry_bytes) == (key, entry)
    found = compiled(token_sums.tile)(problem, device, None)
    assert tuple(found) == tuple(token_sums.tile(problem, device, None))
    assert compiled(tiler.key_with_probs)(dtype, probs) == key
    assert compiled(tiler.bytes_of_entry)(probs) == entry


@given(sizes.filter(bool), columns, topks, dtypes, factors)
def test_tokens_pieces_and_batches_add_up(tokens, hidden, top_k, dtype, probs):
    tiling = plan(tokens, hidden, top_k, dtype, probs)
    ranges = [token_sums.token_range(tiling, core) for core in range(tiling.block_dim)]
    assert (ranges[0][0], ranges[-1][1]) == (0, tokens)
    assert all(left[1] == right[0] and left[0] < left[1] for left, right in pairwise(ranges))
    assert tiling.hidden_length * tiling.hidden_pieces + tiling.hidden_remainder == hidden
    assert tiling.batch_tokens * tiling.batches + tiling.batch_remainder == tiling.core_tokens
    assert tiling.batch_tokens > 0


@given(sizes.filter(bool), columns.filter(bool), topks, dtypes, factors)
def test_rounded_buffers_exceed_the_unified_buffer_by_64_bytes_at_most_and_only_with_16_bits_twice(
    tokens, hidden, top_k, dtype, probs
):
    tiling = plan(tokens, hidden, top_k, dtype, probs)
    length, size = align(tiling.hidden_length, 512), 4 if dtype == FP32 else 2
    rows = (tiling.buffers + 1) * length * size + (8 * length + 256 if size == 2 else 0)
    beyond = rows + sum(tiler.entry_buffers(tiling, probs).values()) - A2.ub_bytes
    assert beyond <= (64 if dtype != FP32 and probs in (FP16, BF16) else 0)


@pytest.mark.parametrize(
    ("dtype", "probs", "anywhere", "at_1024"),
    [
        (BF16, FP16, 768, 17766),
        (FP16, FP32, 960, 22208),
        (FP32, BF16, 563, 17561),
        (FP32, FP32, 704, 21952),
    ],
)
def test_where_entries_of_a_token_really_end_on_a2(dtype, probs, anywhere, at_1024):
    size, entry = 4 if dtype == FP32 else 2, tiler.bytes_of_entry(probs)
    assert token_sums.largest_topk_of_every_hidden(A2.ub_bytes, size, entry) == anywhere
    assert token_sums.largest_topk(A2.ub_bytes, 1024, size, entry) == at_1024
    assert plan(1, 1024, at_1024, dtype, probs).batch_tokens == 1
    assert plan(1, 1024, at_1024 + 1, dtype, probs).batch_tokens == 0


def test_without_cores_or_room_there_is_no_tiling():
    assert plan(8, 64, 2, device=A2._replace(vector_cores=0)) == token_sums.NO_TILING
    small = A2._replace(ub_bytes=5120 + 513 * 12)
    assert plan(8, 64, 2, device=small).status == SUCCESS
    assert (
        plan(8, 64, 2, device=small._replace(ub_bytes=small.ub_bytes - 1)) == token_sums.NO_TILING
    )
