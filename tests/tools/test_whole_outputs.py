"""Outputs of tools as a whole: Chinese without English words, no long number without separators."""

from pathlib import Path

import pytest

from tests.cli.test_whole_outputs import LONG_NUMBER, Texts, english_words
from tests.measured import EMBEDDING, GRAD, OTHER, write_csv

COMMANDS = (
    "profile kernel_details.csv",
    "profile kernel_details.csv --details all",
    "diagnose error.txt",
)


@pytest.fixture
def output(cli, tmp_path, monkeypatch):
    """Return what a command writes; its files are in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    Path("error.txt").write_text("aclnnRmsNormGrad failed, error code 161002\n", encoding="utf-8")
    write_csv(tmp_path / "kernel_details.csv", [OTHER, *EMBEDDING, GRAD])

    def text(command):
        outcome = cli(*command.split())
        return outcome.out + outcome.err

    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_no_number_of_more_than_seven_digits_is_without_separators(output, command):
    assert LONG_NUMBER.findall(output(command)) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_chinese_outputs_have_no_english_words(output, monkeypatch, command):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    assert english_words(output(command), command) == set()


@pytest.mark.long
def test_a_chinese_report_of_a_profile_has_no_english_words(output, monkeypatch):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    output(f"{COMMANDS[0]} --report report.html")
    page = Path("report.html").read_text(encoding="utf-8")
    assert english_words("\n".join(Texts(page).texts), COMMANDS[0]) == set()
