"""A declaration is checked when it is registered; a missing hook is reported when it is needed."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Annotated, NamedTuple

import numpy as np
import pytest

import npu_sim
from npu_sim import registry
from npu_sim.cores import load_profile
from npu_sim.declare import (
    Attribute,
    Dtypes,
    Field,
    Fits,
    Holds,
    Number,
    Shapes,
    Switch,
    Tensor,
    Word,
)
from npu_sim.framework.checking import rules_on
from npu_sim.framework.operator import COMPUTE, Operator
from npu_sim.framework.registration import check_declaration
from npu_sim.framework.row_planner import row_planner
from npu_sim.operators.timelines import timeline
from npu_sim.studies.certificate import certify
from npu_sim.studies.precision import study_precision

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_operator" / "scale_rows" / "__init__.py"


@pytest.fixture(scope="module")
def scale_rows():
    """The example's declaration, which this process does not know."""
    spec = importlib.util.spec_from_file_location("scale_rows_of_a_test", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OPERATOR


class Unbounded(NamedTuple):
    status: int
    ub_rows: Annotated[int, Field("rows", "rwo")]


class Stateless(NamedTuple):
    block_dim: int


FAULTS = {
    "a name that is none": ({"name": "Scale Rows"}, "name", "lower case"),
    "the name of an operator of npu_sim": ({"name": "rms_norm"}, "name", "a name besides"),
    "a tensor twice": (
        {"arguments": lambda one: (*one.arguments, one.arguments[0])},
        "arguments",
        "every name once",
    ),
    "no output": ({"arguments": lambda one: one.arguments[:2]}, "arguments", "Output"),
    "a dtype that is none": (
        {"arguments": lambda one: (*one.arguments, Tensor("z", "row", "more", "fp33"))},
        "arguments.z.dtype",
        "dtype",
    ),
    "a shape of unknown axes": (
        {"arguments": lambda one: (*one.arguments, Tensor("z", "rwo", "more"))},
        "arguments.z.shape",
        "row",
    ),
    "an attribute of no kind": (
        {"arguments": lambda one: (*one.arguments, Attribute("k", list, "kind"))},
        "arguments.k",
        "float",
    ),
    "an axis that no tensor has": (
        {"axes": lambda one: (*one.axes, Number("depth", "depth", 1))},
        "axes.depth",
        "one of: col, row",
    ),
    "a default beyond the words": (
        {"axes": lambda one: (Word("dtype", "dtype", ("float16",), "float32"), *one.axes[1:])},
        "axes.dtype",
        "float16",
    ),
    "a switch for no tensor": (
        {"axes": lambda one: (*one.axes, Switch("bias", "bias", tensor="bais"))},
        "axes.bias",
        "x, scale",
    ),
    "a shard of no size": ({"shards": ("dtype",)}, "shards", "one of: col, row"),
    "a check of no tensor": (
        {"checks": lambda one: (*one.checks, Dtypes("scael", ("float32",)))},
        "checks.9",
        "scale",
    ),
    "shapes of no tensor": (
        {"checks": lambda one: (*one.checks, Shapes("x scael"))},
        "checks.9",
        "scale",
    ),
    "a condition over nothing": (
        {"checks": lambda one: (*one.checks, Holds("clo >= 1", "x"))},
        "checks.9.condition",
        "col",
    ),
    "a condition that blames nothing": (
        {"checks": lambda one: (*one.checks, Holds("col >= 1", "X"))},
        "checks.9.blames",
        "x, scale",
    ),
    "a limit that blames nothing": (
        {"checks": lambda one: (*one.checks, Fits(print, "X", print))},
        "checks.9.blames",
        "x, scale",
    ),
    "no check": ({"checks": lambda one: (*one.checks, 5)}, "checks.9", "checks"),
    "a tiling without status": ({"tiling": Stateless}, "tiling", "status"),
    "a bound over nothing": ({"tiling": Unbounded}, "tiling.ub_rows.bound", "row"),
    "a planner that is none": ({"tile": 3}, "tile", "a function"),
    "a kernel that is none": ({"compute": "scale"}, "compute", "a function"),
    "a kernel as text": ({"compute": "module:scale"}, "compute", "a function"),
    "a check between dtype checks": (
        {"checks": lambda one: (*one.checks, Dtypes("scale", ("float32",)))},
        "checks.6",
        "next to each other",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_declaration_that_contradicts_itself_is_refused_with_its_field_and_what_is_allowed(
    scale_rows, fault
):
    changes, field, hint = FAULTS[fault]
    values = {
        name: change(scale_rows) if isinstance(change, FunctionType) else change
        for name, change in changes.items()
    }
    with pytest.raises(npu_sim.UsageError) as caught:
        npu_sim.register(replace(scale_rows, **values))
    assert caught.value.argument.startswith(field)
    assert hint in str(caught.value)


def test_sweeps_call_every_fits_although_their_functions_have_one_name(scale_rows):
    def fits_at_most(columns):
        def fits(row, device, rules):
            return row.col <= columns

        return Fits(fits, "x", lambda call: ("too wide", ""))

    for limits in ((4, 8), (8, 4)):
        changed = replace(scale_rows, checks=tuple(map(fits_at_most, limits)))
        planner, profile = row_planner(changed), load_profile()
        wide = planner.row(*(6 if name == "col" else 0 for name in planner.row._fields))
        assert planner.refused(wide, profile.device, rules_on(changed, profile)) == 561002


def test_a_declaration_without_fault_is_taken(scale_rows):
    check_declaration(scale_rows)


@pytest.fixture
def half_way(scale_rows):
    """The operator with everything that can be left out left out, known to this process."""
    optional = ("formula", "program", "claims", "terms")
    yield npu_sim.register(
        replace(scale_rows, name="half_way", title="HalfWay", **dict.fromkeys(optional))
    )
    registry._registered.pop("half_way")


DATA = {"x": np.ones((4, 8), np.float32), "scale": np.arange(4, dtype=np.float32)}


def test_an_operator_half_way_through_is_planned_and_run(half_way):
    assert npu_sim.plan("half_way", x="4x8:fp32").tiling["blockDim"] == 4
    assert npu_sim.half_way(**DATA)[1].tolist() == [0, 8, 16, 24]


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: outputs.clear(),
        lambda outputs: outputs.pop("y"),
        lambda outputs: outputs.update(y=np.zeros(3, np.float32)),
        lambda outputs: outputs.update(y=outputs["y"].copy()),
        lambda outputs: outputs.update(y=None),
    ],
    ids=["all removed", "one removed", "another shape", "a copy", "no array"],
)
def test_a_compute_that_drops_or_replaces_its_outputs_is_an_error(half_way, change):
    def compute(run):
        half_way.hook(COMPUTE)(run)
        change(run.outputs)

    npu_sim.register(replace(half_way, compute=compute))
    with pytest.raises(npu_sim.UsageError, match="half_way: compute removed or replaced its"):
        npu_sim.run("half_way", **DATA)


@pytest.mark.parametrize("block_dim", [-5, 49, 2**40])
def test_a_planner_that_uses_cores_that_do_not_exist_is_an_error(half_way, block_dim):
    def tile(row, device, rules):
        return half_way.tile(row, device, rules)._replace(block_dim=block_dim)

    npu_sim.register(replace(half_way, tile=tile))
    with pytest.raises(npu_sim.UsageError, match="half_way: its planner returns block_dim = "):
        npu_sim.plan("half_way", x="64x8:fp32", soc="Ascend910B1")


def test_an_operator_that_is_registered_again_has_the_functions_of_its_new_declaration(half_way):
    more = Attribute("times", int, "how often", 1)
    for function in (lambda: npu_sim.half_way, lambda: npu_sim.aclnn.aclnnHalfWayGetWorkspaceSize):
        npu_sim.register(half_way)
        before = inspect.signature(function()).parameters
        npu_sim.register(
            replace(half_way, arguments=(*half_way.arguments[:2], more, *half_way.arguments[2:]))
        )
        assert inspect.signature(function()).parameters.keys() - before.keys() == {"times"}


@pytest.mark.parametrize(
    ("question", "word"),
    [
        (
            lambda: timeline(npu_sim.plan("half_way", x="4x8:fp32"), load_profile("atlas_a2")),
            "timeline",
        ),
        (lambda: study_precision("half_way", **DATA), "formula"),
        (lambda: certify("half_way", **DATA), "summation trees"),
    ],
)
def test_what_is_missing_is_a_sentence(half_way, question, word):
    with pytest.raises(npu_sim.UsageError, match=f"half_way has no .*{word}"):
        question()


FILES = {
    "nothing.py": (None, "is not a file"),
    "words.txt": ("OPERATOR = 1", "is no Python file"),
    "broken.py": ("import npu_sim.nonsense", "cannot be run: line 1: ModuleNotFoundError"),
    "ending.py": ("raise SystemExit(3)", "cannot be run: line 1: SystemExit: 3"),
    "empty.py": ("", "declares no operator"),
    "json.py": ("", "has the name of another module, json"),
    "turtle.py": ("", "has the name of another module, turtle"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_declares_nothing_is_refused(tmp_path, name):
    text, fault = FILES[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(npu_sim.UsageError, match=fault) as caught:
        npu_sim.register_file(tmp_path / name)
    assert caught.value.argument == "operators"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda tiling: tiling._replace(block_dim=0), "returns .*block_dim=0"),
        (lambda tiling: tiling._replace(block_dim=-5), "returns block_dim = -5"),
        (lambda tiling: tiling._replace(block_dim=2**40), "returns block_dim = 1,099,511,627,776"),
        (lambda tiling: tiling._replace(block_dim=2.5), "returns .*block_dim=2.5"),
        (lambda tiling: None, "returns None"),
        (tuple, "returns "),
        (lambda tiling: sys.exit(0), "returns SystemExit"),
    ],
    ids=["no cores", "negative", "too many", "a fraction", "None", "a tuple", "exit"],
)
def test_no_command_accepts_an_impossible_tiling(half_way, returned, message):
    def tile(row, device, rules):
        return returned(half_way.tile(row, device, rules))

    npu_sim.register(replace(half_way, tile=tile))
    calls = (
        lambda: npu_sim.plan("half_way", x="64x8:fp32"),
        lambda: npu_sim.run("half_way", **DATA),
        lambda: npu_sim.limits("half_way", x="64x8:fp32", vary="row"),
        lambda: npu_sim.sweep("half_way", {"row": "1..4"}),
    )
    for call in calls:
        with pytest.raises(npu_sim.UsageError, match=f"half_way: its planner {message}"):
            call()


def test_a_half_written_declaration_names_what_it_lacks(tmp_path):
    file = tmp_path / "half_written.py"
    file.write_text(
        "from npu_sim.declare import *\n\nOPERATOR = Operator(name='half', title='Half')\n",
        encoding="utf-8",
    )
    lacking = (
        "line 3: TypeError: Operator(...) lacks summary, arguments, axes, checks, tiling, tile"
    )
    with pytest.raises(npu_sim.UsageError, match=re.escape(lacking)):
        npu_sim.register_file(file)


def test_an_index_error_of_a_kernel_is_one_line_with_the_index(tmp_path):
    text = EXAMPLE.read_text(encoding="utf-8")
    file = tmp_path / "beyond.py"
    file.write_text(text.replace("= x[row, column] *", "= x[row, column + 1000] *"), "utf-8")
    command = ("--operators", file, "run", "scale_rows", "--x", "64x100:fp32")
    ended = subprocess.run(
        [sys.executable, "-m", "npu_sim", *command],
        env={**os.environ, "NPU_SIM_CHECK": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 64
    assert "index 1000 is out of bounds for axis 1 with size 100" in ended.stdout + ended.stderr
    assert "kernel scale_core: index is out of bounds" in ended.stderr
    assert len(ended.stderr.splitlines()) <= 4


def test_an_unknown_field_of_a_declaration_is_named_with_the_nearest_one():
    with pytest.raises(TypeError, match="has no field tiles; did you mean tile"):
        Operator(tiles=())
