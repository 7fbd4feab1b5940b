"""Pictures drawn by scripts, compared in a browser with plans; accessibility."""

import json
import re
from itertools import pairwise
from math import log10

import numpy as np
import pytest

import npu_sim
from npu_sim.cli.output import write_report
from npu_sim.framework.execution import OrderMask
from npu_sim.operators.timelines import program_of, timeline, tracks
from npu_sim.show import document_of
from npu_sim.show.forms.curves import Axis, LimitLine, curve, curve_chart
from npu_sim.show.forms.html import render
from npu_sim.show.forms.layout import Document, Drawing, Picture, Section
from npu_sim.show.limits import range_bars
from npu_sim.show.pictures import order_strip, order_strip_data
from npu_sim.show.plan_report import plan_report
from npu_sim.show.studies import rounding_errors, study_report
from tests.timelines.calls import rms
from tests.timelines.test_steps import all_tiles, extent

CALL = rms(4096, 8192, "bf16")
LONG_WORDS = (
    "embedding_dense_backward on atlas_a2, with moe_token_unpermute_grad_and_what_follows_it"
)
CERTIFICATE = {
    "output": "grad_weight",
    "element": [0, 0],
    "elements_alike": 256,
    "terms": [f"grad[{row}, 0]" for row in range(40)],
    "tree": {"fold": [*range(32), {"fold": [32, 33, {"fold": [34, 35]}]}, 36, 37, 38, 39]},
    "hash": "a1876bd6adcfcb91",
    "probe": "recovered",
    "probe_agrees": True,
}
TEXT = (
    " + ".join(f"t{term}" for term in range(32))
    + " + (t32 + t33 + (t34 + t35)) + t36 + t37 + t38 + t39"
)
AREA = {
    "product": "atlas_a2",
    "soc": "Ascend910B1",
    "with": {"dtype": "bfloat16"},
    "x": {"name": "row", "first": 1, "last": 1000, "end": 1001, "logarithmic": True},
    "y": {"name": "col", "first": 64, "last": 640, "end": 704, "logarithmic": False},
    "states": [
        {"label": "whole rows", "refused": False},
        {"label": "561002, too many columns", "refused": True},
    ],
    "columns": [{"start": 1, "end": 1001, "runs": [[64, 512, 448, 0], [512, 704, 640, 1]]}],
    "cells": {"cores": {"x": [1, 1001], "y": [64, 320, 704], "values": [[3, 48]]}},
    "limits": [
        {"axis": "y", "name": "documented", "value": 448},
        {"axis": "x", "name": "hardware", "value": 5000},
    ],
}


@pytest.fixture(scope="module")
def plan():
    return npu_sim.plan("rms_norm_grad", product="atlas_a2", **CALL)


@pytest.fixture(scope="module")
def work(plan):
    profile = npu_sim.load_profile("atlas_a2")
    return tracks(plan, profile, timeline(plan, profile))


@pytest.fixture(scope="module")
def report_file(plan, work, tmp_path_factory):
    """A report with every kind of picture."""
    report = plan_report(plan)
    rows = [
        ("atlas_a2, documented", ((1, 512),), False, "1 .. 512", ""),
        ("atlas_train, documented", (), False, "refused", "not supported"),
    ]
    bounds = [
        LimitLine("documented", 300),
        LimitLine("hardware", 4000000),
        LimitLine("capacity", 80, "y"),
    ]
    chart = curve_chart(
        Axis("row"),
        Axis("bytes"),
        [curve("a", [1, 400], [5, 90], stepped=True)],
        bounds,
        caption="a curve",
    )
    pictures = Section(
        "Pictures",
        (
            Drawing("drawMap", AREA, "a map"),
            Drawing("drawTrees", {"certificates": [CERTIFICATE]}, "trees"),
            Picture(range_bars(rows, "col"), "bars"),
            chart,
        ),
    )
    file = tmp_path_factory.mktemp("drawings") / "all.html"
    file.write_text(
        render(Document("all", LONG_WORDS, (*report.sections, pictures), report.command)),
        encoding="utf-8",
    )
    return file


@pytest.fixture
def page(browser, report_file):
    """Open the report in a browser, in light or dark mode."""

    def opened(dark=False):
        browser.open(report_file.as_uri(), dark)
        return browser

    return opened


def set_width(browser, width):
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )


def test_the_time_line_is_to_scale_and_zooms_by_keyboard(page, work):
    browser = page()
    script = """
        const bars = [...document.querySelectorAll(".gantt rect")].map((node) => [node.dataset,
            node.getBBox()]);
        return bars.map(([node, box]) => [node.row, Number(node.start), Number(node.us), box.x,
            box.width]);
    """
    drawn = browser.driver.execute_script(script)
    expected = [("launches", launch["start_us"], launch["us"]) for launch in work["launches"]]
    expected += [
        (pipe["pipe"], event["start_us"], event["us"])
        for pipe in work["pipes"]
        for event in pipe["events"]
    ]
    assert sorted(tuple(bar[:3]) for bar in drawn) == sorted(expected)
    (left, whole) = next((x, width) for row, *_, x, width in drawn if row == "launches")
    for _, start, us, x, width in drawn:
        assert x == pytest.approx(left + start * whole / work["bound_us"], abs=0.5)
        assert width == pytest.approx(max(us * whole / work["bound_us"], 0.6), abs=0.5)
    stage = browser.driver.find_element("css selector", "figure[data-draw=drawGantt] .stage")
    stage.send_keys("+")
    half = browser.driver.find_element("css selector", "figure[data-draw=drawGantt] output").text
    first, last = (float(number) for number in re.findall(r"([\d.]+) us", half)[:2])
    assert last - first == pytest.approx(work["bound_us"] / 2, abs=0.01)
    rows = (
        "return document.querySelectorAll('figure[data-draw=drawGantt] "
        "details:nth-of-type(2) tbody tr').length"
    )
    assert browser.driver.execute_script(rows) == sum(len(pipe["events"]) for pipe in work["pipes"])
    browser.assert_quiet_and_local()


@pytest.mark.parametrize(("core", "number"), [(0, 0), (5, 40), (47, 200), (47, 10**9)])
def test_a_step_shows_the_parts_and_the_live_buffers_of_its_tile(page, plan, core, number):
    browser = page()
    script = """
        const [core, number] = arguments,
            figure = document.querySelector("figure[data-draw=drawSteps]");
        [...figure.querySelectorAll(".core-choice button")].find((node) =>
            node.textContent === String(core)).click();
        const slider = figure.querySelector("input");
        slider.value = number;
        slider.dispatchEvent(new Event("input"));
        const parts = [...figure.querySelectorAll(".tensor-read, .tensor-written, .tensor-held")];
        const live = [...figure.querySelectorAll("[data-live=true]")].map((node) =>
            node.dataset.segment);
        const places = parts.map((node) => [node.closest("figure").dataset.view,
            node.dataset.rows, node.dataset.columns]);
        return [slider.max, figure.querySelector(".told").textContent, places, live];
    """
    last, title, places, live = browser.driver.execute_script(script, core, number)
    (phase,) = program_of(plan).phases
    tiles = list(all_tiles(phase.cores[core]))
    assert int(last) == len(tiles) - 1
    axes, tile = tiles[min(number, len(tiles) - 1)]
    step, ranges = tile.step, dict(plan.cores[core].ranges)
    expected = {
        (view.name, *(f"{start}..{start + length}" for start, length in both))
        for view in program_of(plan).views
        if view.name in (*step.reads, *step.writes, *step.holds)
        for both in [
            (
                extent(view.by_row, view.rows, axes, ranges),
                extent(view.by_column, view.columns, axes, ranges),
            )
        ]
    }
    assert {tuple(place) for place in places} == expected
    assert set(live) == set(step.live) & {area.name for area in plan.memories[0].allocations}
    assert f"core {core}, tile {min(number, len(tiles) - 1) + 1} of {len(tiles)}" in title


@pytest.mark.parametrize("number", [0, 40, 10**9])
def test_all_cores_are_shown_at_the_same_tile(page, plan, number):
    browser = page()
    script = """
        const figure = document.querySelector("figure[data-draw=drawSteps]");
        [...figure.querySelectorAll(".core-choice button")].at(-1).click();
        const slider = figure.querySelector("input");
        slider.value = arguments[0];
        slider.dispatchEvent(new Event("input"));
        return [Number(slider.value), [...figure.querySelectorAll("[data-view=dy] [data-core]")]
            .map((node) => node.querySelector("title").textContent)];
    """
    place, titles = browser.driver.execute_script(script, number)
    (phase,) = program_of(plan).phases
    view = next(view for view in program_of(plan).views if view.name == "dy")
    expected = []
    for core, nodes in phase.cores.items():
        axes, tile = (list(all_tiles(nodes)) + [({}, None)] * (place + 1))[place]
        if tile is None or "dy" not in tile.step.reads:
            continue
        ranges = plan.cores[core].ranges
        (row, rows), (column, columns) = (
            extent(walk, size, axes, ranges)
            for walk, size in ((view.by_row, view.rows), (view.by_column, view.columns))
        )
        expected.append(
            f"core {core}: rows {row}..{row + rows}, columns {column}..{column + columns}"
        )
    assert titles == expected


def test_the_steps_play_to_the_end_and_stop(page):
    browser = page()
    script = """
        const figure = document.querySelector("figure[data-draw=drawSteps]");
        const slider = figure.querySelector("input");
        slider.value = Number(slider.max) - 3;
        slider.dispatchEvent(new Event("input"));
        const play = figure.querySelector(".tools button");
        play.click();
        const done = arguments[0], shown = [play.textContent];
        new MutationObserver(() => done([...shown, slider.value === slider.max, play.textContent]))
            .observe(play, {childList: true});
    """
    assert browser.driver.execute_async_script(script) == ["pause", True, "play"]


def test_a_click_on_a_core_shows_its_steps(page):
    browser = page()
    browser.driver.find_element("css selector", "[data-cell='31'] rect.cell").click()
    pressed = (
        "return [...document.querySelectorAll('.core-choice "
        "[aria-pressed=true]')].map((node) => node.textContent)"
    )
    assert browser.driver.execute_script(pressed) == ["31"]


def test_measured_launches_are_drawn_above_their_bounds(browser, tmp_path, work):
    times = {"measured_us": 120.0}
    data = {**work, "launches": [{**launch, **times} for launch in work["launches"]], "pipes": []}
    file = tmp_path / "measured.html"
    file.write_text(
        render(Document("measured", "measured", (Section("Call", (Drawing("drawGantt", data),)),))),
        encoding="utf-8",
    )
    browser.open(file.as_uri())
    script = (
        "return [...document.querySelectorAll('.gantt rect')].map((node) => "
        "[node.dataset.row, node.getBBox().width, node.getBBox().y])"
    )
    (measured, wide, top), (bound, short, below) = browser.driver.execute_script(script)
    assert (measured, bound) == ("measured", "bound")
    assert top < below
    assert short / wide == pytest.approx(work["bound_us"] / 120, rel=0.01)


def test_a_summation_tree_is_folded_and_a_click_shows_its_full_text(page):
    browser = page()
    open_all = (
        "for (const node of document.querySelectorAll('figure[data-draw=drawTrees] "
        "details')) { node.open = true; }"
    )
    folded = browser.driver.execute_script(
        "return document.querySelectorAll('figure[data-draw=drawTrees] details').length"
    )
    assert folded == 1
    for _ in range(4):  # the content is created on opening
        browser.driver.execute_script(open_all)
        browser.driver.execute_async_script(
            "requestAnimationFrame(() => setTimeout(arguments[0], 0))"
        )
    runs = browser.driver.execute_script(
        "return [...document.querySelectorAll('[data-run] > summary')].map((node) => "
        "node.textContent)"
    )
    assert [run.split(",")[0] for run in runs] == [
        "t0 .. t31",
        "t32 .. t33",
        "t34 .. t35",
        "t36 .. t39",
    ]
    assert (
        browser.driver.execute_script("return document.querySelector('.full pre').textContent")
        == TEXT
    )
    terms = browser.driver.execute_script(
        "return [...document.querySelectorAll('.term')].map((node) => node.textContent)"
    )
    assert terms == [f"t{number} = {name}" for number, name in enumerate(CERTIFICATE["terms"])]


def test_nothing_scrolls_sideways(page):
    from selenium.webdriver.support.ui import WebDriverWait

    browser = page()
    fits = "return document.scrollingElement.scrollWidth <= arguments[0]"
    for width in (360, 375, 480, 640, 860, 1024, 1280, 1920):
        set_width(browser, width)
        waiting = WebDriverWait(browser.driver, 10, 0.02)  # curves are resized after the page
        assert waiting.until(lambda driver, width=width: driver.execute_script(fits, width))


def test_the_numbers_of_a_logarithmic_axis_do_not_touch_on_a_phone_page(browser, tmp_path):
    sizes = [128, 256, 1000, 5000, 12800]
    axis = Axis("col", is_log=True)
    chart = curve_chart(axis, Axis("bytes"), [curve("a", sizes, sizes)], caption="a curve")
    report = tmp_path / "curve.html"
    report.write_text(render(Document("a", "a", (Section("Curve", (chart,)),))), encoding="utf-8")
    browser.open(report.as_uri())
    ends = """
        const texts = [...document.querySelectorAll("svg.curves text.caption[y]")];
        const title = texts.find((node) => node.textContent === "col");
        return texts.filter((node) => title.getAttribute("y") - node.getAttribute("y") === 19)
            .map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.right]);
    """
    for width in (360, 390, 1366):
        set_width(browser, width)
        boxes = browser.driver.execute_script(ends)
        assert len(boxes) > 1
        assert all(right + 4 < left for (_, right), (left, _) in pairwise(boxes))


def test_pictures_that_scroll_have_a_sign_on_narrow_pages(page):
    browser = page()
    signs = """
        return [...document.querySelectorAll(".scroll:has(svg.map)")]
            .map((box) => [box.scrollWidth > box.clientWidth,
                getComputedStyle(box, "::before").content.includes("\u2194")]);
    """
    for width, is_narrow in ((375, True), (1366, False)):
        set_width(browser, width)
        found = browser.driver.execute_script(signs)
        assert found
        assert all(scrolls == has_sign == is_narrow for scrolls, has_sign in found)


def test_labels_of_many_devices_do_not_widen_a_phone_page(browser, tmp_path):
    report = tmp_path / "diff.html"
    call = {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}
    chip = npu_sim.load_profile("A2").product.model_copy(update={"name": "a_chip_of_our_own"})
    own = npu_sim.load_profile("A2").model_copy(update={"product": chip})
    compared = npu_sim.diff("rms_norm_grad", **call, product=["A2", own])
    report.write_text(render(document_of(compared)), encoding="utf-8")
    browser.open(report.as_uri())
    set_width(browser, 375)
    assert browser.driver.execute_script("return document.scrollingElement.scrollWidth") <= 375


def test_wide_tables_take_the_width_of_the_page(browser, tmp_path):
    line = json.dumps(
        {
            "op": "moe_token_unpermute_grad",
            "name": "mlp.experts.unpermute",
            "inputs": {
                "permuted_tokens": "32768x4096:bf16",
                "unpermuted_tokens_grad": "4096x4096:bf16",
                "sorted_indices": "32768:int32",
                "probs": "4096x8:bf16",
            },
        }
    )
    calls, report = tmp_path / "calls.jsonl", tmp_path / "report.html"
    calls.write_text(line + "\n", encoding="utf-8")
    matrix = npu_sim.preflight(calls, products="A2,A3,950", release="8.3,9.1")
    report.write_text(render(document_of(matrix)), encoding="utf-8")
    browser.open(report.as_uri())
    set_width(browser, 1366)
    cut = """
        return [...document.querySelectorAll(".scroll")]
            .filter((box) => box.scrollWidth > box.clientWidth).length;
    """
    assert browser.driver.execute_script(cut) == 0


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1280])
def test_axe_finds_nothing_in_a_report(page, width, dark):
    browser = page(dark)
    set_width(browser, width)
    browser.driver.execute_script(
        "for (const node of document.querySelectorAll('details')) node.open = true"
    )
    assert browser.violations() == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_colours_has_enough_contrast(page, dark):
    browser = page(dark)
    names = ["--on", *(f"--c{number}" for number in range(8))]
    script = (
        "const style = getComputedStyle(document.documentElement); return "
        "arguments[0].map((node) => style.getPropertyValue(node).trim())"
    )
    text, *colours = (luminance(colour) for colour in browser.driver.execute_script(script, names))
    for colour in colours:
        low, high = sorted((text, colour))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def luminance(colour):
    """Return the relative luminance (WCAG 2)."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    levels = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_core_colours_are_proportional_and_every_core_is_numbered(plan):
    html = render(plan_report(plan))
    cells = re.findall(r'height="([\d.]+)" fill-opacity="([\d.]+)" class="load c0"', html)
    heights, strengths = ([float(cell[place]) for cell in cells] for place in (0, 1))
    amounts = [stop - start for work in plan.cores for start, stop in work.ranges.values()]
    for height, strength, amount in zip(heights, strengths, amounts, strict=True):
        assert strength / max(strengths) == pytest.approx(amount / max(amounts), abs=0.01)
        assert height / max(heights) == pytest.approx(amount / max(amounts), abs=0.01)
    numbers = re.findall(
        r'class="on[^"]*" text-anchor="middle" dominant-baseline="central"[^>]*>(\d+)<', html
    )
    assert set(map(str, range(48))) <= set(numbers)


def test_every_buffer_is_named_beside_its_colour(plan):
    html = render(plan_report(plan))
    for number, buffer in enumerate(plan.memories[0].allocations):
        colour = f'class="c{number}"'
        assert re.search(
            rf'{colour}></rect><text [^>]*class="caption">{buffer.name} {buffer.bytes}<', html
        )
        assert re.search(rf"{colour}/></svg> Unified Buffer</td><td[^>]*>{buffer.name}</td>", html)


def test_single_timing_dependent_rows_are_drawn_among_thousands():
    mask = np.zeros(8000, bool)
    mask[[3, 2091, 2092, 7999]] = True
    strip = order_strip_data("grad_weight", OrderMask("row", mask))
    assert strip["runs"] == [
        {"start": 3, "stop": 4},
        {"start": 2091, "stop": 2093},
        {"start": 7999, "stop": 8000},
    ]
    drawn = order_strip(strip)
    strengths = [
        float(opacity) for opacity in re.findall(r'class="timing" fill-opacity="([\d.]+)"', drawn)
    ]
    assert sum(strength > 0 for strength in strengths) == 3
    assert min(strength for strength in strengths if strength > 0) >= 0.35
    widths = [
        float(width)
        for width in re.findall(r'width="([\d.]+)" height="\d+" class="timing apart"', drawn)
    ]
    assert widths == [250, 500, 250]
    assert "can differ between runs; paler where fewer elements can" in drawn


def test_the_error_histogram_has_a_logarithmic_axis_and_every_count(tmp_path):
    histogram = [
        {"up_to_ulp": 0.0, "elements": 2000000},
        {"up_to_ulp": 1.0, "elements": 0},
        {"up_to_ulp": None, "elements": 3},
    ]
    data = {"outputs": [{"variant": "float32", "output": "dx", "histogram": histogram}]}
    write_report(tmp_path / "study.html", lambda: study_report("study", [], data, "npu-sim study"))
    html = (tmp_path / "study.html").read_text(encoding="utf-8")
    widths = list(map(float, re.findall(r'class="c0" style="width: ([\d.]+)%', html)))
    assert widths[0] == 100
    assert widths[1:] == [pytest.approx(100 * (log10(3) + 0.3) / (log10(2e6) + 0.3), abs=0.01)]
    assert re.findall(r"</span><span>(\d+)</span></li>", html) == ["2000000", "0", "3"]


def test_orders_are_drawn_as_their_rounding_errors(tmp_path):
    steps = [
        {"value": 1.0, "sum_after": 1.0},
        {"value": 2.0**-24, "sum_after": 1.0},
        {"value": -1.0, "sum_after": 0.0},
    ]
    assert rounding_errors(steps, 2.0**-30) == [0.0, -64.0, -64.0]
    worst = {
        "index": [3],
        "deterministic_result": 2.0**-8,
        "factor": 0.5,
        "spread_ulp": 9,
        "lowest_order": "a",
        "highest_order": "b",
    }
    data = {
        "outputs": [
            {
                "output": "dx",
                "worst": {**worst, "steps_to_lowest": steps, "steps_to_highest": steps[:1]},
            }
        ]
    }
    write_report(tmp_path / "study.html", lambda: study_report("study", [], data, "npu-sim study"))
    (figure,) = figures_of(tmp_path / "study.html")
    assert [line["y"] for line in figure["curves"]] == [[0.0, -64.0, -64.0], [0.0]]


def figures_of(file):
    figures = re.findall(
        r'<figure data-draw="drawCurves"><div></div><script type="application/json">(.*?)</script>',
        file.read_text(encoding="utf-8"),
    )
    return [json.loads(figure) for figure in figures]
