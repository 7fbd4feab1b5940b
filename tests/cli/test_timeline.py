import json
import re

import pytest

WORDS = (
    "embedding_dense_backward",
    "--grad",
    "20000x512:fp32",
    "--indices",
    "20000:int32",
    "--num-weights",
    "3000",
)


def test_a_timeline_states_the_binding_resource_and_that_it_is_a_lower_bound(cli):
    outcome = cli("timeline", *WORDS)
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].startswith(
        "EmbeddingDenseBackward on Ascend910B1: at least "
    )
    for label in (
        "lower bound",
        "launches",
        "changed",
        "kernel",
        "imbalance",
        "unknown",
        "left out",
        "assumed",
    ):
        assert any(line.startswith(label) for line in outcome.out.splitlines())
    assert "sort_and_merge" in outcome.out


def test_every_launch_and_the_other_mode_fit_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("timeline", *WORDS).out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for message in ("MemSet: ", "EmbeddingDenseGradV2: ", "num_weights = 1500", "off: "):
        assert message in text


def test_json_has_the_launches_and_the_changes_to_them(cli):
    (row,) = cli("timeline", *WORDS, "--json").data["timelines"]
    launches = row["timeline"]["launches"]
    assert [launch["kernel"] for launch in launches] == ["MemSet", "EmbeddingDenseGradV2"]
    assert sum(launch["us"] for launch in launches) == pytest.approx(row["timeline"]["bound_us"])
    assert [change["change"] for change in row["timeline"]["changes"]] == ["num_weights = 1500"]
    assert [price["deterministic"] for price in row["timeline"]["determinism"]] == [False, True]


def test_socs_are_compared(cli):
    rows = cli("timeline", *WORDS, "--socs", "all", "--json").data["timelines"]
    assert [row["soc"] for row in rows] == [
        "Ascend910B1",
        "Ascend910B2",
        "Ascend910B2C",
        "Ascend910B3",
        "Ascend910B4",
        "Ascend910B4-1",
    ]
    bounds = [row["timeline"]["bound_us"] for row in rows]
    assert min(bounds) == bounds[0]
    text = cli("timeline", *WORDS, "--socs", "Ascend910B4,Ascend910A").out
    assert "Ascend910B4 " in text
    assert "Ascend910A " in text


def test_sizes_are_compared_and_refused_sizes_stay_in_the_table(cli):
    scaled = [*WORDS, "--scale-grad-by-freq", "--product", "atlas_train", "--vary", "dim=64,5000"]
    rows = cli("timeline", *scaled, "--json").data["timelines"]
    assert [(row["call"], row["outcome"]) for row in rows] == [
        ("dim=64", "runs"),
        ("dim=5000", "refused"),
    ]
    assert rows[1]["error"]["status"] == 561002
    assert "refused 561002" in cli("timeline", *scaled).out


def test_the_trace_of_plan_and_of_timeline_are_the_same_bytes_in_the_json(cli, tmp_path):
    planned = cli("plan", *WORDS, "--trace", tmp_path / "a.json", "--json").data
    compared = cli("timeline", *WORDS, "--trace", tmp_path / "b.json", "--json").data
    assert planned["timeline"] == compared["timelines"][0]["timeline"]
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (
        json.loads((tmp_path / "a.json").read_text())["otherData"]["timelines"][0]["bound_us"]
        == planned["timeline"]["bound_us"]
    )


@pytest.mark.parametrize("vary", ["dim", "width=3", "dim=a", "dim=1,x"])
def test_a_malformed_comparison_is_refused(cli, vary):
    assert cli("timeline", *WORDS, "--vary", vary).code == 64


def test_a_call_refused_everywhere_is_refused(cli):
    refused = cli("timeline", *WORDS, "--product", "atlas_inference")
    assert (refused.code, refused.out) == (2, "")
    assert "161002" in refused.err


RMS = (
    "rms_norm_grad",
    "--dy",
    "4096x1024:bf16",
    "--x",
    "4096x1024:bf16",
    "--rstd",
    "4096:fp32",
    "--gamma",
    "1024:bf16",
)
COMPARED = ("--soc", "Ascend910B3", "--release", "8.3")


def text_of(outcome):
    return " ".join(outcome.out.split())


def test_the_estimate_follows_the_bound_with_range_start_up_and_evidence(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    lines = cli("timeline", *RMS, *COMPARED).out.splitlines()
    bound = next(number for number, line in enumerate(lines) if line.startswith("lower bound"))
    assert "vector pipe about 37 us (33 to 40)" in lines[bound + 1]
    assert "57.3 % of it instruction start-up" in lines[bound + 1]
    assert "published rates, compared with one device" in lines[bound + 1]


def test_a_comparison_shows_estimates_with_ranges_and_evidence(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = text_of(cli("timeline", *RMS, *COMPARED, "--vary", "row=4096,8192"))
    assert "V about 37 us (33 to 40)" in text
    assert "V about 74 us (66 to 81)" in text
    assert (
        "busy time of the vector pipe, not of the launch): published rates, compared with one "
        "device" in text
    )


def test_explain_and_diff_list_the_parts_of_an_estimate(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    explained = text_of(cli("explain", *RMS, *COMPARED))
    assert "dy and x start in the same bank group: 2 cycles a repeat" in explained
    rows = cli("diff", *RMS, "--product", "atlas_a2", *COMPARED, "--json").data["rows"]
    assert [estimate["evidence"] for row in rows for estimate in row["estimates"]] == [
        "published rates, compared with one device"
    ]


def test_a_calibration_file_is_read(cli, tmp_path):
    file = tmp_path / "calibration.yaml"
    file.write_text(
        "{source: mine.csv, soc: Ascend910B3, release: '8.3', vector_cores: 40, clock_mhz: 1650}",
        encoding="utf-8",
    )
    (row,) = cli("timeline", *RMS, *COMPARED, "--calibration", file, "--json").data["timelines"]
    assert row["timeline"]["launches"][0]["estimate"]["vector_us"] == pytest.approx(40.13, abs=0.01)
    assert row["timeline"]["estimate_us"] is None
    assert row["timeline"]["estimate_without"] == ["RmsNormGrad"]
    refused = cli("timeline", *RMS, "--soc", "Ascend910B2", "--calibration", file)
    assert refused.code == 64
    assert "40 vector cores" in text_of(refused) + refused.err


@pytest.mark.parametrize("command", ["timeline", "diff"])
def test_reports_show_the_estimate_with_its_range_and_evidence(cli, tmp_path, command):
    report = tmp_path / "report.html"
    assert cli(command, *RMS, "--product", "atlas_a2", *COMPARED, "--report", report).code == 0
    page = report.read_text(encoding="utf-8")
    assert "vector pipe about 37 us (33 to 40)" in page
    assert "published rates, compared with one device" in page


def test_a_report_of_several_socs_says_once_what_to_do_with_a_trace(cli, tmp_path):
    report = tmp_path / "report.html"
    assert cli("timeline", *RMS, "--socs", "Ascend910B1,Ascend910B3", "--report", report).code == 0
    page = report.read_text(encoding="utf-8")
    assert page.count("Work over time: ") >= 2
    assert page.count("ui.perfetto.dev") == 1


@pytest.mark.parametrize("switch", [(), ("--deterministic",)])
def test_the_price_is_stated_once_and_calls_neither_mode_faster(cli, switch):
    arguments = ("--grad", "8192x256:fp32", "--indices", "8192:int32", "--num-weights", "8000")
    for command in ("timeline", "explain"):
        lines = cli(command, "embedding_dense_backward", *arguments, *switch).out.splitlines()
        text = " ".join(" ".join(lines).split())
        for price in ("off: 2 launches", "on: 4 launches", "only the bytes of Sort, ZerosLike are"):
            assert text.count(price) == 1
        assert not any("deterministic =" in line and "less" in line for line in lines)


def test_a_varied_size_has_a_range_of_bounds(cli):
    call = ("rms_norm", "--x", "64x4096:bf16", "--gamma", "4096:bf16", "--vary", "row=64..256:*4")
    first = cli("timeline", *call).out.splitlines()[0]
    assert re.fullmatch(r"RmsNorm: bounds \d\S* us to \d\S* us on Ascend910B1", first)


def test_a_pipe_without_published_rates_is_unknown_not_idle(cli):
    moments = dict.fromkeys(("var", "m", "v", "grad"), "64x1024:bf16")
    call = [word for name, value in moments.items() for word in (f"--{name}", value)]
    shown = cli("timeline", "apply_adam_w_v2", *call, "--products", "A2,950").out
    (a2, ascend) = re.findall(r"MTE2 .*", shown)
    assert "V unknown" not in a2
    assert "V unknown" in ascend


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_a_bound_says_that_shared_memory_is_not_counted(cli, product):
    state = [word for name in ("var", "m", "v", "grad") for word in (f"--{name}", "64x64:fp32")]
    call = ("apply_adam_w_v2", *state, "--step", "1:fp32", "--product", product)
    text = " ".join(cli("timeline", *call).out.split())
    assert "that the cores share L2 and memory is not counted" in text
