"""What is shown is translated: every text of the code has a translation, and is recognised when it is filled in."""

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import polib
import pytest

import npu_sim
from npu_sim.language import Verbatim, say, speaking, translated, translated_data
from npu_sim.language.catalogue import FEWEST_LETTERS, catalogue
from npu_sim.language.choice import language_of
from npu_sim.language.template import Template
from npu_sim.registry import OPERATORS, load_operator
from npu_sim.show.text import plan_text

ROOT = Path(__file__).parents[2]
ENTRIES = polib.pofile(str(ROOT / "npu_sim/language/zh.po"))


def tool():
    spec = importlib.util.spec_from_file_location("catalogue_tool", ROOT / "ci/catalogue.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_text_of_the_code_is_translated():
    assert tool().faults() == []


def is_sure(template):
    """Whether a sentence says enough of itself, and says where its holes end."""
    return (
        template.letters >= 30
        and template.holes
        and all(literal for literal, _ in template.parts[1:])
    )


@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if is_sure(Template(entry.msgid))],
    ids=lambda entry: entry.msgid[:40],
)
def test_a_sentence_is_recognised_whatever_stands_in_its_holes(entry):
    source, target = Template(entry.msgid), Template(entry.msgstr)
    contents = {hole: str(17 + 10 * place) for place, hole in enumerate(source.holes)}
    assert catalogue("zh").translated(source.filled(contents, str)) == target.filled(contents, str)


def test_what_is_joined_is_translated_in_parts():
    with speaking("zh"):
        assert (
            translated("gradient rows 167936, accumulator 2048, dy 32")
            == "梯度行 167936，累加器 2048，dy 32"
        )
        assert translated("batch twice as large; no weight") == "批大小加倍；没有 weight"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "3 groups of rows (32, 32, 22), 2 pieces of 4096 columns",
            "3 组行（32, 32, 22），2 段，各 4096 列",
        ),
        (
            "gradInput one of 8 blocks of 112 x 32 (base 16 x 16 x 32)",
            "gradInput 每核最多 1 块，共 8 块，每块 112 x 32（基本块 16 x 16 x 32）",
        ),
        ("input in cube layout", "cube 排布的 input"),
        ("deterministic = true, dim = 512", "deterministic = true，dim = 512"),
        (
            "1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16)",
            "1 (ALLOW_FP32_DOWN_PRECISION) 或 2 (USE_FP16)",
        ),
        ("counters, sort-trick", "counters, sort-trick"),
        ("gamma: scale of every column, (columns ...)", "gamma：每列的缩放系数，(columns ...)"),
    ],
)
def test_lists_say_what_is_known_and_keep_names(text, said):
    with speaking("zh"):
        assert translated(text) == said


def test_what_is_verbatim_stays_and_what_is_said_is_not_translated_again():
    with speaking("zh"):
        assert translated(Verbatim("limits")) == "limits"
        assert say("Options of {action}", action=Verbatim("limits")) == "limits 的选项"
        assert isinstance(say("no weight"), Verbatim)


@pytest.mark.parametrize(
    "text", ["", "4096x512:bf16", "grad_weight", "没有 weight", "some words of a user"]
)
def test_what_no_catalogue_holds_stays(text):
    with speaking("zh"):
        assert translated(text) == text


def test_english_is_the_language_of_the_code():
    with speaking("en"):
        assert say("{count} orders of {share:.1f} %", count=3, share=0.25) == "3 orders of 0.2 %"
        assert translated("no weight") == "no weight"


def test_a_sentence_is_said_with_its_contents():
    template = next(entry for entry in ENTRIES if entry.msgid == "{name} is missing")
    with speaking("zh"):
        assert say(template.msgid, name="executor") == "缺少 executor"


@pytest.mark.parametrize(
    ("environment", "spoken"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "NPU_SIM_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"NPU_SIM_LANG": "zh-Hans"}, "zh"),
        ({"NPU_SIM_LANG": "fr"}, "en"),
    ],
)
def test_the_environment_chooses_the_language(environment, spoken):
    assert language_of(environment) == spoken


def test_a_language_without_a_catalogue_is_refused():
    with pytest.raises(ValueError, match="en, zh"), speaking("fr"):
        pass


def test_translations_are_punctuated_as_chinese_is():
    wrong = re.compile("[\u4e00-\u9fff][,;:?!][ \u4e00-\u9fff]|[\u4e00-\u9fff]\\([\u4e00-\u9fff]")
    assert [entry.msgstr for entry in ENTRIES if wrong.search(entry.msgstr)] == []


def test_sentences_are_tried_from_the_longest_on():
    letters = [source.letters for source, _ in catalogue("zh").sentences]
    assert all(one >= other for one, other in pairwise(letters))
    assert letters[-1] >= FEWEST_LETTERS


@pytest.mark.parametrize("operator", [entry.name for entry in OPERATORS])
def test_plans_are_said_in_chinese(operator):
    declared = load_operator(operator)
    plans = [
        npu_sim.plan(operator, deterministic=one, **declared.call(declared.defaults()))
        for one in (False, True)
    ]
    with speaking("zh"):
        text = "\n".join(plan_text(plan, 10_000) for plan in plans)
    assert re.search("切分|路径", text)
    assert (
        re.findall(
            r"(?<![\w.-])(?:the|which|every|are|than|its|depends|added|core)(?![\w.-])", text
        )
        == []
    )


def test_refusals_and_mistakes_are_said_in_chinese_and_data_stay_english():
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan("cross_entropy_loss_grad", log_prob="200000x32000:fp32", target="200000:int64")
    with speaking("zh"):
        assert "产品文档要求小于 200000" in str(refused.value)
        assert "log_prob has N = 200000 rows" in refused.value.as_dict()["message"]


def test_names_in_data_of_pictures_stay():
    data = {
        "says": "gamma comes in",
        "reads": ["gamma", "rows"],
        "views": [{"name": "rows", "path": ["whole rows"]}],
    }
    with speaking("zh"):
        assert translated_data(data) == {
            "says": "gamma 搬入",
            "reads": ["gamma", "rows"],
            "views": [{"name": "rows", "path": ["整行"]}],
        }
