"""Reports in a real browser."""

import re

import pytest

from npu_sim.show.forms.curves import Axis, LimitLine, curve, curve_chart
from npu_sim.show.forms.html import render
from npu_sim.show.forms.layout import Column, Table, part, table_report
from npu_sim.show.plan_report import plan_report
from tests.show.test_reports import PLAIN_REPORT_BYTES, planned


@pytest.fixture
def curved():
    rows = tuple((dim, 100 * dim) for dim in range(1, 200))
    bounds = (LimitLine("documented", 128), LimitLine("Unified Buffer", 15000, "y"))
    drawn = curve("bytes", [row[0] for row in rows], [row[1] for row in rows], stepped=True)
    figures = [
        curve_chart(
            Axis("dim"),
            Axis("bytes"),
            [drawn, curve("model", [1, 199], [100, 19900], dashed=True)],
            bounds,
        )
    ]
    figures.append(
        curve_chart(
            Axis("dim", is_log=True),
            Axis("bytes", is_log=True),
            [drawn],
            bounds,
            caption="</script><b>",
        )
    )
    return render(
        table_report(
            "A sweep",
            "200 calls",
            [Table((Column("dim", part(0)), Column("bytes", part(1))), rows, "rows")],
            figures,
            notes=["a note"],
        )
    )


@pytest.mark.parametrize("dark", [False, True])
def test_a_plan_report_opens_without_console_messages_in_light_and_dark(browser, tmp_path, dark):
    file = tmp_path / "plan.html"
    file.write_text(render(plan_report(planned("small dim, scaled"))), encoding="utf-8")
    browser.open(file.as_uri(), dark)
    assert (
        browser.driver.find_element("tag name", "h1").text
        == "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    )
    levels = [int(text) for text in re.findall(r"\d+", browser.background())]
    assert (max(levels) < 60) if dark else (min(levels) > 200)
    browser.assert_quiet_and_local()


def test_the_pointer_on_a_map_shows_bytes_and_ranges(browser, tmp_path):
    file = tmp_path / "plan.html"
    file.write_text(render(plan_report(planned("small dim"))), encoding="utf-8")
    browser.open(file.as_uri())
    maps = "section:nth-of-type({}) svg rect{}"
    assert browser.title_under_the_pointer(maps.format(3, ".c5")) == "gradient rows: 167936 bytes"
    assert browser.title_under_the_pointer(maps.format(3, ".free")) == "free: 22912 bytes"
    assert re.fullmatch(
        r"core 0: rows 0\.\.416 \(416\)", browser.title_under_the_pointer(maps.format(2, ".cell"))
    )
    assert browser.title_under_the_pointer(maps.format(4, "")).startswith(
        "system: 16,777,216 bytes, system, exact"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_curves_are_drawn_offline(browser, tmp_path, curved, dark):
    assert len(curved.encode()) < PLAIN_REPORT_BYTES
    file = tmp_path / "sweep.html"
    file.write_text(curved, encoding="utf-8")
    browser.open(file.as_uri(), dark)
    drawn = (
        "return [...document.querySelectorAll('figure[data-draw=drawCurves]')].map((node) => "
        "node.querySelectorAll('path.line[data-curve]').length)"
    )
    assert browser.driver.execute_script(drawn) == [2, 1]
    notes = browser.driver.execute_script(
        "return [...document.querySelectorAll('text.limit')].map((node) => node.textContent)"
    )
    assert notes == ["documented 128", "Unified Buffer 15000"] * 2
    browser.assert_quiet_and_local()
