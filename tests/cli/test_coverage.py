"""Bounds of different coverage are marked and never compared."""

import json
import re

import numpy as np
import pytest

import npu_sim
from npu_sim.language import time_text
from npu_sim.operators.timelines import copies_us, is_timed, timeline
from npu_sim.registry import OPERATORS
from npu_sim.show.preflight import headline, preflight_report
from npu_sim.sweeps.maps import sweep_map
from npu_sim.timelines.program import COPY_PIPES
from tests.timelines.calls import CALLS

NORM = {"dy": "4096x2048:bf16", "gamma": "2048:bf16"}
COMMAND = ("rms_norm_grad", "--dy", NORM["dy"], "--gamma", NORM["gamma"])
SORTS = {"tokens": "4096x2048:bf16", "indices": "4096x8:int32"}
MARKED = "leave out computation without a published rate"


X, STATE, TURNED = "4096x1024:bf16", "4096x1024:fp32", "1x128x8x128:bf16"
STATES = dict.fromkeys(("var", "m", "v", "grad"), STATE)
EVERY_CALL = [
    *(
        (operator, call)
        for operator, _, call, *_ in CALLS.values()
        if not any(str(value).startswith("0x") for value in call.values())  # nothing to compute
    ),
    ("rms_norm", {"x": X, "gamma": "1024:bf16"}),
    ("add_rms_norm", {"x1": X, "x2": X, "gamma": "1024:bf16"}),
    ("swi_glu", {"x": X}),
    ("cross_entropy_loss", {"input": "4096x32000:fp32", "target": "4096:int64"}),
    ("swi_glu_grad", {"y_grad": "4096x512:bf16", "x": X}),
    ("rotary_position_embedding", {"x": TURNED, "cos": "1x128x1x128:bf16"}),
    ("rotary_position_embedding_grad", {"dy": TURNED, "cos": "1x128x1x128:bf16"}),
    ("apply_adam_w_v2", {**STATES, "step": "1:fp32"}),
    ("apply_adam_w_v2", {**STATES, "grad": X, "step": "1:int64", "amsgrad": True}),
    ("apply_adam_w_v2", {**dict.fromkeys(STATES, X), "step": "1:fp32"}),
]
COPYING = {
    ("embedding_dense_backward", "atlas_train", "atomic rows"),
    *(("moe_token_unpermute_grad", product, "copies") for product in ("atlas_a2", "atlas_a3")),
    ("moe_token_unpermute_grad", "ascend_950", "copies of whole rows"),
    ("moe_token_unpermute_grad", "ascend_950", "copies of rows in blocks"),
}
"""Operator, product and path of kernels that compute nothing: copies are all of their work."""


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def calls(tmp_path):
    path = tmp_path / "calls.jsonl"
    lines = [
        {"op": "moe_token_permute", "inputs": SORTS, "count": 9},
        {"op": "rms_norm_grad", "inputs": NORM},
    ]
    path.write_text("".join(json.dumps(call) + "\n" for call in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("product", "operator", "call", "coverage"),
    [
        ("atlas_a2", "rms_norm_grad", NORM, ""),
        ("ascend_950", "rms_norm_grad", NORM, "copies only"),
        ("atlas_a2", "moe_token_permute", SORTS, "without sort_and_merge"),
        ("ascend_950", "moe_token_permute", SORTS, "copies only"),
        (
            "atlas_train",
            *[CALLS["conv, training series"][place] for place in (0, 2)],
            "copies only",
        ),
        ("atlas_a2", *[CALLS["conv as matrix products"][place] for place in (0, 2)], "copies only"),
        ("atlas_a2", *[CALLS["empty"][place] for place in (0, 2)], ""),
    ],
)
def test_coverage_follows_from_the_rates_of_the_work(product, operator, call, coverage):
    profile = npu_sim.load_profile(product)
    found = timeline(npu_sim.plan(operator, product=profile, **call), profile)
    assert found.coverage == coverage


def test_the_calls_are_of_every_operator():
    assert {operator for operator, _ in EVERY_CALL} == {entry.name for entry in OPERATORS}


@pytest.mark.parametrize(
    "product", ["atlas_a2", "atlas_a3", "ascend_950", "atlas_train", "atlas_inference"]
)
@pytest.mark.parametrize(("operator", "call"), EVERY_CALL)
def test_a_bound_without_computation_is_marked(operator, product, call):
    """Only kernels that copy and do nothing else have no mark."""
    profile = npu_sim.load_profile(product)
    try:
        plan = npu_sim.plan(operator, product=profile, **call)
    except npu_sim.NpuSimError:
        return
    if not is_timed(plan):
        return
    found = timeline(plan, profile)
    copies = copies_us(plan, profile)
    if found.coverage == "copies only":
        assert copies == pytest.approx(found.bound_us)
    assert 0 < copies <= found.bound_us * (1 + 1e-12)
    computes = any(us for pipe, us in found.busy_share.items() if pipe not in COPY_PIPES)
    is_copying = (operator, product, plan.path) in COPYING
    assert bool(found.coverage) or computes or is_copying
    assert not (is_copying and (computes or found.coverage))


def test_a_bound_that_covers_less_is_marked(cli):
    text = cli("timeline", *COMMAND, "--product", "950").out
    assert text.startswith("RmsNormGrad on Ascend950PR_9589: at least 9.58 us (copies only)")
    assert ">= 9.58 us, copies only" in text


def test_bounds_of_different_coverage_are_compared_by_their_copies(cli, tmp_path):
    page = tmp_path / "page.html"
    mixed = cli("timeline", *COMMAND, "--products", "A2,950", "--report", page)
    data = cli("timeline", *COMMAND, "--products", "A2,950", "--json").data["timelines"]
    copies = [one["copies_us"] for one in data]
    assert copies[1] == data[1]["timeline"]["bound_us"]
    assert 0 < copies[0] < data[0]["timeline"]["bound_us"]
    sentence = (
        f"RmsNormGrad: copies alone at least {time_text(copies[0])} on Ascend910B1, "
        f"{time_text(copies[1])} on Ascend950PR_9589; the whole bounds cover different work"
    )
    assert mixed.out.startswith(sentence)
    assert "lowest" not in mixed.out
    assert MARKED in mixed.out
    report = page.read_text(encoding="utf-8")
    assert sentence in report
    assert MARKED in report
    assert "&gt;= 9.58 us, copies only" in report
    alike = cli("timeline", *COMMAND, "--products", "A2,A3").out
    assert alike.startswith("RmsNormGrad: lowest bound")
    assert MARKED not in alike
    assert "copies alone" not in alike
    varied = cli(
        "timeline",
        "embedding_dense_backward",
        "--grad",
        "65536x512:fp32",
        "--indices",
        "65536:int32",
        "--num-weights",
        "32000",
        "--vary",
        "dim=512,513",
    ).out
    assert varied.startswith("EmbeddingDenseBackward: bounds cover different work, not compared")
    assert "copies alone" in varied


def test_sums_keep_coverages_apart(cli, calls, tmp_path):
    page = tmp_path / "page.html"
    outcome = cli("preflight", calls, "--timeline", "--products", "A2,950", "--report", page)
    assert MARKED in outcome.out
    assert "9 calls: >=" in outcome.out
    assert MARKED in page.read_text(encoding="utf-8")
    data = cli("preflight", calls, "--timeline", "--products", "A2,950", "--json").data
    times = {(one["target"], one["op"]): one["time"] for one in data["results"]}
    assert times["ascend_950", "rms_norm_grad"]["coverage"] == "copies only"
    sums = data["targets"]["atlas_a2"]["totals"]
    assert [(part["coverage"], part["calls"]) for part in sums["bounds"]] == [
        ("", 1),
        ("without sort_and_merge", 9),
    ]
    assert sum(part["bound_us"] for part in sums["bounds"]) == pytest.approx(sums["bound_us"])
    assert "time" not in {one["fact"] for one in data["differences"]}


def test_products_are_compared_by_the_copies_of_the_calls_that_both_run(cli, calls, tmp_path):
    """Text, page and JSON have the same two sums: what the bounds of 950 count, on both."""
    with calls.open("a", encoding="utf-8") as file:
        turned = {"x": TURNED, "cos": "1x128x1x128:bf16"}
        line = {"op": "rotary_position_embedding", "inputs": turned, "count": 7}
        file.write(json.dumps(line) + "\n")
    page = tmp_path / "page.html"
    arguments = ("preflight", calls, "--timeline", "--products", "A2,950")
    outcome, data = cli(*arguments, "--report", page), cli(*arguments, "--json").data
    results = {(one["target"], one["op"]): one for one in data["results"]}
    assert results["ascend_950", "rotary_position_embedding"]["outcome"] == "unknown"
    counts = {"moe_token_permute": 9, "rms_norm_grad": 1}
    copies = {
        label: sum(count * results[label, op]["time"]["copies_us"] for op, count in counts.items())
        for label in ("atlas_a2", "ascend_950")
    }
    assert copies["ascend_950"] == pytest.approx(
        data["targets"]["ascend_950"]["totals"]["bound_us"]
    )
    compared = data["compared"]
    assert (compared["calls"], compared["all_calls"], compared["copies_alone"]) == (10, 17, 10)
    assert compared["bounds_us"] == pytest.approx(copies)
    ratio = copies["ascend_950"] / copies["atlas_a2"]
    assert compared["ratios"] == {"ascend_950": pytest.approx(ratio)}
    first, second = (f"{time_text(us)} on {label}" for label, us in copies.items())
    html = page.read_text(encoding="utf-8")
    sentence = f"17 calls, 3 of them distinct: at least {first}, {second} for the same work of 10"
    assert sentence in html
    assert headline(npu_sim.preflight(calls, products="A2,950", timed=True)).startswith(sentence)
    for text in (outcome.out, html):
        assert f"{first}, {second} ({ratio:.2f}x)" in text
        assert "how far a device stays above its bound is not known" in text


def test_products_are_compared_by_whole_bounds_where_they_cover_the_same(calls):
    matrix = npu_sim.preflight(calls, products="A2,A3,atlas_train", timed=True)
    compared = matrix.compared()
    totals = matrix.totals()
    assert compared.bounds_us == {
        label: pytest.approx(totals[label].bound_us) for label in ("atlas_a2", "atlas_a3")
    }
    assert (compared.calls, compared.copies_alone) == (10, 0)
    assert npu_sim.preflight(calls, timed=True).compared() is None
    assert npu_sim.preflight(calls, products="A2,A3").compared() is None


def test_a_headline_has_one_sum_of_bounds_and_says_how_much_of_it_is_partial(calls):
    for products in ("A2", "A2,A3"):
        matrix = npu_sim.preflight(calls, products=products, timed=True)
        for label, sums in matrix.totals().items():
            partial = time_text(sums.bounds["without sort_and_merge"].bound_us)
            mark = f"{partial} of it without sort_and_merge"
            assert f"{time_text(sums.bound_us)} ({mark}) on {label}" in headline(matrix)


def test_a_page_counts_the_calls_of_its_lines(calls):
    matrix = npu_sim.preflight(calls, products="A2")
    assert "10 calls, 2 of them distinct, on atlas_a2" in preflight_report(matrix, "x").sentence


def test_a_product_on_which_nothing_runs_has_no_bound(calls):
    """Not a bound of 0."""
    matrix = npu_sim.preflight(calls, products="A2,atlas_train", timed=True)
    assert headline(matrix).endswith(" on atlas_a2; no call has a bound on atlas_train")
    assert " 0 us" not in str(matrix)
    alone = npu_sim.preflight(calls, products="atlas_train", timed=True)
    assert headline(alone).endswith("distinct: no call has a bound on atlas_train")


def test_calls_without_a_common_product_are_not_compared(tmp_path):
    path = tmp_path / "calls.jsonl"
    lines = [
        {"op": "rms_norm_grad", "inputs": NORM, "product": product} for product in ("A2", "A3")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    matrix = npu_sim.preflight(path, timed=True)
    assert headline(matrix) == (
        "2 calls, 2 of them distinct: no call has a bound on each of atlas_a2, atlas_a3"
    )
    assert matrix.compared().ratios == {}


def test_calls_of_different_coverage_have_no_common_order(cli, calls):
    outcome = cli("preflight", calls, "--timeline", "--products", "A2,950")
    matrix = npu_sim.preflight(calls, products="A2,950", timed=True)
    assert headline(matrix).endswith("for the same work of 10 calls")
    rows = re.findall(r"\d+x +(\w+)", outcome.out.partition("all calls")[2])
    assert rows.index("rms_norm_grad") < rows.index("moe_token_permute")
    alone = headline(npu_sim.preflight(calls, products="950", timed=True))
    assert "at least" in alone
    assert "(copies only) on ascend_950" in alone


def test_a_changed_call_is_compared_only_if_its_bound_covers_the_same():
    """The kernel for at most 512 columns sorts, for which no rate is published."""
    call = {"grad": "100000x1024:bf16", "indices": "100000:int32", "num_weights": 32000}
    found = npu_sim.timeline("embedding_dense_backward", **call)
    assert found.coverage == ""
    for change in found.changes:
        name, _, value = change.change.partition(" = ")
        changed = call | ({"num_weights": int(value)} if name == "num_weights" else {})
        if name == "grad_dtype":
            changed["grad"] = f"100000x1024:{value}"
        assert npu_sim.timeline("embedding_dense_backward", **changed).coverage == ""


def test_maps_have_bounds_of_one_coverage():
    grid = {"dim": "256..1024:+64", "num_weights": "1..30000:+1000"}
    cells = sweep_map(npu_sim.sweep("embedding_dense_backward", grid).space)["cells"]
    bounds = {grid["coverage"]: grid for name, grid in cells.items() if name.startswith("bound_us")}
    assert set(bounds) == {"", "without sort_and_merge"}
    for one, other in zip(*(np.ravel(grid["values"]) for grid in bounds.values()), strict=True):
        assert one is None or other is None
