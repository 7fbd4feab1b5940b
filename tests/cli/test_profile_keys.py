"""Own product files: a plan lists the keys that its operator does not read."""

import pytest

import npu_sim
from npu_sim.cores import config_directory
from npu_sim.operators.loading import load_operator
from npu_sim.tiling import rms_norm_grad as tiler

WIDE = {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}
LOSS = {"grad_loss": "scalar:bf16", "log_prob": "4096x32000:bf16", "target": "4096:int64"}


@pytest.fixture
def modified_a2(tmp_path):
    """Write a copy of Atlas A2 with some keys changed."""

    def write(**changed):
        text = (
            (config_directory() / "atlas_a2.yaml")
            .read_text(encoding="utf-8")
            .replace("name: atlas_a2", "name: my_chip")
        )
        for key, (before, after) in changed.items():
            assert f"{key}: {before}" in text
            text = text.replace(f"{key}: {before}", f"{key}: {after}")
        (tmp_path / "my_chip.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "my_chip.yaml"

    return write


@pytest.mark.parametrize("ub_bytes", [98304, 262144])
def test_a_plan_lists_a_buffer_key_that_its_operator_does_not_read(modified_a2, ub_bytes):
    plan = npu_sim.plan("rms_norm_grad", product=modified_a2(ub_bytes=(196608, ub_bytes)), **WIDE)
    shipped = npu_sim.plan("rms_norm_grad", **WIDE)
    assert (plan.path, plan.tiling) == (shipped.path, shipped.tiling)
    (key,) = plan.profile_keys
    assert (key.key, key.value, key.shipped, key.product) == (
        "ub_bytes",
        ub_bytes,
        196608,
        "atlas_a2",
    )
    assert key.assumed == tiler.ASSUMED_UB_BYTES
    assert plan.as_dict()["profile_keys"][0]["assumed"] == tiler.ASSUMED_UB_BYTES


def test_text_explanation_and_report_list_unread_keys(modified_a2, cli, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "300")
    arguments = (
        "rms_norm_grad",
        "--dy",
        WIDE["dy"],
        "--gamma",
        WIDE["gamma"],
        "--product",
        modified_a2(ub_bytes=(196608, 262144)),
    )
    effect = "path and tiling unchanged: RmsNormGrad assumes 195584 on every SoC"
    model = "If it read this key: split N up to 8128 columns (model)"
    report = tmp_path / "plan.html"
    for text in (
        cli("plan", *arguments, "--report", report).out,
        cli("explain", *arguments).out,
        report.read_text(encoding="utf-8"),
    ):
        assert "ub_bytes 262144" in text
        assert effect in " ".join(text.split())
        assert model in " ".join(text.split())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_model_of_a_planner_that_reads_the_key_gives_the_limit_of_the_product(dtype):
    tiling = tiler.NO_TILING._replace(dtype_code=tiler.DTYPE_CODES[dtype])
    assert tiler.widest_whole_row(tiling, tiler.ASSUMED_UB_BYTES) == tiler.SPLIT_N_COLUMNS


def test_no_key_is_listed_for_an_operator_that_reads_the_buffer_size(modified_a2):
    plan = npu_sim.plan(
        "cross_entropy_loss_grad", product=modified_a2(ub_bytes=(196608, 262144)), **LOSS
    )
    assert plan.profile_keys == ()
    assert plan.tiling != npu_sim.plan("cross_entropy_loss_grad", **LOSS).tiling


def test_cube_buffers_have_no_effect_on_a_vector_operator(modified_a2):
    plan = npu_sim.plan(
        "cross_entropy_loss_grad", product=modified_a2(l1_bytes=(524288, 1048576)), **LOSS
    )
    assert [(key.key, key.assumed) for key in plan.profile_keys] == [("l1_bytes", None)]


def test_an_unread_reserved_workspace_is_listed(modified_a2):
    plan = npu_sim.plan(
        "rms_norm_grad", product=modified_a2(system_workspace_bytes=(16777216, 4096)), **WIDE
    )
    (key,) = plan.profile_keys
    assert (key.key, key.value, key.assumed) == ("system_workspace_bytes", 4096, 16777216)
    assert plan.workspace == npu_sim.plan("rms_norm_grad", **WIDE).workspace


def test_shipped_products_have_no_keys_without_effect():
    assert all(
        npu_sim.plan("rms_norm_grad", product=name, **WIDE).profile_keys == ()
        for name in ("atlas_a2", "atlas_a3")
    )


def test_every_assumption_of_a_planner_is_a_profile_key():
    for name in ("rms_norm", "rms_norm_grad"):
        for assumption in load_operator(name).assumed:
            assert assumption.key in ("ub_bytes", "system_workspace_bytes")
            assert assumption.source.startswith("specification page")
