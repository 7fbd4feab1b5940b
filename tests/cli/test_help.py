"""Help: commands by heading, operators once, an example of every argument."""

import re
import subprocess
import sys

import pytest
from typer.main import get_command

from npu_sim.cli.app import HEADINGS, app, command_names, headings
from npu_sim.cores import DEFAULT_PRODUCT, default_release, release_names
from npu_sim.framework.arguments import Output
from npu_sim.operators.loading import load_operator
from npu_sim.questions.varied_calls import example_call
from npu_sim.registry import OPERATORS

NAMES = [entry.name for entry in OPERATORS]
PANEL = re.compile(r"^(\S.*)\n((?:  .*\n)+)", re.M)
"""A heading of the help and the lines below it."""


@pytest.fixture
def helped(cli):
    """Return the panels of the help of a command by heading, and the text below them."""

    def panels(*command):
        text = cli(*command, "--help").out
        return dict(PANEL.findall(text)), PANEL.split(text)[-1]

    return panels


def test_the_help_names_the_releases_and_the_default_product(helped):
    panels, _ = helped("plan", NAMES[0])
    options = " ".join(panels["Options of plan"].split())
    *older, newest = release_names()
    assert f"the default when left out. Releases: {', '.join(older)} or {newest}; " in options
    assert f"; default {default_release()}." in options
    assert f"{DEFAULT_PRODUCT} when left out." in options


def test_a_command_that_tries_releases_names_no_default(cli):
    text = " ".join(cli("verify", "rms_norm", "--help").out.split())
    assert f"or {release_names()[-1]}. " in text
    assert f"default {default_release()}" not in text


@pytest.mark.parametrize("command", [(), *((name, NAMES[0]) for name in ("limits", "sweep"))])
def test_repeatable_and_bounded_options_show_the_type_of_one_value(cli, command):
    text = cli(*command, "--help").out
    assert "list[" not in text
    assert "range>" not in text


def test_commands_are_listed_under_their_headings(helped):
    panels, _ = helped()
    listed = {
        heading: tuple(re.findall(r"^  ([\w-]+) ", rows, re.M))
        for heading, rows in panels.items()
        if heading in HEADINGS
    }
    assert listed == {
        heading: tuple(name for name, _ in lines) for heading, lines in headings().items() if lines
    }
    assert get_command(app).list_commands(None) == command_names()


def test_every_operator_is_listed_once(cli):
    assert not [name for name in NAMES if name in cli("--help").out]
    text = cli("plan", "--help").out
    assert [len(re.findall(rf"\b{name}\b", text)) for name in NAMES] == [1] * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_have_examples_and_required_ones_are_marked(helped, name):
    panels, below = helped("plan", name)
    declared = load_operator(name)
    example = example_call(declared)
    for heading, fields in (
        ("Arguments", [*declared.inputs, *declared.attributes]),
        ("Outputs", declared.outputs),
    ):
        (rows,) = [rows for panel, rows in panels.items() if panel.startswith(heading)]
        lines = [row for row in rows.splitlines() if not row.startswith("  --no-")]
        assert {re.match(r"  --(\S+)", row)[1].replace("-", "_") for row in lines} == {
            field.output if isinstance(field, Output) else field.name for field in fields
        }
        for row, field in zip(lines, sorted(fields, key=declared.arguments.index), strict=True):
            assert ("required: " in row) == (field.name in example.needed)
            if field.name in example.needed or isinstance(field, Output):
                assert f"e.g. {example.values[field.name]}" in row
    assert f"Example: npu-sim plan {name} {example.options}" in " ".join(below.split())


def test_switches_show_their_negation_and_options_their_default(helped):
    panels, _ = helped("run", "embedding_dense_backward")
    lines = [" ".join(line.split()) for rows in panels.values() for line in rows.splitlines()]
    assert "--no-scale-grad-by-freq off (the default)" in lines
    assert any(
        line.startswith("--padding-idx ") and line.endswith("[default: --padding-idx=-1]")
        for line in lines
    )
    assert any(
        line.startswith("--limits ") and line.endswith("[default: --limits=documented]")
        for line in lines
    )
    assert "--json Print JSON instead of text." in lines


def test_the_help_is_chinese_except_for_typed_words(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    text = cli("plan", "embedding_dense_backward", "--help").out
    assert (
        "documented：产品文档给出的约束；hardware：缓冲区的约束。[默认：--limits=documented]"
        in text
    )
    assert "必填：embedding 输出的梯度，(..., dim)；例如 1024x128:fp32，或 .npy 文件" in text
    assert "显示本帮助后退出。" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_an_example_is_necessary(cli, name):
    declared = load_operator(name)
    for left_out in example_call(declared).needed:
        example = example_call(declared)
        arguments = example._replace(
            needed=tuple(argument for argument in example.needed if argument != left_out)
        ).options.split()
        refused = cli("plan", name, *arguments, "--json")
        assert (refused.code, refused.data["argument"], refused.data["message"]) == (
            64,
            left_out,
            f"{left_out} is missing",
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["plan", "study precision"])
def test_out_is_a_file_at_any_position_and_never_a_tensor(cli, command, name):
    refused = cli(
        *command.split(),
        name,
        *example_call(load_operator(name)).options.split(),
        "--out",
        "64x64:fp32",
    )
    assert refused.code == 64
    assert "No such option: --out" in refused.err


@pytest.mark.parametrize(
    ("command", "panel"), [("run", "Options of run"), ("sweep", "Options of sweep")]
)
def test_out_is_an_option_of_commands_that_write_results(helped, command, panel):
    panels, _ = helped(command, "embedding_dense_backward")
    assert "--out" in panels[panel]
    assert not [heading for heading, rows in panels.items() if heading != panel and "--out" in rows]


def test_an_output_spec_is_checked_under_the_name_of_its_result(cli):
    arguments = (
        "plan",
        "embedding_dense_backward",
        "--grad",
        "64x8:fp32",
        "--indices",
        "64:int32",
        "--num-weights",
        10,
    )
    assert cli(*arguments, "--grad-weight", "10x8:fp32").code == 0
    assert "11x8" in cli(*arguments, "--grad-weight", "11x8:fp32").err


def test_the_shell_completes_operators_and_their_arguments():
    program = "import sys; sys.argv = ['npu-sim']; from npu_sim.cli import main; main()"

    def completed(line):
        settings = {
            "_NPU_SIM_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
        process = subprocess.run(
            [sys.executable, "-c", program],
            env=settings,
            capture_output=True,
            text=True,
            check=True,
        )
        return process.stdout.split()

    assert completed("npu-sim plan rms") == ["rms_norm", "rms_norm_grad"]
    assert {"--dy", "--gamma", "--product"} <= set(completed("npu-sim explain rms_norm_grad --"))


@pytest.mark.parametrize(
    "words",
    [(), ("plan",), ("plan", "rms_norm"), ("study",), ("study", "precision"), ("products",)],
)
def test_h_is_help(cli, words):
    short, long = cli(*words, "-h"), cli(*words, "--help")
    assert (short.code, short.out) == (0, long.out)
    assert short.out.startswith("Usage: ")
