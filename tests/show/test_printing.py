"""Every answer declared printable has a text; making a plan does not import npu_sim.show."""

import inspect
import re
import subprocess
import sys
from copy import copy
from importlib import import_module
from pathlib import Path

import pytest

import npu_sim
from npu_sim.plans.answers import Printed
from npu_sim.show import _import_view, document_of, pictures_of, view_of
from npu_sim.show.forms.layout import view_report

OPERATOR = "moe_token_permute_grad"
CALL = {"permuted_output_grad": "64x20:bf16", "sorted_indices": "64:int32", "num_topk": 4}


def shown_by(generic):
    return set(generic.registry) - {object}


def subclasses(kind):
    direct = kind.__subclasses__()
    return {*direct, *(below for one in direct for below in subclasses(one))}


def test_every_answer_has_a_text():
    pytest.importorskip("torch", reason="answers of npu_sim.torch need PyTorch")
    for path in Path(npu_sim.__file__).parent.rglob("*.py"):
        if re.search(r"^class .*\bPrinted\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = path.relative_to(Path(npu_sim.__file__).parents[1]).with_suffix("")
            import_module(".".join(name.parts))
    for kind in subclasses(Printed):
        if kind.__module__.startswith("npu_sim."):
            _import_view(kind)  # by the name of the type's module
    answers = {kind for kind in subclasses(Printed) if kind.__module__.startswith("npu_sim.")}
    for generic in (view_of, document_of, pictures_of):
        for kind in shown_by(generic):  # called with the answer alone, as print does
            inspect.signature(generic.dispatch(kind)).bind(kind)
    assert shown_by(view_of) == answers
    assert shown_by(document_of) < answers
    assert shown_by(pictures_of) < answers


def test_every_answer_of_a_question_has_a_text():
    plan = npu_sim.plan(OPERATOR, **CALL)
    timeline = import_module("npu_sim.operators.timelines").timeline(
        plan, npu_sim.load_profile("atlas_a2")
    )
    for answer in (
        plan,
        plan.workspace,
        timeline,
        npu_sim.diff(OPERATOR, product="atlas_a2", **CALL),
        npu_sim.explain(OPERATOR, **CALL),
        npu_sim.limits(OPERATOR, "hidden", product="atlas_a2"),
    ):
        assert str(answer).count("\n") > 2
        assert str(answer) == f"{answer}"
    assert plan._repr_html_().startswith("<iframe")
    assert timeline._repr_html_().startswith("<iframe")


def test_a_page_of_a_text_has_its_sections_and_the_colour_of_its_headline():
    explained = npu_sim.explain(OPERATOR, **CALL)
    report = view_report(view_of(explained))
    assert report.tone == "good"
    assert report.sentence == str(explained).splitlines()[0]
    titles = [section.title for section in report.sections]
    assert titles[:2] == ["path", "decisions"]
    assert all(title in str(explained) for title in titles)
    refused = npu_sim.explain(OPERATOR, **{**CALL, "num_topk": 513})
    assert view_report(view_of(refused)).tone == "bad"


def test_a_user_defined_type_is_printed_like_its_base_or_by_its_repr():
    class Mine(Printed):
        def __repr__(self):
            return "mine"

    assert str(Mine()) == "mine"
    assert Mine()._repr_html_() == "<pre>mine</pre>"
    kind = type(npu_sim.plan(OPERATOR, **CALL))
    longer = type("Longer", (kind,), {"__module__": __name__})
    plan = npu_sim.plan(OPERATOR, **CALL)
    derived = copy(plan)
    object.__setattr__(derived, "__class__", longer)
    assert str(derived) == str(plan)


def test_planning_does_not_import_the_show_package():
    program = f"import sys, npu_sim; npu_sim.plan({OPERATOR!r}, **{CALL!r}); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "npu_sim.plans.answers" in modules
    assert not [name for name in modules if name.startswith("npu_sim.show")]
