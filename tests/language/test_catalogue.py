"""The catalogue holds every text of the code, and texts are rendered from their templates."""

import copy
import importlib.util
import pickle
import re
from pathlib import Path

import pytest

import npu_sim
from npu_sim.framework.inference import call_with
from npu_sim.language import (
    Text,
    Verbatim,
    joined,
    language,
    say,
    translated,
    translated_data,
    using_language,
)
from npu_sim.language.text import language_of
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Caveat
from npu_sim.registry import OPERATORS
from npu_sim.show.forms.layout import render
from npu_sim.show.plans import plan_view

ROOT = Path(__file__).parents[2]


def tool():
    spec = importlib.util.spec_from_file_location("catalogue_tool", ROOT / "ci/catalogue.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_text_of_the_code_is_translated():
    assert tool().problems() == [], "python ci/catalogue.py --write, then npu_sim/language/zh.po"


def test_a_suggestion_stands_before_the_list_of_names():
    texts = [str(message.id) for message in tool().known() if message.id]
    lists = r": .*\{(?!name\})\w+\}.*\{(hint|near)\}$"
    assert not [text for text in texts if re.search(lists, text)]
    assert "{tip}one of: {known}" in texts


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('Text("{name} is missing", name=name)', ["{name} is missing"]),
        ('say("on" if mode else "off")', ["on", "off"]),
        ('UsageError("x", "{x} is odd", "an even x", x=x)', ["{x} is odd", "an even x"]),
        ('Tensor("x", "row* col", "the input, of any shape")', ["the input, of any shape"]),
        ('Holds("row >= 1 and col >= 1")', []),
        ('define("tiling = tile(row, device, rules)")', []),
    ],
)
def test_the_catalogue_takes_what_is_marked_as_text(tmp_path, code, texts):
    path = tmp_path / "module.py"
    path.write_text(code, encoding="utf-8")
    marked = [text for kind, text in tool().found_in(path) if kind in ("template", "text")]
    assert marked == texts


def test_a_text_is_its_english_sentence():
    text = Text("{name} is missing", name="executor")
    assert text == "executor is missing"
    assert (text.template, text.fields) == ("{name} is missing", {"name": "executor"})
    assert type(str(text)) is str


def test_a_text_without_fields_is_used_as_it_is():
    assert Text("a set {1, 2}") == "a set {1, 2}"


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))]
)
@pytest.mark.parametrize(
    "text", [Text("{name} is missing", name="x"), joined(["no weight", "bucket"])]
)
def test_copies_keep_template_and_fields(copied, text):
    other = copied(text)
    assert (other, other.template, other.fields) == (text, text.template, text.fields)
    with using_language("zh"):
        assert translated(other) == translated(text) != text


def test_answers_keep_texts():
    caveat = Caveat(code="x", message=Text("{name} is missing", name="gamma"))
    with using_language("zh"):
        assert translated(caveat.message) == "缺少 gamma"
    assert caveat.model_dump(mode="json")["message"] == "gamma is missing"
    assert Caveat.model_json_schema()["properties"]["message"]["type"] == "string"


def test_fields_that_are_texts_are_rendered_in_turn():
    text = Text(
        "{path}: cannot be read: {error}", path="x", error=Text("{name} is missing", name="y")
    )
    with using_language("zh"):
        assert translated(text) == "x：无法读取：缺少 y"


@pytest.mark.parametrize(
    "text",
    [
        Text("a template of no catalogue: {name}", name=Text("{name} is missing", name="x")),
        Text("for help: {where}", where=Text("no catalogue has {x}", x=1)),
        joined([Text("{name} is missing", name="x"), Text("no catalogue has {x}", x=1)]),
    ],
)
def test_a_sentence_is_never_a_mixture(text):
    with using_language("zh"):
        assert translated(text) == str(text)


def test_lists_are_joined_as_the_language_joins_them():
    parts = joined([Text("{name} is missing", name="x"), "no weight"])
    assert parts == "x is missing; no weight"
    with using_language("zh"):
        assert translated(parts) == "缺少 x；没有 weight"
        assert translated("x: " + Text("{name} is missing", name="x")) == "x: 缺少 x"


def test_verbatim_fields_stay():
    with using_language("zh"):
        assert translated(Verbatim("limits")) == "limits"
        assert say("Options of {action}", action=Verbatim("limits")) == "limits 的选项"


@pytest.mark.parametrize("text", ["", "4096x512:bf16", "grad_weight", "some words of a user"])
def test_other_strings_stay(text):
    with using_language("zh"):
        assert translated(text) == text


def test_english_is_the_language_of_the_code():
    with using_language("en"):
        assert say("{count} orders of {share:.1f} %", count=3, share=0.25) == "3 orders of 0.2 %"
        assert translated("no weight") == "no weight"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "NPU_SIM_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"NPU_SIM_LANG": "zh-Hans"}, "zh"),
        ({"NPU_SIM_LANG": "fr"}, "en"),
    ],
)
def test_the_environment_chooses_the_language(environment, expected):
    assert language_of(environment) == expected


def test_a_language_without_a_catalogue_is_refused():
    with pytest.raises(ValueError, match="en, zh"), using_language("fr"):
        pass
    assert language() in ("en", "zh")


def test_translations_are_punctuated_as_chinese_is():
    wrong = re.compile("[\u4e00-\u9fff][,;:?!][ \u4e00-\u9fff]|[\u4e00-\u9fff]\\([\u4e00-\u9fff]")
    assert [entry.string for entry in tool().known() if wrong.search(entry.string)] == []


ENGLISH = re.compile(
    r"(?<![\w.-])(?:the|which|every|are|than|its|depends|added|core|of|and|each|no)(?![\w.-])"
)


@pytest.mark.parametrize(
    ("value", "note", "expected"),
    [
        ("scalar instructions", "not published: counted 0", "标量指令（未公开：按 0 计）"),
        ("MemSet", "not published: counted 0", "MemSet (未公开：按 0 计)"),
        ("scalar instructions", Verbatim("dma.py"), "标量指令 (dma.py)"),
    ],
)
def test_brackets_between_chinese_texts_are_full_width(value, note, expected):
    text = Text("{label}: {value} ({note})", label="left out", value=value, note=note)
    with using_language("zh"):
        assert translated(text) == f"未计入：{expected}"
    assert translated(text) == f"left out: {value} ({note})"


@pytest.mark.parametrize("operator", [entry.name for entry in OPERATORS])
def test_plans_are_chinese(operator):
    declared = load_operator(operator)
    plans = [
        npu_sim.plan(operator, deterministic=one, **call_with(declared, declared.defaults()))
        for one in (False, True)
    ]
    with using_language("zh"):
        text = "\n".join(render(plan_view(plan), 10_000) for plan in plans)
    assert re.search("切分|路径", text)
    assert [line for line in text.splitlines() if ENGLISH.search(line)] == []


def test_refusals_are_chinese_and_data_stay_english():
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan("cross_entropy_loss_grad", log_prob="200000x32000:fp32", target="200000:int64")
    with using_language("zh"):
        assert "产品文档要求小于 200000" in str(refused.value)
        assert "log_prob has N = 200000 rows" in refused.value.as_dict()["message"]


def test_names_in_data_of_pictures_stay():
    data = {
        "says": "gamma is copied in",
        "reads": ["gamma", "rows"],
        "views": [{"name": "rows", "path": ["whole rows"]}],
    }
    with using_language("zh"):
        assert translated_data(data) == {
            "says": "gamma 搬入",
            "reads": ["gamma", "rows"],
            "views": [{"name": "rows", "path": ["整行"]}],
        }
