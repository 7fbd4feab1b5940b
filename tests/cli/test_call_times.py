"""Times of a file of calls: ``preflight --timeline``."""

import json

import pytest

NORMS = {
    "op": "rms_norm_grad",
    "count": 65,
    "name": "norms",
    "inputs": {"dy": "4096x8192:bf16", "gamma": "8192:bf16"},
}
LOSS = {
    "op": "cross_entropy_loss_grad",
    "inputs": {"log_prob": "4096x32000:fp32", "target": "4096:int64"},
}


@pytest.fixture
def calls(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(call) + "\n" for call in (LOSS, NORMS)), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")


def test_the_largest_calls_come_first_with_their_share(cli, calls):
    outcome = cli("preflight", calls, "--timeline", "--products", "A2,A3")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    rows = [line.split() for line in lines if "x  " in line and "atlas_a2, atlas_a3" in line]
    assert [row[1:4] for row in rows] == [
        ["65x", "rms_norm_grad", "norms"],
        ["1x", "cross_entropy_loss_grad", "log_prob"],
    ]
    shares = [float(row[row.index("%") - 1]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_the_data_has_sums_and_differences(cli, calls):
    data = cli("preflight", calls, "--timeline", "--soc", "910B1,910B4", "--json").data
    assert data["schema"] == "npu_sim.preflight/1"
    sums = data["targets"]["Ascend910B4"]["totals"]
    times = {
        one["op"]: one["time"]["bound_us"]
        for one in data["results"]
        if one["target"] == "Ascend910B4"
    }
    assert sums["bound_us"] == pytest.approx(
        65 * times["rms_norm_grad"] + times["cross_entropy_loss_grad"]
    )
    assert {"cores", "time"} <= {one["fact"] for one in data["differences"]}


def test_a_refused_call_exits_1_and_is_named(cli, tmp_path):
    file = tmp_path / "calls.jsonl"
    file.write_text(json.dumps({**LOSS, "product": "atlas_train"}) + "\n", encoding="utf-8")
    outcome = cli("preflight", file, "--timeline")
    assert outcome.code == 1
    assert "refused 161002" in outcome.out


def test_the_report_has_sums_and_calls(cli, calls, tmp_path):
    page = tmp_path / "page.html"
    cli("preflight", calls, "--timeline", "--products", "A2,A3", "--report", page)
    assert "66 calls, 2 of them distinct" in page.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "Calls by their time" in text
    assert "nothing is measured" in text


def test_times_are_added_on_request(cli, calls):
    assert "totals" in cli("preflight", calls, "--timeline", "--json").data["targets"]["atlas_a2"]
    assert "totals" not in cli("preflight", calls, "--json").data["targets"]["atlas_a2"]
    assert "lower bound" in cli("preflight", calls, "--timeline").out


def test_an_operator_takes_several_products(cli):
    call = ("rms_norm_grad", "--dy", "4096x8192:bf16", "--gamma", "8192:bf16")
    data = cli("timeline", *call, "--products", "A2,A3", "--json").data
    assert [one["product"] for one in data["timelines"]] == ["atlas_a2", "atlas_a3"]


@pytest.mark.parametrize("options", [["--json"], ["--products", "A2", "rms_norm_grad"]])
def test_a_timeline_without_an_operator_is_a_usage_error(cli, options):
    assert cli("timeline", *options).code == 64
