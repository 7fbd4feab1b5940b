"""Declarations by architecture: which one serves a product, and what is not modelled there."""

import json
import pickle

import pytest

import npu_sim
from npu_sim.cores import load_profile, release_names
from npu_sim.framework.inference import call_with
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.questions.preflight import check_file, chosen_columns, policy_of
from npu_sim.registry import ASCEND_950, OPERATORS
from npu_sim.status import NotModelledError
from tests.cli import runner

WITHOUT_950 = [
    entry.name
    for entry in OPERATORS
    if ASCEND_950 in load_operator(entry.name).families_not_modelled
]
MODELLED = [entry.name for entry in OPERATORS if entry.name not in WITHOUT_950]


def call_of(name, **options):
    declared = load_operator(name)
    return {**call_with(declared, declared.defaults()), **options}


@pytest.mark.parametrize("name", WITHOUT_950)
def test_an_operator_without_a_model_there_says_so(name):
    with pytest.raises(NotModelledError, match="npu_sim does not model it there yet") as caught:
        npu_sim.plan(name, product="ascend_950", **call_of(name))
    assert caught.value.outcome == "not_modelled"
    assert caught.value.argument == "product"
    assert load_operator(name).supported_by(load_profile("ascend_950"))


@pytest.mark.parametrize("name", MODELLED)
def test_the_architecture_chooses_the_declaration(name):
    base = load_operator(name)
    own = base.on(load_profile("ascend_950"))
    assert own is not base
    assert (own.name, own.family) == (name, ASCEND_950)
    assert own.on(load_profile("ascend_950")) is own
    assert own.on(load_profile("atlas_a2")) is base.on(load_profile("atlas_a3")) is base
    assert pickle.loads(pickle.dumps(own)) is own


@pytest.mark.parametrize("name", MODELLED)
def test_an_older_release_is_not_known_for_a_product_of_a_later_source(name):
    with pytest.raises(NotModelledError, match=r"are known from release 9\.1 on") as caught:
        npu_sim.plan(name, product="ascend_950", release="8.5", **call_of(name))
    assert caught.value.argument == "release"
    assert npu_sim.plan(name, product="ascend_950", **call_of(name)).rules_source


def test_comparisons_and_limits_go_on_without_a_model():
    call = call_of("conv_tbc_backward")
    rows = npu_sim.diff("conv_tbc_backward", **call).as_dict()["rows"]
    outcomes = {row["product"]: row["outcome"] for row in rows}
    assert (outcomes["ascend_950"], outcomes["atlas_a2"]) == ("not_modelled", "runs")
    bounds = npu_sim.limits("conv_tbc_backward", "T", product="ascend_950,atlas_a2").as_dict()
    found = {row["product"]: bool(row["documented"]["ranges"]) for row in bounds["rows"]}
    assert found == {"ascend_950": False, "atlas_a2": True}


@pytest.mark.parametrize(("fail_on", "faults"), [("refused", 0), ("refused,unknown", 1)])
def test_preflight_reports_it_as_unknown(fail_on, faults):
    inputs = {
        name: str(one) if isinstance(one, TensorSpec) else one
        for name, one in call_of("conv_tbc_backward").items()
    }
    line = json.dumps({"op": "conv_tbc_backward", "inputs": inputs})
    checked = {"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}}
    targets = chosen_columns("ascend_950,atlas_a2")
    matrix = check_file([line, json.dumps(checked)], targets, policy_of(fail_on))
    assert [cell.outcome for _, _, cell in matrix.cells()] == ["unknown", *["runs"] * 3]
    assert matrix.summary().unknown == 1
    assert len([one for one in matrix.faults() if "ascend_950" in one.labels]) == faults


def test_the_command_line_ends_with_64(capsys, monkeypatch):
    call = {name.replace("_", "-"): str(one) for name, one in call_of("conv_tbc_backward").items()}
    options = [text for name, value in call.items() for text in (f"--{name}", value)]
    arguments = ("plan", "conv_tbc_backward", *options, "--product", "950DT", "--json")
    found = runner.npu_sim(capsys, monkeypatch, *arguments)
    assert found.code == 64
    assert found.data["outcome"] == "not_modelled"


ASCEND_350 = load_profile("ascend_350", release="9.2")


def test_ascend_350_plans_on_all_its_cores():
    call = {"x": "64x4096:fp16", "gamma": "4096:fp16", "soc": "Ascend350_355e"}
    plan = npu_sim.plan("rms_norm", release="9.2", **call)
    assert (plan.block_dim, plan.cores_available, plan.evidence) == (32, 32, "model")
    with pytest.raises(NotModelledError, match=r"are known from release 9\.2 on") as caught:
        npu_sim.plan("rms_norm", **call)
    assert (caught.value.argument, caught.value.hint) == ("release", "release 9.2")


@pytest.mark.parametrize("release", release_names())
@pytest.mark.parametrize("name", ASCEND_350.product.not_modelled)
def test_an_operator_without_a_definition_there_is_not_modelled(name, release):
    with pytest.raises(NotModelledError, match="no definition of it for this product was seen"):
        npu_sim.plan(name, product="ascend_350", release=release, **call_of(name))


@pytest.mark.parametrize("name", sorted({*MODELLED} - {*ASCEND_350.product.not_modelled}))
def test_ascend_350_plans_as_ascend_950_with_its_cores(name):
    chips, called = ASCEND_350.product, load_profile("ascend_950").product
    chip = called.model_copy(update={"socs": chips.socs, "default_soc": chips.default_soc})
    expected = npu_sim.plan(
        name, product=ASCEND_350.model_copy(update={"product": chip}), **call_of(name)
    )
    plan = npu_sim.plan(name, product=ASCEND_350, **call_of(name))
    assert plan.evidence == "model"
    for same in ("tiling", "path", "block_dim", "workspace", "order"):
        assert getattr(plan, same) == getattr(expected, same)


def test_a_product_lists_what_is_not_modelled_there_and_why():
    (row,) = npu_sim.products("ascend_350").as_dict()["products"]
    assert {*row["operators"], *row["not_modelled"]} == {entry.name for entry in OPERATORS}
    assert not {*row["operators"]} & {*row["not_modelled"]}
    assert row["not_modelled"]["rotary_position_embedding"] == "npu_sim does not model it there yet"
