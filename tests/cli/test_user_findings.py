"""Findings of users: answers name the cause, and errors end before work is done."""

import json
import re
from pathlib import Path

import pytest

import npu_sim
from npu_sim.cores import config_directory, load_profile, release_names
from npu_sim.studies.caveats import CAVEATS, find_caveat, statements_of

OPERATORS = Path(npu_sim.__file__).parent / "operators"
NORM = ("--dy", "4096x7168:bf16")
GAMMA = ("--gamma", "7168:bf16")
CONFIG = Path(__file__).parents[2] / "configs" / "atlas_a2.yaml"
WEIGHTS = {"num_weights": 32000}


def test_a_shape_that_contradicts_another_is_named(cli):
    outcome = cli("plan", "rms_norm_grad", *NORM, "--gamma", "7000:bf16")
    assert outcome.code == 64
    assert "gamma 7000:bf16 does not fit dy 4096x7168:bf16" in outcome.err


def test_what_nothing_implies_is_still_missing(cli):
    outcome = cli("plan", "rms_norm_grad", "--gamma", "7168:bf16")
    assert "is missing" in outcome.err


def test_a_sweep_does_not_write_to_a_folder_named_minus(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cli("sweep", "rms_norm_grad", "--grid", "row=1..4", "--grid", "col=64", "--out", "-")
    assert outcome.code == 64
    assert not list(tmp_path.iterdir())


def test_a_recording_without_calls_is_named_so(cli, tmp_path):
    file = tmp_path / "calls.jsonl"
    head = '{"schema": "npu_sim.calls/1", "recorded": {"not_recognised": [], "not_modelled": {}}}\n'
    file.write_text(head, encoding="utf-8")
    assert "it has no calls" in cli("preflight", file).err


def test_an_error_of_a_recorded_script_shows_the_script_only(cli, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'")
    script = tmp_path / "bad.py"
    script.write_text("def f():\n    raise ValueError('mine')\n\n\nf()\n", encoding="utf-8")
    outcome = cli("record", "--out", tmp_path / "calls.jsonl", script)
    assert outcome.code == 1
    assert outcome.err.count("  File ") == 2
    assert "ValueError: mine" in outcome.err
    assert not (tmp_path / "calls.jsonl").exists()


def test_a_comparison_has_the_sentence_of_every_caveat(cli):
    outcome = cli(
        "diff", "rms_norm", "--x", "4096x300:bf16", "--gamma", "300:bf16", "--products", "A2,950"
    )
    assert "A2 and A3 add the squares in another order" in " ".join(outcome.out.split())


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("Atlas 800T A2", "atlas_a2"),
        ("Atlas 900 A2 PoD", "atlas_a2"),
        ("Atlas 200T A2 Box16", "atlas_a2"),
        ("Atlas 300I Pro", "atlas_inference"),
        ("Atlas 300T", "atlas_train"),
    ],
)
def test_names_of_servers_and_cards_are_products(name, product):
    """As in the vendor's list of products of every series."""
    from npu_sim.cores import load_profile

    assert load_profile(name).name == product


def test_the_headline_names_launches_of_which_only_the_bytes_are_bounded(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    call = ("--grad", "8192x256:fp32", "--indices", "8192:int32", "--num-weights", "8000")
    shown = cli("timeline", "embedding_dense_backward", *call, "--deterministic").out
    assert shown.splitlines()[0].endswith("only the bytes of Sort, ZerosLike, MemSet are counted")
    shown = cli("timeline", "rms_norm_grad", *NORM, "--gamma", "7168:bf16").out
    assert "only the bytes" not in shown.splitlines()[0]


@pytest.mark.parametrize(("limits", "refused"), [("documented", 513), ("hardware", 16769)])
def test_the_nearest_refused_change_is_that_of_the_limits_in_force(limits, refused):
    """``explain`` and ``limits`` name the same first refused value."""
    call = {"permuted_output_grad": "65536x7168:bf16", "sorted_indices": "65536:int32"}
    answer = npu_sim.explain("moe_token_permute_grad", **call, num_topk=8, limits=limits)
    (change,) = [change for change in answer.nearby if change.axis.name == "num_topk"]
    assert (change.value, change.outcome) == (refused, "refused")
    assert f"num_topk = {refused}" in change.refusal
    planned = npu_sim.plan("moe_token_permute_grad", **call, num_topk=8, limits=limits)
    flips = [flip for one in planned.decisions for flip in one.flips]
    assert [flip.value for flip in flips if flip.argument == "num_topk"] == [refused]


def test_the_nearest_legal_dtypes_change_together(cli):
    outcome = cli("plan", "rms_norm_grad", *NORM, "--gamma", "7168:bf16", "--product", "310P")
    changes = "nearest: dy fp16, x fp16, gamma fp16, dx fp16; or dy fp32"  # rstd stays
    assert changes in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    "caveat", [caveat for caveat in CAVEATS if caveat.codes], ids=lambda caveat: caveat.name
)
def test_codes_of_plans_are_names_of_their_experiments(caveat):
    sources = [file.read_text(encoding="utf-8") for file in OPERATORS.rglob("*.py")]
    for code in caveat.codes:
        assert find_caveat(code) is caveat
        assert statements_of(code) or any(f'code="{code}"' in source for source in sources)


def test_products_list_the_operators_that_are_modelled_on_them(cli):
    listed = cli("products", "ascend_950", "--json").data["products"][0]["operators"]
    assert "rms_norm_grad" in listed
    assert "conv_tbc_backward" not in listed
    assert re.search(r"not modelled +conv_tbc_backward, ", cli("products", "950").out, re.M)
    assert "not modelled" not in cli("products", "A2").out


HUGE = 10**20
BEYOND_INT64 = {
    "x": ("rms_norm", {"x": f"{HUGE}x7168:bf16", "gamma": "7168:bf16"}),
    "x, only its bytes": ("rms_norm", {"x": f"{2**60}x4:bf16", "gamma": "4:bf16"}),
    "grad": (
        "embedding_dense_backward",
        {"grad": f"{HUGE}x8:fp32", "indices": f"{HUGE}:int64", "num_weights": 10},
    ),
    "out": (
        "embedding_dense_backward",
        {"grad": "64x7168:fp32", "indices": "64:int64", "num_weights": 2**62},
    ),
    "permuted_tokens": (
        "moe_token_unpermute",
        {"permuted_tokens": f"{HUGE}x8:bf16", "sorted_indices": f"{HUGE}:int32"},
    ),
    "permuted_output_grad": (
        "moe_token_permute_grad",
        {
            "permuted_output_grad": f"{HUGE}x8:bf16",
            "sorted_indices": f"{HUGE}:int32",
            "num_topk": 1,
        },
    ),
    "log_prob": ("cross_entropy_loss_grad", {"log_prob": f"{HUGE}x8:bf16"}),
    "dy": ("rms_norm_grad", {"dy": f"{HUGE}x7168:bf16", "gamma": "7168:bf16"}),
    "indices": ("moe_token_permute", {"tokens": "1x8:bf16", "indices": f"1x{HUGE}:int64"}),
}


@pytest.mark.parametrize("argument", BEYOND_INT64)
def test_sizes_beyond_int64_are_refused(argument):
    operator, call = BEYOND_INT64[argument]
    with pytest.raises(npu_sim.UsageError) as caught:
        npu_sim.plan(operator, **call)
    name = argument.partition(",")[0]
    assert caught.value.argument == name
    assert caught.value.message.startswith(f"{name} {call.get(name, '')}")
    assert caught.value.hint.startswith(f"at most {2**63 - 1}")


def test_a_call_beyond_the_memory_of_the_chip_draws_a_note(cli, tmp_path):
    inputs = {"x": "5000000000x7168:bf16", "gamma": "7168:bf16"}
    (noted,) = npu_sim.plan("rms_norm", **inputs).caveats
    assert noted.code == "exceeds_memory"
    assert noted.message.endswith("Ascend910B1 has 68719476736 bytes of memory")
    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps({"op": "rms_norm", "inputs": inputs}), encoding="utf-8")
    assert "exceeds_memory, line 1" in cli("preflight", calls).out
    assert npu_sim.plan("rms_norm", x="64x7168:bf16", gamma="7168:bf16").caveats == ()


def test_a_copied_product_is_called_by_its_own_name(cli, tmp_path):
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    copied = text.replace("name: atlas_a2", "name: my_chip")
    call = ("rms_norm", "--x", "64x7168:bf16", "--gamma", "7168:bf16")
    titles = {
        "copied.yaml": (copied, "my_chip"),
        "titled.yaml": (copied.replace("title: Atlas A2", "title: My chip"), "My chip"),
        "changed.yaml": (text, "Atlas A2"),
    }
    for name, (content, title) in titles.items():
        file = tmp_path / name
        file.write_text(content, encoding="utf-8")
        for command in ("plan", "explain"):
            outcome = cli(command, *call, "--product", file)
            assert outcome.out.startswith(f"RmsNorm on {title}, Ascend910B1: runs")
        report = tmp_path / "report.html"
        cli("plan", *call, "--product", file, "--report", report)
        assert f"RmsNorm on {title}, Ascend910B1" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("Atlas 800 9000", "atlas_train"),
        ("Atlas 800 9010", "atlas_train"),
        ("Atlas 900 A3 SuperPoD", "atlas_a3"),
        ("Atlas 800T A3", "atlas_a3"),
        ("Atlas 900 A2 PoD", "atlas_a2"),
    ],
)
def test_servers_name_their_product(name, product):
    assert load_profile(name).name == product


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("8.0", "8.3 is the oldest, "),
        ("8.6", "did you mean 8.5? releases: "),
        ("9.3", "9.2 is the newest, "),
        ("9.04", "did you mean 9.0? releases: "),
        ("9.9", "9.2 is the newest, "),
    ],
)
def test_the_nearest_release_is_named(cli, typed, hint):
    outcome = cli("plan", "rms_norm", "--x", "64x8:bf16", "--gamma", "8:bf16", "--release", typed)
    assert f"\n{hint}" in outcome.err


def test_a_name_of_the_product_document_is_answered_with_the_argument(cli):
    outcome = cli("plan", "conv_tbc_backward", "--self", "64x2x8:bf16")
    assert "No such option: --self; did you mean --grad-output?" in outcome.err
    with pytest.raises(npu_sim.UsageError, match="did you mean grad_output"):
        npu_sim.plan("conv_tbc_backward", self="64x2x8:bf16")


def test_a_shape_without_its_option_is_answered_with_the_option_and_the_example(cli):
    outcome = cli("plan", "RmsNormGrad", "4096x7168", "--soc", "910B3")
    assert outcome.code == 64
    assert "name its option, --dy 4096x7168\n" in outcome.err
    assert "Example: npu-sim plan rms_norm_grad --dy " in outcome.err
    assert "x belongs to no option" in cli("plan", "rms_norm_grad", *NORM, *GAMMA, "x").err


def test_an_option_with_two_values_is_refused(cli):
    outcome = cli("diff", "rms_norm_grad", *NORM, *GAMMA, "--product", "A2", "--products", "A2,A3")
    assert outcome.code == 64
    assert "--products / --product is given twice" in outcome.err
    outcome = cli("timeline", "rms_norm_grad", *NORM, *GAMMA, "--soc", "910B3", "--socs", "910B1")
    assert outcome.code == 64
    assert "--socs / --soc is given twice" in outcome.err


def test_a_value_of_an_option_that_takes_none_is_named(cli, tmp_path):
    outcome = cli("preflight", _calls(tmp_path), "--releases", "8.3,9.1")
    assert outcome.code == 64
    assert "--releases takes no value, got 8.3,9.1\n--release 8.3,9.1" in outcome.err
    outcome = cli("plan", "rms_norm_grad", *NORM, *GAMMA, "--deterministic", "true")
    assert "--deterministic takes no value, got true\nleave it out" in outcome.err
    assert cli("preflight", "--releases", _calls(tmp_path)).code != 64


def test_an_overflow_by_a_few_bytes_is_not_100_percent(cli, tmp_path):
    chip = tmp_path / "chip.yaml"
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    chip.write_text(text.replace("196608", "131072"), encoding="utf-8")
    call = ("--dy", "4096x7168:bf16", "--gamma", "7168:bf16")
    shown = " ".join(cli("plan", "rms_norm_grad", *call, "--product", chip).out.split())
    assert "131456 bytes, 101 % of the 130816" in shown


def test_preflight_takes_every_release(cli, tmp_path):
    file = _calls(tmp_path)
    labels = list(cli("preflight", file, "--releases", "--json").data["targets"])
    assert labels == [f"atlas_a2 {name}" for name in release_names()]
    assert cli("preflight", file, "--releases", "--release", "9.1").code == 64


def test_a_timeline_varies_over_a_range(cli):
    arguments = ("timeline", "rms_norm_grad", *NORM, *GAMMA, "--vary")
    rows = cli(*arguments, "col=6080..7168:+512", "--json").data["timelines"]
    assert [row["call"] for row in rows] == ["col=6080", "col=6592", "col=7104"]
    assert cli(*arguments, "col=1..100000").code == 64


def test_a_budget_that_rounds_to_the_same_size_is_shown_with_the_difference(cli, tmp_path):
    out = cli("preflight", _calls(tmp_path), "--max-workspace", "16777200").out
    assert "16.0 MiB + 1552 B" in out


def test_one_call_is_not_called_calls(cli, tmp_path):
    out = cli("preflight", _calls(tmp_path), "--timeline", "--json").data
    matrix = npu_sim.preflight(_calls(tmp_path), timed=True)
    assert out["summary"]["lines"] == 1
    assert str(matrix).startswith("1 call: at least ")


@pytest.fixture
def small_ub(tmp_path):
    """A chip of one's own: Atlas A2 with a smaller Unified Buffer."""
    text = CONFIG.read_text(encoding="utf-8")
    text = re.sub(r"^name: .*", "name: small_ub", text, flags=re.MULTILINE)
    text = re.sub(r"^aliases: .*", "aliases: []", text, flags=re.MULTILINE)
    file = tmp_path / "small_ub.yaml"
    file.write_text(text.replace("ub_bytes: 196608", "ub_bytes: 131072"), encoding="utf-8")
    return file


def test_a_comparison_states_a_fact_of_several_socs_once(cli, small_ub):
    out = cli("diff", "rms_norm_grad", *NORM, *GAMMA, "--products", f"A2,{small_ub}").out
    sentences = [line for line in out.splitlines() if "the buffers take 131456 bytes" in line]
    assert len(sentences) == 2  # the overflow and its caveat
    assert all("910B2, 910B2C, 910B3" in line for line in sentences)
    assert "on atlas_a2, small_ub" in out


def test_output_cites_no_page_that_users_do_not_have(cli, small_ub):
    call = ("--dy", "64x512:bf16", "--gamma", "512:bf16")
    out = cli("plan", "rms_norm_grad", *call, "--product", small_ub).out
    assert "assumes 195584 on every SoC" in out
    assert "specification page" not in out


def _calls(folder, *lines):
    """Write a file of calls, one call if none is given."""
    file = folder / "calls.jsonl"
    call = {"op": "rms_norm_grad", "inputs": {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}}
    text = "".join(json.dumps(line) + "\n" for line in lines or (call,))
    file.write_text(text, encoding="utf-8")
    return file


LAYER = (
    ("rms_norm", {"x": "4096x4096:bf16", "gamma": "4096:bf16"}),
    ("rms_norm_grad", {"dy": "4096x4096:bf16", "gamma": "4096:bf16"}),
    ("moe_token_permute", {"tokens": "4096x4096:bf16", "indices": "4096x8:int64"}),
    (
        "moe_token_unpermute",
        {
            "permuted_tokens": "32768x4096:bf16",
            "sorted_indices": "32768:int32",
            "probs": "4096x8:bf16",
        },
    ),
    (
        "moe_token_permute_grad",
        {"permuted_output_grad": "32768x4096:bf16", "sorted_indices": "32768:int32", "num_topk": 8},
    ),
    ("embedding_dense_backward", {"grad": "4096x512:bf16", "indices": "4096:int64", **WEIGHTS}),
    ("cross_entropy_loss_grad", {"log_prob": "4096x32000:fp32", "target": "4096:int64"}),
)


def test_notes_of_many_calls_are_a_line_a_fact_with_what_refuses_first(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    file = _calls(tmp_path, *({"op": op, "inputs": inputs} for op, inputs in LAYER))
    devices = ("--products", "A2,A3,950", "--release", "8.3,9.1")
    notes = cli("preflight", file, *devices).out.partition("unpublished parts\n")[2].splitlines()
    assert notes[1].startswith("7x 7 operators, lines 1 to 7, ascend_950 8.3: unknown: ")
    assert sum("not run on a device" in note for note in notes) == 1
    assert "can differ between runs on atlas_a2, atlas_a3 (8.3, 9.1)" in "\n".join(notes)
    assert "other number of cores (lines 1 to 7)" in "\n".join(notes)
    assert len(notes) < 15
    assert "sentences: --report" in notes
    report = tmp_path / "report.html"
    cli("preflight", file, *devices, "--report", report)
    page = report.read_text(encoding="utf-8")
    for sentence in ("negative ignore_index masks nothing", "other path, line 1: normal on "):
        assert sentence not in "\n".join(notes)
        assert sentence in page
    lines = cli("preflight", file, *devices, "--lines").out.splitlines()
    assert lines
    assert all(re.match(r"[^:]*:\d+: error: ", line) for line in lines)


def test_lines_of_calls_are_in_the_order_of_the_file(cli, tmp_path):
    calls = (
        ("rms_norm", {"x": "64x4096:fp16", "gamma": "4096:fp16"}),
        ("rms_norm_grad", {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}),
        (
            "embedding_dense_backward",
            {"grad": "512x64:bf16", "indices": "512:int64", "num_weights": 20},
        ),
        ("conv_tbc_backward", {"grad_output": "8x8x8:fp32"}),
        ("moe_token_permute", {"tokens": "4096x2048:bf16", "indices": "4096x8:int32"}),
    )
    file = _calls(tmp_path, *({"op": op, "inputs": inputs} for op, inputs in calls))
    out = " ".join(cli("preflight", file, "--products", "A2,950").out.split())
    listed = re.findall(r"\(lines ([\d, ]+)\)", out)
    assert listed
    assert all(numbers == ", ".join(sorted(numbers.split(", "), key=int)) for numbers in listed)


def test_preflight_names_the_hardware_limits_as_its_lines_do(cli, tmp_path):
    inputs = {"input": "1000x8x64:fp16", "weight": "300x64x64:fp16", "pad": 200}
    file = _calls(tmp_path, {"op": "conv_tbc_backward", "inputs": inputs})
    for options in ((), ("--lines",)):
        out = " ".join(cli("preflight", file, *options).out.split())
        assert '"limits": "hardware" allows more' in out
        assert 'limits="hardware"' not in out
    inputs = ("--input", "1000x8x64:fp16", "--weight", "300x64x64:fp16", "--pad", "200")
    refusal = cli("plan", "conv_tbc_backward", *inputs).err
    assert "--limits hardware" in refusal
    assert 'limits="hardware"' not in refusal


def test_a_documented_limit_is_stated_as_a_number(cli):
    call = ("--grad-output", "3x4x8:fp32", "--input", "302x4x8:fp32", "--weight", "300x8x8:fp32")
    outcome = cli("plan", "conv_tbc_backward", *call)
    assert "K = 300, which ConvTbcBackward does not take\nK <= 255" in outcome.err
    assert "kernel_width_at_most" not in outcome.err


def test_tiling_keys_are_names_without_separators(cli):
    call = ("--log-prob", "64x1000:fp32", "--target", "64:int64", "--soc", "Ascend950PR_9589")
    outcome = cli("plan", "cross_entropy_loss_grad", *call)
    assert "4294967553" in outcome.out
    assert "4,294,967,553" not in outcome.out


@pytest.mark.parametrize(
    ("operator", "call", "text"),
    [
        ("rms_norm", {"x": "4x8:fp32", "gamma": "8:fp32"}, "1 group of up to 1 row"),
        ("rms_norm", {"x": "64x128:bf16", "gamma": "128:bf16"}, "1 group of up to 2 rows"),
        (
            "embedding_dense_backward",
            {"grad": "8x4:fp32", "indices": "8:int32", "num_weights": 9},
            "one batch of 1 row",
        ),
    ],
)
def test_one_row_is_singular(operator, call, text):
    assert str(npu_sim.plan(operator, **call).per_core) == text


@pytest.mark.parametrize(("option", "value"), [("--num-weights", "32k"), ("--grad", "32kx8:fp32")])
def test_abbreviated_sizes_are_refused_with_what_is_right(cli, option, value):
    outcome = cli("plan", "embedding_dense_backward", option, value)
    assert outcome.code == 64
    of_older_typer = "'32k' is not a valid integer" in outcome.err
    assert of_older_typer or "'32k' is not an integer" in outcome.err
    assert of_older_typer or "all its digits" in outcome.err


def test_products_name_the_folder_of_their_files(cli):
    assert str(config_directory()) in cli("products").out.replace("\n", "")


def test_unknown_calls_that_do_not_count_are_not_called_informational(cli, tmp_path):
    file = tmp_path / "calls.jsonl"
    inputs = {"x": "2x4x128x64:bf16", "cos": "1x1x128x64:bf16", "sin": "1x1x128x64:bf16"}
    calls = [
        {"op": "rotary_position_embedding", "inputs": inputs},
        {"op": "rms_norm", "inputs": {"x": "4x8:fp32", "gamma": "8:fp32"}},
    ]
    file.write_text("".join(json.dumps(call) + "\n" for call in calls))
    outcome = cli("preflight", str(file), "--products", "A2,950")
    assert outcome.code == 0
    assert "ascend_950 (does not count): unknown" in outcome.out
