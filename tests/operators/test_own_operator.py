"""Every feature works on the example of a user's operator, as on the operators of the package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

from tests.cases import every

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
    "workspace": ("plan", *CALL, "--workspace"),
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


REGLU = ROOT / "examples" / "reglu_grad"
REGLU_COMMANDS = re.findall(r"^npu-sim (.*)$", (REGLU / "README.md").read_text("utf-8"), re.M)


@pytest.mark.long
def test_every_command_of_a_readme_answers():
    questions = {line: line.split() for line in REGLU_COMMANDS}
    answers = ask(questions)
    assert len(answers) == 11
    assert {line: code for line, (code, _) in answers.items() if code} == {}
    run = answers[next(line for line in answers if " run " in line)][1]
    assert "dx 64x2048 bfloat16" in run
    sweep = answers[next(line for line in answers if " sweep " in line)][1]
    assert "10,000 run" in sweep
    assert "all equal" in sweep


@pytest.mark.long
def test_a_new_operator_plans_runs_and_passes_its_tests(tmp_path):
    created = ask({"new": ["new-operator", "twice_x", "--out", str(tmp_path)]})["new"]
    assert created[0] == 0
    file = str(tmp_path / "twice_x" / "twice_x.py")
    planned = ask({"plan": ["--operators", file, "plan", "twice_x", "--x", "96x8:fp32"]})["plan"]
    assert planned[0] == 0
    assert "TwiceX on Atlas A2" in planned[1]
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


BROKEN = {
    "a half-written declaration": ("OPERATOR = Operator(", "OPERATOR = Operator(x=1,", "line"),
    "a misspelt name in a kernel": ("+= y[row", "+= yy[row", "kernel scale_core: NameError"),
    "an unknown attribute": ("= total_of_row", "= total_of_row.x", "line 60: kernel scale_core"),
    "a name that NumPy lacks": (
        "total_of_row = np.float32(0)",
        "total_of_row = np.float33(0)",
        "kernel scale_core: module 'numpy' has no attribute 'float33'",
    ),
    "an error in tile": (
        "core_rows = ceil_div(row.row,",
        "core_rows = ceil_div(row.rows,",
        "line 46, in tile: AttributeError: 'Row' object has no attribute 'rows' core_rows =",
    ),
    "an error in compute": ("tiling = run.case", "tiling = run.kase", "in compute: AttributeError"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_errors_of_a_file_name_the_file_and_the_line(tmp_path, fault):
    old, new, told = BROKEN[fault]
    source = (PACKAGE / "scale_rows" / "__init__.py").read_text(encoding="utf-8")
    assert old in source
    file = tmp_path / "broken_rows.py"
    file.write_text(source.replace(old, new), encoding="utf-8")
    command = [sys.executable, "-m", "npu_sim", "--operators", str(file), "run", *CALL]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert str(file) in done.stderr
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    "returned",
    every(
        5,
        [
            "return None",
            "return (0, 4, 2, 8)",
            "raise SystemExit(0)",
            "return Tiling(SUCCESS, 0, 4, 8)",
            "return Tiling(SUCCESS, 2.5, 4, 8)",
        ],
    ),
)
def test_a_planner_that_returns_no_tiling_is_an_error(tmp_path, returned):
    template = ROOT / "npu_sim" / "cli" / "templates" / "operator.txt"
    text = Template(template.read_text("utf-8")).substitute(name="own_op", title="OwnOp")
    before = "    core_rows = ceil_div("
    assert text.count(before) == 1
    file = tmp_path / "own_op.py"
    file.write_text(text.replace(before, f"    {returned}\n{before}"), encoding="utf-8")
    command = [sys.executable, "-m", "npu_sim", "--operators", file, "run", "own_op"]
    ended = subprocess.run(
        [*command, "--x", "64x100:bf16"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 64
    assert "own_op: its planner returns" in ended.stderr
    assert "Traceback" not in ended.stderr
