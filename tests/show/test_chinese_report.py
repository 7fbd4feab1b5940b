"""A report in Chinese: its texts, and what its scripts draw."""

import re

import pytest

from npu_sim.cores import load_profile
from npu_sim.language import LANGUAGES, using_language
from npu_sim.operators import plan
from npu_sim.operators.timelines import timeline, tracks
from npu_sim.show.reports import plan_report, render
from npu_sim.show.reports.picture_texts import TEXTS, picture_texts
from npu_sim.show.timelines import estimate_cell, evidence_of_estimates

CALL = {"dy": "64x8192:bf16", "gamma": "8192:bf16"}
ENGLISH = re.compile(
    r"(?<![\w.-])(?:tile|next|launch|starts|pipe|busy|first|not in use|of the bound)(?![\w.-])"
)


def test_every_picture_sentence_has_a_translation():
    with using_language("zh"):
        assert {source for source, _ in picture_texts()} == set(TEXTS)
    assert picture_texts() == []


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
        html = render(
            plan_report(planned, work=tracks(planned, profile, timeline(planned, profile)))
        )
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
