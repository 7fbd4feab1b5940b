"""The texts of the page and the table sent to it are the same."""

import json
import re
from importlib import resources

import pytest

from npu_sim.tools.explorer.application import json_answer
from npu_sim.tools.explorer.state import LANGUAGE_NAMES, STAGES, TEXTS, page_texts

PAGE = resources.files("npu_sim.tools.explorer").joinpath("page")
IN_SCRIPTS = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')
IN_MARKUP = re.compile(r'data-(?:text|label)="([^"]*)"')


def test_the_table_has_exactly_the_texts_of_the_page():
    used = set()
    for file in PAGE.iterdir():
        pattern = {".js": IN_SCRIPTS, ".html": IN_MARKUP}.get(f".{file.name.rpartition('.')[2]}")
        used |= set(pattern.findall(file.read_text(encoding="utf-8"))) if pattern else set()
    assert used == set(TEXTS)
    assert len(TEXTS) == len(set(TEXTS))


@pytest.mark.parametrize("language", LANGUAGE_NAMES)
def test_every_language_has_every_text_with_its_placeholders(language):
    table = page_texts(language)
    assert table.keys() == {*TEXTS, *STAGES}
    for english, text in table.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", english))


def test_a_lone_surrogate_of_a_file_is_escaped_in_answers():
    answer = json_answer({"error": "a\udc80 错"})
    assert json.loads(answer.body)["error"] == "a\udc80 错"
