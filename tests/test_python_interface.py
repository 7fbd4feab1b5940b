"""The Python interface: prompt, notebook, editor and traceback."""

import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer
from typer.models import OptionInfo

import npu_sim
from ci import signatures
from npu_sim.cli import options
from npu_sim.cli.app import command_names, handler_of
from npu_sim.cores import shipped_products
from npu_sim.framework.arguments import CALL_OPTIONS
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.sweeps import runner

ENVIRONMENT = dict(os.environ)
ROOT = Path(__file__).parents[1]
CALL = {
    "grad": np.ones((6, 4), np.float32),
    "indices": np.array([1, 2, 1, 0, 3, 1]),
    "num_weights": 5,
}
OPERATOR = "embedding_dense_backward"
SHAPES = {"grad": "4096x512:bf16", "indices": "4096:int32", "num_weights": 32000}


@pytest.fixture(scope="module")
def answers():
    """One answer of every type, with a word of its text."""
    result = npu_sim.run(OPERATOR, **CALL)
    verified = npu_sim.verify(OPERATOR, **CALL, **result.outputs)
    return {
        "plan": (result.plan, "workspace"),
        "result": (result, "time"),
        "order mask": (result.order_dependent["grad_weight"], "rows depend on timing"),
        "prepared call": (npu_sim.prepare(OPERATOR, **CALL), "workspace"),
        "comparison": (npu_sim.diff(OPERATOR, product="A2", release="8.3,9.1", **CALL), "atlas_a2"),
        "explanation": (npu_sim.explain(OPERATOR, **CALL), "limits"),
        "limits": (npu_sim.limits(OPERATOR, "dim", product="A2"), "documented"),
        "determinism": (
            npu_sim.study.determinism(OPERATOR, random_orders=2, **CALL),
            "grad_weight",
        ),
        "invariance": (npu_sim.study.invariance(OPERATOR, **CALL), "same bits"),
        "precision": (npu_sim.study.precision(OPERATOR, **CALL), "ulp"),
        "certificate": (npu_sim.study.certificate(OPERATOR, **CALL)[0], "t0"),
        "timeline": (npu_sim.timeline(OPERATOR, **SHAPES), "MTE2"),
        "preflight": (npu_sim.preflight([{"op": OPERATOR, "inputs": SHAPES}]), "runs"),
        "workspace": (npu_sim.workspace(OPERATOR, **SHAPES), "16.0 MiB"),
        "measured output": (verified.outputs["grad_weight"], "equal"),
        "verification": (verified, "equal"),
        "profile": (npu_sim.load_profile("A3"), "atlas_a3"),
    }


NAMES = (
    "plan",
    "result",
    "order mask",
    "prepared call",
    "comparison",
    "explanation",
    "limits",
    "determinism",
    "invariance",
    "precision",
    "certificate",
    "timeline",
    "preflight",
    "workspace",
    "measured output",
    "verification",
    "profile",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_repr_of_an_answer_is_its_text(answers, name):
    answer, word = answers[name]
    assert word in repr(answer)
    assert " object at 0x" not in repr(answer)
    assert "array(" not in repr(answer)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "profile"])
def test_an_answer_has_an_html_repr(answers, name):
    answer, word = answers[name]
    html = answer._repr_html_()
    assert html.startswith("<iframe")
    assert word in html
    assert str(answer) == repr(answer)


def test_a_result_prints_like_the_command_line(answers):
    result = answers["result"][0]
    assert str(result).startswith(str(result.plan).splitlines()[0])
    assert "output" in str(result)


def test_dir_lists_public_names_only(answers):
    names = [name for name in dir(npu_sim) if not name.startswith("__")]
    assert set(names) == {*npu_sim.__all__, *OPERATOR_NAMES, "aclnn", "study", "torch"}
    brought = {
        "construct",
        "dict",
        "from_orm",
        "parse_raw",
        "model_dump",
        "model_fields",
        "json",
        "copy",
        "schema",
    }
    listed = dir(answers["plan"][0])
    assert brought.isdisjoint(listed)
    assert {"tiling", "workspace", "as_dict", "idle_cores"} <= set(listed)
    assert all(hasattr(answers["plan"][0], name) for name in listed if not name.startswith("_"))


def test_dir_of_a_plan_lists_every_documented_field(answers):
    plan = answers["plan"][0]
    documented = re.findall(r"^([a-z_]+(?:, [a-z_]+)*)$", inspect.getdoc(type(plan)), re.M)
    names = {name for line in documented for name in line.split(", ")} - {"deferred"}
    assert len(names) > 25
    assert names <= set(dir(plan))


def test_tensors_of_a_plan_have_shape_and_dtype_and_are_text():
    call = {"dy": "4x64x128:bf16", "gamma": "128:fp32"}
    plan = npu_sim.plan("rms_norm_grad", **call)
    for given in (
        plan,
        pickle.loads(pickle.dumps(plan)),
        npu_sim.timeline("rms_norm_grad", **call),
    ):
        dy = given.arguments["dy"]
        assert (dy, dy.shape, dy.dtype) == ("4x64x128:bf16", (4, 64, 128), "bfloat16")
    assert json.dumps(plan.as_dict()["arguments"]).startswith('{"dy": "4x64x128:bf16"')


@pytest.mark.parametrize("wrong", ["pln", "rms_norm_gard"])
def test_a_misspelt_name_raises_an_attribute_error_with_name_and_object(wrong):
    with pytest.raises(AttributeError) as missing:
        getattr(npu_sim, wrong)
    assert (missing.value.name, missing.value.obj) == (wrong, npu_sim)


USAGE_ERRORS = {
    "plan": (lambda: npu_sim.plan("rms_norm_grad", dy="4096x7168:bf16"), "gamma"),
    "diff": (lambda: npu_sim.diff("rms_norm_grad", dy="4096x7168:bf16"), "gamma"),
    "explain": (lambda: npu_sim.explain("rms_norm_grad", dy="4096x7168:bf16"), "gamma"),
    "run": (lambda: npu_sim.run("rms_norm", x=np.ones((2, 8), np.float32)), "gamma"),
    "a misspelt argument": (
        lambda: npu_sim.plan(OPERATOR, num_weigths=3, **CALL),
        "did you mean num_weights",
    ),
    "a misspelt option": (
        lambda: npu_sim.plan(OPERATOR, prodct="atlas_a2", **CALL),
        "did you mean product",
    ),
    "a misspelt input": (
        lambda: npu_sim.run(
            "rms_norm", xx=np.ones((2, 8), np.float32), gamma=np.ones(8, np.float32)
        ),
        "did you mean x",
    ),
    "the older word for the product": (
        lambda: npu_sim.plan(OPERATOR, profile="atlas_a2", **CALL),
        "no such argument",
    ),
    "a sweep": (lambda: runner.sweep("rms_norm", {"rov": 3}), "did you mean row"),
    "limits": (lambda: npu_sim.limits("rms_norm", "rov"), "did you mean row"),
    "a study": (lambda: npu_sim.study.determinism("rms_nrm"), "did you mean rms_norm"),
}


@pytest.mark.parametrize(("call", "message"), USAGE_ERRORS.values(), ids=list(USAGE_ERRORS))
def test_a_usage_error_is_a_value_error_without_status_and_with_a_short_traceback(call, message):
    with pytest.raises(npu_sim.UsageError, match=message) as refused:
        call()
    assert isinstance(refused.value, ValueError)
    assert not hasattr(refused.value, "status")
    package = Path(npu_sim.__file__).parent
    assert (
        len(
            [
                frame
                for frame in traceback.extract_tb(refused.value.__traceback__)
                if package in Path(frame.filename).parents
            ]
        )
        == 1
    )
    assert refused.value.__cause__ is None


def test_an_implied_tensor_may_be_omitted():
    plan = npu_sim.plan("rms_norm_grad", dy="4096x7168:bf16", gamma="7168:bf16")
    assert plan == npu_sim.plan(
        "rms_norm_grad",
        dy="4096x7168:bf16",
        gamma="7168:bf16",
        x="4096x7168:bf16",
        rstd="4096:fp32",
    )


def test_a_null_pointer_is_a_refusal_of_the_product():
    with pytest.raises(npu_sim.AclnnError, match="161001"):
        npu_sim.plan(
            "rms_norm_grad", dy="4096x7168:bf16", x="4096x7168:bf16", rstd="4096:fp32", gamma=None
        )


def test_messages_in_python_use_keyword_syntax():
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan("cross_entropy_loss_grad", log_prob="200000x32000:fp32", target="200000:int64")
    assert 'limits="hardware"' in str(refused.value)
    assert "--" not in str(refused.value)
    with pytest.raises(
        npu_sim.UsageError, match="give an array, a TensorSpec, or a text such as '4096x512:bf16'"
    ):
        npu_sim.plan("rms_norm", x=object(), gamma="8:fp32")


def test_the_product_argument_has_one_name():
    assert "product" in CALL_OPTIONS
    assert "profile" not in CALL_OPTIONS


def test_the_stubs_are_up_to_date():
    """``python ci/signatures.py`` updates the stubs."""
    for path, text in signatures.stubs().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python ci/signatures.py"


USER = """\
from typing import Literal

import numpy as np
import npu_sim

grad, indices = np.ones((6, 4), np.float32), np.array([1, 2, 1, 0, 3, 1])
reveal_type(npu_sim.plan("rms_norm_grad", dy="4096x7168:bf16", gamma="7168:bf16", product="A2"))
reveal_type(npu_sim.embedding_dense_backward(grad, indices, num_weights=5, deterministic=True))
operator: Literal["embedding_dense_backward"] = "embedding_dense_backward"
reveal_type(npu_sim.study.determinism(operator, grad=grad, indices=indices, num_weights=5))
npu_sim.plan(operator, grad="4x5:bf16", indices="4:int32", num_weigths=32000)  # wrong
npu_sim.embedding_dense_backward(grad, indices, num_weigths=5)  # wrong
npu_sim.run(operator, grad=grad, indices=indices, num_weights=5, core_order="randm")  # wrong
npu_sim.plan("rmsnorm_grad", dy="4096x7168:bf16", gamma="7168:bf16")  # wrong
npu_sim.pln  # wrong
"""


@pytest.mark.long
def test_a_type_checker_reports_misspelt_arguments(tmp_path):
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "user.py"]
    process = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "MYPYPATH": str(ROOT)},
    )
    wrong = {number for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# wrong")}
    assert {
        int(line) for line in re.findall(r"^user\.py:(\d+): error", process.stdout, re.M)
    } == wrong, process.stdout + process.stderr
    revealed = re.findall(r'Revealed type is "([\w.]+)', process.stdout)
    assert [name.rpartition(".")[2] for name in revealed] == ["Plan", "ndarray", "DeterminismStudy"]


def test_run_takes_shapes_and_files_like_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("grad.npy", CALL["grad"])
    drawn = npu_sim.run(OPERATOR, grad="6x4:fp32", indices="6:int64", num_weights=5, seed=3)
    again = npu_sim.run(
        OPERATOR, grad=npu_sim.TensorSpec((6, 4), "fp32"), indices="6:int64", num_weights=5, seed=3
    )
    np.testing.assert_array_equal(drawn.outputs["grad_weight"], again.outputs["grad_weight"])
    assert np.any(drawn.outputs["grad_weight"])
    mixed = npu_sim.run(OPERATOR, **{**CALL, "grad": "grad.npy"})
    expected = npu_sim.run(OPERATOR, **CALL)
    np.testing.assert_array_equal(mixed.outputs["grad_weight"], expected.outputs["grad_weight"])
    with pytest.raises(npu_sim.AclnnError):
        npu_sim.run(OPERATOR, grad="6x4:fp32", indices="5:int64", num_weights=5)


TARGETS = {"product", "products", "soc", "socs", "release", "releases", "vary"}
"""Options that choose where a call runs and what varies."""


def _functions_with_options():
    """Yield every command with a function, the function, and its options among ``TARGETS``."""
    for name in command_names():
        handler = handler_of(name)
        handlers = (
            [command.callback for command in handler.registered_commands]
            if isinstance(handler, typer.Typer)
            else [handler]
        )
        for one in handlers:
            declared = options.COMMANDS.get(one)
            if declared and declared.function:
                flags = {
                    flag.lstrip("-").replace("-", "_")
                    for parameter in inspect.signature(
                        options.with_options(one)
                    ).parameters.values()
                    for option in get_args(parameter.annotation)[1:]
                    if isinstance(option, OptionInfo)
                    for flag in (option.default, *(option.param_decls or ()))
                    if isinstance(flag, str)
                }
                yield name, declared.function, flags & TARGETS


@pytest.mark.parametrize(("command", "function", "named"), list(_functions_with_options()))
def test_a_function_takes_the_targets_that_its_command_takes(command, function, named):
    assert named <= set(inspect.signature(function).parameters), command


RMS = {"dy": "64x128:bf16", "gamma": "128:bf16"}


def _rms(function, **target):
    return function("rms_norm_grad", **RMS, **target)


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ({"products": "A2,950"}, {"product": ["A2", "950"]}),
        ({"socs": "910B1,910B3"}, {"soc": "910B1,910B3"}),
    ],
)
@pytest.mark.parametrize("function", ["diff", "limits"])
def test_plural_names_of_targets_mean_what_the_singular_ones_mean(function, several, one):
    called = getattr(npu_sim, function)
    assert _rms(called, **several).as_dict() == _rms(called, **one).as_dict()


def test_preflight_takes_both_names_of_a_target():
    calls = [{"op": "rms_norm_grad", "inputs": RMS}]
    plural = npu_sim.preflight(calls, products="A2,A3", releases="8.3")
    assert plural.as_dict() == npu_sim.preflight(calls, product="A2,A3", release="8.3").as_dict()


@pytest.mark.parametrize("function", ["diff", "limits", "timeline"])
@pytest.mark.parametrize("name", ["product", "soc"])
def test_a_target_under_both_of_its_names_is_refused(function, name):
    device = {"product": "A2", "soc": "910B3"}[name]
    with pytest.raises(npu_sim.UsageError, match=f"{name}s / {name} is given twice"):
        _rms(getattr(npu_sim, function), **{name: device, f"{name}s": device})


def test_releases_are_all_or_those_named():
    every = _rms(npu_sim.diff, product="A2", releases=True)
    assert every.as_dict() == _rms(npu_sim.diff, product="A2", release="all").as_dict()
    named = _rms(npu_sim.diff, product="A2", releases="8.3")
    assert named.as_dict() == _rms(npu_sim.diff, product="A2", release="8.3").as_dict()


def test_timelines_of_several_devices_and_sizes_are_compared():
    compared = _rms(npu_sim.timeline, socs="910B1,910B3", vary="row=3,5")
    assert [(row.name, row.profile.soc) for row in compared.rows] == [
        ("row=3", "Ascend910B1"),
        ("row=3", "Ascend910B3"),
        ("row=5", "Ascend910B1"),
        ("row=5", "Ascend910B3"),
    ]
    alone = npu_sim.timeline("rms_norm_grad", dy="5x128:bf16", gamma="128:bf16", soc="910B3")
    assert compared.rows[-1].found.bound_us == alone.bound_us
    assert "row=5" in str(compared)
    assert compared._repr_html_().startswith("<iframe")
    products = _rms(npu_sim.timeline, products=["A2", "950"])
    assert [row.profile.name for row in products.rows] == ["atlas_a2", "ascend_950"]


def test_products_are_listed_as_the_command_lists_them():
    listed = npu_sim.products("A2", "950")
    assert [product["name"] for product in listed.as_dict()["products"]] == [
        "atlas_a2",
        "ascend_950",
    ]
    assert "Ascend910B3" in str(listed)
    assert len(npu_sim.products().profiles) == len(shipped_products())
