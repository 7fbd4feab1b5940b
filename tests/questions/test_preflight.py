import json

import pytest

import npu_sim
from npu_sim.cores import shipped_products
from npu_sim.questions.preflight import Checked, Summary, check_file, chosen_columns, policy_of
from npu_sim.registry import OPERATORS
from tests.cases import every
from tests.golden import tiling_lines
from tests.lines import check_line

KERNELS = [kernel for entry in OPERATORS for kernel in entry.kernels]
GOOD = {
    "op": "embedding_dense_backward",
    "inputs": {"grad": "64x8:fp32", "indices": "64:int32", "num_weights": 10},
}


def golden_lines(kernel):
    """Golden lines as calls, without other releases and reasons of refusals."""
    return [
        {name: value for name, value in line.items() if name not in ("releases", "refused")}
        for line in tiling_lines(kernel)
    ]


def checked(**changes):
    return check_line(json.dumps({**GOOD, **changes}))


@pytest.mark.parametrize("kernel", every(3, KERNELS))
def test_golden_lines_are_reproduced(kernel):
    summary = Summary()
    lines = golden_lines(kernel)
    for result in (check_line(json.dumps(line)) for line in lines):
        assert result.differences == {}, result
        summary.add(result, 1, 1, [] if result.fine else ["different"])
    assert summary.lines == summary.as_expected == len(lines)
    assert summary.not_fine == summary.differ == 0
    expected = [line["expect"] for line in lines if "expect" in line]
    assert summary.peak.workspace_bytes == max(
        entry.get("workspace_bytes", 0) for entry in expected
    )
    assert summary.failed == sum(entry["status"] == "failed" for entry in expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_wrong_number_in_a_golden_line_is_reported(kernel):
    line = next(
        line for line in golden_lines(kernel) if line.get("expect", {}).get("status") == "success"
    )
    group = next(iter(line["expect"]["tiling"]))
    line["expect"]["workspace_bytes"] += 1
    line["expect"]["tiling"][group] = -5
    result = check_line(json.dumps(line))
    assert set(result.differences) >= {"workspace_bytes"}
    assert any(name.startswith(f"tiling.{group}") for name in result.differences)
    assert not result.fine


def test_a_legal_call_contains_its_plan():
    result = checked(product="atlas_train", deterministic=True)
    planned = npu_sim.plan(GOOD["op"], product="atlas_train", deterministic=True, **GOOD["inputs"])
    assert result.outcome == "runs"
    assert result.fine
    assert result.plan == planned.as_dict()
    assert result.workspace_bytes == planned.workspace.total_bytes


def test_a_refused_call_has_status_and_reason():
    result = checked(inputs={**GOOD["inputs"], "indices": "63:int32"})
    assert (result.outcome, result.status, result.fine) == ("refused", 161002, False)
    assert "63" in result.message


def test_expectations_of_a_call_are_compared():
    planned = npu_sim.plan(GOOD["op"], **GOOD["inputs"])
    right = {
        "status": 0,
        "block_dim": planned.block_dim,
        "workspace_bytes": planned.workspace.total_bytes,
        "path": planned.path,
    }
    assert checked(expect=right).fine
    assert checked(expect={**right, "status": "success"}).fine
    wrong = checked(expect={**right, "block_dim": planned.block_dim + 1})
    assert not wrong.fine
    assert wrong.differences == {
        "block_dim": {"expected": planned.block_dim + 1, "found": planned.block_dim}
    }
    refused = {**GOOD["inputs"], "indices": "63:int32"}
    assert checked(inputs=refused, expect={"status": 161002}).fine
    assert not checked(inputs=refused, expect={"status": 0}).fine
    assert not checked(expect={"status": 161002}).fine


def test_tensors_can_be_objects_and_socs_name_their_product():
    inputs = {
        "grad": {"shape": [64, 8], "dtype": "float32", "contiguous": False},
        "indices": {"shape": [64], "dtype": "int32"},
        "num_weights": 10,
    }
    result = checked(inputs=inputs, soc="Ascend910ProB")
    assert (result.product, result.soc, result.outcome) == ("atlas_train", "Ascend910ProB", "runs")
    assert result.plan["arguments"]["grad"] == "64x8:fp32:strided"


def test_profile_files_are_relative_to_the_file_of_calls(tmp_path):
    from npu_sim.cores import config_directory

    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        text.replace("name: atlas_a2", "name: mine"), encoding="utf-8"
    )
    result = check_line(json.dumps({**GOOD, "product": "mine.yaml"}), directory=tmp_path)
    assert (result.product, result.outcome) == ("mine", "runs")


MALFORMED = [
    ("{", "not JSON"),
    ("[" * 100000, "not"),
    ("[1]", "one JSON object"),
    ("{}", "op is missing"),
    (json.dumps({"op": "rms_norm_grad"}), "inputs is missing"),
    (json.dumps({**GOOD, "op": "embeding"}), "neither operator nor kernel"),
    (json.dumps({**GOOD, "determinstic": True}), "deterministic"),
    (json.dumps({**GOOD, "deterministic": "yes"}), "deterministic"),
    (json.dumps({**GOOD, "limits": "none"}), "limits"),
    (json.dumps({**GOOD, "product": "atlas_a9"}), "atlas_a9"),
    (json.dumps({**GOOD, "product": 5}), "names"),
    (json.dumps({**GOOD, "soc": "Ascend911"}), "Ascend911"),
    (json.dumps({**GOOD, "expect": 5}), "expect"),
    (json.dumps({**GOOD, "expect": {"blockdim": 40}}), "did you mean block_dim?"),
    (json.dumps({**GOOD, "count": 0}), "count"),
    (json.dumps({**GOOD, "name": 5}), "names"),
    (json.dumps({**GOOD, "release": "1.0"}), "1.0"),
    (
        json.dumps(
            {"op": "rms_norm_grad", "inputs": {"dy": "4096x7168:bf16", "gama": "7168:bf16"}}
        ),
        "'gama' is not an argument",
    ),
    (json.dumps({**GOOD, "level": "kernel"}), "no kernel"),
    (json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "grad": "64xx:fp32"}}), "grad"),
    (
        json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "grad": {"shape": 5, "dtype": "fp32"}}}),
        "grad",
    ),
    (json.dumps({**GOOD, "inputs": {**GOOD["inputs"], "gard": "64x8:fp32"}}), "gard"),
    (json.dumps({"op": "embedding_dense_grad_v2", "inputs": {"grad_shape": [5, 5]}}), "missing"),
    (
        json.dumps(
            {"op": "embedding_dense_grad_v2", "soc": "Ascend910B1", "inputs": {"grad_shape": 5}}
        ),
        "cannot be planned",
    ),
]


@pytest.mark.parametrize(("line", "message"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_lines_name_their_error(line, message):
    result = check_line(line, 17)
    assert (result.line, result.outcome, result.fine) == (17, "malformed", False)
    assert message in result.message


def test_lines_after_a_malformed_line_are_checked():
    lines = [line for malformed, _ in MALFORMED for line in (malformed, json.dumps(GOOD))]
    first, good, *others = check_file(["", *lines, "\n"], chosen_columns()).rows
    assert (good.line, good.lines, good.cells["atlas_a2"].outcome) == (3, len(MALFORMED), "runs")
    malformed = [first, *others]
    assert [row.line for row in malformed] == list(range(2, len(lines) + 2, 2))
    assert {row.cells["atlas_a2"].outcome for row in malformed} == {"malformed"}


def test_equal_lines_are_checked_once_and_counted():
    lines = (
        [json.dumps({**GOOD, "name": f"step {number}"}) for number in range(5)]
        + [json.dumps(GOOD)] * 4
        + ["{"] * 3
    )
    matrix = check_file(lines, chosen_columns("atlas_a2,atlas_train"))
    assert [(row.line, row.lines, sorted(row.cells)) for row in matrix.rows] == [
        (1, 9, ["atlas_a2", "atlas_train"]),
        (10, 3, ["atlas_a2", "atlas_train"]),
    ]
    assert matrix.rows[0].title == "embedding_dense_backward step 0"
    assert [summary.lines for summary in matrix.summaries().values()] == [12, 12]
    assert [(group.word, len(group.rows)) for group in matrix.faults()] == [("malformed", 1)]


def test_every_cell_of_a_matrix_equals_a_single_check():
    lines = [
        json.dumps(GOOD),
        json.dumps({**GOOD, "soc": "Ascend910ProB"}),
        json.dumps({**GOOD, "release": "8.3"}),
    ]
    matrix = check_file(lines, chosen_columns("atlas_a2"), whole=True)
    for row, _, cell in matrix.cells():
        assert cell == check_line(lines[row.line - 1], row.line)


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (("all",), list(shipped_products())),
        (("atlas_a2", None, "9.0,9.1"), ["atlas_a2 9.0", "atlas_a2 9.1"]),
        (("all", "Ascend910B1,Ascend910B3"), ["Ascend910B1", "Ascend910B3"]),
    ],
)
def test_target_labels_contain_only_what_differs(arguments, labels):
    assert [target.label for target in chosen_columns(*arguments)] == labels


def test_a_modified_copy_of_a_product_is_a_separate_target(tmp_path):
    from npu_sim.cores import config_directory

    profile = tmp_path / "mine.yml"
    profile.write_bytes((config_directory() / "atlas_a2.yaml").read_bytes())
    assert [target.label for target in chosen_columns(f"atlas_a2,{profile}")] == [
        "atlas_a2",
        f"atlas_a2 ({profile})",
    ]


@pytest.mark.parametrize(
    ("fail_on", "facts", "rejected"),
    [
        ("refused", {"workspace_unknown": ["sort"]}, []),
        ("unknown", {"workspace_unknown": ["sort"]}, ["unknown"]),
        ("unknown", {"workspace_unknown": [], "evidence": "unknown"}, ["unknown"]),
        ("caveat,timing", {"caveats": ["slow"], "timing": ["dx"]}, ["caveat", "timing"]),
    ],
)
def test_a_policy_lists_what_it_rejects(fail_on, facts, rejected):
    call = Checked(1, "op", "atlas_a2", "Ascend910B1", "runs", 0, facts=facts)
    assert [word for word, _ in policy_of(fail_on).faults(call)] == rejected


def test_a_line_is_malformed_whatever_lines_come_before_it():
    bad = {**GOOD, "name": 5}
    for lines in ([bad, GOOD], [GOOD, bad]):
        matrix = check_file(map(json.dumps, lines), chosen_columns("atlas_a2"))
        assert [(fault.word, len(fault.rows)) for fault in matrix.faults()] == [("malformed", 1)]


def test_a_line_with_a_release_stands_in_the_column_of_that_release():
    line = json.dumps({**GOOD, "release": "8.3"})
    matrix = check_file([line], chosen_columns("atlas_a2", releases="8.3,8.5"))
    (row,) = matrix.rows
    assert list(row.cells) == ["atlas_a2 8.3"]


def test_a_malformed_line_counts_for_every_product_alike():
    columns = chosen_columns("atlas_a2,atlas_a3")
    summaries = check_file(["{", json.dumps({**GOOD, "product": None})], columns).summaries()
    assert {label: counts.malformed for label, counts in summaries.items()} == {
        "atlas_a2": 1,
        "atlas_a3": 1,
    }


UPGRADED = [
    {"op": "rms_norm_grad", "inputs": {"dy": "64x8193:bf16", "gamma": "8193:bf16"}},
    {"op": "moe_token_permute", "inputs": {"tokens": "832x2048:bf16", "indices": "832x6:int32"}},
    {"op": "rms_norm", "inputs": {"x": "64x512:fp32", "gamma": "512:fp32"}},
]


def test_releases_of_a_product_are_columns_and_their_bits_are_compared():
    lines = [json.dumps(call) for call in UPGRADED]
    targets = chosen_columns("ascend_950", None, "9.1,9.1.1,9.2")
    matrix = check_file(lines, targets, timed=True)
    assert {cell.outcome for _, _, cell in matrix.cells()} == {"runs"}
    found = [one for one in matrix.differences() if one.fact == "bits"]
    assert [[row.line for row in one.rows] for one in found] == [[1], [2]]
    for one, part in zip(found, ("dx of rows of 2^k + 1", "rows of permuted_tok"), strict=True):
        ((text, labels),) = one.values
        assert part in text
        assert labels == ("ascend_950 9.1 and ascend_950 9.2",)
    codes = {row.line: row.cells["ascend_950 9.2"].facts["caveats"] for row in matrix.rows}
    assert ["release_inferred" in one for one in codes.values()] == [True, True, False]


def test_a_product_without_rules_at_a_release_is_unknown_there():
    matrix = check_file([json.dumps(UPGRADED[2])], chosen_columns("ascend_350", None, "9.1,9.2"))
    assert [cell.outcome for _, _, cell in matrix.cells()] == ["unknown", "runs"]


def test_outputs_that_nobody_reads_are_no_caveat_of_a_recorded_call(tmp_path):
    call = {"op": "rotary_position_embedding_grad", "inputs": {"dy": "1x64x4x128:bf16"}}
    call["inputs"]["cos"] = "1x64x1x128:bf16"
    recorded = {**call, "count": 2, "places": [{"name": "model.layers.*.self_attn", "count": 2}]}
    (tmp_path / "calls.jsonl").write_text(f"{json.dumps(call)}\n{json.dumps(recorded)}\n")
    matrix = npu_sim.preflight(tmp_path / "calls.jsonl", products="atlas_a2")
    codes = [checked.facts["caveats"] for _, _, checked in matrix.cells()]
    assert codes == [["dcos_dsin_unwritten"], []]


@pytest.mark.parametrize(
    ("products", "differs"), [("atlas_a2,ascend_350", True), ("ascend_950,ascend_350", False)]
)
def test_rstd_differs_between_products_with_other_kernels_only(products, differs):
    matrix = check_file([json.dumps(UPGRADED[2])], chosen_columns(products, None, "9.2"))
    assert any(one.fact == "bits" for one in matrix.differences()) is differs
