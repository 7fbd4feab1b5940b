"""Usage errors: exit code 64 and the outcome ``usage``, with options in command-line form."""

import pickle
from operator import attrgetter

import pytest

from npu_sim.cores import config_directory
from npu_sim.language import Argument, Text, joined, translated, using_arguments, with_arguments

CALL = ("rms_norm_grad", "--dy", "4096x7168:bf16", "--gamma", "7168:bf16")
EMBEDDING = ("embedding_dense_backward", "--indices", "4096:int32", "--num-weights", "10")
RUN = ("rms_norm", "--x", "4x8:fp32", "--gamma", "8:fp32")
USAGE_ERRORS = {
    "a product": (("plan", *CALL, "--product", "atlas_a4"), "product", "did you mean atlas_a"),
    "a SoC": (("plan", *CALL, "--soc", "Ascend910_9931"), "soc", "did you mean Ascend910_93"),
    "a short name of a SoC": (("plan", *CALL, "--soc", "910B9"), "soc", "did you mean 910B"),
    "a SoC of another product": (
        ("plan", *CALL, "--product", "A2", "--soc", "Ascend910_9391"),
        "soc",
        "Ascend910_9391 is a SoC of atlas_a3; SoCs of atlas_a2: Ascend910B1",
    ),
    "a dtype": (
        ("plan", "rms_norm_grad", "--dy", "4096x7168:b16", "--gamma", "7168:bf16"),
        "dy",
        "did you mean bf16?",
    ),
    "a dtype of a grid": (
        ("sweep", "rms_norm", "--grid", "dtype=b16"),
        "dtype",
        "did you mean bf16?",
    ),
    "a dtype to vary": (("timeline", *CALL, "--vary", "dtype=b16"), "dtype", "did you mean bf16?"),
    "a column of a sweep": (
        ("sweep", "rms_norm", "--grid", "row=1", "--columns", "worksapce_bytes"),
        "columns",
        "did you mean workspace_bytes?",
    ),
    "a name of a grid given twice": (
        ("sweep", "rms_norm", "--grid", "row=1..2", "--grid", "row=3"),
        "grid",
        "give each name once",
    ),
    "an order": (("run", *RUN, "--core-order", "randm"), "core_order", "did you mean random?"),
    "a criterion": (
        ("preflight", "calls.jsonl", "--fail-on", "caveats"),
        "fail_on",
        "did you mean caveat?",
    ),
    "an operator": (("plan", "rmsnorm_gard", *CALL[1:]), "operator", "did you mean rms_norm_grad?"),
    "an operator of a study": (
        ("study", "determinism", "rms_nrm"),
        "operator",
        "did you mean rms_norm?",
    ),
    "an option": (("plan", "rms_norm_grad", "--gama", "1"), "gama", "did you mean --gamma?"),
    "a command": (("pln", *CALL), "", "plan"),
    "a missing tensor": (("plan", *CALL[:3]), "gamma", "gamma is missing"),
    "a missing tensor of diff": (("diff", *CALL[:3]), "gamma", "gamma is missing"),
    "a missing tensor of explain": (("explain", *CALL[:3]), "gamma", "gamma is missing"),
    "a missing tensor of run": (("run", *EMBEDDING), "grad", "grad is missing"),
    "a missing number": (
        ("plan", "embedding_dense_backward", "--grad", "4x4:fp32", "--indices", "4:int32"),
        "num_weights",
        "missing",
    ),
    "a missing file": (
        ("plan", "rms_norm_grad", "--dy", "none.npy", "--gamma", "7168:bf16"),
        "dy",
        "cannot be read",
    ),
    "a missing profile": (("plan", *CALL, "--product", "none.yaml"), "product", "none.yaml"),
    "a missing calibration": (
        ("timeline", *CALL, "--calibration", "none.yaml"),
        "calibration",
        "npu-sim profile --calibrate",
    ),
    "a release": (("plan", *CALL, "--release", "8.4"), "release", "did you mean 8.5?"),
    "a set of limits": (
        ("plan", *CALL, "--limits", "hardwear"),
        "limits",
        "did you mean hardware?",
    ),
    "a size to vary": (("limits", "rms_norm_grad", "--vary", "rov"), "rov", "did you mean row?"),
    "values of a size to vary": (
        ("limits", "rms_norm", "--vary", "row=1..10"),
        "vary",
        "its name alone, --vary row",
    ),
    "a value of a grid": (("sweep", "rms_norm_grad", "--grid", "row"), "grid", "name=value"),
    "a folder that is not there": (
        ("plan", *CALL, "--report", "none/report.html"),
        "report",
        "does not exist",
    ),
    "a JUnit file in no folder": (
        ("preflight", "calls.jsonl", "--junit", "none/x.xml"),
        "junit",
        "does not exist",
    ),
    "a file of calls": (("preflight", "none.jsonl"), "calls", "cannot be read"),
    "a caveat": (("caveats", "saturatoin"), "name", "did you mean saturation?"),
    "a script": (("record", "none.py"), "script", "no such file"),
}


@pytest.mark.parametrize(
    ("arguments", "argument", "message"), USAGE_ERRORS.values(), ids=list(USAGE_ERRORS)
)
def test_a_usage_error_exits_with_64_and_names_its_cause(
    cli, tmp_path, monkeypatch, arguments, argument, message
):
    monkeypatch.chdir(tmp_path)
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (64, "")
    assert outcome.err.startswith("npu-sim: ")
    assert message in outcome.err
    assert "ACLNN" not in outcome.err
    if arguments[0] == "record":  # arguments after the script belong to the script
        return
    as_json = cli(*arguments, "--json")
    assert (as_json.code, as_json.err) == (64, "")
    assert (as_json.data["schema"], as_json.data["outcome"]) == ("npu_sim.usage/1", "usage")
    assert as_json.data["argument"] == argument
    assert message in as_json.data["message"] + as_json.data["hint"]


def test_a_word_without_near_matches_gets_no_suggestion(cli):
    refused = cli("plan", *CALL, "--out", "dx.npy")
    assert "No such option: --out" in refused.err
    assert "did you mean" not in refused.err


def test_misspelt_names_in_an_own_profile_get_suggestions(cli, tmp_path):
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    for right, wrong in (
        ("- rms_norm_grad", "- rms_nrm_grad"),
        ("default_soc: Ascend910B1", "default_soc: 910B11"),
        ("l2_bytes:", "l2_byte:"),
    ):
        assert right in text
        (tmp_path / "own.yaml").write_text(text.replace(right, wrong), encoding="utf-8")
        suggestion = right.strip("- :").removeprefix("default_soc: Ascend")
        assert (
            f"did you mean {suggestion}?"
            in cli("plan", *CALL, "--product", tmp_path / "own.yaml").err
        )


REFUSALS = {
    "an unsupported product": (("plan", *CALL, "--product", "atlas_train"), 161002),
    "an unsupported dtype": (
        ("plan", "rms_norm_grad", "--dy", "4x8:int8", "--gamma", "8:bf16"),
        161002,
    ),
    "a word of an attribute": (
        (
            "plan",
            "cross_entropy_loss_grad",
            "--log-prob",
            "4x8:fp32",
            "--target",
            "4:int64",
            "--reduction",
            "men",
        ),
        161002,
    ),
    "a documented limit": (
        (
            "plan",
            "cross_entropy_loss_grad",
            "--log-prob",
            "200000x32000:fp32",
            "--target",
            "200000:int64",
        ),
        561002,
    ),
}


@pytest.mark.parametrize(("arguments", "status"), REFUSALS.values(), ids=list(REFUSALS))
def test_a_refusal_has_a_status_and_exits_with_2(cli, arguments, status):
    outcome = cli(*arguments, "--json")
    assert outcome.code == 2
    assert (outcome.data["outcome"], outcome.data["error"]["status"]) == ("refused", status)


def test_a_misspelt_attribute_value_gets_a_suggestion(cli):
    arguments, _ = REFUSALS["a word of an attribute"]
    assert "did you mean mean?" in cli(*arguments).err


@pytest.mark.parametrize(
    "arguments",
    [
        REFUSALS["a documented limit"][0],
        USAGE_ERRORS["a SoC"][0],
        USAGE_ERRORS["a column of a sweep"][0],
    ],
)
def test_an_error_fits_the_terminal_and_is_not_wrapped_in_a_pipe(cli, monkeypatch, arguments):
    message = cli(*arguments).err
    for width in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = cli(*arguments).err.splitlines()
        assert " ".join(lines).split() == message.split()
        assert not [line for line in lines if len(line) > width or line != line.rstrip()]
    assert any(len(line) > 120 for line in message.splitlines())


def test_messages_on_the_command_line_use_option_syntax(cli):
    refused = cli(*REFUSALS["a documented limit"][0])
    assert "--limits hardware" in refused.err
    assert "limits=" not in refused.err
    assert "TensorSpec" not in cli(*USAGE_ERRORS["a dtype"][0]).err


@pytest.mark.parametrize(
    ("argument", "python", "shell"),
    [
        (Argument("limits", "hardware"), 'limits="hardware"', "--limits hardware"),
        (Argument("core_order", "random"), 'core_order="random"', "--core-order random"),
        (Argument("resume", True), "resume=True", "--resume"),
        (Argument("total_budget"), "total_budget", "--total-budget"),
    ],
)
def test_arguments_in_messages_are_options_on_the_command_line(argument, python, shell):
    nested = Text("allowed with {argument} alone", argument=argument)
    message = joined((Text("rows = {rows}: {why}", rows=3, why=nested), nested))
    assert str(message).count(f"allowed with {python} alone") == 2
    with using_arguments(attrgetter("option")):
        assert with_arguments(message) == translated(message) == message.replace(python, shell)
        assert with_arguments({"hint": [message]}) == {"hint": [message.replace(python, shell)]}
    assert translated(message) == message
    assert pickle.loads(pickle.dumps(argument)).option == shell


def test_the_exit_codes_are_in_the_help(cli):
    assert "64" in cli("--help").out


def test_paths_in_messages_are_not_rewritten(cli, tmp_path):
    out = tmp_path / "seed=3" / "x.npz"
    error = cli("run", *RUN, "--out", out, "--json").data
    assert f"the folder {out.parent} does not exist" in error["message"]


def test_a_new_operator_replaces_no_folder(cli, tmp_path):
    (tmp_path / "twice_x").mkdir()
    refused = cli("new-operator", "twice_x", "--out", tmp_path)
    assert refused.code == 64
    assert "exists" in refused.err
    assert "--out" in refused.err


def test_an_unknown_operator_may_be_one_of_a_file(cli):
    assert "--operators FILE" in cli("plan", "twice_x").err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("plan", "rms_norm_gard"), "did you mean rms_norm_grad? operators: "),
        (("plan", *CALL, "--product", "atlas_a4"), "did you mean atlas_a"),
        (("plan", *CALL, "--soc", "910B9"), "did you mean 910B4? SoCs: "),
        (("plan", *CALL, "--release", "8.9"), "did you mean 8.5? releases: "),
        (
            ("plan", *CALL, "--product", "A3", "--soc", "910B3"),
            "Ascend910B3 is a SoC of atlas_a2; ",
        ),
        (
            ("diff", *CALL, "--product", "A3", "--soc", "910B3"),
            "Ascend910B3 is a SoC of atlas_a2; ",
        ),
    ],
)
def test_a_tip_stands_before_the_list_of_names(cli, words, hint):
    outcome = cli(*words, "--json")
    assert outcome.data["hint"].startswith(hint)


def test_a_tensor_of_a_sweep_is_answered_with_its_grid(cli):
    outcome = cli("sweep", "rms_norm_grad", "--dy", "1..10x4096:bf16")
    assert "No such option: --dy; give sizes and dtypes with --grid" in outcome.err


def test_a_model_without_its_file_is_missing(cli, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    outcome = cli("model", str(tmp_path / "missing.json"))
    assert (outcome.code, "not JSON" in outcome.err) == (64, False)
    assert "missing.json: cannot be read: No such file or directory" in " ".join(
        outcome.err.split()
    )


@pytest.mark.parametrize("command", ["plan", "diff", "limits"])
@pytest.mark.parametrize("forms", [("--csv", "--json"), ("--json", "--csv")])
def test_one_form_of_an_answer_is_printed(cli, command, forms):
    outcome = cli(command, *RUN, *forms)
    assert outcome.code == 64
    assert "--json and --csv exclude each other" in outcome.out + outcome.err
