"""MoeTokenPermute on Ascend 950: results of both kernels, contract, warnings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler
from npu_sim.tiling.common import align, ceil_div
from tests.sweeps.compared import mismatches

OPERATOR = "moe_token_permute"
A5 = "ascend_950"


def call(tokens, top_k, hidden, dtype=np.float32, ids=np.int32):
    random = np.random.default_rng([tokens, top_k, hidden])
    return {
        "tokens": random.integers(-100, 100, (tokens, hidden)).astype(dtype),
        "indices": random.integers(0, 60, (tokens, top_k)).astype(ids),
    }


def plan(tokens, top_k, hidden, dtype="bf16", ids="int32", **more):
    specs = {"tokens": f"{tokens}x{hidden}:{dtype}", "indices": f"{tokens}x{top_k}:{ids}"}
    return npu_sim.plan(OPERATOR, product=A5, **specs, **more)


def codes(made):
    return {caveat.code for caveat in made.caveats}


@pytest.mark.parametrize("kept", [0, 11])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize(("tokens", "top_k", "hidden"), [(7, 3, 33), (900, 8, 16), (30, 1, 5)])
def test_rows_are_sorted_stably(tokens, top_k, hidden, dtype, kept):
    inputs = call(tokens, top_k, hidden, dtype, np.int64)
    found = npu_sim.run(OPERATOR, product=A5, num_out_tokens=kept, **inputs).outputs
    first = np.argsort(inputs["indices"], axis=None, kind="stable")
    places = np.empty(first.size, np.int32)
    places[first] = np.arange(first.size)
    assert np.array_equal(found["sorted_indices"], places)
    rows = inputs["tokens"][first[: kept or first.size] // top_k]
    assert np.array_equal(found["permuted_tokens"], rows)


def test_int8_leaves_out_ids_beyond_the_experts():
    inputs = call(4, 2, 5, np.int8)
    inputs["indices"][1, 0], inputs["indices"][2, 1] = 10240, 10239
    result = npu_sim.run(OPERATOR, product=A5, **inputs)
    places, rows = result.outputs["sorted_indices"], result.outputs["permuted_tokens"]
    assert (places[2], places[5]) == (-1, 6)
    assert sorted(np.delete(places, 2)) == list(range(7))
    assert np.array_equal(rows[6], inputs["tokens"][2])
    assert {one.code for one in result.caveats} == {"rows_not_written"}


def test_int8_without_columns_has_no_permutation():
    inputs = call(4, 2, 0, np.int8)
    result = npu_sim.run(OPERATOR, product=A5, **inputs)
    assert result.plan.tiling_key == 3000000
    assert not result.outputs["sorted_indices"].any()


@pytest.mark.parametrize(
    ("sizes", "options", "key", "expected"),
    [
        ((832, 8, 2048), {}, 11001, set()),
        ((833, 8, 2048), {}, 11002, set()),
        ((832, 6, 2048), {}, 11001, {"scatter_reuses_row_buffer"}),
        ((800, 8, 2048), {"ids": "int64"}, 11001, {"sort_beyond_local_memory"}),
        ((2000, 8, 2048), {"ids": "int64"}, 11002, {"sort_beyond_local_memory"}),
        ((212743, 8, 50), {"dtype": "fp16"}, 11002, {"gather_loops_swapped"}),
        ((736, 8, 2048), {"dtype": "int8"}, 10000000, set()),
        ((737, 8, 2048), {"dtype": "int8"}, 11000000, set()),
    ],
)
def test_keys_and_warnings(sizes, options, key, expected):
    made = plan(*sizes, **options)
    assert (made.tiling_key, made.schedule_mode, made.outcome) == (key, 1, "runs")
    assert codes(made) == expected
    assert all("not run on a device" in caveat.message for caveat in made.caveats)
    races = {order.race for order in made.order} - {""}
    assert races == expected & {"scatter_reuses_row_buffer"}
    assert all(order.state == "fixed" for order in made.order if not order.race)
    assert all(memory.used_bytes <= 253952 for memory in made.memories)


def test_int8_is_cast_and_sliced():
    kernels = [launch.kernel for launch in plan(10, 2, 8, "int8", "int64").launches]
    assert kernels == ["Cast", "MoeInitRoutingV3", "Slice", "Slice"]
    assert [launch.kernel for launch in plan(10, 2, 8).launches] == ["MoeInitRoutingV2"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"padded_mode": True}, 161002),
        ({"tokens": "64x2x8:bf16"}, 561002),
        ({"tokens": "64x8:int16"}, 161002),
        ({"indices": "63x8:int32"}, 561002),
        ({"indices": "64x513:int32"}, 561002),
        ({"tokens": "2000x8:int8", "indices": "2000x8:int32"}, 561002),
        ({"permuted_tokens": "511x8:bf16"}, 561002),
    ],
)
def test_refusals(changes, status):
    good = {"tokens": "64x8:bf16", "indices": "64x8:int32", "product": A5}
    assert npu_sim.plan(OPERATOR, **good).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(OPERATOR, **{**good, **changes})
    assert caught.value.status == status


@pytest.mark.parametrize("sizes", [(0, 2, 64), (5, 0, 64), (0, 2, 0)])
def test_the_kernel_of_int8_is_launched_without_ids_too(sizes):
    made = plan(*sizes, "int8")
    assert (made.tiling_key, made.block_dim, made.path) == (3000000, 1, "no ids")
    assert plan(*sizes).launches == ()


def test_more_than_512_experts_a_token_are_a_documented_limit():
    assert plan(64, 513, 100, limits="hardware").tiling_key == 11002


def test_rows_without_columns_have_no_pieces_where_ids_do_not_fit():
    made = plan(300000, 160, 0)
    assert made.tiling["srcToDstCapacityComputeParamsOp"]["colLoops"] == 0
    assert plan(28, 6, 0).tiling["srcToDstCapacityComputeParamsOp"]["colLoops"] == 1


def test_the_documented_limit_of_int8_can_be_lifted():
    assert plan(2000, 8, 8, "int8", limits="hardware").outcome == "runs"


@pytest.mark.long
def test_sweeps_of_int8_equal_the_plans():
    grid = {
        "num_tokens": "1..1000:log",
        "num_topk": "1..12",
        "hidden": "0..300000:log",
        "dtype": "int8",
        "indices_dtype": "int32,int64",
    }
    everywhere = {"product": A5, "soc": "all"}
    records = npu_sim.sweep(OPERATOR, {**grid, **everywhere}, sample=200, seed=3)
    assert mismatches(records, range(len(records))) == []


@pytest.mark.parametrize("sizes", [(4096, 8, 2048), (512, 2, 64), (3, 2, 100000)])
@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_every_path_has_a_bound_and_steps(sizes, dtype):
    made = plan(*sizes, dtype, limits="hardware")
    assert timeline(made, load_profile(A5)).bound_us > 0
    assert steps(made)["tiles"]


def stepped_sort(entries, most, cores):
    """The split as the page states it, one step at a time."""
    need, of_core = tiler.sort_cores(entries, most, cores)
    while True:
        loops, last = ceil_div(of_core, most), entries - (need - 1) * of_core
        piece = align(ceil_div(last, loops), tiler.SORT_ENTRIES)
        if last - (loops - 1) * piece > 0:
            return need, of_core, (last, loops, piece, last - (loops - 1) * piece)
        of_core -= tiler.SORT_ENTRIES


@given(st.integers(0, 1 << 24), st.integers(1, 300), st.integers(1, 96))
def test_steps_of_the_sort_may_be_taken_together(more, most, cores):
    most *= tiler.SORT_ENTRIES
    split = tiler.split_sort(most + 1 + more, most, cores)
    assert (split.cores, split.core.entries, split.last) == stepped_sort(
        most + 1 + more, most, cores
    )


def test_the_largest_tensors_are_planned_at_once():
    assert plan((1 << 55) + 3, 8, 8).outcome == "runs"


@pytest.mark.parametrize(
    ("release", "indices", "status", "argument"),
    [
        ("9.1", None, 161002, "padded_mode"),
        ("9.1.1", None, 161002, "padded_mode"),
        ("9.2", None, 161001, "indices"),
        ("9.2", "4x2:int32", 161002, "padded_mode"),
    ],
)
def test_from_9_2_on_a_missing_tensor_is_named_before_padding(release, indices, status, argument):
    call = {"tokens": "4x8:bf16", "indices": indices, "padded_mode": True}
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan("moe_token_permute", product="ascend_950", release=release, **call)
    assert (refused.value.status, refused.value.argument) == (status, argument)
