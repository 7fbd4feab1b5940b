"""Any call ends in an answer or in an NpuSimError that names the argument."""

import json

import numpy as np
import pytest

import npu_sim
from npu_sim import NpuSimError
from npu_sim.operators.loading import load_operator
from npu_sim.status import shown
from tests.cases import every
from tests.cli.runner import npu_sim as run_here
from tests.small_calls import NAMES, small_call

INVALID = {
    "nothing": None,
    "a number": 3,
    "a fraction": 1.5,
    "not a number": float("nan"),
    "a word": "x" * 5000,
    "bytes": b"x",
    "a list": [],
    "a ragged list": [[1, 2], [3]],
    "a mapping": {},
    "an array": np.array(["mean", "sum"]),
    "an object": object(),
    "half a pair of surrogates": "\ud800",
    "more digits than Python prints": 10**5000,
    "more than a double holds": 10**400,
}


def refusal_of(call):
    """Return the refusal of a call, or None. Any other exception is a failure."""
    try:
        call()
    except NpuSimError as error:
        return error
    return None


def plans(operator, **changed):
    """Plan a small call with a changed argument; a refusal names the argument."""
    call = small_call(operator)
    error = refusal_of(lambda: json.dumps(npu_sim.plan(operator, **{**call, **changed}).as_dict()))
    assert error is None or (error.argument in {*changed, *call} and len(str(error)) < 2000)


@pytest.mark.parametrize("value", INVALID.values(), ids=list(INVALID))
@pytest.mark.parametrize("operator", every(3, NAMES))
def test_invalid_arguments_are_refused_by_name(operator, value):
    for argument in load_operator(operator).arguments:
        plans(operator, **{argument.name: value})


@pytest.mark.parametrize("value", INVALID.values(), ids=list(INVALID))
@pytest.mark.parametrize("option", ["product", "soc", "release", "limits", "deterministic"])
def test_invalid_options_are_refused_by_name(option, value):
    plans("rms_norm", **{option: value})


@pytest.mark.parametrize(
    "value", [value for value in INVALID.values() if not isinstance(value, int)]
)
def test_invalid_operators_orders_and_seeds_are_refused_by_name(value):
    with pytest.raises(NpuSimError, match="operator"):
        npu_sim.plan(value)
    with pytest.raises(NpuSimError, match="core_order"):
        npu_sim.run("rms_norm", **small_call("rms_norm"), core_order=value)
    with pytest.raises(NpuSimError, match="seed"):
        npu_sim.run("rms_norm", **small_call("rms_norm"), seed=value)


@pytest.mark.parametrize("value", INVALID.values(), ids=list(INVALID))
@pytest.mark.parametrize("option", ["product", "soc", "release", "limits", "deterministic"])
def test_invalid_options_of_questions_are_refused_by_name(option, value):
    for question in (npu_sim.explain, npu_sim.diff):
        error = refusal_of(
            lambda question=question: question(
                "rms_norm", **{**small_call("rms_norm"), "product": "atlas_a2", option: value}
            )
        )
        assert error is None or error.argument == option


@pytest.mark.parametrize("value", INVALID.values(), ids=list(INVALID))
@pytest.mark.parametrize("option", ["sample", "seed", "columns", "engine", "threads"])
def test_invalid_sweeps_are_refused_by_name(option, value):
    if value is not None:
        error = refusal_of(lambda: npu_sim.sweep("rms_norm", {"rows": 4}, **{option: value}))
        assert error is None or error.argument == option


@pytest.mark.parametrize(
    "grid",
    [3, "x", {3: 4}, {"rows": None}, {"rows": {}}, {"rows": [[1]]}, {"rows": "1..5:+"}, {"soc": 3}],
    ids=str,
)
def test_invalid_grids_are_refused_by_name(grid):
    with pytest.raises(NpuSimError):
        npu_sim.sweep("rms_norm", grid)


@pytest.mark.parametrize("option", ["product", "soc", "release"])
def test_questions_about_no_device_are_refused(option):
    with pytest.raises(NpuSimError, match="no product, SoC or release is named"):
        npu_sim.sweep("rms_norm", {"rows": 4, option: ","})
    with pytest.raises(NpuSimError, match="no product, SoC or release is named"):
        npu_sim.diff("rms_norm", **small_call("rms_norm"), **{option: []})


def test_long_ranges_are_refused_before_expansion():
    with pytest.raises(NpuSimError, match="16,777,216 values cannot be listed"):
        npu_sim.sweep("rms_norm", {"rows": np.broadcast_to(np.int64(1), 1 << 24)})


def test_a_sweep_beyond_memory_is_refused():
    with pytest.raises(NpuSimError, match="which this machine does not have"):
        npu_sim.sweep("rms_norm", {"rows": "1..1000000000", "columns": "1..1000000000"})


@pytest.mark.parametrize(
    ("num_weights", "message"),
    [
        (2**40, "which this machine does not have"),
        (2**62, "more than int64 counts"),
        (2**64 - 1, "more than int64 counts"),
    ],
)
def test_a_result_beyond_memory_is_refused(num_weights, message):
    call = {**small_call("embedding_dense_backward"), "num_weights": num_weights}
    with pytest.raises(NpuSimError, match=message):
        npu_sim.run("embedding_dense_backward", **call)


REFUSED_BEFORE_DATA = {
    "a call that is refused": (
        (
            "cross_entropy_loss_grad",
            "--log-prob",
            "4x0:fp32",
            "--grad-loss",
            "4:fp32",
            "--target",
            "4:int64",
        ),
        "C >= 1",
        2,
    ),
    "data beyond memory": (
        ("rms_norm", "--x", "1000000x1000000:fp32", "--gamma", "1000000:fp32"),
        "which this machine does not have",
        64,
    ),
}


@pytest.mark.parametrize("command", [("run",), ("study", "determinism")], ids=" ".join)
@pytest.mark.parametrize(
    ("arguments", "message", "code"), REFUSED_BEFORE_DATA.values(), ids=list(REFUSED_BEFORE_DATA)
)
def test_random_data_is_drawn_for_legal_calls_only(
    capsys, monkeypatch, command, arguments, message, code
):
    outcome = run_here(capsys, monkeypatch, *command, *arguments)
    assert outcome.code == code
    assert message in outcome.err


@pytest.mark.parametrize("operator", NAMES)
def test_numpy_scalars_equal_python_values(operator):
    call = small_call(operator)
    attributes = {
        attribute.name: call[attribute.name] for attribute in load_operator(operator).attributes
    }
    kinds = {int: np.int64, bool: np.bool_, float: np.float64, str: np.str_}
    scalars = {
        name: kinds[type(value)](value)
        for name, value in attributes.items()
        if type(value) in kinds
    }
    expected = npu_sim.plan(operator, **call).as_dict()
    assert json.loads(
        json.dumps(npu_sim.plan(operator, **{**call, **scalars}).as_dict())
    ) == json.loads(json.dumps(expected))


def test_half_precision_indices_may_exceed_the_exact_integer_range():
    grad = np.ones((2, 4), np.float32)
    out = npu_sim.embedding_dense_backward(grad, np.array([3, 60000], np.float16), 70000)
    assert np.flatnonzero(out.any(axis=1)).tolist() == [3, 60000]


def test_long_values_are_abbreviated_in_messages():
    class Unprintable:
        def __repr__(self):
            raise RuntimeError

    assert shown(10**5000) == "an integer of 16610 bits"
    assert shown("x" * 10**6).endswith("(1000002 characters)")
    assert "Unprintable" in shown(Unprintable())
    assert shown("x") == "'x'"
