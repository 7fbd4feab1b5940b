"""Every answer that says it can be printed can, and nobody loads the room that shows answers before one is."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import npu_sim
from npu_sim.plans.printing import Printed
from npu_sim.show import WAYS

OPERATOR = "moe_token_permute_grad"
CALL = {"permuted_output_grad": "64x20:bf16", "sorted_indices": "64:int32", "num_topk": 4}


def kind_of(name):
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)


@pytest.mark.parametrize("name", WAYS)
def test_every_entry_names_an_answer_and_functions(name):
    assert issubclass(kind_of(name), Printed)
    for way in filter(None, WAYS[name]):
        module, function = way.split(":")
        assert callable(getattr(import_module(f"npu_sim.show.{module}"), function))


def test_every_answer_has_an_entry():
    for path in Path(npu_sim.__file__).parent.rglob("*.py"):
        if "(Printed" in path.read_text(encoding="utf-8"):
            import_module(
                ".".join(path.relative_to(Path(npu_sim.__file__).parents[1]).with_suffix("").parts)
            )
    answers = {f"{kind.__module__}.{kind.__qualname__}" for kind in Printed.__subclasses__()}
    assert {name for name in answers if name.startswith("npu_sim.")} == {*WAYS}


def test_every_answer_of_a_question_has_a_text():
    plan = npu_sim.plan(OPERATOR, **CALL)
    timeline = import_module("npu_sim.operators.timelines").timeline(
        plan, npu_sim.load_profile("atlas_a2")
    )
    for answer in (
        plan,
        plan.workspace,
        timeline,
        npu_sim.compare(OPERATOR, product="atlas_a2", **CALL),
        npu_sim.explain(OPERATOR, **CALL),
        npu_sim.limits(OPERATOR, "hidden", product="atlas_a2"),
    ):
        assert str(answer).count("\n") > 2
        assert str(answer) == f"{answer}"
    assert plan._repr_html_().startswith("<iframe")
    assert timeline._repr_html_().startswith("<iframe")


def test_a_type_of_ones_own_is_printed_like_its_base_or_by_its_representation():
    class Mine(Printed):
        def __repr__(self):
            return "mine"

    assert str(Mine()) == "mine"
    assert Mine()._repr_html_() == "<pre>mine</pre>"
    kind = type(npu_sim.plan(OPERATOR, **CALL))
    longer = type("Longer", (kind,), {"__module__": __name__})
    plan = npu_sim.plan(OPERATOR, **CALL)
    assert str(longer(**{name: getattr(plan, name) for name in kind.model_fields})) == str(plan)


def test_a_plan_is_made_without_the_room_that_shows_it():
    program = f"import sys, npu_sim; npu_sim.plan({OPERATOR!r}, **{CALL!r}); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "npu_sim.plans.printing" in loaded
    assert not [name for name in loaded if name.startswith("npu_sim.show")]
