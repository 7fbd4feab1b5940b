import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import shipped_products

PLAN = (
    "plan",
    "embedding_dense_backward",
    "--grad",
    "4096x512:bf16",
    "--indices",
    "4096:int32",
    "--num-weights",
    "32000",
)


@pytest.fixture
def files(tmp_path):
    """Input files of a small call, and its output folder."""
    rng = np.random.default_rng(3)
    grad, indices = (
        rng.standard_normal((50, 8)).astype(np.float32),
        rng.integers(0, 20, 50, dtype=np.int32),
    )
    np.save(tmp_path / "g.npy", grad)
    np.save(tmp_path / "i.npy", indices)
    return tmp_path


def run_words(files, *more):
    return (
        "run",
        "embedding_dense_backward",
        "--grad",
        files / "g.npy",
        "--indices",
        files / "i.npy",
        "--num-weights",
        20,
        *more,
    )


def test_plan_prints_the_outcome_first(cli):
    outcome = cli(*PLAN, "--product", "atlas_a2")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    for label in ("path", "cores", "buffer", "workspace", "order", "change"):
        assert any(line.startswith(label) for line in outcome.out.splitlines())


def test_plan_as_json_is_the_plan_of_the_python_call(cli):
    planned = npu_sim.plan(
        "embedding_dense_backward", grad="4096x512:bf16", indices="4096:int32", num_weights=32000
    )
    assert cli(*PLAN, "--json").data == {
        "schema": "npu_sim.plan/1",
        "outcome": "runs",
        "plan": planned.as_dict(),
    }


def test_switches_reach_the_plan(cli):
    plan = cli(
        *PLAN, "--soc", "Ascend910B4", "--deterministic", "--scale-grad-by-freq", "--json"
    ).data["plan"]
    assert (plan["soc"], plan["tiling_key"], plan["cores_available"]) == ("Ascend910B4", 11, 40)


def test_a_refusal_exits_with_2_and_states_the_reason(cli):
    refused = cli(*PLAN, "--product", "atlas_inference")
    assert (refused.code, refused.out) == (2, "")
    assert "161002" in refused.err
    as_json = cli(*PLAN, "--product", "atlas_inference", "--json")
    assert as_json.code == 2
    assert as_json.data["error"]["status"] == 161002


def test_a_missing_tensor_is_a_usage_error_and_not_a_refusal(cli):
    missing = cli(
        "plan", "embedding_dense_backward", "--grad", "4x4:fp32", "--num-weights", 3, "--json"
    )
    assert (missing.code, missing.data["outcome"], missing.data["argument"]) == (
        64,
        "usage",
        "indices",
    )


@pytest.mark.parametrize("text", ["4096x512", "4096y512:bf16", "4096x512:bf17", "-1x2:fp32"])
def test_the_message_for_a_malformed_tensor_states_the_format(cli, text):
    refused = cli(
        "plan",
        "embedding_dense_backward",
        f"--grad={text}",
        "--indices",
        "4096:int32",
        "--num-weights",
        3,
    )
    assert refused.code == 64
    assert text in refused.err
    assert "4096x512:bf16" in refused.err


def test_run_writes_what_the_python_call_returns(cli, files):
    assert cli(*run_words(files, "--out", files / "w.npy")).code == 0
    expected = npu_sim.embedding_dense_backward(
        np.load(files / "g.npy"), np.load(files / "i.npy"), num_weights=20
    )
    np.testing.assert_array_equal(np.load(files / "w.npy"), expected)


def test_bf16_goes_through_files_both_ways(cli, files):
    grad = np.load(files / "g.npy").astype(ml_dtypes.bfloat16)
    expected = npu_sim.embedding_dense_backward(grad, np.load(files / "i.npy"), num_weights=20)
    for saved, suffix in ((grad, ""), (grad.view(np.uint16), ":bf16")):
        np.save(files / "b.npy", saved)
        arguments = (
            "run",
            "embedding_dense_backward",
            "--grad",
            f"{files / 'b.npy'}{suffix}",
            "--indices",
            files / "i.npy",
        )
        assert cli(*arguments, "--num-weights", 20, "--out", files / "w.npy").code == 0
        np.testing.assert_array_equal(np.load(files / "w.npy").view(ml_dtypes.bfloat16), expected)


def test_an_index_out_of_range_names_position_and_value_and_writes_nothing(cli, files):
    indices = np.load(files / "i.npy")
    indices[[7, 30]] = 20, -4
    np.save(files / "i.npy", indices)
    (files / "w.npy").write_bytes(b"kept")
    refused = cli(*run_words(files, "--out", files / "w.npy"))
    assert refused.code == 2
    assert "361001" in refused.err
    assert "indices[7] = 20" in refused.err
    assert (files / "w.npy").read_bytes() == b"kept"
    assert sorted(path.name for path in files.iterdir()) == ["g.npy", "i.npy", "w.npy"]


def test_json_of_a_run_counts_order_dependent_rows(cli, files):
    data = cli(*run_words(files, "--json")).data
    assert data["outcome"] == "ran"
    assert 0 < data["order_dependent"]["grad_weight"]["order_dependent"] <= 20


@pytest.mark.parametrize("name", ["missing.npy", "text.npy"])
def test_an_unreadable_file_is_refused(cli, files, name):
    (files / "text.npy").write_text("no array")
    arguments = (
        "run",
        "embedding_dense_backward",
        "--grad",
        files / name,
        "--indices",
        files / "i.npy",
        "--num-weights",
        20,
    )
    refused = cli(*arguments)
    assert refused.code == 64
    assert "cannot be read" in refused.err


def test_planning_loads_no_compiler():
    code = (
        f"import sys; sys.argv = ['npu-sim', *{list(PLAN)!r}]; "
        "from npu_sim.cli import main; main(); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_help_loads_no_declarations():
    code = (
        "import sys, npu_sim.cli.app; assert not {'numba', 'pydantic', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_products_lists_every_soc_and_operator(cli):
    out = cli("products").out
    assert "Ascend910_9392" in out
    assert "Ascend310P7" in out
    listed = [product["name"] for product in cli("products", "--json").data["products"]]
    assert listed == list(shipped_products())


@pytest.mark.parametrize(
    "call",
    [
        ("cross_entropy_loss_grad", "--log-prob", "3x0:fp32", "--reduction", "none"),
        ("rms_norm_grad", "--dy", "0x4:fp32", "--gamma", "4:fp32"),
    ],
    ids=["no columns", "no rows"],
)
def test_data_of_empty_calls_is_drawn(cli, call):
    assert cli("run", *call, "--product", "950").code == 0
