import json
import os
import sys
from xml.etree import ElementTree

import pytest

from npu_sim.cores import shipped_products

CALL = {
    "op": "embedding_dense_backward",
    "inputs": {"grad": "64x8:fp32", "indices": "64:int32", "num_weights": 10},
}
REFUSED = {**CALL, "product": "atlas_inference"}


@pytest.fixture
def calls(tmp_path):
    """Return a function that writes a file of calls."""

    def write(*lines):
        path = tmp_path / "calls.jsonl"
        path.write_text(
            "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n",
            encoding="utf-8",
        )
        return path

    return write


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_a_file_of_calls_that_run_exits_0(cli, calls):
    outcome = cli("preflight", calls(CALL, {**CALL, "soc": "Ascend910A"}))
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert "calls 2: 2 runs" in text
    assert "peak 16.0 MiB (16,777,728) of workspace, line 1" in text


def test_refused_and_malformed_lines_are_listed_and_exit_1(cli, calls):
    outcome = cli("preflight", calls(CALL, REFUSED, "{oops", CALL))
    assert outcome.code == 1
    text = " ".join(outcome.out.split())
    assert "calls 4: 2 runs, 1 refused, 1 malformed" in text
    assert "embedding_dense_backward, line 2, atlas_inference: refused 161002" in text
    assert "no call, line 3, atlas_a2: malformed: not JSON" in text


def test_a_refusal_that_is_expected_exits_0(cli, calls):
    assert cli("preflight", calls({**REFUSED, "expect": {"status": 161002}})).code == 0
    assert cli("preflight", calls({**REFUSED, "expect": {"status": 0}})).code == 1


def test_results_have_a_line_each_with_the_whole_plan(cli, calls, tmp_path):
    cli("preflight", calls(CALL, REFUSED, "{oops"), "--out", tmp_path / "results.jsonl")
    results = [
        json.loads(line)
        for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [(result["line"], result["outcome"], result["fine"]) for result in results] == [
        (1, "runs", True),
        (2, "refused", False),
        (3, "malformed", False),
    ]
    assert results[0]["plan"]["workspace"]["total_bytes"] == results[0]["workspace_bytes"]
    assert not list(tmp_path.glob("*.new"))


def test_junit_counts_names_and_places_every_call(cli, calls, tmp_path):
    bad = {**CALL, "op": 'no <"such"> & op\u0001'}
    path = calls(
        {**CALL, "name": "layer.0.norm"}, REFUSED, bad, {**CALL, "expect": {"block_dim": -1}}
    )
    cli("preflight", path, "--junit", tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    counts = {name: root.get(name) for name in ("tests", "failures", "errors")}
    assert (root.tag, counts) == ("testsuites", {"tests": "4", "failures": "2", "errors": "1"})
    assert float(root.get("time")) == pytest.approx(
        sum(float(case.get("time")) for case in root.iter("testcase")), abs=1e-5
    )
    cases = {int(case.get("line")): case for case in root.iter("testcase")}
    assert [suite.get("name") for suite in root] == [f"{path} atlas_a2", f"{path} atlas_inference"]
    assert [[child.tag for child in cases[line]] for line in (1, 2, 3, 4)] == [
        [],
        ["failure"],
        ["error"],
        ["failure"],
    ]
    assert {case.get("file") for case in cases.values()} == {str(path)}
    assert "layer.0.norm" in cases[1].get("name")
    assert "not supported" in cases[2][0].text
    assert 'no <"such"> & op' in cases[3][0].text
    assert "block_dim: expected -1, found 48" in cases[4][0].text
    assert cases[4][0].get("message") == "different"


def test_json_holds_summary_and_results(cli, calls):
    data = cli("preflight", calls(CALL, "[]"), "--json").data
    assert (data["summary"]["runs"], data["summary"]["malformed"], data["summary"]["not_fine"]) == (
        1,
        1,
        1,
    )
    assert data["summary"]["peak_workspace_bytes"] == data["results"][0]["workspace_bytes"]
    assert "plan" not in data["results"][0]


def test_the_default_product_is_for_lines_that_name_none(cli, calls):
    outcome = cli(
        "preflight",
        calls(CALL, {**CALL, "product": "atlas_a3"}),
        "--product",
        "atlas_train",
        "--json",
    )
    assert [result["product"] for result in outcome.data["results"]] == ["atlas_train", "atlas_a3"]


def test_a_missing_file_exits_64(cli, tmp_path):
    outcome = cli("preflight", tmp_path / "none.jsonl")
    assert outcome.code == 64
    assert "none.jsonl" in outcome.err


def test_invalid_utf8_is_a_malformed_line(cli, tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"\xff\xfe\x00garbage\n" + json.dumps(CALL).encode() + b"\n")
    outcome = cli("preflight", path, "--json")
    assert [result["outcome"] for result in outcome.data["results"]] == ["malformed", "runs"]


def test_several_products_socs_and_releases_are_columns(cli, calls):
    path = calls(CALL, {**CALL, "name": "layer.0", "count": 5}, {**CALL, "deterministic": True})
    outcome = cli("preflight", path, "--products", "all", "--release", "9.0,9.1", "--json")
    assert outcome.code == 1
    assert outcome.data["schema"] == "npu_sim.preflight/1"
    assert len(outcome.data["targets"]) == 2 * len(shipped_products())
    first = next(one for one in outcome.data["results"] if one["product"] == "atlas_a2")
    assert (first["target"], first["release"], first["lines"], first["count"], first["name"]) == (
        "atlas_a2 9.0",
        "9.0",
        2,
        6,
        "layer.0",
    )
    assert {target["lines"] for target in outcome.data["targets"].values()} == {3}
    text = cli("preflight", path, "--products", "atlas_a2,atlas_inference").out
    assert [line.split()[-1] for line in text.splitlines() if "layer.0" in line] == ["161002"]
    socs = cli("preflight", path, "--soc", "Ascend910B1,Ascend910ProB", "--json").data
    assert list(socs["targets"]) == ["atlas_a2", "atlas_train"]


def test_narrow_terminals_show_a_block_for_every_call(cli, calls, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("preflight", calls(CALL), "--products", "all", "--release", "9.0,9.1").out
    assert max(map(len, out.splitlines())) <= 80
    assert "161002  atlas_inference (9.0, 9.1)" in " ".join(out.split("\n"))


LARGE = {
    "op": "embedding_dense_backward",
    "inputs": {"grad": "4096x4096:bf16", "indices": "4096:int64", "num_weights": 128256},
}
SHORT = {"op": "rms_norm", "inputs": {"x": "1024x1024:bf16", "gamma": "1024:bf16", "epsilon": 0.0}}


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        (
            LARGE,
            ["--max-workspace", "16MiB"],
            "workspace: 17.5 MiB (18,401,280), more than 16.0 MiB (16,777,216)",
        ),
        (SHORT, ["--fail-on", "caveat,refused"], "caveat: caveats: "),
        (CALL, ["--fail-on", "timing"], "timing: can differ between runs: grad_weight"),
    ],
)
def test_fail_on_covers_more_than_refusals(cli, calls, call, options, message):
    assert cli("preflight", calls(call)).code == 0
    outcome = cli("preflight", calls(call), *options)
    assert outcome.code == 1
    assert message in " ".join(outcome.out.split())


def test_refusals_can_be_accepted(cli, calls):
    assert cli("preflight", calls(CALL, REFUSED), "--fail-on", "caveat").code == 0


USAGE = [
    (["--product", "atlas_a9"], "atlas_a9"),
    (["--soc", "Ascend911"], "Ascend911"),
    (["--release", "7.0"], "7.0"),
    (["--fail-on", "refuse"], "did you mean refused?"),
    (["--max-workspace", "16 apples"], "16 apples"),
]


@pytest.mark.parametrize(("options", "message"), USAGE, ids=[message for _, message in USAGE])
def test_wrong_options_are_one_message_and_exit_64(cli, calls, options, message):
    outcome = cli("preflight", calls(CALL, CALL), *options)
    assert outcome.code == 64
    assert message in outcome.err


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"\n \n", "empty"), (b"\xff\xfe\x00\n\x01", "no line is a call")],
)
def test_a_file_without_a_call_exits_64(cli, tmp_path, content, message):
    path = tmp_path / "calls.jsonl"
    path.write_bytes(content)
    outcome = cli("preflight", path)
    assert outcome.code == 64
    assert message in outcome.err


def test_equal_refusals_are_one_line_and_one_github_annotation(cli, calls, monkeypatch, tmp_path):
    path = calls(CALL, REFUSED, {**REFUSED, "name": "again"}, {**REFUSED, "deterministic": True})
    assert "::error" not in cli("preflight", path).out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    out = cli("preflight", path).out
    marks = [line for line in out.splitlines() if line.startswith("::error ")]
    assert len(marks) == 1
    assert marks[0].startswith(
        f"::error file={path},line=2,title=embedding_dense_backward%3A refused 161002::3x "
    )
    assert "| 2 | 2x |" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_the_report_has_the_matrix_and_the_reasons(cli, calls, tmp_path):
    cli(
        "preflight",
        calls(CALL, {**CALL, "name": "layer.0"}),
        "--products",
        "all",
        "--report",
        tmp_path / "report.html",
    )
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in (
        "layer.0",
        "161002",
        "not supported on Atlas inference series",
        "can differ between runs",
        "--products all",
    ):
        assert part in text


def test_a_recording_states_what_its_calls_do_not_cover(cli, calls):
    lost = [
        {
            "what": "routing of tokens",
            "why": "no rows are gathered",
            "name": "model.mlp",
            "count": 3,
        }
    ]
    head = {
        "schema": "npu_sim.calls/1",
        "recorded": {"not_recognised": lost, "not_modelled": {"aten::mm": 7}},
    }
    outcome = cli("preflight", calls(head, CALL))
    assert outcome.code == 0
    assert "3x routing of tokens model.mlp: no rows are gathered" in outcome.out
    assert "7 kernels of 1 kinds" in outcome.out


def test_the_cost_of_determinism_is_stated_where_results_can_differ(cli, calls):
    call = {"op": "rms_norm_grad", "inputs": {"dy": "4096x4096:bf16", "gamma": "4096:bf16"}}
    outcome = cli("preflight", calls(call, {**call, "deterministic": True}), "--json")
    timed, fixed = outcome.data["results"]
    assert timed["timing"] == ["dgamma"]
    assert timed["deterministic_switch"]["timing"] == []
    more = timed["deterministic_switch"]["workspace_bytes_more"]
    assert more == fixed["workspace_bytes"] - timed["workspace_bytes"]
    assert (fixed["timing"], fixed["deterministic"]) == ([], True)
    assert f"up to {more} bytes of additional workspace" in " ".join(
        cli("preflight", calls(call)).out.split()
    )


def test_a_refusal_has_its_hint_as_a_field(cli, calls):
    call = {"op": "embedding_dense_backward", "inputs": {**CALL["inputs"], "indices": "63:int32"}}
    (result,) = cli("preflight", calls(call), "--json").data["results"]
    assert result["argument"] == "indices"
    assert "64" in result["hint"]
    assert "\n" not in result["message"] + result["hint"]


BOTH = ("--products", "atlas_a2,atlas_inference")


def test_lines_are_file_line_error_message(cli, calls):
    path = calls(CALL, REFUSED, "{oops")
    outcome = cli("preflight", path, "--lines")
    assert outcome.code == 1
    refused, malformed = outcome.out.splitlines()
    assert refused.startswith(
        f"{path}:2: error: embedding_dense_backward grad 64x8:fp32, indices 64:int32, "
        "num_weights 10, atlas_inference: refused 161002: "
    )
    where = f"{path}:3: error: no call, atlas_a2: malformed: "
    assert malformed.startswith(f"{where}not JSON: column 2")
    assert not cli("preflight", calls(CALL), "--lines").out


def test_the_last_line_is_the_reason_of_the_exit_code(cli, calls):
    outcome = cli("preflight", calls(CALL, REFUSED, REFUSED, "{oops"))
    assert outcome.code == 1
    reasons = "1 malformed on atlas_a2, 2 refused 161002 on atlas_inference"
    given = outcome.out.splitlines()[-1]
    assert given.startswith("exit 1: ")
    assert sorted(given.removeprefix("exit 1: ").split(", ")) == reasons.split(", ")
    assert "exit 1" not in cli("preflight", calls(CALL)).out


def test_findings_of_informational_products_do_not_change_the_exit_code(cli, calls, tmp_path):
    path, junit = calls(CALL), tmp_path / "junit.xml"
    options = [*BOTH, "--informational", "310P"]
    assert cli("preflight", path, *BOTH).code == 1
    outcome = cli("preflight", path, *options, "--junit", junit)
    assert outcome.code == 0
    assert "atlas_inference (does not count): refused 161002" in outcome.out
    assert ElementTree.parse(junit).getroot().get("failures") == "0"
    assert cli("preflight", path, *options, "--lines").out.startswith(f"{path}:1: note: ")
    results = json.loads(cli("preflight", path, *options, "--json").out)["results"]
    assert [(one["fine"], one.get("informational")) for one in results] == [
        (True, None),
        (True, ["refused 161002"]),
    ]
    alone = cli("preflight", path, "--informational", "310P")
    assert alone.code == 64
    assert "--products A2,A3" in alone.err


def test_findings_of_the_baseline_are_accepted_wherever_their_line_is(cli, calls, tmp_path):
    baseline = tmp_path / "baseline.jsonl"
    outcome = cli("preflight", calls(CALL, REFUSED), "--write-baseline", baseline)
    assert outcome.code == 0
    assert "baseline: findings accepted: 1; entries no longer found: 0" in outcome.out
    again = ["--baseline", baseline]
    assert cli("preflight", calls(REFUSED, CALL, {**REFUSED, "name": "norm"}), *again).code == 0
    other = {**REFUSED, "inputs": {**REFUSED["inputs"], "num_weights": 11}}
    assert cli("preflight", calls(REFUSED, other), *again).code == 1
    result = json.loads(cli("preflight", calls(REFUSED), *again, "--json").out)["results"][0]
    assert (result["fine"], result["faults"], result["accepted"]) == (True, [], ["refused 161002"])


def test_entries_of_the_baseline_that_are_no_longer_found_are_named(cli, calls, tmp_path):
    baseline = tmp_path / "baseline.jsonl"
    cli("preflight", calls(CALL), *BOTH, "--write-baseline", baseline)
    fixed = calls({**CALL, "inputs": {**CALL["inputs"], "num_weights": 11}})
    outcome = cli(
        "preflight", fixed, *BOTH, "--baseline", baseline, "--lines", "--fail-on", "caveat"
    )
    assert outcome.code == 0
    assert outcome.out.startswith(
        f"{baseline}:1: warning: no longer found: embedding_dense_backward grad 64x8:fp32"
    )
    # A product that is not checked says nothing about its entries.
    assert not cli("preflight", fixed, "--baseline", baseline, "--lines").out


def test_a_line_that_is_no_call_is_never_accepted(cli, calls, tmp_path):
    path, baseline = calls(CALL, "{oops"), tmp_path / "baseline.jsonl"
    assert cli("preflight", path, "--write-baseline", baseline).code == 1
    assert baseline.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("content", ["{", "[]", '{"op": "rms_norm"}', "7"])
def test_a_baseline_with_a_malformed_line_exits_64(cli, calls, tmp_path, content):
    baseline = tmp_path / "baseline.jsonl"
    baseline.write_text(content, encoding="utf-8")
    outcome = cli("preflight", calls(CALL), "--baseline", baseline)
    assert outcome.code == 64
    assert "line 1 is not an accepted finding" in outcome.err


def test_sarif_has_what_the_schema_of_2_1_0_requires(cli, calls, tmp_path):
    path, sarif, baseline = calls(CALL), tmp_path / "out.sarif", tmp_path / "baseline.jsonl"
    cli("preflight", path, *BOTH, "--write-baseline", baseline)
    products = ["--products", "atlas_a2,atlas_inference,atlas_a3", "--informational", "atlas_a3"]
    path = calls("{oops", {**CALL, "inputs": {**CALL["inputs"], "grad": "64x8:int64"}}, CALL)
    cli("preflight", path, *products, "--baseline", baseline, "--sarif", sarif)
    document = json.loads(sarif.read_text(encoding="utf-8"))
    assert document["version"] == "2.1.0"
    assert len(document["runs"]) == 1
    run = document["runs"][0]
    driver = run["tool"]["driver"]
    assert driver["name"] == "npu_sim"
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["artifactLocation"]["uri"] == str(path)
        assert all(one["kind"] == "external" for one in result.get("suppressions", ()))
    found = {
        (one["level"], one["locations"][0]["physicalLocation"]["region"]["startLine"])
        for one in run["results"]
        if "suppressions" not in one
    }
    assert found == {("error", 1), ("error", 2), ("note", 2)}
    suppressed = [one for one in run["results"] if "suppressions" in one]
    assert [
        one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in suppressed
    ] == [3]


def test_an_interruption_says_which_part_is_done(monkeypatch, capsys):
    from npu_sim.cli import progress
    from npu_sim.cli.interruption import Interruption

    def work(report):
        report("checking calls", 0.62)
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "INTERRUPTION", Interruption())
    with pytest.raises(KeyboardInterrupt):
        progress.with_progress(work)
    assert capsys.readouterr().err == "interrupted: checking calls, 62.0 % done\n"


def test_progress_follows_the_bytes_of_the_file(calls):
    import npu_sim

    seen = []
    npu_sim.preflight(calls(CALL, CALL), progress=lambda stage, part: seen.append((stage, part)))
    assert seen == [("checking calls", 0.5), ("checking calls", 1.0)]


def test_a_hint_of_several_lines_is_one_line_of_reasons(cli, tmp_path):
    file = tmp_path / "calls.jsonl"
    inputs = {"log_prob": "262144x1000:fp32", "target": "262144:int64", "reduction": "none"}
    file.write_text(json.dumps({"op": "cross_entropy_loss_grad", "inputs": inputs}) + "\n")
    shown = " ".join(cli("preflight", str(file), "--products", "A2").out.split())
    assert "nearest legal value: N = 199999; hardware limit: N <= 445056" in shown
    assert "\\n" not in shown
    assert "arithmetic" not in shown


def test_arguments_are_written_as_in_the_file_of_calls_in_every_form(cli, tmp_path):
    file, junit, sarif = (tmp_path / name for name in ("calls.jsonl", "junit.xml", "out.sarif"))
    inputs = {"log_prob": "262144x1000:fp32", "target": "262144:int64"}
    file.write_text(json.dumps({"op": "cross_entropy_loss_grad", "inputs": inputs}) + "\n")
    cli("preflight", str(file), "--products", "A2", "--junit", str(junit), "--sarif", str(sarif))
    assert '"limits": "hardware"' in junit.read_text()
    assert r"\"limits\": \"hardware\"" in sarif.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes")
@pytest.mark.parametrize("name", [b"a\xff b.jsonl", b'a\x1b[31m<&".jsonl'], ids=["bytes", "escape"])
def test_any_file_name_can_stand_in_reports(cli, tmp_path, monkeypatch, name):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    file = tmp_path / os.fsdecode(name)
    file.write_text(json.dumps({"op": "rms_norm", "inputs": {"x": "4x0:bf16", "gamma": "0:bf16"}}))
    outputs = tmp_path / "out.sarif", tmp_path / "out.xml"
    found = cli("preflight", file, "--sarif", outputs[0], "--junit", outputs[1])
    assert found.code in (0, 1)
    json.loads(outputs[0].read_text("utf-8"))
    ElementTree.parse(outputs[1])


def test_a_target_without_a_checked_call_is_no_success(cli, calls):
    call = {"op": "rms_norm", "inputs": {"x": "64x4096:bf16", "gamma": "4096:bf16"}}
    only = cli("preflight", calls(call), "--product", "950", "--release", "8.3")
    assert only.code == 1
    assert "are known from release 9.1 on" in " ".join(only.out.split())
    beside = cli("preflight", calls(call), "--products", "950,A2", "--release", "8.3")
    assert beside.code == 1
    also = calls(call, {**call, "release": "9.1"})
    one_checked = cli("preflight", also, "--product", "950", "--release", "8.3")
    assert "are known from release 9.1 on" in " ".join(one_checked.out.split())
    shown = cli(
        "preflight",
        calls(call),
        "--products",
        "950,A2",
        "--release",
        "8.3",
        "--informational",
        "950",
    )
    assert shown.code == 0
