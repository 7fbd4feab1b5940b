"""The page of a model's or a file's calls with times begins with where the time goes."""

import json

import pytest

import npu_sim
from npu_sim.language import using_language
from npu_sim.show.compared_times import time_bars
from npu_sim.show.forms.html import render
from npu_sim.show.preflight import differences_table, preflight_report

CALLS = [
    {"op": "moe_token_permute", "inputs": {"tokens": "4096x2048:bf16", "indices": "4096x8:int32"}},
    {"op": "rms_norm_grad", "count": 9, "inputs": {"dy": "4096x2048:bf16", "gamma": "2048:bf16"}},
    {"op": "swi_glu", "count": 5, "inputs": {"x": "4096x6144:bf16"}},
    {
        "op": "rotary_position_embedding",
        "count": 5,
        "inputs": {"x": "1x4096x16x128:bf16", "cos": "1x4096x1x128:bf16"},
    },
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls") / "calls.jsonl"
    path.write_text("".join(json.dumps(call) + "\n" for call in CALLS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def matrices(file):
    """Timed calls on one product, on two with equal bounds, and on two of different coverage."""
    return {
        products: npu_sim.preflight(file, products=products, timed=True)
        for products in ("A2", "A2,A3", "A2,950")
    }


def bars_of(matrix):
    """Return (operator, product) to the lengths of the bar's parts and its text."""
    return {
        (group.name or bar.name, bar.name): ([part.length for part in bar.parts], bar.value)
        for group in time_bars(matrix).groups
        for bar in group.bars
    }


def test_bars_are_as_long_as_the_bounds(matrices):
    matrix = matrices["A2"]
    bounds = {row.op: row.count * cell.facts["time"]["bound_us"] for row, _, cell in matrix.cells()}
    bars = {name: parts for (name, _), (parts, _) in bars_of(matrix).items()}
    longest = max(bounds.values())
    assert bars == {name: [pytest.approx(us / longest)] for name, us in bounds.items()}
    assert [*bars] == sorted(bounds, key=bounds.__getitem__, reverse=True)


def test_only_whole_bounds_have_shares_beside_partial_ones(matrices):
    texts = {name: text for (name, _), (_, text) in bars_of(matrices["A2"]).items()}
    assert "%" not in texts["moe_token_permute"]
    assert texts["moe_token_permute"].endswith("without sort_and_merge")
    shares = [float(texts[name].split(", ")[1][:-2]) for name in ("rms_norm_grad", "swi_glu")]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert time_bars(matrices["A2"]).caption.endswith("the share among the bars that have one.")


def test_solid_parts_count_the_same_work(matrices):
    bars = bars_of(matrices["A2,950"])
    solid, apart = bars["swi_glu", "atlas_a2"][0]
    assert solid > 0
    assert apart > 0
    assert len(bars["swi_glu", "ascend_950"][0]) == 1
    groups = time_bars(matrices["A2,950"]).groups
    classes = {
        (group.name, bar.name): [part.colour for part in bar.parts]
        for group in groups
        for bar in group.bars
    }
    assert classes["swi_glu", "atlas_a2"] == ["c0", "c0 apart"]
    assert classes["rotary_position_embedding", "atlas_a2"] == ["c0 apart"]
    assert "not compared" in bars["rotary_position_embedding", "atlas_a2"][1]
    assert bars["rotary_position_embedding", "ascend_950"] == ([], "not modelled")
    alike = bars_of(matrices["A2,A3"])
    assert all(len(parts) == 1 for parts, _ in alike.values())


def test_the_page_begins_with_the_picture_and_what_differs(matrices):
    report = preflight_report(matrices["A2,950"], "folder/calls.jsonl")
    assert report.title == "calls.jsonl: calls and times"
    titles = [section.title for section in report.sections]
    assert titles[:3] == ["Where the time goes", "Not counted", "What differs"]
    rows = differences_table(matrices["A2,950"]).filled[1]
    assert ["rotary_position_embedding, line 4", "unknown"] in [[row[0], row[2]] for row in rows]
    assert "What differs" not in [
        section.title for section in preflight_report(matrices["A2,A3"]).sections
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_fits_every_width_without_a_message(browser, tmp_path, matrices, language):
    page = tmp_path / "page.html"
    with using_language(language):
        page.write_text(render(preflight_report(matrices["A2,950"])), encoding="utf-8")
    browser.open(page.as_uri())
    for width in (375, 1366, 1920):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert browser.driver.execute_script(
            "return document.scrollingElement.scrollWidth <= arguments[0]", width
        )
    lengths = browser.driver.execute_script(
        "return [...document.querySelectorAll('.bars .track')].map((track) => [...track.children]"
        ".map((part) => part.getBoundingClientRect().width / track.clientWidth))"
    )
    drawn = [
        [part.length for part in bar.parts]
        for group in time_bars(matrices["A2,950"]).groups
        for bar in group.bars
    ]
    assert [pytest.approx(parts, abs=0.005) for parts in drawn] == lengths
    browser.assert_quiet_and_local()


@pytest.mark.parametrize("width", [375, 1366])
def test_bars_begin_and_end_alike_whatever_their_names(browser, tmp_path, matrices, width):
    page = tmp_path / "page.html"
    page.write_text(render(preflight_report(matrices["A2"])), encoding="utf-8")
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.open(page.as_uri())
    places = browser.driver.execute_script(
        "return [...document.querySelectorAll('.bars .track')].map((track) => "
        "[track.getBoundingClientRect().left, track.getBoundingClientRect().right])"
    )
    assert len(places) == len(CALLS)
    assert places[0][1] - places[0][0] > width / 2
    assert all(place == pytest.approx(places[0], abs=0.1) for place in places)


def test_values_with_marks_end_at_the_right_edge_of_a_phone_page(browser, tmp_path, matrices):
    page = tmp_path / "page.html"
    page.write_text(render(preflight_report(matrices["A2,950"])), encoding="utf-8")
    browser.open(page.as_uri())
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    found = browser.driver.execute_script(
        """
        return [...document.querySelectorAll(".bars .track")].map((track) => [
            track.getBoundingClientRect().right,
            track.nextElementSibling.getBoundingClientRect().right]);
        """
    )
    assert found
    assert all(value == pytest.approx(bar, abs=1) for bar, value in found)
