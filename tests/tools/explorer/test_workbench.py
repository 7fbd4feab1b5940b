"""Work in the explorer: refused calls, sizes, two panes, files, and accessibility."""

import itertools
import json

import pytest

from npu_sim.cores import config_directory
from npu_sim.questions.limits import limits
from npu_sim.tools.explorer.jobs import MOST_FILE_BYTES
from tests.measured import EMBEDDING, GRAD, write_csv, write_database
from tests.tools.explorer.page import SMALL_DIM

REFUSED = "#operator=moe_token_permute_grad&num_topk=1024&hidden=7168&tokens=4K"
OTHER = {
    "product": "atlas_a3",
    "soc": "Ascend910_9391",
    "release": "9.1",
    "deterministic": "true",
    "limits": "documented",
}
TWO_PANES = "#operator=rms_norm_grad" + "".join(
    f"&other.{name}={value}" for name, value in OTHER.items()
)
PAGES = (SMALL_DIM, REFUSED, TWO_PANES)

pytestmark = pytest.mark.long


def wait_for_accepted_calls(page):
    page.wait(lambda: page.find("#first .nearest .chips button"))


def test_a_refused_call_offers_changes_that_run(page):
    page.open(REFUSED)
    wait_for_accepted_calls(page)
    assert page.texts("#first .nearest .chips button") == [
        "num_topk = 512 runs: whole rows",
        "limits = hardware runs: whole rows",
    ]
    page.chip("num_topk = 512").send_keys("\ue007")  # Enter
    page.settle()
    assert page.script(
        "return document.activeElement === document.querySelector('#first .headline')"
    )
    assert page.text("#first .headline").endswith("runs")
    assert page.plan()["arguments"]["num_topk"] == 512
    assert not page.element("#first .nearest").is_displayed()


def test_a_refused_call_runs_with_the_limits_of_the_hardware(page):
    page.open(REFUSED)
    wait_for_accepted_calls(page)
    page.chip("limits = hardware").click()
    page.settle()
    assert page.text("#first .headline").endswith("runs")
    assert "limits=hardware" in page.driver.current_url


def test_the_requested_size_is_drawn_beside_the_accepted_sizes(page):
    page.open(REFUSED)
    wait_for_accepted_calls(page)
    legal, mark = page.script("""
        const shape = (name) => document.querySelector(`#first .nearest ${name}`);
        const of = (element, ...names) => names.map((name) => Number(element.getAttribute(name)));
        return [of(shape("rect.legal"), "x", "width"), of(shape("line.over"), "x1")];
    """)
    row = limits(
        "moe_token_permute_grad", "num_topk", product="atlas_a2", hidden=7168, tokens=4096
    ).rows[0]
    unit = mark[0] / 1024
    assert [(legal[0], legal[0] + legal[1])] == [
        (pytest.approx(first * unit, abs=0.02), pytest.approx((last + 1) * unit, abs=0.02))
        for first, last in row.documented.ranges
    ]


def test_an_empty_size_is_missing_rather_than_its_default(page):
    page.open("#operator=moe_token_permute_grad&hidden=7168")
    page.element("#field-hidden").send_keys("\b" * 4)
    page.settle()
    assert page.text("#problem-hidden") == "hidden is empty"
    assert page.element("#field-hidden").get_attribute("aria-invalid") == "true"
    assert "hidden=&" in page.driver.current_url + "&"
    assert page.text("#first .headline") == "hidden is empty"
    wait_for_accepted_calls(page)
    page.chip("hidden = ").click()
    page.settle()
    assert page.text("#first .headline").endswith("runs")
    assert page.element("#field-hidden").get_attribute("aria-invalid") is None


@pytest.mark.parametrize(
    ("text", "number"), [("4K", 4096), ("7168*2", 14336), ("1e4", 10000), ("1.5k", 1536)]
)
def test_sizes_are_accepted_in_common_notations(page, text, number):
    page.open("#operator=moe_token_permute_grad&hidden=7168")
    page.type("hidden", text)
    page.settle()
    assert page.plan()["arguments"]["permuted_output_grad"].endswith(f"x{number}:bf16")
    page.element("#field-hidden").send_keys("\ue013")  # arrow up
    page.settle()
    assert page.element("#field-hidden").get_attribute("value") == str(number + 1)


def test_changes_are_offered_once_with_their_outcome(page):
    page.open(
        "#operator=moe_token_permute_grad&product=atlas_a2&hidden=7168&tokens=4096&num_topk=8"
    )
    page.wait_for_changes()
    labels = page.texts("#first .changes button")
    assert len({tuple(text.split()[:3]) for text in labels}) == len(labels)
    for text, change in zip(labels, page.answer("work")["changes"], strict=True):
        assert (
            change["refusal"] or change["path"] if change["changes_path"] else "same path"
        ) in text


def unique_lines(page, pane):
    """Return the lines of a pane whose name occurs once: name -> (text, whether it is marked)."""
    lines = page.script(
        """
        const of = (line) => [line.textContent, line.nextElementSibling];
        const entry = ([name, line]) => [name, line.textContent.replace("≠ ", ""),
            line.classList.contains("differs")];
        return [...document.querySelectorAll(`${arguments[0]} dl.lines dt`)].map(of).map(entry);
        """,
        pane,
    )
    names = [name for name, _, _ in lines]
    return {name: (text, marked) for name, text, marked in lines if names.count(name) == 1}


def test_two_panes_mark_exactly_the_lines_that_differ(page):
    page.open(TWO_PANES)
    page.wait_for_changes()
    first, second = unique_lines(page, "#first"), unique_lines(page, "#second")
    for name in first.keys() & second.keys():
        (left, marked), (right, also_marked) = first[name], second[name]
        assert marked == also_marked == (left != right), name
        assert (name in page.text("#differences").split(": ")[1].split(", ")) == marked
    assert "workspace" in page.text("#differences")
    page.element("#compare").click()
    page.settle()
    assert not page.find("#second")
    assert not page.find(".differs")


def test_the_copied_link_contains_the_second_pane(page):
    page.open(SMALL_DIM)
    page.element("#compare").click()
    page.settle()
    page.choose("other.product", "atlas_train")
    headlines = page.texts(".headline")
    assert [text.split(" on ")[1] for text in headlines] == [
        "Atlas A2, Ascend910B1: runs",
        "Atlas training series, Ascend910A: runs",
    ]
    link = page.copied("#copy-link")
    page.browser.open(link)
    page.wait(lambda: len(page.find(".headline")) == 2)
    page.settle()
    assert page.texts(".headline") == headlines


def test_a_second_product_without_a_soc_has_its_default_one(page):
    page.open("#operator=rms_norm_grad&other.product=atlas_a3")
    assert page.text("#second .headline") == "RmsNormGrad on Atlas A3, Ascend910_9391: runs"
    assert page.element("#field-other\\.soc").get_attribute("value") == "Ascend910_9391"


def test_a_link_may_name_a_product_by_its_soc(page):
    page.open("#operator=rms_norm_grad&product=A3&other.product=910B2")
    assert page.texts(".headline") == [
        "RmsNormGrad on Atlas A3, Ascend910_9391: runs",
        "RmsNormGrad on Atlas A2, Ascend910B2: runs",
    ]


def test_the_second_pane_has_sizes_and_an_operator_of_its_own(page):
    page.open("#operator=rms_norm_grad&row=4096&col=7168&other.row=64")
    assert "--dy 4096x7168:bf16" in page.text("#first .command")
    assert "--dy 64x7168:bf16" in page.text("#second .command")
    page.element("#calls summary").click()
    page.type("col", "8192")
    page.wait(lambda: "--dy 64x8192:bf16" in page.text("#second .command"))
    page.choose("other.operator", "rms_norm")
    assert page.text("#second .headline").startswith("RmsNorm on")
    assert "--x 4096x8192:" in page.text("#second .command")
    assert "--dy 4096x8192:bf16" in page.text("#first .command")
    link, commands = page.driver.current_url, page.texts(".pane .command")
    page.browser.open(link)
    page.wait(lambda: len(page.texts(".pane .command")) == 2)
    page.settle()
    assert page.texts(".pane .command") == commands


LINES = """
    const top = (element) => Math.round(element.getBoundingClientRect().top + scrollY);
    const of = (pane) => [...document.querySelectorAll(`${pane} .lines-of-plan dt`)].map((line) =>
        [line.textContent, top(line)]);
    const title = (pane) => [...document.querySelectorAll(`${pane} .result .sections > section`)]
        .map((section) => [section.dataset.title, top(section)]);
    return ["#first", "#second"].map((pane) => [...of(pane), ...title(pane)]);
"""


@pytest.mark.parametrize("more", ["", "&other.operator=rms_norm"])
def test_lines_of_two_panes_face_each_other_and_pictures_fit(page, more):
    page.set_width(1366)
    page.open(TWO_PANES + more)
    page.wait_for_changes()
    first, second = (dict(lines) for lines in page.script(LINES))
    shared = first.keys() & second.keys()
    assert {"path", "cores", "workspace", "Cores"} <= shared
    assert {name: first[name] for name in shared} == {name: second[name] for name in shared}
    assert (
        page.script(
            "return [...document.querySelectorAll('svg.map')].filter((picture) => "
            "picture.parentElement.scrollWidth > picture.parentElement.clientWidth).length"
        )
        == 0
    )


ORDERS = """
    const of = (pane) => [...document.querySelectorAll(`${pane} dd.order`)].map((line) => {
        const text = line.textContent.replace("≠ ", "");
        const top = Math.round(line.getBoundingClientRect().top + scrollY);
        return [text.split(" ")[0], [top, line.classList.contains("differs")]];
    });
    return ["#first", "#second"].map(of);
"""


def test_orders_of_two_panes_are_matched_by_their_output(page):
    page.set_width(1366)
    call = "#operator=rms_norm_grad&col=7168&row=4096&dtype=bfloat16&soc=Ascend910B1"
    page.open(f"{call}&other.product=ascend_950")
    page.wait_for_changes()
    first, second = (dict(lines) for lines in page.script(ORDERS))
    assert first.keys() == second.keys() == {"dx", "dgamma"}
    assert list(first) != list(second)
    for output in first:
        assert first[output] == second[output]
    assert [marked for _, marked in (first["dx"], first["dgamma"])] == [False, True]


def test_lines_of_stacked_panes_follow_each_other_without_overlap(page):
    page.set_width(375)
    page.open(TWO_PANES)
    page.wait_for_changes()
    boxes = page.script("""
        return [...document.querySelectorAll("#first .lines :is(dt, dd)")].map((line) =>
            line.getBoundingClientRect()).map((box) => [box.top, box.bottom]);
    """)
    assert all(above[1] <= below[0] for above, below in itertools.pairwise(boxes))
    assert all(below[0] - above[1] < 20 for above, below in itertools.pairwise(boxes[:10]))


def test_the_result_comes_first_on_phones(page):
    page.set_width(375)
    page.open(SMALL_DIM)
    assert page.element("#first .plan").rect["y"] < 400
    assert page.element("#first .plan").rect["y"] < page.element("#first .command").rect["y"]


@pytest.mark.parametrize("link", [SMALL_DIM, TWO_PANES])
def test_every_select_is_as_wide_as_its_text(page, link):
    page.set_width(1366)
    page.open(link)
    cut = page.script("""
        for (const call of document.querySelectorAll("#calls > details")) call.open = true;
        return [...document.querySelectorAll("select")].filter((select) => {
            const width = select.getBoundingClientRect().width;
            const copy = select.cloneNode(true);
            copy.style.width = "auto";
            select.after(copy);
            const needed = copy.getBoundingClientRect().width;
            copy.remove();
            return needed > width;
        }).map((select) => select.name);
    """)
    assert cut == []


def test_the_snapshot_shows_the_same_without_the_server(page, tmp_path):
    page.open(TWO_PANES)
    page.wait_for_changes()
    page.script("""
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
            blob.text().then((text) => { window.saved = text; });
            return make(blob);
        };
    """)
    page.element("#snapshot").click()
    page.wait(lambda: page.script("return window.saved"))
    lines, pictures = page.texts(".lines-of-plan"), len(page.find("main svg"))
    file = tmp_path / "snapshot.html"
    file.write_text(page.script("return window.saved"), encoding="utf-8")
    page.browser.open(file.as_uri())
    assert page.texts(".lines-of-plan") == lines
    assert 0 < len(page.find("main svg")) <= pictures
    assert not page.find("form, script, link, button, input")
    assert page.explorer.access.token not in file.read_text(encoding="utf-8")
    _, requests = page.browser.logs()
    assert requests == [file.as_uri()]


def small_product():
    return (
        (config_directory() / "atlas_a2.yaml")
        .read_text(encoding="utf-8")
        .replace("ub_bytes: 196608", "ub_bytes: 98304")
        .encode()
    )


def test_a_dropped_product_file_opens_in_the_second_pane(page):
    page.open("#operator=rms_norm_grad&row=4096&col=7168")
    page.drop("small_ub.yaml", small_product())
    page.wait(lambda: page.find("#second") and page.find(".differs"))
    assert page.element("#field-other\\.product").get_attribute("value") == "small_ub.yaml"
    assert "buffer" in page.text("#differences")
    assert "of 98048 bytes" in page.text("#second dd.buffer")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.yaml", b"name: [", "bad.yaml, line 1: not valid YAML"),
        (
            "large.yaml",
            b"#" * (MOST_FILE_BYTES["product"] + 1),
            "more than the 1048576 that are read",
        ),
        ("picture.png", b"", "not a file that is read here"),
        ("calls.jsonl", b"{}", "no line is a call"),
        ("kernel_details.csv", b"a,b\n1,2\n", "kernel_details.csv"),
    ],
)
def test_an_invalid_file_is_refused_by_name(page, name, content, message):
    page.open(SMALL_DIM)
    page.drop(name, content)
    assert message in page.text("#job-result")
    assert page.text("#stage") == ""
    assert "/" not in page.text("#job-result").partition("profile")[0].replace("and/or", "")
    assert not page.find("#second")


@pytest.mark.parametrize(
    ("name", "write", "rows"),
    [("kernel_details.csv", write_csv, EMBEDDING), ("profile.db", write_database, [GRAD])],
)
@pytest.mark.long
def test_a_dropped_profile_is_read_and_shown(page, tmp_path, name, write, rows):
    page.open(SMALL_DIM)
    page.drop(name, write(tmp_path / name, rows).read_bytes())
    shown = page.text("#job-result")
    assert f"{len(rows)} of {len(rows)} kernels modelled: {name}" in shown
    assert "Measured beside bound" in shown
    assert bool(page.find("#job-result figure[data-draw] rect")) == (len(rows) > 1)


def test_dropped_calls_are_checked_for_the_products_of_the_panes(page):
    page.open(TWO_PANES)
    call = {"op": "rms_norm_grad", "inputs": {"dy": "64x7168:bf16", "gamma": "7168:bf16"}}
    refused = {
        "op": "moe_token_permute_grad",
        "inputs": {
            "permuted_output_grad": "4194304x64:bf16",
            "sorted_indices": "4194304:int32",
            "num_topk": 1024,
        },
    }
    page.drop("calls.jsonl", "\n".join(map(json.dumps, (call, refused))).encode())
    shown = page.text("#job-result")
    assert (
        "calls.jsonl: 2 calls, 2 of them distinct, on atlas_a2 Ascend910B1, atlas_a3 "
        "Ascend910_9391; 2 not accepted"
    ) in shown
    assert "num_topk = 1024 exceeds the documented limit" in shown


def test_report_trace_and_json_equal_those_of_the_call(page):
    page.open(SMALL_DIM)
    downloads = {
        name: page.script(
            f"return fetch(document.querySelector('#first "
            f"a.{name}').href).then((reply) => reply.text())"
        )
        for name in ("report", "trace", "json")
    }
    assert page.text("#first .headline") in downloads["report"]
    assert (
        json.loads(downloads["trace"])["otherData"]["timelines"][0]["arguments"]
        == page.plan()["arguments"]
    )
    assert json.loads(downloads["json"])["plan"] == page.plan()
    page.open(REFUSED)
    assert not any(link.is_displayed() for link in page.find("#first a.button"))


def test_a_run_shows_its_progress_and_ends_when_cancelled(page):
    page.open("#operator=rms_norm&row=16K&col=16K")
    page.element("#first .run").click()
    fractions = []
    page.wait(lambda: "generating data" in page.text("#stage"), 60)
    while len(fractions) < 3 or fractions[-1] == 0:
        fractions.append(float(page.element("#progress").get_attribute("value") or 0))
        page.script("return new Promise((resolve) => setTimeout(resolve, 150))")
    assert fractions == sorted(fractions)
    assert fractions[-1] <= 1
    page.element("#cancel").click()
    page.wait(lambda: page.text("#job-result") == "cancelled", 10)
    assert page.element("#first .run").is_enabled()


@pytest.mark.parametrize("link", PAGES)
def test_no_width_scrolls_sideways(page, link):
    page.open(link)
    page.wait(lambda: page.find("#first .nearest .chips button") or not page.find(".stale"))
    page.script("for (const node of document.querySelectorAll('details')) node.open = true")
    wide = {}
    for width in (360, 375, 520, 521, 860, 861, 1280, 1281, 1920):
        page.set_width(width)
        wide[width] = page.script("return document.documentElement.scrollWidth")
    assert all(wide[width] <= width for width in wide), wide


def test_the_table_of_cores_is_reachable_by_keyboard(page):
    page.open(SMALL_DIM)
    page.wait_for_changes()
    page.script("for (const node of document.querySelectorAll('details')) node.open = true")
    rows = page.texts("#first .steps-of-a-core .drawn > details tbody tr")
    assert len(rows) == page.plan()["block_dim"]
    assert rows[0] == "0 rows 0..1365"
    assert (
        page.script(
            "return [...document.querySelectorAll('.scroll')].filter((node) => "
            "node.tabIndex !== 0).length"
        )
        == 0
    )


def test_the_call_over_time_and_the_steps_of_a_core_are_drawn(page):
    page.open(SMALL_DIM)
    page.wait(lambda: page.find("#first .time rect") and page.find("#first .steps-of-a-core rect"))
    work = page.answer("work")
    drawn = page.script(
        "return [...document.querySelectorAll('#first .time "
        "rect[data-row=launches]')].map((node) => Number(node.dataset.us))"
    )
    assert drawn == [launch["us"] for launch in work["time"]["launches"]]
    page.browser.assert_quiet_and_local()


def test_the_language_is_in_the_link(page):
    page.open(SMALL_DIM)
    page.choose("lang", "zh")
    page.wait(lambda: page.script("return document.documentElement.lang") == "zh")
    assert "lang=zh" in page.driver.current_url
    page.wait(page.path)


def test_braces_in_foreign_texts_are_unchanged(page):
    page.open(SMALL_DIM)
    texts = page.script(
        "return import('./texts.js').then(({ t }) => [t('refused: {why}', "
        "{ why: '{a}' }), t('{b} is none')])"
    )
    assert texts == ["refused: {a}", "{b} is none"]


@pytest.mark.long
@pytest.mark.parametrize("link", [REFUSED, f"{TWO_PANES}&row=16&col=64"])
def test_axe_finds_nothing(page, link):
    page.open(link)
    page.wait(lambda: page.find("#first .nearest .chips button") or not page.find(".stale"))
    page.script("for (const node of document.querySelectorAll('details')) node.open = true")
    violations = {}
    for width, dark in itertools.product((375, 1280), (False, True)):
        page.set_width(width)
        page.browser.set_theme(dark)
        violations[width, dark] = page.browser.violations()
    assert not any(violations.values()), violations
