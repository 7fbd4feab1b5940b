"""Aliases of products, SoCs, dtypes and operators; suggestions for misspelt names."""

import pytest

import npu_sim
from npu_sim.cores import all_socs, load_profile, shipped_names, shipped_products
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.product import ProductNames
from npu_sim.registry import OPERATORS, find_operator
from npu_sim.status import plain_name

PRODUCTS = {
    "atlas_a2": [
        "A2",
        "a2",
        "Atlas A2",
        "atlas-a2",
        "Atlas 800I A2",
        "Atlas A2 训练系列产品",
        "Atlas A2训练系列产品",
    ],
    "atlas_a3": [
        "A3",
        "Atlas A3",
        "Ascend910_93",
        "Atlas A3 训练系列产品/Atlas A3 推理系列产品",
        "Atlas A3 推理系列产品",
    ],
    "atlas_train": ["Atlas training series", "Atlas 训练系列产品", "Ascend910"],
    "atlas_inference": ["Atlas inference", "Atlas 推理系列产品", "310P"],
    "ascend_350": ["350", "Ascend350", "Ascend 350", "昇腾 350"],
    "ascend_950": [
        "A5",
        "950PR",
        "950DT",
        "Ascend950",
        "Ascend 950PR/Ascend 950DT",
        "Ascend 950DT",
        "昇腾 950",
        "Atlas A5 训练系列产品",
    ],
}
NAMES = [(name, product) for product, names in PRODUCTS.items() for name in names]
SOCS = [
    (product, soc) for product in shipped_products() for soc in load_profile(product).product.socs
]


@pytest.mark.parametrize(("name", "product"), NAMES)
def test_a_product_has_aliases(name, product):
    profile = load_profile(name)
    assert (profile.name, profile.soc) == (product, profile.product.default_soc)


@pytest.mark.parametrize(("product", "soc"), SOCS)
def test_a_soc_implies_its_product(product, soc):
    assert (load_profile(None, soc).name, load_profile(None, soc).soc) == (product, soc)
    if len(shipped_names().meanings(soc)) == 1:
        for name in (soc, soc.lower(), soc.removeprefix("Ascend")):
            assert [
                (profile.name, profile.soc)
                for profile in (load_profile(name), load_profile(None, name), *all_socs(name))
            ] == [(product, soc)] * 3


def test_aliases_are_unique_across_products():
    targets_by_alias = {
        alias: shipped_names().meanings(alias)
        for product in shipped_products()
        for alias in load_profile(product).product.aliases
    }
    assert {
        alias: targets for alias, targets in targets_by_alias.items() if len(targets) != 1
    } == {}


def test_an_ambiguous_product_name_is_refused_with_both_candidates():
    with pytest.raises(npu_sim.UsageError, match="may be atlas_a2 or Ascend910B of atlas_train"):
        load_profile("910B")
    a2 = load_profile("atlas_a2").product
    copy = a2.model_copy(update={"name": "twin"})
    with pytest.raises(npu_sim.UsageError, match="may be atlas_a2 or twin"):
        ProductNames([a2, copy]).product("A2")


@pytest.mark.parametrize(
    ("product", "soc", "message"),
    [
        ("atlas_a4", None, "did you mean atlas_a"),
        ("Ascend910B33", None, "did you mean Ascend910B3"),
        (None, "Ascend910_9931", "did you mean Ascend910_93"),
        (None, "910B7", "did you mean 910B[1-4]"),
        (None, "Ascend910B7", "did you mean Ascend910B[1-4]"),
        ("910B7", None, "did you mean 910B[1-4]"),
        (
            None,
            "A2",
            "atlas_a2 is a product, not a SoC\nproduct = atlas_a2 has the SoC Ascend910B1",
        ),
        (None, "950", "ascend_950 is a product, not a SoC"),
        (None, "Atlas", "no shipped product has such a SoC"),
        ("910B3", "Ascend910B4", "is another SoC"),
        ("atlas_a2", "Ascend910_9391", "atlas_a2 has no such SoC"),
    ],
)
def test_an_unknown_name_is_a_usage_error(product, soc, message):
    with pytest.raises(npu_sim.UsageError, match=message):
        load_profile(product, soc)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(
            (form, "bfloat16")
            for form in (
                "bf16",
                "BF16",
                "bfloat16",
                "BFLOAT16",
                "DT_BF16",
                "ACL_BF16",
                "torch.bfloat16",
                "bfloat16_t",
            )
        ),
        *((form, "float16") for form in ("fp16", "FLOAT16", "ACL_FLOAT16", "DT_FLOAT16", "half")),
        *((form, "float32") for form in ("ACL_FLOAT", "DT_FLOAT", "float")),
        *((form, "int64") for form in ("ACL_INT64", "DT_INT64", "int64_t")),
    ],
)
def test_a_dtype_has_aliases(name, dtype):
    assert canonical_dtype(name) == dtype


@pytest.mark.parametrize(
    ("name", "near"), [("bf61", "bf16"), ("b16", "bf16"), ("DT_IN32", "int32")]
)
def test_a_misspelt_dtype_is_a_usage_error_with_a_suggestion(name, near):
    with pytest.raises(npu_sim.UsageError, match=f"unknown dtype .*did you mean {near}"):
        npu_sim.plan("rms_norm", x=f"4x8:{name}", gamma=f"8:{name}")


def test_an_unsupported_dtype_is_a_refusal():
    with pytest.raises(npu_sim.AclnnError, match="x"):
        npu_sim.plan("rms_norm", x="4x8:int8", gamma="8:fp32")


@pytest.mark.parametrize("entry", OPERATORS, ids=lambda entry: entry.name)
def test_an_operator_has_aliases(entry):
    words = entry.name.split("_")
    for name in (
        entry.name,
        entry.title,
        f"aclnn{entry.title}",
        "-".join(words),
        "".join(words).upper(),
        f"ACLNN_{entry.name}",
    ):
        assert find_operator(name) is entry
    assert plain_name(entry.title) == plain_name(entry.name)


def test_aliases_are_accepted_by_every_command(cli, tmp_path):
    call = ("rms_norm", "--x", "64x128:ACL_BF16", "--gamma", "128:BFLOAT16")
    for arguments in (("--soc", "Ascend910_9391"), ("--product", "910_9391")):
        plan = cli("plan", *call, *arguments, "--json").data["plan"]
        assert (plan["product"], plan["soc"]) == ("atlas_a3", "Ascend910_9391")
        assert (
            plan
            == npu_sim.plan(
                "aclnnRmsNorm", x="64x128:bf16", gamma="128:bf16", soc="910_9391"
            ).as_dict()
        )
    rows = cli("diff", *call, "--products", "A2,910_9391", "--json").data["rows"]
    assert {(row["product"], *row["socs"]) for row in rows if row["product"] == "atlas_a3"} == {
        ("atlas_a3", "Ascend910_9391")
    }
    records = npu_sim.sweep("RMS_NORM", {"row": [1, 2], "soc": "910B3"})
    assert set(records.words("product")) == {"atlas_a2"}
    lines = tmp_path / "calls.jsonl"
    lines.write_text(
        '{"op": "RmsNorm", "soc": "910B3", "inputs": {"x": "64x128:bf16", "gamma": "128:bf16"}}\n',
        encoding="utf-8",
    )
    (checked,) = cli("preflight", lines, "--json").data["results"]
    assert (checked["product"], checked["soc"]) == ("atlas_a2", "Ascend910B3")
    with npu_sim.aclnn.device("A3") as settings:
        assert settings.profile.name == "atlas_a3"


@pytest.mark.parametrize(
    ("typed", "notes"),
    [
        ("9.1", []),
        ("9.1.0", ["release 9.1.0 is simulated as 9.1,"]),
        ("CANN 8.5.1", ["release CANN 8.5.1 is simulated as 8.5,"]),
        ("9.2.0-beta.1", ["release 9.2.0-beta.1 is simulated as 9.1,"]),
    ],
)
def test_the_release_that_stands_for_a_version_is_named(cli, typed, notes):
    outcome = cli("plan", "rms_norm", "--x", "8x64:fp16", "--gamma", "64:fp16", "--release", typed)
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert [line.startswith(note) for line, note in zip(lines, notes, strict=True)] == [
        True for _ in notes
    ]


def test_several_versions_are_named_one_by_one_and_all_is_none(cli):
    call = ("rms_norm", "--x", "8x64:fp16", "--gamma", "64:fp16", "--soc", "Ascend910B1")
    assert cli("diff", *call, "--release", "9.0.1,9.1.2,9.2").err.count("is simulated as") == 2
    assert cli("diff", *call, "--release", "all").err == ""
