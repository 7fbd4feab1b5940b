import json
import re

import numpy as np
import pytest

import npu_sim
from npu_sim.files.writing import schema
from tests.studies import calls

CALL = calls.embedding(200, 8, 30)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The inputs of a call, a right result of the A2 in random order, and a wrong one."""
    monkeypatch.chdir(tmp_path)
    right = npu_sim.run(
        "embedding_dense_backward", core_order="random", seed=4, soc="910B3", **CALL
    ).outputs["grad_weight"]
    wrong = right.copy()
    wrong[2, 1] += 1
    arrays = {"grad": CALL["grad"], "indices": CALL["indices"], "right": right, "wrong": wrong}
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return tmp_path


def words(measured, *more):
    return (
        *("verify", "embedding_dense_backward", "--grad", "grad.npy", "--indices", "indices.npy"),
        *("--num-weights", 30, "--grad-weight", measured, "--soc", "910B3", *more),
    )


def test_a_result_in_random_order_is_reachable(files, cli):
    outcome = cli(*words("right.npy", "--release", "9.1", "--no-deterministic"))
    assert outcome.code == 0
    assert outcome.out.startswith(
        "grad_weight: reachable. The product can have produced every element.\n"
    )
    assert "possible on" not in outcome.out


def test_open_switches_list_where_the_result_is_possible(files, cli):
    outcome = cli(*words("right.npy"))
    assert outcome.code == 0
    possible = [line for line in outcome.out.splitlines() if line.startswith("possible on")]
    assert possible
    assert all("computation off" in line for line in possible)


def test_an_impossible_result_ends_with_1_and_the_worst_element(files, cli):
    outcome = cli(*words("wrong.npy", "--release", "9.1", "--no-deterministic"))
    assert outcome.code == 1
    assert "grad_weight: unreachable. The product cannot have produced 1 of 240 elements." in (
        outcome.out
    )
    assert "  2, 1 " in outcome.out


def test_json_is_the_answer_of_python(files, cli):
    outcome = cli(*words("wrong.npy", "--release", "9.1", "--no-deterministic", "--json"))
    answer = npu_sim.verify(
        "embedding_dense_backward",
        soc="910B3",
        release="9.1",
        deterministic=False,
        grad_weight=np.load("wrong.npy"),
        **CALL,
    )
    expected = {"schema": schema("verification"), **answer.as_dict()}
    assert outcome.data == json.loads(json.dumps(expected))


def test_the_report_draws_every_verdict(files, cli):
    report = files / "out.html"
    options = ("--release", "9.1", "--no-deterministic", "--no-explain", "--report", report)
    assert cli(*words("wrong.npy", *options)).code == 1
    page = report.read_text(encoding="utf-8")
    assert "verdicts of grad_weight" in page
    assert "unreachable: 1" in page
    (bar,) = re.findall(r'<rect [^>]*class="wrong"[^>]*>', page)
    assert 'fill-opacity="1"' in bar
    assert "not measured on a device" not in page
    assert "Given values are from your files" in page
    answer = npu_sim.verify(
        "embedding_dense_backward", soc="910B3", grad_weight=np.load("right.npy"), **CALL
    )
    assert "verdicts of grad_weight" in answer._repr_html_()
    assert "reachable" in repr(answer)
    assert "reachable" in repr(answer.outputs["grad_weight"])


@pytest.mark.parametrize("argument", ["budget", "total_budget"])
def test_the_next_step_names_the_option_that_decides_more(files, cli, argument):
    option = f"--{argument.replace('_', '-')}"
    long = calls.embedding(4096, 8, 20)
    right = npu_sim.run("embedding_dense_backward", core_order="random", seed=4, **long)
    long["grad_weight"] = np.nextafter(right.outputs["grad_weight"], np.float32(np.inf))
    for name, value in long.items():
        np.save(f"{name}.npy", value)
    typed = (
        *("verify", "embedding_dense_backward", "--grad", "grad.npy", "--indices", "indices.npy"),
        *("--num-weights", 20, "--grad-weight", "grad_weight.npy", "--soc", "910B3", option, 1),
    )
    text = cli(*typed, "--report", "verify.html").out
    report = (files / "verify.html").read_text(encoding="utf-8")
    data = cli(*typed, "--json").data
    for shown in (text, report, " ".join(data["outputs"]["grad_weight"]["next"])):
        assert f"raise {option}" in " ".join(shown.split())
    answer = npu_sim.verify("embedding_dense_backward", **long, soc="910B3", **{argument: 1})
    assert f"raise {argument}" in str(answer)


@pytest.mark.parametrize(
    "typed",
    ["--fail-on else", "--max-workspace much", "--core-order up --x 4x4:fp16 --gamma 4:fp16"],
)
def test_errors_name_options_as_they_are_typed(cli, typed):
    command = "run rms_norm" if "core-order" in typed else "preflight calls.jsonl"
    outcome = cli(*command.split(), *typed.split())
    assert outcome.code == 64
    assert outcome.err.startswith(f"npu-sim: {typed.split()[0]} = ")


def test_outputs_are_files_and_are_needed(files, cli):
    assert cli(*words("8x8:fp32")).code == 64
    without = [word for word in words("x.npy") if word not in ("--grad-weight", "x.npy")]
    outcome = cli(*without)
    assert outcome.code == 64
    assert "no output is given" in outcome.err
    help_text = cli("verify", "embedding_dense_backward", "--help").out
    assert "--grad-weight grad_weight.npy" in " ".join(help_text.split())


def test_threads_do_not_change_the_answer_and_the_seed_only_what_was_not_decided(files, cli):
    random = np.random.default_rng(0)
    call = {
        "grad": random.standard_normal((3000, 2)).astype(np.float32),
        "indices": np.minimum(random.zipf(1.3, 3000) - 1, 29),
        "num_weights": 30,
    }
    measured = npu_sim.run(
        "embedding_dense_backward", core_order="random", seed=3, soc="910B3", **call
    ).outputs["grad_weight"]
    for name, array in (("grad", call["grad"]), ("indices", call["indices"]), ("m", measured)):
        np.save(f"{name}.npy", array)
    answers = {}
    for seed, threads in ((0, 1), (0, 2), (1, 1), (1, 2)):
        np.random.seed(seed + threads)  # the state of the process, which is not used
        options = ("--release", "9.1", "--no-deterministic", "--budget", 200, "--json")
        outcome = cli(*words("m.npy", *options, "--seed", seed, "--threads", threads))
        assert outcome.code == 0
        answers[seed, threads] = outcome.data["outputs"]["grad_weight"]
    assert answers[0, 1] == answers[0, 2]
    assert answers[1, 1] == answers[1, 2]
    first, other = (answers[seed, 1]["elements"] for seed in (0, 1))
    assert first["undecided"] > 0
    assert first != other
    assert first["equal"] == other["equal"]
    assert first["unreachable"] == other["unreachable"] == 0


def test_progress_is_shown_on_a_terminal_only(files, cli, monkeypatch):
    arguments = words("right.npy", "--release", "9.1", "--no-deterministic")
    assert cli(*arguments).err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich assume a terminal and draw the bar
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "grad_weight" in cli(*arguments).err


def test_two_results_are_compared(files, cli):
    switches = ("--release", "9.1", "--no-deterministic", "--no-explain")
    outcome = cli(*words("right.npy", "--against", "wrong.npy", *switches))
    assert outcome.code == 1
    assert "second result  unreachable; 1 of 240 elements differ" in outcome.out
    rows = [line.split() for line in outcome.out.splitlines() if line.startswith("  2 ")]
    assert rows[-1] == ["2", "1", "1", "reachable", "unreachable"]
    data = cli(*words("right.npy", "--against", "wrong.npy", *switches, "--json")).data
    assert data["against"]["grad_weight"]["worst_rows"][0]["index"] == [2]
    report = files / "two.html"
    cli(*words("right.npy", "--against", "wrong.npy", *switches, "--report", report))
    assert "grad_weight: two results" in report.read_text(encoding="utf-8")
    assert cli(*words("right.npy", "--against", "right.npy", *switches)).code == 0
    assert cli(*words("right.npy", "--against", "missing.npy", *switches)).code == 64


def test_what_was_asked_for_does_not_contradict_an_explanation(files, cli):
    """A result of a SoC with more cores: possible there, but that SoC was not asked for."""
    call = {**CALL, "indices": np.sort(CALL["indices"])}
    values = npu_sim.run("embedding_dense_backward", soc="910B1", **call).outputs["grad_weight"]
    np.save("indices.npy", call["indices"])
    np.save("other.npy", values)
    outcome = cli(*words("other.npy"))
    assert outcome.code == 1
    assert "SoC Ascend910B1" in outcome.out
    assert "none of the combinations that were asked for" in outcome.out


def test_bfloat16_numbers_in_fp32_files_are_taken_as_such(files, cli):
    call = calls.rms_norm_forward(20, 64, "bf16")
    y = npu_sim.run("rms_norm", soc="910B3", **call).outputs["y"]
    for name, array in {"x": call["x"], "gamma": call["gamma"], "y": y}.items():
        np.save(f"{name}.npy", array.astype(np.float32))
    np.save("bits.npy", call["x"].view(np.uint16))
    names = ("--gamma", "gamma.npy:bf16", "--y", "y.npy:bf16", "--soc", "910B3")
    for x in ("x.npy:bf16", "bits.npy:bf16"):
        outcome = cli("verify", "rms_norm", "--x", x, *names)
        assert outcome.code == 0
        assert outcome.out.startswith("y: equal.")
    wrong = cli("verify", "rms_norm", "--x", "bits.npy", *names)
    assert wrong.code == 64
    assert "bits.npy:bf16" in wrong.err
    np.save("x.npy", np.full((20, 64), 0.1, np.float32))
    inexact = cli("verify", "rms_norm", "--x", "x.npy:bf16", *names)
    assert inexact.code == 64
    assert "not all its numbers are exact" in inexact.err


def test_the_help_of_verify_says_that_everything_is_tried(cli):
    shown = " ".join(cli("verify", "rms_norm", "--help").out.split())
    assert "every product that has the operator when left out" in shown
    assert "Release of the product's software; every one when left out" in shown


def test_a_missing_input_says_that_its_values_follow_from_nothing(cli, tmp_path):
    for name in ("var", "grad", "var_out"):
        np.save(tmp_path / f"{name}.npy", np.ones(8, np.float32))
    files = {name: str(tmp_path / f"{name}.npy") for name in ("var", "grad", "var_out")}
    outputs = ("--var", files["var"], "--grad", files["grad"], "--var-out", files["var_out"])
    shown = " ".join(cli("verify", "apply_adam_w_v2", *outputs).err.split())
    assert "m is missing m: first moment, like var; a plan takes its shape" in shown
    assert "its values must be given" in shown
