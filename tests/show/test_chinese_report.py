"""A report in Chinese: its texts, and what its scripts draw."""

import re

import pytest

from npu_sim.cores import load_profile
from npu_sim.language import LANGUAGES, Text, using_language
from npu_sim.language.text import translated_data
from npu_sim.operators import plan
from npu_sim.operators.timelines import timeline
from npu_sim.show.forms.curves import Axis, curve, curve_chart
from npu_sim.show.forms.html import DRAWING_SCRIPTS, TEXTS, asset, picture_texts, render
from npu_sim.show.plan_report import plan_report
from npu_sim.show.times import estimate_cell, evidence_of_estimates

CALL = {"dy": "64x8192:bf16", "gamma": "8192:bf16"}
ENGLISH = re.compile(
    r"(?<![\w.-])(?:tile|next|launch|starts|pipe|busy|first|not in use|of the bound)(?![\w.-])"
)


def test_every_picture_sentence_has_a_translation():
    with using_language("zh"):
        assert picture_texts().keys() == set(TEXTS)
    assert picture_texts() == {}


def test_the_texts_are_those_of_the_drawing_scripts():
    scripts = "".join(asset(name) for name in DRAWING_SCRIPTS)
    literals = set(re.findall(r'"([^"\n]*)"', scripts))
    named_by_data = {"documented", "hardware", "product", "release"}  # limits, and lists of a map
    assert set(TEXTS) - literals == named_by_data
    assert set(re.findall(r'\bt\("([^"]*)"', scripts)) <= set(TEXTS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_vector_pipe_estimate_has_the_letter_of_the_legend(language):
    profile = load_profile("atlas_a2")
    bound = timeline(plan("rms_norm_grad", product=profile, **CALL), profile)
    with using_language(language):
        assert estimate_cell(bound).startswith("V ")
        assert "V" in evidence_of_estimates([bound])


def test_drawn_texts_are_chinese(browser, tmp_path):
    profile = load_profile("atlas_a2")
    with using_language("zh"):
        planned = plan("rms_norm_grad", product=profile, **CALL)
        html = render(plan_report(planned))
    assert '<html lang="zh">' in html
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file.as_uri())
    script = """
        const drawn = [...document.querySelectorAll("figure[data-draw] > div")];
        const labels = drawn.flatMap((node) =>
            [...node.querySelectorAll("[aria-label]")]
                .map((found) => found.getAttribute("aria-label")));
        return [...drawn.map((node) => node.textContent), ...labels].join("\\n");
    """
    texts = browser.driver.execute_script(script)
    assert "下一个分块" in texts
    assert sorted(set(ENGLISH.findall(texts))) == []
    browser.assert_quiet_and_local()
    assert browser.violations() == []  # a button's name has its text in it


def test_the_names_of_lines_are_translated():
    refused = {"first": 5, "last": 6, "end": 7, "reason": "", "soc": "Ascend910B1"}
    with using_language("zh"):
        figure = curve_chart(
            Axis("row"), Axis("ulp"), [curve("positive first", [1, 9], [1, 2])], refused=[refused]
        )
    assert [line["name"] for line in figure.data["curves"]] == ["正数在先"]
    assert figure.data["refused"][0]["text"].startswith("Ascend910B1 上拒绝")


def test_texts_of_the_data_are_translated_and_names_stay():
    data = {"views": [{"name": Text("{gradient} block", gradient="gradInput")}, {"name": "row"}]}
    with using_language("zh"):
        views = translated_data(data)["views"]
    assert views == [{"name": "gradInput 块"}, {"name": "row"}]
