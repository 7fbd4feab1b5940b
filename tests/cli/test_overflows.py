"""Buffers that do not fit the chip: a separate outcome in every command."""

import json
from xml.etree import ElementTree

import pytest

import npu_sim
from npu_sim.cli.printing import print_text
from npu_sim.cores import config_directory, load_profile
from npu_sim.framework.checking import checked_call
from npu_sim.framework.inference import plan_arguments
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target
from npu_sim.operators.loading import load_operator
from npu_sim.questions.diff import plan_changes
from npu_sim.show.plans import plan_view
from tests.cases import every

WORDS = ("rms_norm_grad", "--dy", "4096x7168:bf16", "--gamma", "7168:bf16")
USED, USABLE = 131456, 98304 - 256


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A product like Atlas A2 with Unified Buffers of half the size."""
    path = tmp_path_factory.mktemp("products") / "small_ub.yaml"
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    path.write_text(
        text.replace("ub_bytes: 196608", "ub_bytes: 98304").replace(
            "name: atlas_a2", "name: small_ub"
        ),
        encoding="utf-8",
    )
    return path


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")


def test_a_plan_reports_an_overflow(cli, small):
    outcome = cli("plan", *WORDS, "--product", small)
    assert outcome.code == 2
    assert outcome.out.splitlines()[0] == "RmsNormGrad on small_ub, Ascend910B1: overflows"
    assert f"the buffers take {USED} bytes, 134 % of the {USABLE}" in outcome.out
    as_json = cli("plan", *WORDS, "--product", small, "--json")
    assert (as_json.code, as_json.data["outcome"], as_json.data["plan"]["outcome"]) == (
        2,
        "overflows",
        "overflows",
    )


def test_a_timeline_reports_the_overflow_before_its_bound(cli, small):
    outcome = cli("timeline", *WORDS, "--product", small)
    assert (outcome.code, outcome.out.startswith(f"the buffers take {USED} bytes")) == (2, True)


def test_an_upgrade_names_the_outcome(small):
    runs, overflows = (
        npu_sim.plan("rms_norm_grad", dy="4096x7168:bf16", gamma="7168:bf16", product=product)
        for product in ("atlas_a2", small)
    )
    (outcome,) = (change for change in plan_changes(runs, overflows) if change.fact == "outcome")
    assert (outcome.before, outcome.after) == ("runs", "overflows")


def test_the_headline_is_red(small, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_text(
        plan_view(
            npu_sim.plan("rms_norm_grad", dy="4096x7168:bf16", gamma="7168:bf16", product=small)
        )
    )
    assert capsys.readouterr().out.startswith("\x1b[1;31m")


def test_python_reports_the_overflow(small):
    call = {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}
    assert npu_sim.plan("rms_norm_grad", **call).outcome == "runs"
    plan = npu_sim.plan("rms_norm_grad", product=small, **call)
    assert (plan.outcome, plan.overflow.used_bytes, plan.overflow.capacity_bytes) == (
        "overflows",
        USED,
        USABLE,
    )


def test_explain_and_run_exit_with_2(cli, small):
    explained = cli("explain", *WORDS, "--product", small, "--json")
    assert (explained.code, explained.data["outcome"]) == (2, "overflows")
    ran = cli(
        "run",
        "rms_norm_grad",
        "--dy",
        "64x7168:bf16",
        "--gamma",
        "7168:bf16",
        "--product",
        small,
        "--json",
    )
    assert (ran.code, ran.data["outcome"]) == (2, "overflows")


def test_a_report_is_red(cli, small, tmp_path):
    cli("plan", *WORDS, "--product", small, "--report", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert '<h1 class="bad">RmsNormGrad on small_ub, Ascend910B1: overflows</h1>' in page


def test_preflight_does_not_accept_an_overflow(cli, small, tmp_path):
    calls, junit = tmp_path / "calls.jsonl", tmp_path / "junit.xml"
    call = {
        "op": "rms_norm_grad",
        "inputs": {"dy": "4096x7168:bf16", "gamma": "7168:bf16"},
        "product": str(small),
    }
    calls.write_text(json.dumps(call) + "\n", encoding="utf-8")
    outcome = cli("preflight", calls, "--junit", junit)
    assert outcome.code == 1  # a call is not accepted
    assert "0 runs, 1 overflows" in outcome.out
    assert f"overflows: the buffers take {USED} bytes" in outcome.out
    assert ElementTree.parse(junit).find(".//failure").get("message") == "overflows"
    (result,) = cli("preflight", calls, "--json").data["results"]
    assert (result["outcome"], result["status"], result["fine"], result["faults"]) == (
        "overflows",
        0,
        False,
        ["overflows"],
    )


def test_a_comparison_shows_the_overflow(cli, small, tmp_path):
    outcome = cli(
        "diff",
        *WORDS,
        "--products",
        f"atlas_a2,{small}",
        "--report",
        tmp_path / "diff.html",
        "--json",
    )
    assert {row["product"]: row["outcome"] for row in outcome.data["rows"]} == {
        "atlas_a2": "runs",
        "small_ub": "overflows",
    }
    text = cli("diff", *WORDS, "--products", small).out
    assert "overflows" in text
    assert "small_ub  Ascend910B1, 910B2, 910B2C" in text
    assert "Overflows the Unified Buffer" in (tmp_path / "diff.html").read_text(encoding="utf-8")


def test_overflowing_sizes_are_outside_the_hardware_limits(small):
    limits = npu_sim.limits(
        "rms_norm_grad",
        "col",
        product=small,
        soc="Ascend910B1",
        row=4096,
        dtype="bfloat16",
        gamma_dtype="bfloat16",
    )
    (row,) = limits.rows
    assert row.documented.largest == 2**32 - 1
    assert row.hardware.ranges == ((1, 32),)
    assert "overflows: the buffers take" in str(limits)
    plans = [
        npu_sim.plan("rms_norm_grad", dy=f"4096x{col}:bf16", gamma=f"{col}:bf16", product=small)
        for col in (32, 33)
    ]
    assert [plan.outcome for plan in plans] == ["runs", "overflows"]


@pytest.mark.parametrize("operator", every(2, ["rms_norm", "rms_norm_grad"]))
def test_a_sweep_has_an_overflow_column(small, operator):
    grid = {
        "row": "1,48,1000",
        "col": "8,32,33,640,641,4096,6080,6081,20000",
        "dtype": "bfloat16",
        "product": str(small),
    }
    records = npu_sim.sweep(operator, grid)
    assert set(records["overflows"]) == {0, 1}
    for place, record in enumerate(records):
        profile, values = records.space.call_at(place)
        plan = npu_sim.plan(
            operator, product=profile, **plan_arguments(load_operator(operator), values)
        )
        assert (plan.outcome == "overflows") == bool(record["overflows"])


def test_buffer_use_of_a_tiling_equals_that_of_its_plan():
    for name in ("rms_norm", "rms_norm_grad"):
        operator = load_operator(name)
        for profile in (load_profile("atlas_a2"), load_profile("atlas_a3")):
            for col in (8, 640, 641, 6080, 6081, 20000):
                tensors = {"x": f"100x{col}:fp16", "gamma": f"{col}:fp16"} | (
                    {"dy": f"100x{col}:fp16"} if name == "rms_norm_grad" else {}
                )
                case = checked_call(operator, tensors, Target(profile), infer=True)
                used = operator.used_bytes(case.row, case.tiling, case.device, case.rules)
                assert [memory.used_bytes for memory in plan_of(case).memories] == [used]


def test_use_of_the_reserved_margin_is_no_overflow():
    memory = npu_sim.plan(
        "moe_token_permute_grad",
        permuted_output_grad="64x64:bf16",
        sorted_indices="64:int32",
        num_topk=2,
    ).memories[0]
    reached = memory.model_copy(update={"capacity_bytes": memory.used_bytes - 64})
    assert memory.margin_bytes == 256
    assert (reached.free_bytes, reached.overflows) == (-64, False)
    assert reached.model_copy(update={"capacity_bytes": memory.used_bytes - 257}).overflows
