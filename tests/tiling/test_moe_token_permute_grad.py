from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import load_profile
from npu_sim.tiling import moe_token_permute_grad as moe
from npu_sim.tiling import moe_token_unpermute as token_sums
from npu_sim.tiling import plan_kernel
from npu_sim.tiling.common import DTYPE_CODES, FAILED, SUCCESS, align
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines

LINES = tiling_lines("moe_token_permute_grad")
A2 = load_profile(None, "Ascend910B1").device
A2_UB = A2.ub_bytes

devices = st.builds(
    lambda cores, ub_bytes: A2._replace(vector_cores=cores, ub_bytes=ub_bytes),
    st.integers(1, 96),
    st.one_of(st.just(A2_UB), st.integers(768, 1 << 20)),
)


def problem(tokens, top_k, hidden, dtype="float32", dropped=0):
    entries = tokens * top_k
    return moe.sum_problem(entries, max(entries - dropped, 0), hidden, top_k, DTYPE_CODES[dtype])


problems = st.builds(
    problem,
    tokens=st.one_of(st.integers(0, 200), st.integers(0, 2**31)),
    top_k=st.one_of(st.integers(1, 16), st.integers(1, 512), st.integers(1, 200_000)),
    hidden=st.one_of(
        st.integers(1, 70),
        st.integers(1, 20_000),
        st.sampled_from((512, 1024, 9216, 9217, 13312, 13313, 15872, 15873)),
    ),
    dtype=st.sampled_from(("float32", "float16", "bfloat16")),
    dropped=st.integers(0, 50),
)


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


def test_the_raw_planner_says_failed_where_the_rule_divides_by_zero():
    inputs = LINES[0]["inputs"]
    assert plan_kernel("moe_token_permute_grad", "Ascend910B1", {**inputs, "num_topk": 0}) == {
        "status": "failed"
    }


@pytest.mark.long
@given(problems, devices)
def test_compiled_and_plain_planner_agree(one, device):
    assert tuple(compiled(token_sums.tile)(one, device, None)) == tuple(
        token_sums.tile(one, device, None)
    )


@given(problems, devices)
def test_every_token_belongs_to_exactly_one_core(one, device):
    tiling = token_sums.tile(one, device, None)
    if tiling.status != SUCCESS or one.tokens == 0:
        return
    ranges = [token_sums.token_range(tiling, core) for core in range(tiling.block_dim)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == one.tokens
    assert all(left[1] == right[0] and left[0] < left[1] for left, right in pairwise(ranges))
    lengths = [stop - start for start, stop in ranges]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@given(problems, devices)
def test_pieces_and_batches_add_up(one, device):
    tiling = token_sums.tile(one, device, None)
    if tiling.status != SUCCESS:
        return
    assert tiling.hidden_length * tiling.hidden_pieces + tiling.hidden_remainder == one.hidden
    assert 0 <= tiling.hidden_remainder < tiling.hidden_length
    assert token_sums.FEWEST_BUFFERS <= tiling.buffers <= token_sums.MOST_BUFFERS
    if tiling.batch_tokens:
        assert tiling.batch_tokens * tiling.batches + tiling.batch_remainder == tiling.core_tokens
        assert 0 <= tiling.batch_remainder < tiling.batch_tokens


def used_bytes(one, tiling):
    """The buffers of a core, as the page lists them."""
    h, size = align(tiling.hidden_length, 512), one.element_bytes
    fp32_rows = (4 * h + 256) + 4 * h if size == 2 else 0
    return tiling.buffers * h * size + tiling.batch_tokens * tiling.top_k * 4 + h * size + fp32_rows


@given(problems, devices)
def test_buffers_fit_the_unified_buffer_and_one_more_row_would_not(one, device):
    tiling = token_sums.tile(one, device, None)
    if tiling.status != SUCCESS:
        return
    assert used_bytes(one, tiling) <= device.ub_bytes
    if tiling.buffers < token_sums.MOST_BUFFERS:
        assert tiling.hidden_length > token_sums.max_hidden(
            device.ub_bytes, tiling.buffers + 1, one.element_bytes
        )


@given(problems, devices)
def test_documented_numbers_of_experts_always_fit(one, device):
    tiling = token_sums.tile(one._replace(top_k=512), device, None)
    if tiling.status == SUCCESS and one.tokens >= 1:
        assert tiling.batch_tokens >= 1


def fits(top_k, hidden, element_bytes, device):
    """Whether the indices of one token fit: the planner's own answer."""
    tiling = token_sums.tile(
        token_sums.Problem(1, top_k, hidden, top_k, element_bytes, 0, 4, 1), device, None
    )
    return tiling.status == SUCCESS and tiling.batch_tokens >= 1


@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize(
    "hidden", [1, 512, 513, 1024, 7168, 9216, 9217, 11776, 11777, 13312, 13313, 15872, 40000]
)
def test_the_largest_topk_is_the_last_one_that_fits(hidden, element_bytes):
    largest = token_sums.largest_topk(A2_UB, hidden, element_bytes)
    assert all(
        fits(top_k, hidden, element_bytes, A2) == (top_k <= largest)
        for top_k in range(1, 60_000, 7)
    )
    assert fits(largest, hidden, element_bytes, A2)
    assert not fits(largest + 1, hidden, element_bytes, A2)


@given(st.integers(1, 30_000), st.sampled_from((2, 4)), devices)
def test_the_largest_topk_of_any_device_is_the_last_one_that_fits(hidden, element_bytes, device):
    largest = token_sums.largest_topk(device.ub_bytes, hidden, element_bytes)
    assert largest == 0 or fits(largest, hidden, element_bytes, device)
    assert not fits(largest + 1, hidden, element_bytes, device)


@pytest.mark.parametrize(
    ("element_bytes", "at_1024", "anywhere"), [(2, 44416, 1920), (4, 43904, 1408)]
)
def test_where_topk_really_breaks_on_a2(element_bytes, at_1024, anywhere):
    assert token_sums.largest_topk(A2_UB, 1024, element_bytes) == at_1024
    assert token_sums.largest_topk_of_every_hidden(A2_UB, element_bytes) == anywhere
    assert (
        min(token_sums.largest_topk(A2_UB, hidden, element_bytes) for hidden in range(1, 20_000))
        == anywhere
    )


def test_a_buffer_too_small_for_any_row_has_no_tiling():
    small = A2._replace(ub_bytes=5120 + 513 * 12 - 1)
    assert token_sums.tile(problem(8, 2, 64), small, None).status == FAILED
    assert (
        token_sums.tile(problem(8, 2, 64), small._replace(ub_bytes=small.ub_bytes + 1), None).status
        == SUCCESS
    )
    assert (
        token_sums.largest_topk(small.ub_bytes, 64, 4)
        == token_sums.largest_topk_of_every_hidden(small.ub_bytes, 4)
        == 0
    )
