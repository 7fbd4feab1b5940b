import re

import numpy as np
import pytest

from npu_sim.studies.certificate import certify
from npu_sim.studies.determinism import study_determinism
from npu_sim.studies.precision import AGAINST_GIVEN, AGAINST_ROUNDED, MEANINGS


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal wide enough that no phrase is wrapped."""
    monkeypatch.setenv("COLUMNS", "220")


EMBEDDING = (
    "embedding_dense_backward",
    "--grad",
    "400x40:fp32",
    "--indices",
    "400:int32",
    "--num-weights",
    "50",
)
CLASSES = {
    "grad": np.ones((60, 8), np.float32),
    "indices": np.arange(60, dtype=np.int32) ** 2 % 50,
    "num_weights": 50,
}
TWO_OUTPUTS = ("rms_norm_grad", "--dy", "96x512:bf16", "--gamma", "512:bf16")
TOKENS = (
    "moe_token_permute_grad",
    "--permuted-output-grad",
    "80x16:bf16",
    "--sorted-indices",
    "80:int32",
    "--num-topk",
    "4",
)


def test_determinism_reports_results_spread_and_worst_element(cli):
    data = cli("study", "determinism", *EMBEDDING, "--random-orders", "3", "--json").data
    (output,) = data["outputs"]
    assert len(output["orders"]) == 9
    assert 1 < output["distinct_results"] <= 9
    assert 0 < output["moved"] <= output["order_dependent"] <= output["elements"] == 50 * 40
    assert output["worst"]["steps_to_lowest"][-1]["sum_after"] == output["worst"]["lowest"]
    text = cli("study", "determinism", *EMBEDDING, "--random-orders", "3").out
    assert "different results from 9 orders" in text
    assert "worst" in text


@pytest.mark.parametrize(
    "command", [("study", "determinism", *EMBEDDING, "--random-orders", "3"), ("run", *EMBEDDING)]
)
def test_rows_that_can_differ_are_listed_and_written(cli, tmp_path, command):
    file, report = tmp_path / "rows.csv", tmp_path / "report.html"
    text = cli(*command, "--rows", "--rows-out", file, "--report", report).out
    written = file.read_text(encoding="utf-8").splitlines()
    assert (
        written[0] == "output,axis,place,element,terms,contributions,cores,"
        "lowest,highest,spread,spread_ulp,relative"
    )
    assert f"grad_weight: {len(written) - 1} rows can differ, the 20 worst by ulp" in text
    data = cli(*command, "--rows", "--json").data
    rows = data["rows"] if command[0] == "run" else data["outputs"][0]["rows"]
    assert len(rows) == 20
    worst = rows[0]
    assert f"row {worst['place']}" in text
    shown = (
        worst["place"],
        " ".join(map(str, worst["element"])),
        worst["terms"],
        worst["contributions"],
        worst["cores"],
    )
    assert any(line.startswith(f"grad_weight,row,{','.join(map(str, shown))},") for line in written)
    page = report.read_text(encoding="utf-8")
    assert f">row {worst['place']}</td>" in page
    assert "order dependence of grad_weight" in page


def test_rows_are_written_completely_or_not_at_all(cli, tmp_path):
    assert cli("run", *EMBEDDING, "--rows-out", tmp_path / "none" / "rows.csv").code != 0


def test_precision_reports_verdicts_and_causes(cli):
    data = cli("study", "precision", *TOKENS, "--json").data
    assert {output["variant"] for output in data["outputs"]} == {"float16", "bfloat16", "float32"}
    assert all(len(output["verdicts"]) == 3 for output in data["outputs"])
    text = " ".join(cli("study", "precision", *TOKENS).out.split())
    assert "mixed tolerance passes" in text
    assert data["standards"] == MEANINGS
    assert all(
        explanation in text for explanation in (*MEANINGS.values(), *data["against"].values())
    )


def test_the_help_of_precision_explains_measures_and_verdicts(cli):
    help_text = " ".join(cli("study", "precision", TOKENS[0], "--help").out.split())
    assert all(
        " ".join(text.split()[:6]) in help_text
        for text in (*MEANINGS, AGAINST_ROUNDED, AGAINST_GIVEN)
    )


def test_errors_of_rounded_and_of_given_inputs_are_separate(cli, tmp_path):
    np.save(
        tmp_path / "g.npy", np.random.default_rng(1).standard_normal((64, 16)).astype(np.float32)
    )
    np.save(tmp_path / "i.npy", np.arange(64, dtype=np.int32) % 8)
    arguments = (
        "embedding_dense_backward",
        "--grad",
        tmp_path / "g.npy",
        "--indices",
        tmp_path / "i.npy",
        "--num-weights",
        "8",
    )
    outputs = {
        output["variant"]: output
        for output in cli("study", "precision", *arguments, "--json").data["outputs"]
    }
    for variant, output in outputs.items():
        rounding = next(
            cause["max_ulp"] for cause in output["causes"] if cause["name"] == "input rounding"
        )
        assert (output["max_ulp_of_given"] == output["max_ulp"]) == (variant == "float32")
        assert (
            abs(output["max_ulp_of_given"] - rounding) <= output["max_ulp"] + 1e-9
            or variant == "float32"
        )


def test_invariance_prints_a_table_of_yes_and_no(cli):
    rows = cli("study", "invariance", *TOKENS, "--json").data["rows"]
    assert {row["change"] for row in rows} >= {
        "batch twice as large",
        "8 padding rows",
        "another position in the batch",
        "product atlas_a3",
    }
    assert "same bits" in cli("study", "invariance", *TOKENS).out


def test_of_many_classes_of_elements_a_certificate_lists_the_first(cli):
    call = ("--grad", "4096x8:fp32", "--indices", "4096:int32", "--num-weights", "500")
    command = ("study", "certificate", "embedding_dense_backward", *call, "--no-probe")
    classes = len(cli(*command, "--json").data["certificates"])
    printed = cli(*command).out
    assert len(re.findall("^[0-9a-f]{16} ", printed, re.MULTILINE)) == 12
    assert f"{classes - 12} more classes: --json or --report" in printed


def test_a_certificate_has_a_formula_and_a_hash(cli):
    (certificate,) = cli("study", "certificate", *TOKENS, "--json").data["certificates"]
    assert certificate["probe_agrees"] is True
    assert certificate["text"] == "t0 + t1 + t2 + t3"
    assert certificate["tree"] == {"fold": [0, 1, 2, 3]}
    assert certificate["hash"] in cli("study", "certificate", *TOKENS).out


def test_a_long_formula_is_cut_between_terms(cli, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    arguments = (
        "embedding_dense_backward",
        "--grad",
        "400x8:fp32",
        "--indices",
        "400:int32",
        "--num-weights",
        "2",
        "--no-probe",
    )
    data = cli("study", "certificate", *arguments, "--json").data
    formula = max((certificate["text"] for certificate in data["certificates"]), key=len)
    text = cli("study", "certificate", *arguments).out
    shown = re.search(r"(t0 .*?) \.\.\.  t0 = ", text)[1]
    assert formula.startswith(f"{shown} ")
    assert len(shown) < len(formula)


@pytest.mark.parametrize("kind", ["determinism", "precision", "invariance", "certificate"])
def test_every_study_writes_a_report_that_needs_no_network(cli, tmp_path, kind):
    path = tmp_path / "study.html"
    arguments = EMBEDDING if kind != "certificate" else TOKENS
    assert cli("study", kind, *arguments, "--report", path).code == 0
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Result" in page
    assert re.search(r'<(?:script|link|img)\b[^>]*(?:src|href)="http', page) is None


def test_caveats_are_listed_and_run(cli):
    names = [caveat["name"] for caveat in cli("caveats", "--json").data["caveats"]]
    assert "saturation" in names
    assert "65504" in cli("caveats", "saturation").out
    refused = cli("caveats", "saturatoin")
    assert refused.code == 64
    assert "did you mean saturation" in refused.err


def test_the_list_of_caveats_has_the_codes_that_the_command_takes(cli):
    codes = cli("caveats", "--json").data["codes"]
    listed = " ".join(cli("caveats").out.split()).partition("codes of plans and runs: ")[2]
    assert listed.split(", ") == codes
    assert "step_counts_from_zero" in codes
    assert cli("caveats", "step_counts_from_zero").code == 0


def test_a_caveat_without_an_experiment_is_explained(cli):
    shown = " ".join(cli("caveats", "rows_above_int32").out.split())
    assert "exceeds INT32_MAX (<int32_max>)" in shown
    assert "no experiment shows it" in shown
    statements = cli("caveats", "few_cores", "--json").data["statements"]
    stated = [(statement["operator"], statement["argument"]) for statement in statements]
    assert ("", "x") in stated  # of several operators


def test_a_study_of_orders_explains_why_it_refuses_the_determinism_switch(cli):
    refused = cli("study", "determinism", *TOKENS, "--deterministic")
    assert refused.code == 64
    assert "one legal order" in " ".join(refused.err.replace("│", " ").split())


def test_the_progress_bar_of_a_study_advances_with_every_order():
    progress = []
    study_determinism(
        "embedding_dense_backward",
        random_orders=50,
        progress=lambda stage, fraction: progress.append((stage, fraction)),
        grad=np.ones((400, 8), np.float32),
        indices=np.arange(400, dtype=np.int32) % 50,
        num_weights=50,
    )
    fractions = [fraction for _, fraction in progress]
    assert {stage for stage, _ in progress} == {"grad_weight"}
    assert fractions == sorted(set(fractions))
    assert len(fractions) >= 4
    assert fractions[-1] == 1


def test_the_progress_bar_of_a_certificate_advances_with_every_class():
    progress = []
    certificates = certify(
        "embedding_dense_backward",
        progress=lambda stage, fraction: progress.append((stage, fraction)),
        **CLASSES,
    )
    assert progress == [
        ("grad_weight", place / len(certificates)) for place in range(len(certificates))
    ]
    assert len(certificates) > 1


@pytest.mark.parametrize("kind", ["determinism", "precision", "invariance", "certificate"])
def test_a_study_shows_progress_on_a_terminal_only(cli, monkeypatch, kind):
    arguments = ("study", kind, *TOKENS, "--json")
    assert cli(*arguments).err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich assume a terminal and draw the bar
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "%" in cli(*arguments).err


def test_the_headline_of_a_study_states_its_result(cli):
    headline = cli("study", "determinism", *EMBEDDING).out.splitlines()[0]
    moved = re.fullmatch(
        r"embedding_dense_backward on atlas_a2, Ascend910B1: (\d+) of 2000 elements of "
        r"grad_weight differ between orders",
        headline,
    )
    assert moved
    assert int(moved[1]) > 0
    assert cli("study", "determinism", *TOKENS).out.startswith(
        "moe_token_permute_grad on atlas_a2, Ascend910B1: every order gives the same bits\n"
    )
    assert " ulp (" in cli("study", "precision", *TOKENS).out.splitlines()[0]
    assert "changes alter bits" in cli("study", "invariance", *TOKENS).out.splitlines()[0]


@pytest.mark.parametrize("kind", ["determinism", "precision", "invariance", "certificate"])
def test_a_study_says_a_label_once(cli, kind):
    _, _, *lines = cli("study", kind, *TWO_OUTPUTS).out.splitlines()
    labels = [line.partition("  ")[0] for line in lines if not line.startswith(" ")]
    assert labels
    assert len({*labels}) == len(labels)


def test_changes_with_one_effect_stand_together(cli):
    text = " ".join(cli("study", "invariance", *TWO_OUTPUTS).out.split())
    assert "same bits dx: batch twice as large, 8 padding rows, another position in" in text
    assert "not applicable dgamma: batch twice as large, 8 padding rows depends on all" in text


def test_an_operator_without_sums_is_said_to_have_no_certificate(cli):
    assert cli("study", "certificate", "swi_glu", "--x", "4x128:bf16").out == (
        "swi_glu: no output is a sum in an order that is known\n"
    )
