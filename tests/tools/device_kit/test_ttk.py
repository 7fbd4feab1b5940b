"""Cases for the vendor's operator test kit, and what its results show.

:func:`read_case` reads a written folder by the rules that the kit documents, and shares no code
with the writer: our writer and our reading of these rules agree, no more.
"""

import ast
import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16

import npu_sim
from npu_sim.operators.loading import load_operator
from npu_sim.plans.device_evidence import evidence_by_path
from npu_sim.show import document_of
from npu_sim.tools.device_kit.choice import chosen_calls, path_of
from npu_sim.tools.device_kit.ttk.cases import KERNELS
from tests.cli.runner import npu_sim as command
from tests.tools.device_kit.test_evidence import differences

SOC = "Ascend950PR_9589"
STATE = ("var", "m", "v", "grad", "max_grad_norm")
CALLS = (
    {"op": "rms_norm", "inputs": {"x": "2x3x96:bf16", "gamma": "96:bf16", "epsilon": 1e-5}},
    {"op": "rms_norm_grad", "inputs": {"dy": "64x40:fp16", "gamma": "40:fp32"}},
    {"op": "swi_glu", "inputs": {"x": "5x64:bf16"}},
    {"op": "swi_glu_grad", "inputs": {"y_grad": "5x32:fp32"}},
    {
        "op": "cross_entropy_loss_grad",
        "inputs": {"grad_loss": "scalar:fp32", "log_prob": "9x17:fp32", "reduction": "sum"},
    },
    {
        "op": "embedding_dense_backward",
        "inputs": {"grad": "1100x12:bf16", "indices": "1100:int64", "num_weights": 7},
    },
    {
        "op": "embedding_dense_backward",
        "inputs": {"grad": "40x12:fp32", "indices": "40:int32", "num_weights": 100},
    },
    {"op": "apply_adam_w_v2", "inputs": {"var": "700:fp32", "step": "1:int64"}},
    {"op": "apply_adam_w_v2", "inputs": {**dict.fromkeys(STATE, "70:bf16"), "amsgrad": True}},
)
EXACT, MODEL = 2, 3
"""Numbers of a call all of whose bits are exact, and of one with an output that is a model;
the next one has such an output in fp32."""
RULES = {
    "rms_norm": ("rms_norm", ("x", "gamma"), ("y", "rstd"), {"epsilon"}),
    "rms_norm_grad": ("rms_norm_grad", ("dy", "x", "rstd", "gamma"), ("dx", "dgamma"), {"epsilon"}),
    "swi_glu": ("swi_glu", ("x",), ("y",), {"dim"}),
    "swi_glu_grad": ("swi_glu_grad", ("y_grad", "x"), ("x_grad",), {"dim"}),
    "cross_entropy_loss_grad": (
        "cross_entropy_loss_grad",
        ("grad_loss", "log_prob", "target", "weight", None, None),
        ("x_grad",),
        {"reduction", "ignore_index", "label_smoothing"},
    ),
    "embedding_dense_grad": (
        "embedding_dense_backward",
        ("grad", "indices"),
        ("grad_weight",),
        {"num_weights", "padding_idx", "scale_grad_by_freq"},
    ),
    "embedding_dense_grad_v2": (
        "embedding_dense_backward",
        ("grad", "indices", None),
        ("grad_weight",),
        {"num_weights", "padding_idx", "scale_grad_by_freq"},
    ),
    "apply_adam_w_v2": (
        "apply_adam_w_v2",
        ("var", "m", "v", "grad", "step", "max_grad_norm"),
        ("var_out", "m_out", "v_out", "max_grad_norm_out"),
        {"lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize"},
    ),
}
"""Page, "cases.csv": operator of npu_sim, inputs and outputs in the kernel's order, attributes."""


def read_array(path, dtype, shape):
    """Return the numbers of a file, which has neither more nor fewer bytes."""
    array = np.frombuffer(path.read_bytes(), bfloat16 if dtype == "bfloat16" else dtype)
    return array.reshape(shape)


def read_case(folder, row):
    """Return operator, inputs, attributes and expected outputs of a case, by the kit's rules."""
    name = row["testcase_name"]
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,120}", name)
    assert row["is_enabled"] == "1"
    literals = {
        key: ast.literal_eval(row[key]) for key in row if key.startswith(("input_", "output_"))
    }
    operator, inputs, outputs, attributes = RULES[row["op_name"]]
    given = ast.literal_eval(row["attributes"])
    assert {*given} == attributes
    found = {path.name: path for path in (folder / "data" / name).iterdir()}
    assert all(path.is_file() and not path.is_symlink() for path in found.values())
    tensors = []
    for place, (shape, dtype, form) in enumerate(
        zip(*(literals[f"input_{what}"] for what in ("shapes", "dtypes", "formats")), strict=True)
    ):
        assert form == (None if shape is None else "ND")
        path = found.pop(f"input_{place}_{dtype or 'none'}.bin")
        tensors.append(None if shape is None else read_array(path, dtype, shape))
        assert shape is not None or path.stat().st_size == 0
    assert len(tensors) == len(inputs) == len(literals["input_data_ranges"])
    goldens = []
    for place, (shape, dtype, form) in enumerate(
        zip(*(literals[f"output_{what}"] for what in ("shapes", "dtypes", "formats")), strict=True)
    ):
        assert form == (None if shape is None else "ND")
        if empty := found.pop(f"golden_{place}_none.bin", None):
            assert empty.stat().st_size == 0
            goldens.append(None)
            continue
        sizes = "x".join(map(str, shape)) or "scalar"
        path = found.pop(f"golden_{place}_{dtype}__shape_{sizes}.bin")
        goldens.append(read_array(path, dtype, shape))
    assert not found, "other files"
    return (
        operator,
        dict(zip(inputs, tensors, strict=True)),
        given,
        dict(zip(outputs, goldens, strict=True)),
    )


def bits_of_npu_sim(row, operator, tensors, attributes):
    """Return what npu_sim computes of the inputs of a case, as the whole call has them."""
    positions = tensors.pop(None, None)
    if row["op_name"] == "embedding_dense_grad_v2":
        ordered = tensors["indices"]
        assert np.all(np.diff(ordered) >= 0)
        indices = np.empty_like(ordered)
        indices[positions] = ordered
        tensors["indices"] = indices
        assert np.array_equal(np.argsort(indices, kind="stable"), positions)
    if operator == "rms_norm_grad":
        assert attributes.pop("epsilon") == 1e-6
    given = {name: array for name, array in tensors.items() if array is not None}
    return npu_sim.run(operator, soc=SOC, **given, **attributes).outputs


def rows_of(folder):
    """Return the lines of cases.csv."""
    with (folder / "cases.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def result(folder, statuses, **columns):
    """Write result.csv as the kit does: the columns of the cases and its own."""
    rows = [
        {**row, "dyn_perf_us": "UNKNOWN", "precision_status": status, "soc": "Ascend950", **columns}
        for row, status in zip(rows_of(folder), statuses, strict=False)
    ]
    with (folder / "result.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return rows


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of the calls."""
    folder = tmp_path_factory.mktemp("ttk")
    text = "".join(json.dumps(call) + "\n" for call in CALLS)
    (folder / "calls.jsonl").write_text(text, encoding="utf-8")
    made = npu_sim.kit(folder / "calls.jsonl", ttk=folder / "cases")
    assert not made.left_out
    return folder / "cases"


@pytest.fixture
def cases(written, tmp_path):
    """A copy of the folder."""
    return Path(shutil.copytree(written, tmp_path / "cases"))


def test_a_folder_read_by_the_rules_of_the_kit_has_the_bits_of_npu_sim(written):
    rows = rows_of(written)
    assert {path.name for path in (written / "data").iterdir()} == {
        row["testcase_name"] for row in rows
    }
    assert {row["op_name"] for row in rows} == {*RULES}
    for row in rows:
        operator, tensors, attributes, goldens = read_case(written, row)
        computed = bits_of_npu_sim(row, operator, tensors, attributes)
        for name, golden in goldens.items():
            assert (golden is None) == (name not in computed), name
            if golden is not None:
                assert golden.tobytes() == computed[name].tobytes(), (row["remark"], name)


def test_the_remark_says_which_outputs_are_a_model(written):
    remarks = [row["remark"] for row in rows_of(written)]
    assert remarks[EXACT - 1].startswith("npu_sim rms_norm_grad: dy 64x40:float16, ")
    assert "model" not in remarks[EXACT - 1]
    assert remarks[MODEL - 1].endswith("; the last bits of y are a model")


def test_what_a_release_computes_by_inference_is_compared(tmp_path):
    (tmp_path / "calls.jsonl").write_text(json.dumps(CALLS[EXACT - 1]), encoding="utf-8")
    npu_sim.kit(tmp_path / "calls.jsonl", ttk=tmp_path / "cases", soc=SOC, release="9.2")
    (row,) = rows_of(tmp_path / "cases")
    *_, goldens = read_case(tmp_path / "cases", row)
    assert {name for name, golden in goldens.items() if golden is not None} == {"dx", "dgamma"}
    assert "model" not in row["remark"]


def test_outputs_without_defined_bits_are_not_compared(tmp_path):
    calls = (
        {"op": "rms_norm_grad", "inputs": {"dy": "0x40:fp32", "gamma": "40:fp32"}},
        {"op": "embedding_dense_backward", "inputs": {"grad": "600x8:fp32", "num_weights": 5000}},
        {"op": "moe_token_permute", "inputs": {"tokens": "8x8:bf16", "indices": "8x2:int32"}},
        {"op": "rms_norm", "inputs": {"x": "4096x8192:fp32", "gamma": "8192:fp32"}},
        {"op": "rms_norm", "inputs": {"x": "4x0:fp32", "gamma": "0:fp32"}},
        CALLS[2],
    )
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))
    made = npu_sim.kit(tmp_path / "calls.jsonl", ttk=tmp_path / "cases")
    assert dict(made.calls) == {"swi_glu": 1}
    reasons = "\n".join(made.left_out)
    for reason in (
        "no output has bits that can be compared",
        "does not write the rows of grad_weight that no index names",
        "moe_token_permute has no kernel that the operator test kit runs",
        "more than 8 MiB",
        "col = 0, which RmsNorm does not take",
    ):
        assert reason in reasons


@pytest.mark.long
def test_the_chosen_cases_take_every_path_that_has_bits(tmp_path):
    made = npu_sim.kit(ttk=tmp_path / "cases")
    assert sum(made.calls.values()) <= 100
    assert {*made.calls} == {*RULES}
    profile = npu_sim.load_profile(soc=SOC)
    chosen = chosen_calls(profile, lambda stage, fraction: None, tuple(KERNELS))
    paths = {(call.operator.name, *path[2:5]) for call in chosen for path in call.paths}
    taken, large = set(), []
    for row in rows_of(tmp_path / "cases"):
        operator, tensors, attributes, goldens = read_case(tmp_path / "cases", row)
        attributes.pop("epsilon", None)
        data = [*tensors.values(), *goldens.values()]
        tensors.pop(None, None)
        given = {name: array for name, array in tensors.items() if array is not None}
        planned = npu_sim.plan(operator, soc=SOC, **given, **attributes)
        taken.add((operator, *path_of(load_operator(operator), planned)))
        if sum(array.nbytes for array in data if array is not None) > 2 << 20:
            large.append((operator, planned.tiling_key))
        other = npu_sim.plan(operator, soc=SOC, deterministic=True, **given, **attributes)
        assert (other.path, other.tiling) == (planned.path, planned.tiling)
    assert {path[2] for path in paths - taken} == {"8000", "2"}  # no rows; no elements
    assert large == [("rms_norm_grad", 7011), ("embedding_dense_backward", 804)]


def test_passed_cases_are_confirmed_by_the_vendors_simulator(cases):
    result(cases, ["PASS"] * len(CALLS))
    answer = npu_sim.check_kit(cases)
    assert not answer.contradicted
    assert {mode.outcome for mode in answer.modes} == {"confirmed"}
    assert str(answer).startswith(
        f"the vendor's simulator, Ascend950, CANN unknown: {len(CALLS)} calls"
    )
    assert "in the vendor's simulator" in document_of(answer).origin
    records = [json.loads(line) for line in (cases / "evidence.jsonl").read_text().splitlines()]
    assert {record["device"]["backend"] for record in records} == {"npusim"}
    assert [differences(record) for record in records] == [[]] * len(CALLS)
    (cases / "calls.jsonl").unlink()
    sentences = {*evidence_by_path(cases).values()}
    assert sentences == {f"confirmed by the vendor's simulator of {SOC} (CANN 9.1)"}


@pytest.mark.parametrize(
    ("columns", "backend"),
    [({"dyn_perf_us": "12.5"}, "npu"), ({"backend": "npu"}, "npu"), ({}, "npusim")],
)
def test_a_device_is_no_simulator(cases, columns, backend):
    result(cases, ["PASS"] * len(CALLS), **columns)
    assert npu_sim.check_kit(cases).backend == backend


def test_every_status_is_judged(cases):
    statuses = ["OPTILING_FAILURE"] + ["FAIL"] * 2 + ["PASS"] * (len(CALLS) - 3)
    rows = result(cases, statuses)
    with (cases / "result.csv").open("a") as file:
        table = csv.DictWriter(file, rows[0])
        table.writerow({**rows[3], "testcase_name": "rms_norm_001_00000000"})
        table.writerow(rows[3])
    answer = npu_sim.check_kit(cases)
    verdicts = [mode.verdict for mode in answer.modes]
    assert verdicts[:4] == ["not run", "unreachable", "not judged", "equal"]
    assert [mode.outcome for mode in answer.modes][:4] == [
        "open",
        "contradicted",
        "open",
        "confirmed",
    ]
    text = " ".join(str(answer).split())
    for said in (
        "not run: OPTILING_FAILURE",
        "other bits; to see them, run it again with -t rms_norm_grad_002_",
        "differs, not judged, as the last bits of y are a model",
        "case 'rms_norm_001_00000000' is not of this kit",
        f"case {rows[3]['testcase_name']} a second time",
    ):
        assert said in text, said
    assert answer.contradicted


def test_a_damaged_line_of_calls_is_named_and_the_others_are_judged(cases):
    result(cases, ["PASS"] * len(CALLS))
    lines = (cases / "calls.jsonl").read_text().splitlines(keepends=True)
    damaged = {**json.loads(lines[0]), "attributes": {}, "inputs": {}}
    (cases / "calls.jsonl").write_text("".join(["{}\n", json.dumps(damaged) + "\n", *lines[2:]]))
    answer = npu_sim.check_kit(cases)
    assert answer.unreadable[0].startswith("calls.jsonl, line 1: ")
    assert [mode.verdict for mode in answer.modes] == ["unreadable"] + ["equal"] * (len(CALLS) - 2)


def test_missing_cases_are_listed(cases):
    result(cases, ["PASS"])
    answer = npu_sim.check_kit(cases)
    assert answer.missing == tuple(range(2, len(CALLS) + 1))


def dump(folder, number, change, phase="fail_"):
    """Write the outputs of a case as the kit dumps them, changed."""
    row = rows_of(folder)[number - 1]
    _, _, _, goldens = read_case(folder, row)
    (folder / "dump").mkdir(exist_ok=True)
    for place, golden in enumerate(goldens.values()):
        array = change(golden.copy())
        path = folder / "dump" / f"{row['testcase_name']}_{phase}output_{place}.npy"
        np.save(path, array.view(np.uint16) if array.dtype == bfloat16 else array)


def flipped(array):
    bits = array.view(f"u{array.itemsize}")
    bits.reshape(-1)[0] ^= 1
    return array


def other(array):
    array.reshape(-1)[0] = 77
    return array


@pytest.mark.parametrize(
    ("number", "change", "phase", "verdict", "finding"),
    [
        (EXACT, flipped, "fail_", "unreachable", "dx: 1 of 2560 elements are impossible"),
        (MODEL + 1, flipped, "dyn_", "undecided", ""),
        (MODEL, other, "fail_", "unreachable", "y: 1 of 160 elements are impossible"),
        (MODEL, lambda array: array, "fail_", "not judged", "the dumped y are as computed"),
        (MODEL, lambda array: array[:2], "fail_", "unreadable", "not (5, 32) bfloat16"),
    ],
)
def test_dumped_outputs_are_judged_by_verify(cases, number, change, phase, verdict, finding):
    statuses = ["PASS"] * len(CALLS)
    statuses[number - 1] = "FAIL"
    result(cases, statuses)
    dump(cases, number, change, phase)
    mode = npu_sim.check_kit(cases).modes[number - 1]
    assert mode.verdict == verdict
    assert finding in "; ".join(mode.findings)


def test_several_dumps_of_an_output_are_named_and_not_judged(cases):
    rows = result(cases, ["FAIL"] + ["PASS"] * (len(CALLS) - 1))
    for phase in ("dyn_", "fail_"):
        dump(cases, 1, flipped, phase)
    mode = npu_sim.check_kit(cases).modes[0]
    assert mode.verdict == "unreadable"
    name = rows[0]["testcase_name"]
    files = f"{name}_dyn_output_0.npy, {name}_fail_output_0.npy"
    assert f"was dumped several times: {files}" in mode.findings[0]


def test_data_that_was_changed_is_not_judged(cases):
    rows = result(cases, ["PASS"] * len(CALLS))
    path = cases / "data" / rows[0]["testcase_name"] / "input_0_bfloat16.bin"
    path.write_bytes(bytes(len(path.read_bytes())))
    mode = npu_sim.check_kit(cases).modes[0]
    assert mode.verdict == "not judged"
    assert "input_0_bfloat16.bin: not what npu_sim wrote" in mode.findings[0]


def test_results_of_another_soc_are_named(cases):
    result(cases, ["PASS"] * len(CALLS), soc="Ascend950DT_9581")
    assert npu_sim.check_kit(cases).findings == (
        f"the results are of Ascend950DT_9581, the kit was made for {SOC}",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no results of the operator test kit\nin its folder: .* --compare binary -i "),
        ("", "no columns testcase_name and precision_status"),
        ("a,b\n1,2\n", "no columns testcase_name and precision_status"),
        ("testcase_name,precision_status\nadd_01,PASS\n", "no case of this kit"),
        ("testcase_name,precision_status\n" + "x" * 200_000, "field larger than field limit"),
    ],
)
def test_a_file_that_is_no_result_is_refused(cases, text, message):
    if text is not None:
        (cases / "result.csv").write_text(text)
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.check_kit(cases)


def test_the_command_prints_what_to_type(tmp_path, capsys, monkeypatch):
    (tmp_path / "calls.jsonl").write_text(json.dumps(CALLS[2]) + "\n")
    folder = tmp_path / "for ttk"
    shown = command(capsys, monkeypatch, "kit", str(tmp_path / "calls.jsonl"), "--ttk", str(folder))
    assert shown.code == 0
    *_, first, cases, data, written, last = shown.out.splitlines()
    assert first == "python3 -m ttk kernel --backend npusim --sim-cores all --compare binary \\"
    assert [cases, data, written] == [
        f"    -i '{folder}/cases.csv' \\",
        f"    --manual-data-dirs '{folder}/data' \\",
        f"    -o '{folder}/result.csv'",
    ]
    assert last == f"then: npu-sim kit --check '{folder}'"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "    -i FOLDER/cases.csv \\\n" in readme
    result(folder, ["PASS"])
    assert command(capsys, monkeypatch, "kit", "--check", str(folder)).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"soc": "Ascend350_355e", "release": "9.2"}, "the operator test kit simulates Ascend 950"),
        ({"soc": "Ascend910B3"}, "the operator test kit simulates Ascend 950 only"),
        ({"out": "other"}, "exclude each other"),
    ],
)
def test_what_the_kit_cannot_do_is_refused(tmp_path, arguments, message):
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.kit(ttk=tmp_path / "cases", **arguments)


def test_a_folder_for_the_kit_is_not_rehearsed(written):
    with pytest.raises(npu_sim.UsageError, match="npu_sim does not play"):
        npu_sim.rehearse_kit(written)
