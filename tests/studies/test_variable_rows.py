"""Rows that can differ between runs: their indices, terms and spread."""

import numpy as np
import pytest

import npu_sim
from npu_sim.kernels.shared.elementwise import ulp_distance
from npu_sim.studies.determinism import rows_that_can_differ, study_determinism
from tests.studies import calls

OPEN = {
    "rows of a table": ("embedding_dense_backward", "grad_weight", calls.embedding(800, 40, 30)),
    "scaled rows": (
        "embedding_dense_backward",
        "grad_weight",
        calls.embedding(800, 40, 30, scale_grad_by_freq=True),
    ),
    "rows of a table, training series": (
        "embedding_dense_backward",
        "grad_weight",
        calls.embedding(400, 33, 20, product="atlas_train"),
    ),
    "columns": ("rms_norm_grad", "dgamma", calls.rms_norm(100, 200)),
    "columns in pieces": ("rms_norm_grad", "dgamma", calls.rms_norm(100, 6100)),
    "elements": ("conv_tbc_backward", "grad_weight", calls.conv(90, 2, 20, 16, 3, 2)),
    "elements of a bias": (
        "conv_tbc_backward",
        "grad_bias",
        calls.conv(700, 3, 4, 5, 1, 0, product="atlas_train", cube_math_type=1),
    ),
}


def studied(name, **options):
    operator, output, call = OPEN[name]
    return next(
        entry
        for entry in study_determinism(operator, random_orders=2, **options, **call).outputs
        if entry.output == output
    )


@pytest.mark.parametrize("name", OPEN)
def test_the_rows_equal_those_of_the_mask(name):
    operator, output, call = OPEN[name]
    mask = npu_sim.run(operator, **call).order_dependent[output]
    rows = studied(name).rows
    assert (rows.axis, rows.units, len(rows.table)) == (mask.axis, mask.mask.size, mask.count)
    assert np.array_equal(rows.mask(), mask.mask.ravel())


@pytest.mark.parametrize("name", OPEN)
def test_spread_and_ulp_belong_to_one_element_and_the_worst_row_is_first(name):
    study = studied(name)
    worst, first = study.worst, study.rows.as_dicts()[0]
    assert worst.spread == worst.highest - worst.lowest
    assert (
        int(ulp_distance(np.float32([worst.lowest]), np.float32([worst.highest]), "float32")[0])
        == worst.spread_ulp
    )
    assert worst.spread_ulp == study.max_spread_ulp == first["spread_ulp"]
    assert (worst.lowest, worst.highest) == (first["lowest"], first["highest"])
    assert (first["spread"], first["lowest"]) == pytest.approx(
        (first["highest"] - first["lowest"], first["lowest"])
    )
    assert all(row["spread_ulp"] <= first["spread_ulp"] for row in study.rows.as_dicts())


def test_a_table_row_counts_its_terms_and_their_cores():
    _, _, call = OPEN["rows of a table"]
    occurrences = np.bincount(call["indices"].ravel(), minlength=call["num_weights"])
    for row in studied("rows of a table").rows.as_dicts():
        assert row["terms"] == occurrences[row["place"]]
        assert 2 <= row["cores"] <= row["contributions"] <= row["terms"]


@pytest.mark.parametrize("name", ["columns", "columns in pieces"])
def test_a_column_sums_all_rows_from_every_core(name):
    rows, plan = studied(name).rows, npu_sim.run(OPEN[name][0], **OPEN[name][2]).plan
    assert {(int(row["terms"]), int(row["cores"])) for row in rows.table} == {(100, plan.block_dim)}


def test_the_terms_of_a_weight_are_the_time_steps_of_its_tap():
    _, _, call = OPEN["elements"]
    times, batch, pad = call["grad_output"].shape[0], call["input"].shape[1], call["pad"]
    reached = [
        sum(0 <= at + tap - pad < call["input"].shape[0] for at in range(times)) * batch
        for tap in range(3)
    ]
    rows = studied("elements").rows
    for row in rows.as_dicts(rows.table[:: max(1, len(rows.table) // 50)]):
        assert row["terms"] == reached[row["element"][0]]


def test_a_spread_is_relative_to_the_sum_of_its_terms():
    _, _, call = OPEN["rows of a table"]
    grad, indices = call["grad"].reshape(-1, call["grad"].shape[-1]), call["indices"].ravel()
    moved = [row for row in studied("rows of a table").rows.as_dicts() if row["spread"]]
    for entry in moved:
        row, column = entry["element"]
        terms = np.abs(grad[indices == row, column]).sum(dtype=np.float64)
        assert entry["spread"] / entry["relative"] <= terms * (
            1 + 1e-5
        )  # contributions may have cancelled within a core
    assert moved


@pytest.mark.parametrize("name", ["rows of a table", "columns"])
def test_a_run_lists_the_rows_of_its_study(name):
    operator, output, call = OPEN[name]
    outputs = rows_that_can_differ(operator, npu_sim.run(operator, **call), random_orders=2, **call)
    (rows,) = [entry for entry in outputs if entry.output == output]
    assert np.array_equal(rows.table, studied(name).rows.table)


def test_deterministic_computation_has_no_open_row():
    operator, _, call = OPEN["columns"]
    result = npu_sim.run(operator, deterministic=True, **call)
    assert [
        len(entry.table)
        for entry in rows_that_can_differ(operator, result, deterministic=True, **call)
    ] == [0, 0]
