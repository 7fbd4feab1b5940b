"""The command line in Chinese: Typer's own texts are translated, typed names are not."""

import re

import pytest

from npu_sim.cli.app import command_names
from npu_sim.studies.caveats import CAVEATS

OF_AN_OPERATOR = ("plan", "explain", "run", "diff", "limits", "timeline", "sweep")
STUDIES = ("determinism", "precision", "invariance", "certificate")
HELP = [
    (),
    *((name,) for name in command_names()),
    *((name, "rms_norm_grad") for name in OF_AN_OPERATOR),
    *(("study", name, *operator) for name in STUDIES for operator in ((), ("rms_norm_grad",))),
]
ENGLISH = re.compile(
    r"\b(?:Usage|Options|Arguments|Show|default:|required|message|exit|the|of|or|which|every|with|are|e\.g)\b"
)


@pytest.fixture
def help_of(cli, monkeypatch):
    """Return the help of a command in a language, with every example on one line."""

    def help_text(language, *arguments):
        monkeypatch.setenv("NPU_SIM_LANG", language)
        monkeypatch.setenv("COLUMNS", "1000")
        return "\n".join(line.strip(" │") for line in cli(*arguments, "--help").out.splitlines())

    return help_text


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_is_chinese_and_not_truncated(help_of, command):
    text = help_of("zh", *command)
    assert ENGLISH.findall(text) == []
    assert "…" not in text


@pytest.mark.parametrize(
    "command", [command for command in HELP if command[-1:] == ("rms_norm_grad",)], ids=" ".join
)
def test_examples_are_the_same_in_every_language(help_of, command):
    english, chinese = (
        re.findall(r"(?:Example|示例)[:：] ?(npu-sim .*)", help_of(language, *command))
        for language in ("en", "zh")
    )
    assert len(english) == 1
    assert chinese == english


USAGE_ERRORS = [
    ("pln",),
    ("plan", "rms_norm", "--gama", "1"),
    ("plan", "rms_norm", "--x", "4x4:bf16"),
    ("preflight",),
    ("demo", "--seed", "-3"),
    ("limits", "rms_norm", "--vary", "x"),
]


@pytest.mark.parametrize("arguments", USAGE_ERRORS, ids=" ".join)
def test_usage_errors_are_chinese_and_data_is_english(cli, monkeypatch, arguments):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    message, data = cli(*arguments).err, cli(*arguments, "--json").data
    assert (data["outcome"], data["message"].isascii()) == ("usage", True)
    assert re.search("[\u4e00-\u9fff]", message)
    assert not set(
        re.findall(
            r"[a-z]+", re.sub(r"npu-sim [^\n]*--help|'[^']*'|--\w+|extra$", "", message, flags=re.M)
        )
    ) & set(
        re.findall(
            r"[a-z]+",
            "no such option command requires an argument does not take value missing got "
            "unexpected extra input should be scale of",
        )
    )


@pytest.mark.parametrize(
    "arguments", [("plan", "rms_norm", "--x"), ("demo", "--threads", "abc"), ("demo", "extra")]
)
def test_what_typer_words_itself_stays_english_with_a_chinese_hint(cli, monkeypatch, arguments):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    assert re.search("帮助", cli(*arguments).err)


def test_typed_names_are_not_translated(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    listed = cli("caveats").out
    names = [line.split()[0] for line in listed.partition("\n\n")[0].splitlines()]
    assert names == [caveat.name for caveat in CAVEATS]
    assert ", ".join(caveat.name for caveat in CAVEATS) in cli("caveats", "conter").err
    assert "col, row" in cli("limits", "rms_norm", "--vary", "x").err


def test_arguments_keep_their_names(cli, monkeypatch):
    """Words that are a name of an argument as well: row, rows."""
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    refused = cli("sweep", "rms_norm_grad", "--grid", "row=0x").err
    assert refused.startswith("npu-sim: row = '0x' ")
    assert "0 <= row <= " in refused
    call = ("--dy", "64x512:bf16", "--gamma", "512:bf16", "--products", "A2")
    limits = cli("limits", "rms_norm_grad", *call, "--vary", "col", "--vary", "row=1,5").out
    assert "（沿 row）" in limits.splitlines()[0]


def test_the_two_buffers_of_a_bank_conflict_are_joined_in_chinese(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    text = cli("explain", "rms_norm", "--x", "64x512:fp32", "--gamma", "512:fp32").out
    assert "x_fp32 和 x_fp32" in text
    assert " and " not in text


def test_reasons_and_pairs_of_a_preflight_are_chinese(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    path = tmp_path / "calls.jsonl"
    path.write_text(
        '{"op": "rms_norm", "inputs": {"x": "4096x7168:bf16", "gamma": "7168:bf16"}}\n', "utf-8"
    )
    unknown = cli("preflight", str(path), "--product", "950", "--release", "8.3").out
    assert "的规则从版本 9.1 起才已知" in unknown
    compared = cli("preflight", str(path), "--products", "A2,950").out
    assert "atlas_a2 与 ascend_950 上为 rstd 的最后一位" in compared
    assert not re.search(r"\b(the|and|from)\b", unknown + compared)


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.json", "没有这个文件或目录"), ("file/below.json", "不是目录")]
)
def test_reasons_of_the_system_are_chinese(cli, tmp_path, monkeypatch, name, reason):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    (tmp_path / "file").write_text("")
    assert f"无法读取：{reason}" in cli("preflight", str(tmp_path / name)).err


def test_a_buffer_of_products_is_no_product(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    call = ("--dy", "4096x8192:bf16", "--gamma", "8192:bf16", "--soc", "Ascend950PR_9589")
    outcome = cli("plan", "rms_norm_grad", *call)
    assert "产品 " not in outcome.out
    assert "fp32_products 32768" in outcome.out


def test_the_path_that_a_change_selects_is_quoted(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    outcome = cli("plan", "rms_norm_grad", "--dy", "4096x8192:bf16", "--gamma", "8192:bf16")
    assert "会选择“切 N”" in outcome.out


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            ("study", "certificate", "rms_norm", "--x", "8x64:bf16", "--gamma", "64:bf16"),
            "t0 = 第 0 列的 x^2",
        ),
        (("explain", "rms_norm", "--x", "64x128:bf16", "--gamma", "128:bf16"), "单核的统一缓存"),
    ],
)
def test_labels_and_terms_are_chinese(cli, monkeypatch, command, text):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    assert text in cli(*command).out


def test_a_value_that_was_typed_is_not_translated(cli, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    outcome = cli("diff", "rms_norm", "--x", "4x8:bf16", "--releases", "all")
    assert outcome.err.splitlines()[-1] == "--release all"
