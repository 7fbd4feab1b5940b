"""Answers of the explorer are in the language of the page; keys for scripts are untranslated."""

import pytest

from npu_sim.cores import load_profile, shipped_products
from npu_sim.language import using_language
from npu_sim.show.plan_report import SECTIONS
from npu_sim.tools.explorer.answers import plan_answer, work_answer
from npu_sim.tools.explorer.state import STAGES, TEXTS, language_of, page_texts

PRODUCTS = {name: load_profile(name) for name in shipped_products()}
STATE = {"operator": "rms_norm_grad", "product": "atlas_a2", "row": "64", "col": "8192"}
SAME = {"JSON", "SoC", "trace", "{seconds} s"}


def test_every_text_of_the_page_has_a_chinese_translation():
    texts = page_texts("zh")
    assert {text for text in (*TEXTS, *STAGES) if texts[text] == text} <= SAME


def test_answers_have_chinese_texts_and_english_keys():
    english = work_answer(STATE, PRODUCTS)
    with using_language("zh"):
        chinese = work_answer(STATE, PRODUCTS)
    assert [change["argument"] for change in chinese["changes"]] == [
        change["argument"] for change in english["changes"]
    ]
    assert [change["outcome"] for change in chinese["changes"]] == [
        change["outcome"] for change in english["changes"]
    ]
    assert chinese["changes"][0]["decision"] != english["changes"][0]["decision"]
    assert chinese["steps"]["why"] != english["steps"]["why"]
    assert [view["name"] for view in chinese["steps"]["views"]] == [
        view["name"] for view in english["steps"]["views"]
    ]


def test_section_titles_are_chinese():
    with using_language("zh"):
        titles = {
            section["title"]
            for answer in (plan_answer, work_answer)
            for section in answer(STATE, PRODUCTS)["sections"]
        }
    assert not titles & SECTIONS.keys() - {"Tiling"}


@pytest.mark.parametrize(
    ("requested", "language"), [("zh", "zh"), ("en", "en"), ("", "en"), ("fr", "en")]
)
def test_the_page_declares_its_language(requested, language):
    assert language_of({"lang": requested}) == language


@pytest.mark.parametrize(
    ("chosen", "browser", "variable", "language"),
    [
        ("", "zh-CN,en", "", "zh"),
        ("", "fr,zh-TW", "", "zh"),
        ("", "en-US,zh", "", "en"),
        ("", "fr", "", "en"),
        ("en", "zh", "", "en"),
        ("", "en-US", "zh", "zh"),
    ],
)
def test_a_page_begins_in_the_language_of_its_browser(
    monkeypatch, chosen, browser, variable, language
):
    """Unless one was chosen on the page, or by NPU_SIM_LANG."""
    monkeypatch.setenv("NPU_SIM_LANG", variable)
    assert language_of({"lang": chosen, "browser": browser}) == language
