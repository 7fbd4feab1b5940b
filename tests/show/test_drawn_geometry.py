"""Lengths, colours and positions of pictures in a browser, compared with their numbers."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest

import npu_sim
from npu_sim.cli.output import write_report
from npu_sim.framework.execution import OrderMask
from npu_sim.show.forms.html import render
from npu_sim.show.forms.layout import Document, Picture, Section
from npu_sim.show.pictures import order_strip, order_strip_data
from npu_sim.show.plan_report import plan_report
from npu_sim.show.studies import study_report
from tests.timelines.calls import rms

FEW, MANY = 3, 2_000_000


@pytest.fixture(scope="module")
def plan():
    return npu_sim.plan("rms_norm_grad", product="atlas_a2", **rms(4096, 8192, "bf16"))


@pytest.fixture
def drawn(browser, tmp_path):
    """Open a report, and return what a script finds in it."""

    def ask(html, script):
        file = tmp_path / "page.html"
        if html is not None:
            file.write_text(html, encoding="utf-8")
        browser.open(file.as_uri())
        return browser.driver.execute_script(script)

    return ask


def test_core_cells_have_height_and_opacity_in_proportion_to_their_work(drawn, plan):
    script = """
        return [...document.querySelectorAll("rect.load.c0")].map((cell) =>
            [cell.getBoundingClientRect().height, Number(getComputedStyle(cell).fillOpacity)]);
    """
    cells = drawn(render(plan_report(plan)), script)
    amounts = [stop - start for work in plan.cores for start, stop in work.ranges.values()]
    assert len(set(amounts)) == 2
    for measure in zip(*cells, strict=True):
        assert [value / max(measure) for value in measure] == pytest.approx(
            [amount / max(amounts) for amount in amounts], abs=0.01
        )


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_numbers_of_neighbouring_cores_do_not_touch(drawn, product):
    plan = npu_sim.plan("rms_norm_grad", product=product, **rms(4096, 7168, "bf16"))
    script = """
        const svg = [...document.querySelectorAll("svg")].find((node) =>
            node.querySelector("rect.load"));
        return [...svg.querySelectorAll("text.on")].map((text) => {
            const box = text.getBoundingClientRect();
            return [box.left, box.right, box.top];
        });
    """
    numbers = drawn(render(plan_report(plan)), script)
    strip = [box for box in numbers if abs(box[2] - numbers[0][2]) < 2]
    assert len(strip) == plan.block_dim
    digit = strip[0][1] - strip[0][0]
    for before, after in pairwise(sorted(strip)):
        assert after[0] - before[1] > digit / 5


def test_buffer_segments_are_to_scale_and_coloured_by_name(drawn, plan):
    script = """
        const fill = (rect) => getComputedStyle(rect).fill;
        const svg = [...document.querySelectorAll("svg")].find((node) =>
            (node.getAttribute("aria-label") || "").includes("memor"));
        const titled = [...svg.querySelectorAll("rect")].filter((rect) =>
            rect.querySelector("title"));
        const names = [...svg.querySelectorAll("text.caption")].filter((text) =>
            text.previousElementSibling?.tagName === "rect");
        return [
            titled.map((rect) => [rect.querySelector("title").textContent,
                rect.getBoundingClientRect().width, fill(rect)]),
            names.map((text) => [text.textContent, fill(text.previousElementSibling)]),
        ];
    """
    segments, names = drawn(render(plan_report(plan)), script)
    (memory,) = plan.memories
    scale = sum(width for _, width, _ in segments) / memory.capacity_bytes
    colours = dict(names)
    for buffer in memory.allocations:
        width, colour = next(
            (width, colour)
            for title, width, colour in segments
            if title.startswith(f"{buffer.name}: {buffer.bytes} ")
        )
        assert width == pytest.approx(buffer.bytes * scale, abs=1.5)
        assert colours[f"{buffer.name} {buffer.bytes}"] == colour


def test_a_few_failing_elements_have_a_visible_bar_beside_millions(drawn, tmp_path):
    histogram = [
        {"up_to_ulp": 0.0, "elements": MANY},
        {"up_to_ulp": 1.0, "elements": 0},
        {"up_to_ulp": None, "elements": FEW},
    ]
    data = {"outputs": [{"variant": "float32", "output": "dx", "histogram": histogram}]}
    write_report(tmp_path / "page.html", lambda: study_report("study", [], data, "npu-sim study"))
    script = """
        return [...document.querySelectorAll(".bars .track > span")].map((bar) =>
            bar.getBoundingClientRect().width);
    """
    most, few = drawn(None, script)
    assert few > 10
    assert few / most == pytest.approx((math.log10(FEW) + 0.3) / (math.log10(MANY) + 0.3), abs=0.01)


def test_running_errors_are_drawn_in_ulp(drawn, tmp_path):
    steps = [
        {"value": 1.0, "sum_after": 1.0},
        {"value": 2.0**-24, "sum_after": 1.0},
        {"value": 2.0**-8 - 1.0, "sum_after": 2.0**-8},
    ]
    ends = {
        "lowest_order": "a",
        "highest_order": "b",
        "steps_to_lowest": steps,
        "steps_to_highest": steps[:1],
    }
    worst = {"index": [3], "deterministic_result": 2.0**-8, "factor": 1.0, "spread_ulp": 9, **ends}
    data = {"outputs": [{"output": "dx", "worst": worst}]}
    write_report(tmp_path / "page.html", lambda: study_report("study", [], data, "npu-sim study"))
    script = """
        const figure = document.querySelector("figure[data-draw=drawCurves]");
        const ends = [...figure.querySelectorAll("text.caption[text-anchor=end]")];
        const marks = ends.filter((mark) => mark.getAttribute("x") === ends[0].getAttribute("x"));
        const places = marks.map((mark) => [Number(mark.textContent),
            Number(mark.getAttribute("y"))]);
        return [figure.querySelector("path.line").getAttribute("d"), places];
    """
    path, marks = drawn(None, script)
    heights = [float(height) for height in re.findall(r"[ML][\d.]+ (-?[\d.]+)", path)]
    (low, low_at), *_, (high, high_at) = marks
    ulp = float(np.spacing(np.float32(2.0**-8)))
    expected = [
        low_at - 4 + (error - low) * (high_at - low_at) / (high - low)
        for error in (0.0, -(2.0**-24) / ulp, -(2.0**-24) / ulp)
    ]
    assert heights == pytest.approx(expected, abs=1.5)


def test_single_timing_dependent_rows_are_visible_among_thousands(drawn):
    mask = np.zeros(8000, bool)
    mask[[3, 2091, 2092, 7999]] = True
    strip = order_strip(order_strip_data("grad_weight", OrderMask("row", mask)))
    script = """
        const shown = [...document.querySelectorAll("rect.timing:has(title)")].filter((rect) =>
            Number(getComputedStyle(rect).fillOpacity) > 0);
        const apart = shown.filter((rect) => rect.classList.contains("apart"));
        const width = (rect) => rect.getBoundingClientRect().width;
        const bins = shown.filter((rect) => !apart.includes(rect));
        return [bins.map((rect) => [width(rect), Number(getComputedStyle(rect).fillOpacity)]),
            apart.map(width)];
    """
    bins, apart = drawn(
        render(Document("strip", "strip", (Section("Rows", (Picture(strip, "rows"),)),), "")),
        script,
    )
    assert len(bins) == 3
    assert all(width > 1 and opacity >= 0.35 for width, opacity in bins)
    assert [width / sum(apart) for width in apart] == pytest.approx([0.25, 0.5, 0.25], abs=0.01)
