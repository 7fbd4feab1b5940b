"""The explorer in a real browser."""

import json
import shlex
import subprocess
import sys

import pytest

from tests.cases import every
from tests.cli import runner
from tests.tools.explorer.page import SMALL_DIM


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_console_messages_and_requests_only_its_server(page, dark):
    page.open(dark=dark)
    assert page.text("#first .headline") == "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    page.browser.assert_quiet_and_local()


def test_the_token_is_in_the_printed_address_only(page):
    page.open(SMALL_DIM)
    assert page.script("return location.search + document.cookie") == ""
    assert page.script("return location.hash").startswith("#operator=embedding_dense_backward")
    page.driver.delete_all_cookies()
    page.driver.get(page.address.partition("?")[0])
    assert "open the address that npu-sim explore printed" in page.text("body")


def test_a_column_more_than_512_changes_the_path_on_screen(page):
    page.open(SMALL_DIM)
    assert "small dim" in page.path()
    page.type("dim", "513")
    page.wait(lambda: page.path().startswith("sorted"))
    page.type("dim", "512")
    page.wait(lambda: page.path().startswith("small dim"))
    page.browser.assert_quiet_and_local()


def test_the_slider_changes_the_path_too(page):
    page.open(SMALL_DIM)
    move = (
        "const s = document.getElementById('slider-dim'); s.value = arguments[0]; "
        "s.dispatchEvent(new Event('input'))"
    )
    page.script(move, 1000)
    page.wait(lambda: page.path().startswith("sorted"))
    assert int(page.script("return document.getElementById('field-dim').value")) > 512
    page.script(move, 100)
    page.wait(lambda: page.path().startswith("small dim"))
    page.script(move, 0)
    page.wait(lambda: page.path().startswith("empty"))


def test_the_link_restores_the_same_plan(page):
    page.open(SMALL_DIM)
    page.type("dim", "700")
    page.driver.find_element("id", "field-deterministic").click()
    page.wait(lambda: "deterministic" in page.path())
    link, plan = page.driver.current_url, page.plan()
    page.open()
    assert page.path().startswith("small dim")
    page.browser.open(link)
    page.wait(lambda: "deterministic" in page.path())
    assert page.plan() == plan
    assert page.script("return document.getElementById('field-dim').value") == "700"


def test_a_flip_is_applied_by_a_click(page):
    page.open(SMALL_DIM)
    page.wait_for_changes()
    button = next(
        button
        for button in page.driver.find_elements("css selector", "#first .changes button")
        if button.text.startswith("dim = 513")
    )
    button.click()
    page.wait(lambda: page.path().startswith("sorted"))
    assert "dim=513" in page.driver.current_url


def test_the_pointer_on_the_buffer_map_shows_bytes(page):
    page.open(SMALL_DIM)
    assert (
        page.browser.title_under_the_pointer("#first section[data-title^='On-chip'] rect.c5")
        == "gradient rows: 167936 bytes"
    )
    assert (
        page.browser.title_under_the_pointer("#first section[data-title=Cores] rect.cell")
        == "core 0: rows 0..1365 (1365)"
    )


@pytest.mark.parametrize(
    "more",
    every(
        3,
        [
            "&deterministic=true&limits=hardware&soc=Ascend910B4",
            "",
            "&scale_grad_by_freq=true&padding_idx=-5",
        ],
    ),
)
def test_the_copied_command_gives_the_same_json(page, capsys, monkeypatch, more):
    page.open(SMALL_DIM + more)
    arguments = shlex.split(page.copied("#first .copy-cli"))
    outcome = runner.npu_sim(capsys, monkeypatch, *arguments[1:], "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.data["plan"] == page.plan()


def test_the_copied_python_prints_the_same_plan(page):
    page.open(SMALL_DIM + "&grad_dtype=bfloat16&deterministic=true")
    source = page.copied("#first .copy-python").replace(
        "print(plan)", "import json; print(json.dumps(plan.as_dict()))"
    )
    process = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert json.loads(process.stdout) == page.plan()


def test_invalid_input_shows_the_message_of_the_command_line(page, capsys, monkeypatch):
    page.open(SMALL_DIM + "&indices=7:int32")
    refused = runner.npu_sim(
        capsys,
        monkeypatch,
        "plan",
        "embedding_dense_backward",
        "--grad",
        "65536x512:fp32",
        "--indices",
        "7:int32",
        "--num-weights",
        32000,
    )
    shown = page.text("#first .headline") + "\n\n" + page.text("#first .refusal")
    assert shown.strip() == refused.err.strip()
    assert not page.element("#first .result").is_displayed()


def test_an_unsupported_product_shows_its_refusal_until_another_is_chosen(page):
    page.open(SMALL_DIM + "&product=atlas_inference")
    assert "161002" in page.text("#first .headline")
    page.script(
        "const s = document.getElementById('field-product'); s.value = "
        "'atlas_train'; s.dispatchEvent(new Event('change'))"
    )
    page.wait(lambda: page.text("#first .headline").endswith("runs"))
    assert page.script("return document.getElementById('field-soc').value") == "Ascend910A"


def test_texts_from_the_link_are_not_interpreted_as_markup(page):
    page.open(
        "#operator=embedding_dense_backward&grad=<img src=x "
        "onerror=document.title='bad'>&product=atlas_a2"
    )
    assert "<img" in page.text("#first .headline")
    assert page.driver.title == page.text("#first .headline")


def test_a_run_shows_its_progress_and_its_order_strip(page):
    page.open(
        "#operator=embedding_dense_backward&product=atlas_a2&rows=2000&dim=16&num_weights=300"
    )
    page.element("#first .run").click()
    page.wait(lambda: page.text("#stage").startswith("done"), 60)
    assert "embedding_dense_backward grad 2000x16:fp32" in page.text("#job-result")
    assert "grad_weight 300x16 float32" in page.text("#job-result")
    assert "depend on timing" in page.browser.title_under_the_pointer("#job-result rect.timing")
    page.browser.assert_quiet_and_local()


def test_the_title_of_the_tab_is_the_answer(page):
    page.open(SMALL_DIM)
    title = "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    assert page.driver.title == title
    page.open(SMALL_DIM + "&other.product=atlas_a3")
    assert page.driver.title == (
        f"{title} | EmbeddingDenseBackward on Atlas A3, Ascend910_9391: runs"
    )


def test_back_and_forward_step_through_the_changes(page):
    """A choice is a step, and so is all that was typed into one field."""
    page.open(SMALL_DIM)
    page.choose("product", "atlas_a3")
    page.type("dim", "1024")
    page.settle()
    page.choose("grad_dtype", "float16")

    def shown():
        names = ("product", "dim", "grad_dtype")
        script = "return arguments[0].map((name) => document.getElementById(name)?.value)"
        return page.script(script, [f"field-{name}" for name in names])

    steps = [
        ["atlas_a2", "512", "float32"],
        ["atlas_a3", "512", "float32"],
        ["atlas_a3", "1024", "float32"],
        ["atlas_a3", "1024", "float16"],
    ]
    assert shown() == steps[-1]
    for step in reversed(steps[:-1]):
        page.driver.back()
        page.wait(lambda step=step: shown() == step)
        page.settle()
    for step in steps[1:]:
        page.driver.forward()
        page.wait(lambda step=step: shown() == step)
        page.settle()
    assert page.text("#first .headline").endswith("Ascend910_9391: runs")
