"""Every feature works on the example of a user's operator, as on the operators of the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "own_operator"
CALL = ("scale_rows", "--x", "64x40:fp32")
COMMANDS = {
    "plan": ("plan", *CALL),
    "run": ("run", *CALL),
    "explain": ("explain", *CALL),
    "diff": ("diff", *CALL),
    "limits": ("limits", "scale_rows", "--vary", "col", "--product", "atlas_a2"),
    "sweep": (
        "sweep",
        "scale_rows",
        "--grid",
        "row=1..300",
        "--grid",
        "product=all",
        "--check",
        "50",
    ),
    "timeline": ("timeline", *CALL),
    "workspace": ("workspace", *CALL),
    "determinism": ("study", "determinism", *CALL),
    "invariance": ("study", "invariance", *CALL),
    "precision": ("study", "precision", *CALL),
    "certificate": ("study", "certificate", *CALL),
}


PROGRAM = """
import contextlib, io, json, sys
from npu_sim.cli import main
answers = {}
for question, words in json.load(sys.stdin).items():
    out, sys.argv, code = io.StringIO(), ["npu-sim", *words], 0
    with contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    answers[question] = [code, out.getvalue()]
json.dump(answers, sys.stdout)
"""


def ask(questions, folder=""):
    """Return exit code and output of command lines, with the packages of a folder installed."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    call = (sys.executable, "-c", PROGRAM)
    done = subprocess.run(
        call,
        input=json.dumps(questions),
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the installed package answers to every command."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(folder),
        str(PACKAGE),
    )
    subprocess.run(pip, check=True, capture_output=True)
    calls = folder / "calls.jsonl"
    calls.write_text(json.dumps({"op": "scale_rows", "inputs": {"x": "64x40:fp32"}}) + "\n")
    questions = {question: [*words, "--json"] for question, words in COMMANDS.items()}
    questions |= {
        "help": ["plan", "--help"],
        "too wide": ["plan", "scale_rows", "--x", "4x100000:fp32", "--json"],
        "preflight": ["preflight", str(calls)],
        "report": ["plan", *CALL, "--report", str(folder / "plan.html"), "--json"],
    }
    return {
        **ask(questions, folder),
        "page": [0, (folder / "plan.html").read_text() if (folder / "plan.html").exists() else ""],
    }


@pytest.mark.long
@pytest.mark.parametrize("question", [*COMMANDS, "preflight", "report"])
def test_an_installed_operator_is_asked_like_those_of_the_package(answers, question):
    code, out = answers[question]
    assert code == 0, out
    assert out


@pytest.mark.long
def test_it_is_listed_and_its_evidence_is_not_earned(answers):
    assert "scale_rows" in answers["help"][1]
    assert json.loads(answers["plan"][1])["plan"]["evidence"] == "model"


@pytest.mark.long
def test_its_summation_tree_is_the_one_the_kernel_has(answers):
    (certificate,) = json.loads(answers["certificate"][1])["certificates"]
    assert (certificate["probe"], certificate["probe_agrees"]) == ("recovered", True)


@pytest.mark.long
def test_sweep_and_plan_agree(answers):
    answer = json.loads(answers["sweep"][1])
    assert (answer["checked"], answer["different"]) == (50, [])


@pytest.mark.long
def test_a_refusal_names_the_argument(answers):
    code, out = answers["too wide"]
    error = json.loads(out)["error"]
    assert (code, error["status"], error["argument"]) == (2, 561002, "x")
    assert "196352" in error["hint"]


@pytest.mark.long
def test_its_report_shows_it(answers):
    assert "ScaleRows" in answers["page"][1]


def test_a_file_serves_as_well_as_a_package():
    file = str(PACKAGE / "scale_rows" / "__init__.py")
    for words in (["--operators", file, "plan", *CALL], ["plan", *CALL, "--operators", file]):
        code, out = ask({"plan": words})["plan"]
        assert code == 0
        assert out.startswith("ScaleRows on Atlas A2")


def test_the_explorer_offers_it():
    file = PACKAGE / "scale_rows" / "__init__.py"
    program = (
        "import sys, pathlib, npu_sim; npu_sim.register_file(pathlib.Path(sys.argv[1]));"
        "from npu_sim.explorer.state import catalog;"
        "print([operator['name'] for operator in catalog({})['operators']])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program, str(file)),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "scale_rows" in done.stdout
