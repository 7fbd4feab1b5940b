"""The maps of a sweep: one for every device and for every value of what has no axis of the map."""

from math import prod

import numpy as np
import pytest

import npu_sim
from npu_sim.operators.loading import load_operator
from npu_sim.show.sweeps import sweep_curves
from npu_sim.sweeps.maps import MOST_SLICES, SIZES_OF_SLICES, areas_of, sweep_map, without_numbers
from npu_sim.sweeps.runner import run_sweep
from npu_sim.sweeps.space import make_space

GRID = {
    "row": "1..200",
    "col": "128..8192:+256",
    "dtype": ["float32", "bfloat16"],
    "deterministic": [True, False],
}


@pytest.fixture(scope="module")
def space():
    return make_space(load_operator("rms_norm_grad"), GRID)


@pytest.fixture(scope="module")
def maps(space):
    found = sweep_map(space)
    return [found, *found["others"]]


def test_the_first_map_is_one_in_which_calls_run(maps):
    """The first values of the grid, fp32 beside a bf16 gamma, are refused."""
    assert maps[0]["with"]["dtype"] == "bfloat16"
    assert not any(state["refused"] for state in maps[0]["states"])


def test_every_combination_has_a_map(maps):
    chosen = {(one["with"]["dtype"], one["with"]["deterministic"]) for one in maps}
    assert chosen == {(word, mode) for word in GRID["dtype"] for mode in (True, False)}
    assert len(maps) == len(chosen)


def test_a_map_is_that_of_a_sweep_with_its_values_alone(maps):
    for one in maps:
        given = {name: one["with"][name] for name in ("dtype", "deterministic")}
        alone = sweep_map(make_space(load_operator("rms_norm_grad"), GRID | given))
        del alone["others"], alone["left_out"]
        assert {name: one[name] for name in alone} == alone


def test_reasons_keep_the_digits_of_words(maps):
    refused = [state["label"] for one in maps for state in one["states"] if state["refused"]]
    assert refused
    assert all("gamma is bfloat16: Atlas A2 does not take the dtypes" in label for label in refused)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("row is 4096, above 2048", "row is N, above N"),
        ("gamma is 128x7168, not 7168", "gamma is N, not N"),
        ("16,777,216 bytes", "N bytes"),
        ("bfloat16 on Atlas A2, 910B1 and 950PR", "bfloat16 on Atlas A2, 910B1 and 950PR"),
        ("sorted, native 16-bit", "sorted, native 16-bit"),
    ],
)
def test_numbers_of_calls_are_no_part_of_a_name(text, name):
    assert without_numbers(text) == name


def test_refusals_of_one_reason_are_one_region():
    """Their numbers, which are fields of the message, differ from call to call."""
    grid = {"N": "199990..200010", "C": "16,32", "product": "atlas_a2"}
    found = sweep_map(make_space(load_operator("cross_entropy_loss_grad"), grid))
    refused = [state["label"] for state in found["states"] if state["refused"]]
    assert refused == ["561002, log_prob has N = N rows; the product document allows fewer than N"]


def test_a_third_size_has_few_maps_and_the_rest_is_counted():
    grid = {"rows": "1..300", "dim": "64..1024:+64", "num_weights": "1..100"}
    space = make_space(load_operator("embedding_dense_backward"), grid)
    found = sweep_map(space)
    maps = [found, *found["others"]]
    assert len(maps) == SIZES_OF_SLICES
    assert found["left_out"] == 16 - SIZES_OF_SLICES  # the size with the fewest values
    assert {one["with"]["dim"] for one in maps} == {64, 576, 1024}


def test_no_more_maps_than_the_limit():
    grid = {
        **GRID,
        "product": ["atlas_a2", "atlas_a3"],
        "dtype": ["fp32", "bf16", "fp16"],
        "gamma_dtype": ["fp32", "bf16", "fp16"],
    }
    space = make_space(load_operator("rms_norm_grad"), grid)
    axes = tuple(axis for axis in space.axes if axis.name in ("row", "col"))
    areas = areas_of(space, axes)
    assert len(areas) <= MOST_SLICES
    assert areas[0].running() == max(area.running() for area in areas) > 0


def test_a_cut_is_where_calls_run(space):
    curves = sweep_curves(space)
    assert curves["with"]["dtype"] == "bfloat16"
    assert [series["refused"] for series in curves["series"]] == [[]]


def test_refused_calls_have_their_number_and_the_reason_of_the_first(tmp_path):
    summary, _ = run_sweep("rms_norm_grad", GRID, out=tmp_path / "plans")
    records = npu_sim.sweep("rms_norm_grad", GRID)
    (refused,) = summary.as_dict()["refused"]
    bad = np.flatnonzero(records["status"])
    assert (refused["status"], refused["calls"], refused["row"]) == (161002, len(bad), bad[0])
    assert refused["reason"].startswith("gamma is bfloat16: Atlas A2 does not take the dtypes")
    assert refused["call"]["dtype"] == "float32"
    assert summary.rows == len(records) == prod((200, 32, 2, 2))
