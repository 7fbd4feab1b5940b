"""Reports of diff, limits and sweep, compared with the JSON of the same call in a browser."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

import npu_sim
from npu_sim.show.forms.html import render
from npu_sim.show.forms.layout import Drawing, table_report
from npu_sim.show.sweeps import MOST_STEPS, staircase
from npu_sim.sweeps.maps import sweep_map
from tests.cases import every
from tests.cli import runner
from tests.show.test_reports import PLAIN_REPORT_BYTES, numbers_missing_from, read

CALL = ("--grad", "4096x512:fp32", "--indices", "4096:int32", "--num-weights", "32000")
SCALED = ("--set", "rows=4096", "--set", "scale_grad_by_freq=true")
COMMANDS = {
    "diff": ("diff", "embedding_dense_backward", *CALL),
    "diff, refused everywhere": (
        "diff",
        "embedding_dense_backward",
        *CALL,
        "--products",
        "atlas_inference",
    ),
    "limits": (
        "limits",
        "embedding_dense_backward",
        "--vary",
        "dim",
        *SCALED,
        "--set",
        "num_weights=32000",
    ),
    "limits without an end": (
        "limits",
        "embedding_dense_backward",
        "--vary",
        "dim",
        "--products",
        "atlas_a2",
    ),
    "frontier": (
        "limits",
        "embedding_dense_backward",
        "--vary",
        "dim",
        "--vary",
        "num_weights=1000,300000",
        *SCALED,
        "--products",
        "atlas_train",
    ),
    "frontier from 0": (
        "limits",
        "conv_tbc_backward",
        "--vary",
        "Cin",
        "--vary",
        "pad=0,1",
        "--products",
        "atlas_a2",
    ),
    "sweep": (
        "sweep",
        "embedding_dense_backward",
        "--grid",
        "dim=1..3000",
        "--grid",
        "rows=64,100",
        "--grid",
        "product=atlas_a2,atlas_train",
    ),
    "sweep with a bound": (
        *(
            "sweep",
            "embedding_dense_backward",
            "--grid",
            "dim=1..9000",
            "--grid",
            "scale_grad_by_freq=true",
            "--grid",
            "product=atlas_train",
        ),
        *("--grid", "num_weights=32000"),
    ),
    "sweep of words": ("sweep", "embedding_dense_backward", "--grid", "grad_dtype=fp32,fp16"),
    "timeline": ("timeline", "embedding_dense_backward", *CALL, "--socs", "all"),
}
CURVES = {"frontier": 1, "frontier from 0": 1, "sweep": 3, "sweep with a bound": 3}
"""Number of curves of a report: a cut of a sweep has three."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Written reports with the JSON of their calls, by name."""
    return tmp_path_factory.mktemp("reports"), {}


@pytest.fixture
def written(reports, capsys, monkeypatch):
    folder, outcomes = reports

    def write(name):
        if name not in outcomes:
            file = folder / f"{len(outcomes)}.html"
            outcome = runner.npu_sim(
                capsys, monkeypatch, *COMMANDS[name], "--report", file, "--json"
            )
            assert outcome.code == 0, outcome.err + outcome.out
            outcomes[name] = file, outcome.data
        return outcomes[name]

    return write


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.long
def test_every_number_of_the_report_is_in_the_json(written, name):
    file, data = written(name)
    html = file.read_text(encoding="utf-8")
    assert len(html.encode()) < PLAIN_REPORT_BYTES
    page = read(html)
    assert page.loads == []
    assert numbers_missing_from(data, page) == set()


@pytest.mark.parametrize("name", every(5, ["diff", *CURVES]))
def test_the_report_opens_without_console_messages(browser, written, name):
    file, _ = written(name)
    browser.open(file.as_uri(), dark=True)
    drawn = browser.driver.execute_script(
        "return [...document.querySelectorAll('figure[data-draw=drawCurves]')].filter((node) => "
        "node.querySelector('path.line')).length"
    )
    assert drawn == CURVES.get(name, 0)
    browser.assert_quiet_and_local()


@pytest.mark.long
def test_a_cut_through_a_sweep_equals_single_plans(written):
    _, data = written("sweep")
    curves = data["curves"]
    assert curves["axis"] == "dim"
    for curve in curves["series"]:
        memory = curve["memory"]
        assert memory["asked"] == curves["values"]
        for dim, used in list(zip(memory["x"], memory["used_bytes"], strict=True))[::15]:
            plan = npu_sim.plan(
                "embedding_dense_backward",
                product=curve["product"],
                grad=f"{curves['with']['rows']}x{dim}:fp32",
                indices=f"{curves['with']['rows']}:int32",
                num_weights=curves["with"]["num_weights"],
            )
            stairs = {name: height(steps, dim) for name, steps in curve["staircases"].items()}
            assert used == plan.memories[0].used_bytes
            assert stairs == {
                "cores": plan.block_dim,
                "workspace_bytes": plan.workspace.total_bytes,
            }


def height(stairs, x):
    """Return the height of a staircase at a position."""
    return next(
        y for corner, y in reversed(list(zip(stairs["x"], stairs["y"], strict=True))) if corner <= x
    )


@pytest.mark.parametrize("size", [1, 2, 500, 5000])
def test_a_reduced_staircase_keeps_every_extreme(size):
    x, y = np.arange(size), np.random.default_rng(size).integers(0, 9, size)
    y[size // 2] = -100
    stairs = staircase(x, y)
    assert min(stairs["y"]) == -100
    assert max(stairs["y"]) == max(y)
    assert (stairs["x"][0], stairs["x"][-1]) == (0, size - 1)
    assert stairs["binned"] == (size > MOST_STEPS)
    assert all(y[place] == value for place, value in zip(stairs["x"], stairs["y"], strict=True))
    if not stairs["binned"]:
        assert all(height(stairs, place) == y[place] for place in x)


@pytest.fixture(scope="module")
def swept():
    """A small sweep of two sizes: its records and its map."""
    grid = {"hidden": "13000..13700:+20", "num_topk": "500..523", "tokens": 64}
    records = npu_sim.sweep("moe_token_permute_grad", grid)
    return records, sweep_map(records.space)


def test_map_borders_equal_those_of_the_full_sweep(swept):
    records, area = swept
    x, y = area["x"]["name"], area["y"]["name"]
    refused = {}
    for column in area["columns"]:
        for start, end, _, state in column["runs"]:
            for name, low, high in ((x, column["start"], column["end"]), (y, start, end)):
                assert low < high, name
            inside = (
                (records[x] >= column["start"])
                & (records[x] < column["end"])
                & (records[y] >= start)
                & (records[y] < end)
            )
            refused[state] = [*refused.get(state, ()), *(records["status"][inside] != 0)]
    assert sum(map(len, refused.values())) == len(records)
    for state, refusal in refused.items():
        assert set(refusal) == {area["states"][state]["refused"]}


def test_paths_that_differ_only_by_name_have_the_border_of_the_plan(swept):
    _, area = swept
    names = [area["states"][column["runs"][0][3]]["label"] for column in area["columns"]]
    assert names == ["whole rows, key 0", "rows in pieces, key 0"]
    border = area["columns"][1]["start"]
    for hidden, pieces in ((border - 20, False), (border, True)):
        call = {
            "permuted_output_grad": f"{64 * 500}x{hidden}:bf16",
            "sorted_indices": f"{64 * 500}:int32",
            "num_topk": 500,
        }
        assert ("pieces" in npu_sim.plan("moe_token_permute_grad", **call).path) == pieces


def test_limits_beyond_the_map_are_arrows_and_labels_do_not_overlap(browser, tmp_path, swept):
    _, area = swept
    file = tmp_path / "map.html"
    file.write_text(
        render(table_report("map", "a map", [], [Drawing("drawMap", area)])), encoding="utf-8"
    )
    browser.open(file.as_uri())
    labels = browser.driver.execute_script(
        "return [...document.querySelectorAll('text.limit')].map((node) => "
        "[node.textContent, node.getBoundingClientRect().toJSON()])"
    )
    assert [text[-1] for text, _ in labels] == [
        "2",
        "\u2191",
    ]  # 512 is within the map, the hardware limit beyond it
    assert all(upper["bottom"] <= lower["top"] + 1 for (_, upper), (_, lower) in pairwise(labels))
    script = """
        return [...document.querySelectorAll("[data-run]")].map((node) => {
          const box = node.getBBox();
          return [node.dataset.column, node.dataset.run, Number(node.dataset.state), box.x,
              box.width, box.y, box.height];
        });
    """
    drawn = browser.driver.execute_script(script)
    expected = [
        (f"{column['start']} {column['end']}", f"{run[0]} {run[1]}", run[3])
        for column in area["columns"]
        for run in column["runs"]
    ]
    assert [tuple(run[:3]) for run in drawn] == expected
    left, right = (
        min(rectangle[3] for rectangle in drawn),
        max(rectangle[3] + rectangle[4] for rectangle in drawn),
    )
    top, bottom = (
        min(rectangle[5] for rectangle in drawn),
        max(rectangle[5] + rectangle[6] for rectangle in drawn),
    )
    for column, run, _, x, width, y, height in drawn:
        start, end = (int(text) for text in column.split())
        scale = (right - left) / (area["x"]["end"] - area["x"]["first"])
        assert (x, width) == pytest.approx(
            (left + (start - area["x"]["first"]) * scale, (end - start) * scale), abs=0.1
        )
        low, high = (int(text) for text in run.split())
        scale = (bottom - top) / (area["y"]["end"] - area["y"]["first"])
        assert (y, height) == pytest.approx(
            (bottom - (high - area["y"]["first"]) * scale, (high - low) * scale), abs=0.1
        )
    browser.assert_quiet_and_local()


@pytest.mark.long
def test_a_curve_stays_within_its_data_and_labels_do_not_overlap(browser, written):
    file, _ = written("sweep with a bound")
    browser.open(file.as_uri())
    script = """
        const plot = document.querySelector("figure[data-draw=drawCurves] svg.curves");
        const labels = [...plot.querySelectorAll("text.limit")].map((node) =>
            [node.textContent, node.getBoundingClientRect().toJSON()]);
        const line = plot.querySelector("path.line"), frame = plot.querySelector("clipPath rect");
        return [line.getBBox().width / frame.getBBox().width, line.getAttribute("d"), labels];
    """
    share, path, labels = browser.driver.execute_script(script)
    assert 0.85 < share <= 1
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+)+", path)
    assert len(labels) == 2
    for (_, first), (_, second) in pairwise(labels):
        assert first["bottom"] <= second["top"] + 1


@pytest.mark.long
def test_curves_zoom_by_keys_and_have_a_table(browser, written):
    file, data = written("sweep with a bound")
    browser.open(file.as_uri())
    figure = browser.driver.find_element("css selector", "figure[data-draw=drawCurves]")
    find = figure.find_element
    stage, whole = find("css selector", ".stage"), find("css selector", "path.line").size["width"]
    stage.send_keys("+")
    assert find("css selector", "path.line").size["width"] > 1.5 * whole
    stage.send_keys("-")
    assert find("css selector", "path.line").size["width"] == pytest.approx(whole, abs=1)
    find("css selector", "summary").click()
    rows = browser.driver.execute_script(
        "return [...arguments[0].querySelectorAll('tbody tr')].map((row) =>"
        " [...row.children].map((cell) => cell.textContent))",
        figure,
    )
    steps = [series["staircases"]["cores"] for series in data["curves"]["series"]]
    assert [(int(x), int(y)) for _, x, y in rows] == [
        point for step in steps for point in zip(step["x"], step["y"], strict=True)
    ]
    browser.assert_quiet_and_local()


def test_the_page_of_a_sweep_chooses_among_its_maps(browser, written):
    """It opens on the map of the JSON; the lists show each of the others."""
    from selenium.webdriver.support.ui import Select

    file, data = written("sweep")
    browser.open(file.as_uri())
    titles = browser.driver.execute_script(
        "return [...document.querySelectorAll('h2')].map((node) => node.textContent)"
    )
    assert titles[0] == "What runs"
    assert "Pictures" not in titles

    def shown():
        places = browser.driver.find_elements("css selector", "select[data-axis]")
        lists = {place.get_attribute("data-axis"): Select(place) for place in places}
        labels = browser.driver.execute_script(
            "return [...document.querySelectorAll('figure[data-draw=drawMap] .legend li')]"
            ".map((node) => node.textContent.trim())"
        )
        return lists, labels

    lists, labels = shown()
    assert sorted(lists) == ["SoC", "product"]
    maps = [data["map"], *data["map"]["others"]]
    assert {one["product"] for one in maps} == {"atlas_a2", "atlas_train"}
    for one in (*maps, maps[0]):
        lists["product"].select_by_value(one["product"])
        lists, labels = shown()
        assert lists["SoC"].first_selected_option.text == one["soc"]
        assert labels == [
            f"refused: {state['label']}" if state["refused"] else state["label"]
            for state in one["states"]
        ]
    address = browser.driver.current_url
    browser.driver.back()
    assert shown()[0]["product"].first_selected_option.text == maps[-1]["product"]
    browser.open(address.replace("atlas_a2", "atlas_train").replace("Ascend910B1", "Ascend910A"))
    assert shown()[0]["product"].first_selected_option.text == "atlas_train"
    browser.assert_quiet_and_local()


def test_limit_bars_are_to_scale_and_refused_products_keep_their_row(browser, written):
    file, data = written("limits")
    browser.open(file.as_uri())
    script = """
        const bars = [...document.querySelectorAll("rect[data-last]")].map((node) =>
            [node.dataset, node.getBBox()]);
        return bars.map(([ends, box]) => [Number(ends.last), box.x + box.width]);
    """
    drawn = browser.driver.execute_script(script)
    longest, edge = max(drawn)
    for last, end in drawn:
        assert end / edge == pytest.approx(last / longest, rel=0.01, abs=0.002)
    endless = browser.driver.execute_script("return document.querySelectorAll('polygon').length")
    refused = browser.driver.execute_script("return document.querySelectorAll('rect.no').length")
    assert refused == sum(
        not row[name]["ranges"] for row in data["rows"] for name in ("documented", "hardware")
    )
    assert len(drawn) + endless + refused == 2 * len(data["rows"])


@pytest.mark.long
def test_sweep_bounds_equal_those_of_limits(written, capsys, monkeypatch):
    _, data = written("sweep with a bound")
    arguments = (
        "limits",
        "embedding_dense_backward",
        "--vary",
        "dim",
        *SCALED,
        "--set",
        "num_weights=32000",
        "--soc",
        "Ascend910A",
        "--json",
    )
    row = runner.npu_sim(capsys, monkeypatch, *arguments).data["rows"][0]
    curves = data["curves"]
    assert (curves["documented"], curves["hardware"]) == (
        row["documented"]["largest"],
        row["hardware"]["largest"],
    )
    (refused,) = curves["series"][0]["refused"]
    assert refused["first"] == curves["documented"] + 1
    assert refused["last"] == 9000
    assert refused["reason"]


def test_an_unwritable_report_path_is_refused(tmp_path, capsys, monkeypatch):
    arguments = (*COMMANDS["diff"], "--report", tmp_path / "none" / "report.html", "--json")
    refused = runner.npu_sim(capsys, monkeypatch, *arguments)
    assert refused.code == 64
    assert json.loads(refused.out)["outcome"] == "usage"
