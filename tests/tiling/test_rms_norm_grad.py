from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile, shipped_products
from npu_sim.tiling import rms_norm_grad as tiler
from npu_sim.tiling.common import BF16, FP16, FP32, element_bytes, vendor_fields
from npu_sim.tiling.rms_norm_grad import Shapes, buffers, shape_error
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("rms_norm_grad")
RULES = rules_of("rms_norm_grad")
any_rules = rules_at_any_release("rms_norm_grad")
SOCS = ["Ascend910B1", "Ascend910B4", "Ascend910_9391", "Ascend310P3", "Ascend310P1"]

columns = st.one_of(
    st.integers(1, 700), st.integers(1, 7000), st.integers(1, 400000), st.integers(1, 2**32 - 1)
)
problems = st.builds(
    tiler.Problem,
    row=st.one_of(st.integers(1, 100), st.integers(1, 10**5), st.integers(1, 2**32 - 1)),
    col=columns,
    dtype=st.sampled_from((FP32, FP16, BF16)),
    deterministic=st.booleans(),
)
devices = st.sampled_from(SOCS).map(lambda soc: load_profile(None, soc).device)
A2 = load_profile(None, "Ascend910B1").device


def test_the_sample_has_every_kind_of_line():
    assert len(LINES) == 397
    assert {line["expect"]["status"] for line in LINES} == {"success", "failed"}
    assert sum(line["expect"].get("tiling", {}).get("need_chunk", 0) for line in LINES) > 5


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


@given(problems, devices, any_rules)
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    if tiling.block_dim > 64:
        return
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == problem.row
    assert all(
        left[1] == right[0] and left[0] < left[1]
        for left, right in pairwise([*ranges, (problem.row, None)])
    )
    assert tiling.block_dim <= device.vector_cores
    last = ranges[-1][1] - ranges[-1][0]
    assert last == (tiling.core_tail or tiling.block_factor)


@given(problems, devices, any_rules)
def test_batches_add_up(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    split_n = tiling.tiling_key == tiler.SPLIT_N
    assert split_n == (problem.col <= 6080)
    cut = ((tiling.batches, tiling.block_factor if split_n else problem.col),)
    if tiling.core_tail:
        cut += ((tiling.tail_batches, tiling.core_tail if split_n else problem.col),)
    else:
        assert tiling.tail_batches == (0, 0, 0)
    for batches, total in cut:
        assert 0 <= batches.tail < batches.num == tiling.ub_factor
        assert (batches.loop - 1) * batches.num + (batches.tail or batches.num) == total


@given(problems, devices, any_rules)
def test_chunks_cover_the_columns(problem, device, rules):
    chunks = tiler.tile(problem, device, rules).chunks
    if not chunks.need:
        assert chunks.num == 1
        return
    assert problem.deterministic
    assert chunks.size % 4096 == 0
    assert (chunks.num - 1) * chunks.size + chunks.tail == problem.col
    assert 0 < chunks.tail <= chunks.size


@given(problems, devices, any_rules)
def test_the_unified_buffer_holds_every_buffer(problem, device, rules):
    # The product assumes 195584 bytes on every SoC; the alignment of rstd may exceed that by a
    # few, what there is never.
    assert (
        sum(buffers(tiler.tile(problem, device, rules), device.npu_arch, rules)) <= device.ub_bytes
    )


def test_buffers_of_the_user_guide_example():
    tiling = tiler.tile(tiler.Problem(4096, 8192, BF16, False), A2, RULES)
    of = buffers(tiling, A2.npu_arch, RULES)
    assert (of.dy, of.x, of.dx, of.gamma, of.dgamma, of.rstd, of.means) == (
        32768,
        32768,
        32768,
        16384,
        16384,
        128,
        256,
    )
    assert sum(of) == 131456


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "deterministic", "total"),
    [
        (10, 128, FP32, False, 16777536),
        (10, 128, FP32, True, 16782656),
        (4096, 8192, BF16, False, 16778752),
        (4096, 8192, BF16, True, 18351616),
    ],
)
def test_worked_workspaces(rows, columns, dtype, deterministic, total):
    assert (
        tiler.tile(tiler.Problem(rows, columns, dtype, deterministic), A2, RULES).workspace_bytes
        == total
    )


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_products_wrap_at_32_bits(a, b):
    assert tiler.multiply_uint32(a, b) == a * b % 2**32


@given(problems)
def test_the_total_size_wraps_at_4_gib(problem):
    size = element_bytes(problem.dtype)
    rows, wide = problem.row, problem.col
    assert (
        tiler.total_input_bytes(rows, wide, size)
        == (2 * rows * wide * size + 4 * rows + wide * size) % 2**32
    )


def flattened(value):
    return (
        [one for part in value for one in flattened(part)] if isinstance(value, tuple) else [value]
    )


@settings(max_examples=300)
@given(problems, devices, any_rules)
@example(tiler.Problem(2**32, 348, BF16, True), A2, RULES)
@example(tiler.Problem(2**32 + 5, 3, FP16, True), A2, RULES)
@example(tiler.Problem(6144, 200000, BF16, True), A2, RULES)
@example(tiler.Problem(2**32 - 1, 2**32 - 1, FP32, True), A2, RULES)
@example(tiler.Problem(10, 65, FP16, False), load_profile(None, "Ascend910A").device, RULES)
@pytest.mark.long
def test_the_compiled_planner_gives_the_same_tiling(problem, device, rules):
    assert flattened(tuple(compiled(tiler.tile)(problem, device, rules))) == flattened(
        tuple(tiler.tile(problem, device, rules))
    )


@given(columns)
def test_the_average_factor_is_a_float32(wide):
    tiling = tiler.tile(tiler.Problem(1, wide, FP32, False), A2, RULES)
    assert tiling.average_factor == np.float32(1) / np.float32(wide)
    assert np.float32(vendor_fields(tiling, RULES)["avg_factor"]) == tiling.average_factor


GOOD = Shapes((2, 3, 8), (2, 3, 8), (2, 3), (8,), (2, 3, 8), (8,))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rstd": (2, 3, 1)},
        {"rstd": (2, 3, 1, 1)},
        {"gamma": (3, 8), "dgamma": (3, 8), "rstd": (2,)},
        {"gamma": (2, 3, 8), "dgamma": (2, 3, 8), "rstd": ()},
    ],
)
def test_legal_shapes(changes):
    assert shape_error(GOOD._replace(**changes)) is None


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("x", {"x": (), "dy": (), "dx": ()}),
        ("x", {"x": (1,) * 9, "dy": (1,) * 9, "dx": (1,) * 9, "gamma": (1,), "dgamma": (1,)}),
        ("gamma", {"gamma": (), "dgamma": ()}),
        ("gamma", {"gamma": (1, 2, 3, 8), "dgamma": (1, 2, 3, 8)}),
        ("x", {"x": (2, 3, 9)}),
        ("dx", {"dx": (1, 2, 3, 8)}),
        ("dgamma", {"dgamma": (1, 8)}),
        ("gamma", {"gamma": (9,), "dgamma": (9,)}),
        ("rstd", {"rstd": (3, 2)}),
        ("rstd", {"rstd": (6,)}),
        ("rstd", {"rstd": (2,)}),
        ("rstd", {"rstd": (2, 3, 2)}),
        ("rstd", {"rstd": ()}),
        ("dy", {"x": (0, 3, 8), "dy": (0, 3, 8), "dx": (0, 3, 8), "rstd": (0, 3)}),
        ("dy", {"x": (2, 3, 0), "dy": (2, 3, 0), "dx": (2, 3, 0), "gamma": (0,), "dgamma": (0,)}),
    ],
)
def test_illegal_shapes_are_found(argument, changes):
    error = shape_error(GOOD._replace(**changes))
    assert error is not None
    assert error.argument == argument
    assert error.message
    assert error.hint


def test_every_soc_that_supports_the_operator_is_planned():
    for product in shipped_products():
        profile = load_profile(product)
        for soc in profile.product.socs:
            device = profile.with_soc(soc).device
            tiling = tiler.tile(tiler.Problem(1000, 640, FP16, True), device, RULES)
            assert tiling.block_dim == -(-1000 // -(-1000 // device.vector_cores))
