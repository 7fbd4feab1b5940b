import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import npu_sim
from npu_sim.framework.execution import OrderMask, Result
from npu_sim.language import count_text, using_language
from npu_sim.operators.timelines import timeline
from npu_sim.questions.explain import with_changes
from npu_sim.show.forms.html import block_html, render
from npu_sim.show.forms.layout import Column, Table, part
from npu_sim.show.pictures import MOST_BINS, order_strip, order_strip_data, order_strips
from npu_sim.show.plan_report import plan_report, plan_sections, result_report
from npu_sim.show.timeline_report import timeline_report
from tests.cases import every
from tests.timelines.calls import CALLS, rms

POWER = re.compile(r" \(2\^\d+([-+]1)?\)")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
PLAIN_REPORT_BYTES = 300_000
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Text, commands and external resources of a page; checks that elements are nested."""

    def __init__(self):
        super().__init__()
        self.texts, self.titles, self.commands, self.loads, self.open = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [
            value
            for name, value in attributes
            if name in ("src", "href", "xlink:href", "srcset", "action", "data")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.commands.append(data)
        elif not {"style", "script", "footer"} & set(self.open):
            self.texts.append(data)
            if self.open[-1:] == ["title"] and "svg" in self.open:
                self.titles.append(data)


def read(html):
    page = Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


ROUNDED_SIZE = re.compile(r"\d+\.\d [MG]iB \(([\d,]+)\)")
PERCENTAGE = re.compile(r"(\d+\.\d) %")
TIME = re.compile(r"(\d+\.?\d*) (us|ms|s)\b")
MICROSECONDS = {"us": 1, "ms": 1e3, "s": 1e6}


def numbers_missing_from(data, page):
    """Return the numbers of a page that are not in the JSON.

    Times are compared at three digits, percentages at one decimal, others at six digits.

    A size in MiB or GiB is followed by its bytes, which are compared, as a power of two follows its
    number.
    """
    numbers = np.array(sorted({float(text) for text in NUMBER.findall(json.dumps(data))}))
    missing = set()
    for text in (POWER.sub("", text) for text in page.texts):
        for value, unit in TIME.findall(text):
            if not np.isclose(numbers, float(value) * MICROSECONDS[unit], rtol=6e-3, atol=0).any():
                missing.add(f"{value} {unit}")
        for value in PERCENTAGE.findall(text):
            if not np.isclose(100 * numbers, float(value), rtol=0, atol=0.051).any():
                missing.add(f"{value} %")
        plain = PERCENTAGE.sub("", TIME.sub("", text))
        exact = re.sub(r"(?<=\d),(?=\d{3})", "", ROUNDED_SIZE.sub(r"\1", plain))
        for value in NUMBER.findall(exact):
            if not np.isclose(numbers, float(value), rtol=1e-5, atol=0).any():
                missing.add(value)
    return missing


def planned(name):
    operator, product, arguments = CALLS[name]
    return npu_sim.plan(operator, product=product, **arguments)


@pytest.mark.parametrize("name", every(5, CALLS))
def test_a_plan_report_is_one_small_file_that_loads_nothing(name):
    html = render(plan_report(planned(name)))
    page = read(html)
    assert page.loads == []
    assert len(html.encode()) < PLAIN_REPORT_BYTES
    assert "default-src 'none'" in html


@pytest.mark.parametrize("name", every(5, CALLS))
def test_every_number_of_a_plan_report_is_in_the_json(name):
    plan = planned(name)
    core_numbers = list(range(plan.cores_available))  # idle cores are drawn with their number
    assert (
        numbers_missing_from(
            {"plan": plan.as_dict(), "cores": core_numbers}, read(render(plan_report(plan)))
        )
        == set()
    )


@pytest.mark.parametrize("name", every(5, CALLS))
def test_every_core_buffer_and_part_has_a_tooltip(name):
    plan = planned(name)
    titles = read(render(plan_report(plan))).titles
    for work in plan.cores:
        for axis, (start, stop) in work.ranges.items():
            span = f"{axis} {count_text(start)}..{count_text(stop)}"
            assert any(
                title.startswith(f"core {work.core}: ") and span in title for title in titles
            )
    for memory in plan.memories:
        assert {f"{buffer.name}: {buffer.bytes} bytes" for buffer in memory.allocations} <= {
            title.split(",")[0] for title in titles
        }
    for area in plan.workspace.parts:
        assert any(
            title.startswith(f"{area.name}: ") and area.evidence in title for title in titles
        )


def test_sections_read_only_the_parts_of_a_plan_that_they_show():
    plan = npu_sim.plan("rms_norm_grad", product="atlas_a2", **rms(1234, 7168, "bf16"))
    sections = plan_sections(plan, ("Cores", "Workspace in global memory"))
    assert [section.title for section in sections] == ["Cores", "Workspace in global memory"]
    assert "decisions" not in vars(plan)


def test_idle_cores_are_drawn():
    plan = planned("one row")
    titles = read(render(plan_report(plan))).titles
    assert {f"core {core}: idle" for core in range(1, 48)} <= set(titles)


def test_a_buffer_that_does_not_fit_is_marked():
    plan = planned("small dim")
    memory = plan.memories[0].model_copy(update={"capacity_bytes": 1000})
    html = render(plan_report(plan.model_copy(update={"memories": (memory,)})))
    assert f"does not fit: {memory.used_bytes} of 1000 bytes" in html


def test_texts_are_escaped():
    plan = planned("small dim")
    html = render(plan_report(plan.model_copy(update={"path": "<b>&\"'</b><script>"})))
    assert html.count("<script>") == render(plan_report(plan)).count("<script>")
    assert "<b>" not in html
    read(html)


def test_a_notebook_shows_the_report_in_an_iframe(result):
    for shown in (planned("small dim"), result):
        page = Page()
        page.feed(shown._repr_html_())
        assert page.open == []
        assert page.texts == []


@pytest.fixture
def result():
    plan = planned("small dim")
    mask = np.zeros(3000, bool)
    mask[:40] = True
    output = np.zeros((3000, 512), np.float32)
    return Result(
        {"grad_weight": output},
        plan,
        {"grad_weight": OrderMask("row", mask)},
        {"plan": 0.00123456, "compute": 1.5},
    )


def test_a_run_shows_its_order_strip_and_the_json_has_its_bins(result):
    strips = order_strips(result)
    page = read(render(result_report(result)))
    assert numbers_missing_from({**result.as_dict(), "order_strips": strips}, page) == set()
    assert "rows 0..15: 15 of 15 depend on timing" in page.titles
    assert "rows 45..60: 0 of 15 depend on timing" in page.titles


def test_a_run_report_is_translated_to_chinese(result):
    with using_language("zh"):
        assert result_report(result).sentence.endswith("：已运行")


@pytest.mark.parametrize("size", [1, 7, 199, 200, 201, 4096, 99999])
def test_the_bins_of_a_strip_cover_the_output(size):
    mask = np.random.default_rng(size).random(size) < 0.3
    strip = order_strips(Result({}, None, {"out": OrderMask("column", mask)}))[0]
    assert [interval["start"] for interval in strip["bins"][1:]] == [
        interval["stop"] for interval in strip["bins"][:-1]
    ]
    assert (strip["bins"][0]["start"], strip["bins"][-1]["stop"]) == (0, size)
    assert len(strip["bins"]) <= MOST_BINS
    for interval in strip["bins"]:
        assert interval["order_dependent"] == np.count_nonzero(
            mask[interval["start"] : interval["stop"]]
        )


def test_every_number_of_a_timeline_report_is_in_the_json():
    rows = [
        (name, timeline(planned(name), npu_sim.load_profile(CALLS[name][1])))
        for name in ("small dim", "sorted", "weights split")
    ]
    page = read(render(timeline_report([(*row, None) for row in rows])))
    assert (
        numbers_missing_from(
            [{"call": name, **timeline.as_dict()} for name, timeline in rows], page
        )
        == set()
    )
    assert any("lower bound" in text for text in page.texts)


def test_changes_and_prices_of_several_timelines_name_call_and_soc():
    name = "sorted"
    profile = npu_sim.load_profile(CALLS[name][1])
    found = with_changes(timeline(planned(name), profile), planned(name), profile)
    assert found.changes
    assert found.determinism
    section = timeline_report([("first", found, None), ("second", found, None)]).sections[-2]
    _, changes, prices = section.blocks
    for table in (changes, prices):
        columns, rows = table.filled
        assert [column.name for column in columns[:2]] == ["call", "SoC"]
        assert {(*row[:2],) for row in rows} == {("first", found.soc), ("second", found.soc)}


def test_a_single_row_that_can_differ_is_visible_on_the_strip():
    mask = np.zeros(8000, np.bool_)
    mask[2091] = True
    strip = order_strip(order_strip_data("grad_weight", OrderMask("row", mask)))
    opacities = [float(text) for text in re.findall(r'fill-opacity="([^"]*)"', strip)]
    assert sorted(opacities)[-2:] == [0, 0.35]


@pytest.mark.parametrize(
    ("number", "shown"), [(16384, "16384"), (16777216, "16,777,216"), (0.25, "0.25")]
)
def test_large_integers_in_tables_have_separators(number, shown):
    assert f">{shown}</td>" in block_html(Table((Column("bytes", part(0)),), ((number,),)))
