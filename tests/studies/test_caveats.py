"""Every caveat experiment compared with a small independent calculation."""

import gzip
import json
from contextlib import suppress

import numpy as np
import pytest

import npu_sim
from npu_sim.studies.caveats import CAVEATS, caveats_of, find_caveat, statements_of
from tests.operators.test_recorded_calls import OPERATORS, RECORDED, product


def numbers(name):
    return find_caveat(name).experiment()[0]


def test_an_operator_without_a_package_has_no_experiments():
    assert caveats_of("") == ()


def test_names_are_written_as_the_codes_of_plans_are():
    assert [caveat.name for caveat in CAVEATS if not caveat.name.isidentifier()] == []


def test_caveat_names_are_unique():
    assert len({caveat.name for caveat in CAVEATS}) == len(CAVEATS) >= 8


def test_fp32_counters_lose_increments_beyond_their_precision():
    counters = numbers("counters")["counters"]
    for name, rows in (("1 row", 1), ("10 rows (deterministic)", 10), ("11 rows (default)", 11)):
        counter = np.float32(2**24)
        for _ in range(100):
            counter += np.float32(rows)
        assert counters[name] == {"true_count": 2**24 + 100 * rows, "fp32_counter": int(counter)}
    assert counters["1 row"]["fp32_counter"] == 2**24


def test_labels_alias_in_fp32():
    data = numbers("label_aliasing")
    expected = [
        bool(np.float32(label) == np.float32(data["ignore_index"])) for label in data["labels"]
    ]
    assert data["masked"] == expected == [True, False, False]


def test_the_sort_trick_ends_at_the_bits_of_infinity():
    data = numbers("sort_trick")
    assert data["bits_of_inf"] == 0x7F800000 == 2139095040
    assert list(data["comparisons"].values()) == [True, True, True, False]


def test_one_more_weight_row_switches_the_path():
    data = numbers("path_switch")
    for weights, casts in zip(data["weights"], (True, False), strict=True):
        assert ((600 + weights) * 520 * 2 < 104857600) is casts
    assert 0 < data["different"] <= data["elements"]


def test_padding_zeroes_one_row_or_none():
    assert numbers("padding")["sums"] == {
        -1: [2.0, 2.0, 1.0, 1.0],
        1: [2.0, 0.0, 1.0, 1.0],
        7: [2.0, 2.0, 1.0, 1.0],
    }


def test_the_merge_of_cores_is_left_out_beyond_core_64():
    assert numbers("merge_test")["sums"] == {63: 33.0, 66: 1.0}


def test_saturation_gives_the_largest_finite_value_and_zero_for_nan():
    results = numbers("saturation")["results"]
    np.testing.assert_array_equal(results["atlas_a2"], [np.inf, -np.inf, np.nan])
    assert results["atlas_train"] == [65504.0, -65504.0, 0.0]


def test_dx_of_9_2_is_that_of_one_rounding_less():
    data = numbers("inferred_release")
    assert data["elements"] // 50 < data["different"] < data["elements"] // 4


def test_no_weights_end_the_host_before_9_2_only():
    assert numbers("no_weights")["caveats"] == {
        "9.1": ["sum_differs_between_products", "host_divides_by_zero"],
        "9.2": ["sum_differs_between_products", "release_inferred"],
    }


def test_the_size_wraps_at_four_gib():
    data = numbers("wrap")
    for columns, size in data["columns"].items():
        total = data["rows"] * columns * 4 * 2 + data["rows"] * 4 + columns * 4
        assert (size["bytes"], size["bytes_32_bit"]) == (total, total & 0xFFFFFFFF)
    assert [size["need_chunk"] for size in data["columns"].values()] == [1, 0]


def test_conversion_errors_match_the_mantissa_lengths():
    errors = {
        int(name[0]): error for name, error in numbers("conversion")["relative_errors"].items()
    }
    assert errors[0]["grad_weight"] < 2**-20
    assert 2**-16 < errors[3]["grad_weight"] < 2**-11
    assert errors[1] == errors[3]
    assert errors[2]["grad_weight"] > errors[3]["grad_weight"]
    assert len({error["grad_bias"] for error in errors.values()}) == 1


def test_a_reciprocal_is_off_by_an_ulp_at_most():
    data = numbers("reciprocal")
    assert 0 < data["different"] < data["elements"]
    assert data["max_ulp"] == 1


def test_mode_and_cores_change_bits():
    data = numbers("kernels_differ")
    assert 0 < data["deterministic_differs"] <= data["elements"]
    assert 0 < data["forty_cores_differ"] <= data["elements"]


def test_an_empty_input_gives_a_constant_bias():
    assert numbers("empty_bias") == {"grad_bias": [15.0, 15.0], "sum_of_grad_output": 3.75}


def test_the_mean_of_no_elements_is_nan():
    assert numbers("all_ignored") == {"mean": "nan", "sum": 0.0}


@pytest.mark.parametrize(
    "name",
    [
        caveat.name
        for caveat in CAVEATS
        if caveat.name not in ("counters", "label_aliasing", "path_switch")
    ],
)
def test_every_caveat_explains_its_numbers(name, monkeypatch):
    _, lines = find_caveat(name).experiment()
    assert all(isinstance(line, str) and line for line in lines)


def test_the_mean_leaves_out_the_last_of_8193_columns():
    assert numbers("last_column")["different"] == {8192: 8191, 8193: 0, 8194: 8193}


def test_dgamma_without_rows_is_nan():
    assert np.isnan(numbers("no_rows")["dgamma"]).all()


def test_rows_with_probs_of_zero_are_read_on_ascend_950_only():
    assert numbers("zero_probs")["nan"] == {"atlas_a2": 0, "ascend_950": 4}


def test_gradients_of_probs_differ_where_folds_do():
    differing = numbers("folds")["different"]
    assert [columns for columns, count in differing.items() if count] == [300, 2048]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_code_of_a_plan_is_explained_by_its_sentence(operator):
    calls = json.loads(gzip.decompress((RECORDED / f"{operator}.json.gz").read_bytes()))
    for call, status, _ in calls[:400]:
        options = {"operator": operator, **call}
        profile = options.pop("profile", "atlas_a2")
        device = product(profile) if profile.endswith(".yaml") else profile
        with suppress(npu_sim.UsageError):  # tensors beyond int64
            caveats = () if status else npu_sim.plan(product=device, **options).caveats
            for caveat in caveats:
                sentences = [one.message.template for one in statements_of(caveat.code)]
                assert caveat.message.template in sentences, caveat.code


def test_a_caveat_of_a_missing_input_is_explained():
    (unwritten,) = statements_of("dcos_dsin_unwritten")
    assert "leaves dcos and dsin unwritten" in unwritten.message.template


def test_codes_of_a_family_are_explained():
    (limit,) = statements_of("hardware_limit_l0c")
    assert limit.argument == "deterministic"
    assert "bytes of <name>, there are <available>" in limit.message


def test_a_code_without_an_experiment_has_none_and_an_unknown_one_is_refused():
    assert find_caveat("buffers_exceed_unified_buffer") is None
    with pytest.raises(npu_sim.UsageError, match="no such caveat") as refused:
        find_caveat("buffers_exceed_unified_bufer")
    assert "did you mean buffers_exceed_unified_buffer" in refused.value.hint
