from pathlib import Path

import pytest

from npu_sim.cores import load_profile, release_names, shipped_products

CONFIGS = Path(__file__).parents[2] / "configs"
CALL = (
    "diff",
    "embedding_dense_backward",
    "--grad",
    "65536x512:fp32",
    "--indices",
    "65536:int32",
    "--num-weights",
    32000,
)


def test_every_product_and_soc_is_listed_once(cli):
    data = cli(*CALL, "--json").data
    listed = [(row["product"], soc) for row in data["rows"] for soc in row["socs"]]
    expected = [
        (name, soc) for name in shipped_products() for soc in load_profile(name).product.socs
    ]
    assert sorted(listed) == sorted(expected)
    outcomes = {row["product"]: row for row in data["rows"]}
    assert outcomes["atlas_inference"]["error"]["status"] == 161002
    assert outcomes["atlas_a2"]["tiling_key"] == 100
    assert outcomes["atlas_train"]["path"] == "atomic rows"


def test_only_socs_that_plan_alike_share_a_row(cli):
    rows = cli(*CALL, "--json", "--products", "atlas_a2").data["rows"]
    cores = {row["cores_used"]: set(row["socs"]) for row in rows}
    assert set(cores) == {40, 48}
    for used, socs in cores.items():
        assert {load_profile("atlas_a2", soc).device.vector_cores for soc in socs} == {used}


def test_the_text_ends_with_the_nearest_change(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    outcome = cli(*CALL, "--products", "atlas_a2,atlas_a3,atlas_inference")
    assert outcome.code == 0
    lines = [line for line in outcome.out.splitlines() if line.strip()]
    assert lines[0].split() == [
        "product",
        "SoC",
        "outcome",
        "path",
        "cores",
        "buffer",
        "workspace",
        "order",
    ]
    assert any("refused 161002" in line for line in lines)
    assert any("timing: grad_weight" in line for line in lines)
    sentence = "dim = 513 selects sorted, atomic chunks of 11 rows on atlas_a2, atlas_a3 (now 512)"
    assert any(line.startswith(sentence) for line in lines[-3:])


def test_equal_estimates_are_listed_once_and_those_of_two_profiles_separately(
    cli, tmp_path, monkeypatch
):
    call = (
        "diff",
        "rms_norm_grad",
        "--dy",
        "4096x7168:bf16",
        "--gamma",
        "7168:bf16",
        "--soc",
        "Ascend910B3",
    )
    (line,) = [
        line
        for line in cli(*call, "--products", "atlas_a2", "--releases").out.splitlines()
        if "vector pipe" in line
    ]
    releases = ", ".join(release_names())
    assert line.startswith(f"Ascend910B3, {releases}  RmsNormGrad: vector pipe about")
    monkeypatch.chdir(tmp_path)
    text = (
        (CONFIGS / "atlas_a2.yaml")
        .read_text(encoding="utf-8")
        .replace("name: atlas_a2", "name: mine")
    )
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    (line,) = [
        line
        for line in cli(*call, "--products", "atlas_a2,mine.yaml").out.splitlines()
        if "vector pipe" in line
    ]
    assert line.startswith("atlas_a2 Ascend910B3, 9.1; mine Ascend910B3, 9.1  RmsNormGrad")


@pytest.mark.parametrize("switch", [(), ("--deterministic",)])
def test_switches_reach_every_plan(cli, switch):
    rows = cli(*CALL, "--json", "--products", "atlas_a2,atlas_train", *switch).data["rows"]
    assert {row["order"]["grad_weight"] for row in rows} == ({"fixed"} if switch else {"timing"})


def test_a_modified_copy_of_a_product_is_identified_by_its_file(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (CONFIGS / "atlas_a2.yaml").read_text(encoding="utf-8")
    (tmp_path / "more.yaml").write_text(
        text.replace("ub_bytes: 196608", "ub_bytes: 262144"), encoding="utf-8"
    )
    rows = cli(*CALL, "--products", "atlas_a2,more.yaml", "--json").data["rows"]
    assert {row["product"] for row in rows} == {"atlas_a2", "atlas_a2 (more.yaml)"}
    assert all(len(row["socs"]) == len(set(row["socs"])) for row in rows)
    assert {
        row["product"] for row in cli(*CALL, "--products", "more.yaml", "--json").data["rows"]
    } == {"atlas_a2"}
    (tmp_path / "more.yaml").rename("more.yml")
    rows = cli(*CALL, "--products", "atlas_a2,more.yml", "--json").data["rows"]
    assert {row["product"] for row in rows} == {"atlas_a2", "atlas_a2 (more.yml)"}


def test_one_release_and_all_releases_exclude_each_other(cli):
    outcome = cli(*CALL, "--release", "8.5", "--releases", "--json")
    assert (outcome.code, outcome.data["argument"]) == (64, "release")
