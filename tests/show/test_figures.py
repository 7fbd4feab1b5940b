"""One picture of an answer as a file."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import npu_sim

ROOT = Path(__file__).parents[2]
OPERATOR = "embedding_dense_backward"
SHAPES = {"grad": "4096x512:bf16", "indices": "4096:int32", "num_weights": 32000}
ARRAYS = {"grad": np.ones((64, 4), np.float32), "indices": np.zeros(64, np.int64), "num_weights": 5}
PLAN = ("cores", "memory", "workspace", "timeline")


@pytest.fixture(scope="module")
def answers():
    plan = npu_sim.plan(OPERATOR, **SHAPES)
    return {
        "plan": (plan, PLAN),
        "workspace": (plan.workspace, ("workspace",)),
        "timeline": (npu_sim.timeline(OPERATOR, **SHAPES), PLAN),
        "explanation": (npu_sim.explain(OPERATOR, **SHAPES), PLAN),
        "prepared call": (npu_sim.prepare(OPERATOR, **ARRAYS), PLAN),
        "result": (npu_sim.run(OPERATOR, **ARRAYS), (*PLAN, "grad_weight")),
        "limits": (npu_sim.limits(OPERATOR, "dim", product="A2"), ("limits",)),
    }


NAMES = ("plan", "workspace", "timeline", "explanation", "prepared call", "result", "limits")


@pytest.mark.parametrize("kind", NAMES)
def test_an_answer_has_its_pictures_as_whole_documents(answers, kind):
    answer, names = answers[kind]
    for name in names:
        drawn = answer.figure(name)
        root = ElementTree.fromstring(drawn.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.findall(".//{*}rect")
        assert "var(" not in drawn.svg
        assert drawn._repr_svg_() == drawn.svg


def test_the_cores_are_those_of_the_plan(answers):
    plan = answers["plan"][0]
    root = ElementTree.fromstring(plan.figure("cores").svg)
    assert len(root.findall(".//{*}g[@data-cell]")) == plan.block_dim


def test_the_timeline_has_every_launch_in_proportion_to_its_time(answers):
    timeline = answers["timeline"][0]
    root = ElementTree.fromstring(timeline.figure("timeline").svg)
    drawn = [
        (rect.find("{*}title").text, float(rect.get("width")))
        for rect in root.findall(".//{*}rect[@class='c5']")
    ]
    assert [kernel for kernel, _ in drawn] == [launch.kernel for launch in timeline.launches]
    whole = sum(width for _, width in drawn)
    for (_, width), launch in zip(drawn, timeline.launches, strict=True):
        assert width / whole == pytest.approx(launch.share, abs=0.001)


def test_a_profile_of_a_chip_of_ones_own_has_a_timeline(tmp_path):
    text = (ROOT / "configs" / "atlas_a2.yaml").read_text("utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("name: atlas_a2", "name: mine"), "utf-8")
    plan = npu_sim.plan(OPERATOR, **SHAPES, product=tmp_path / "mine.yaml")
    assert plan.product == "mine"
    assert "MemSet" in plan.figure("timeline").svg


def test_an_unknown_picture_names_those_that_exist(answers):
    names = "did you mean cores. pictures: cores, memory, workspace, timeline"
    with pytest.raises(npu_sim.UsageError, match=names):
        answers["plan"][0].figure("core")
    with pytest.raises(npu_sim.UsageError, match="it has none"):
        npu_sim.diff(OPERATOR, **SHAPES).figure("cores")


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_picture_is_saved_by_the_ending(answers, tmp_path, ending):
    if ending == "png":
        pytest.importorskip("resvg_py")
    path = answers["plan"][0].figure("memory").save(tmp_path / f"ub.{ending}")
    assert path.read_bytes().startswith({"svg": b"<svg ", "png": b"\x89PNG"}[ending])


def test_what_cannot_be_saved_leaves_no_file(answers, tmp_path, monkeypatch):
    picture = answers["plan"][0].figure("cores")
    with pytest.raises(npu_sim.UsageError, match=r"neither \.svg nor \.png"):
        picture.save(tmp_path / "cores.jpg")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(npu_sim.UsageError, match="resvg_py is not installed"):
        picture.save(tmp_path / "cores.png")
    assert not list(tmp_path.iterdir())
