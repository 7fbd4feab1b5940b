"""Two dumps compared: what timing explains, what it does not, and what could not be compared."""

import json

import numpy as np
import pytest

import npu_sim
from npu_sim import read_dump
from npu_sim.tools.dumps.differences import compare_tensors
from npu_sim.tools.dumps.msprobe import StoredTensor
from tests.cases import every
from tests.cli.runner import npu_sim as command
from tests.studies import calls
from tests.tools.dumps.msprobe import Writer, write_model
from tests.tools.dumps.test_reader import edited

DEVICE = {"soc": "Ascend910B1", "release": "9.1", "deterministic": False}
EMBEDDING = "Functional.embedding.0.backward"


def write_embedding(folder, task="tensor", seed=1, change=None, **run):
    """Write a dump of an embedding with many orders; ``change`` edits its gradient."""
    call = calls.embedding(900, 8, 40, used_weights=30)
    order = {"core_order": "random", "seed": seed, **DEVICE, **run}
    gradient = npu_sim.run("embedding_dense_backward", **call, **order).outputs["grad_weight"]
    gradient = gradient.copy()
    if change is not None:
        change(gradient)
    writer = Writer(folder, task)
    weight = np.ones(gradient.shape, call["grad"].dtype)
    writer.call(
        "Functional.embedding.0",
        (call["indices"], weight),
        (weight[call["indices"]],),
        (call["grad"],),
        (gradient,),
    )
    return writer


def compared(folder, **options):
    return read_dump(folder / "a", against=folder / "b", **options)


@pytest.mark.parametrize("task", every(2, ["tensor", "statistics"]))
def test_timing_does_not_explain_impossible_values_of_the_second_dump(tmp_path, task):
    def change(gradient):
        gradient[3:9] = 1e6

    write_embedding(tmp_path / "a", task).close()
    write_embedding(tmp_path / "b", task, 2, change).close()
    reading = compared(tmp_path, **DEVICE)
    (found,) = reading.differences
    assert (found.entry, found.can_differ) == (EMBEDDING, False)
    assert "timing does not explain it" in found.reason
    if task == "tensor":
        assert [dict(call.verdicts) for call in (*reading.calls, *reading.other_calls)] == [
            {"grad_weight": "reachable"},
            {"grad_weight": "unreachable"},
        ]


@pytest.mark.parametrize("factor", every(2, [1.02, 5]))
def test_a_scaled_gradient_is_not_put_down_to_timing(tmp_path, factor):
    def change(gradient):
        gradient *= np.float32(factor)

    write_embedding(tmp_path / "a").close()
    write_embedding(tmp_path / "b", seed=2, change=change).close()
    (found,) = compared(tmp_path, **DEVICE).differences
    assert found.can_differ is False


@pytest.mark.parametrize(
    ("task", "verify", "proved", "reason"),
    [
        ("tensor", True, True, "two runs of this call can differ"),
        ("tensor", False, None, "timing may explain it"),
        ("statistics", True, None, "timing may explain it"),
        ("md5", True, None, "timing may explain it"),
    ],
)
def test_timing_is_proved_by_values_alone(tmp_path, task, verify, proved, reason):
    for name, seed in (("a", 1), ("b", 2)):
        write_embedding(tmp_path / name, task, seed).close()
    (found,) = compared(tmp_path, verify=verify, **DEVICE).differences
    assert found.can_differ is proved
    assert reason in found.reason
    assert ("not proved" in found.reason) == (proved is None)


@pytest.mark.parametrize(("rows", "apart"), [(1, 3.0), (5, 2.0), (30, 0.2)])
def test_a_difference_within_the_worst_case_is_not_put_down_to_timing(tmp_path, rows, apart):
    """All orders of the worst inputs with these statistics would allow it, usual ones do not."""

    def change(gradient):
        gradient[:rows, 5] += apart * np.sign(gradient[:rows, 5])

    write_embedding(tmp_path / "a", "statistics").close()
    write_embedding(tmp_path / "b", "statistics", 2, change).close()
    (found,) = compared(tmp_path, **DEVICE).differences
    assert found.can_differ is None
    assert "timing is an unlikely cause" in found.reason
    assert "times less; the worst case of all values is" in found.reason


COPIES = {
    "Functional.embedding.0": lambda ids, table: table[ids],
    "Torch.index_select.0": lambda ids, table: table[ids],
    "Torch.gather.0": lambda ids, table: table[ids],
    "Torch.cat.0": lambda ids, table: np.concatenate([table, table]),
    "Tensor.view.0": lambda ids, table: table.reshape(-1),
    "Tensor.transpose.0": lambda ids, table: table.T,
}


@pytest.mark.parametrize(
    ("task", "reason"),
    [("md5", "one of the dumped tensors is not"), ("statistics", "equal is not proved")],
)
@pytest.mark.parametrize("name", COPIES)
def test_a_call_that_copies_elements_is_never_put_down_to_timing(tmp_path, name, task, reason):
    ids, table = np.arange(8), np.linspace(0, 1, 80, dtype=np.float32).reshape(8, 10)
    for folder, added in (("a", 0), ("b", 1)):
        writer = Writer(tmp_path / folder, task)
        copied = COPIES[name](ids, table) + np.float32(added)
        writer.call(name, (ids, table), (copied,))
        writer.close()
    (found,) = compared(tmp_path).differences
    assert found.can_differ is False
    assert reason in found.reason.lower()


def test_checksums_alone_prove_no_legal_difference(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        write_embedding(tmp_path / name, "md5", seed).close()
        for side in ("input", "output"):
            edited(tmp_path / name, lambda data, side=side: data[EMBEDDING][side][0].pop("Max"))
    (found,) = compared(tmp_path).differences
    assert found.can_differ is None
    assert "not proved" in found.reason


def test_the_search_goes_on_behind_a_difference_that_timing_explains(tmp_path):
    for name, seed, factor in (("a", 1, 1.0), ("b", 2, 1.5)):
        writer = write_embedding(tmp_path / name, seed=seed)
        values = np.linspace(1, 2, 8, dtype=np.float32)
        writer.call("Torch.cos.0", (values,), (values * np.float32(factor),))
        writer.close()
    reading = compared(tmp_path, **DEVICE)
    assert [(found.entry, found.can_differ) for found in reading.differences] == [
        (EMBEDDING, True),
        ("Torch.cos.0.forward", None),
    ]


def test_equal_similar_and_different_inputs_are_three_things(tmp_path):
    for name, factor in (("a", 1.0), ("b", 2.0)):
        writer = Writer(tmp_path / name, "statistics")
        call = calls.rms_norm(30, 16, "fp32")
        forward = npu_sim.run("rms_norm", x=call["x"], gamma=call["gamma"]).outputs
        y = forward["y"] * np.float32(factor)
        writer.call("NPU.npu_rms_norm.0", (call["x"], call["gamma"], 1e-6), (y, forward["rstd"]))
        writer.close()
    (found,) = compared(tmp_path).differences
    assert found.inputs == "similar"
    assert "That its inputs are equal is not proved" in found.reason


def test_an_argument_that_differs_is_named(tmp_path):
    for name, epsilon in (("a", 1e-6), ("b", 1e-2)):
        writer = Writer(tmp_path / name)
        call = calls.rms_norm(30, 16, "fp32")
        inputs = {"x": call["x"], "gamma": call["gamma"]}
        forward = npu_sim.run("rms_norm", **inputs, epsilon=epsilon).outputs
        writer.call("NPU.npu_rms_norm.0", (*inputs.values(), epsilon), tuple(forward.values()))
        writer.close()
    (found,) = compared(tmp_path, verify=False).differences
    assert found.inputs == "different"
    assert found.reason == "the two calls have different arguments: epsilon: 1e-06 against 0.01"


@pytest.mark.parametrize("other", ["md5", "xor"])
def test_checksums_of_tensor_files_are_computed(tmp_path, other):
    def scale(gradient):
        gradient[5] *= np.float32(1.02)

    write_embedding(tmp_path / "a", "tensor").close()
    write_embedding(tmp_path / "b", other).close()
    assert compared(tmp_path, verify=False).tensors == {
        "equal": 2,
        "similar": 0,
        "unknown": 0,
        "different": 0,
    }
    write_embedding(tmp_path / "c", other, change=scale).close()
    (found,) = read_dump(tmp_path / "a", against=tmp_path / "c", verify=False).differences
    assert (found.entry, found.inputs) == (EMBEDDING, "equal")


def test_equal_statistics_are_not_called_equal_outputs(tmp_path, capsys, monkeypatch):
    for name in ("a", "b"):
        write_embedding(tmp_path / name, "statistics").close()
    arguments = ("dump", str(tmp_path / "a"), "--against", str(tmp_path / "b"))
    shown = command(capsys, monkeypatch, *arguments)
    assert shown.code == 0
    assert "no output differs, which is not proved" in shown.out


def test_nothing_comparable_is_exit_1(tmp_path, capsys, monkeypatch):
    write_embedding(tmp_path / "a", "statistics").close()
    write_embedding(tmp_path / "b", "xor").close()
    arguments = ("dump", str(tmp_path / "a"), "--against", str(tmp_path / "b"))
    shown = command(capsys, monkeypatch, *arguments)
    assert shown.code == 1
    assert "nothing could be compared" in shown.out


def test_single_processes_are_one_place_whatever_their_number(tmp_path):
    for name, process in (("a", "proc4711"), ("b", "proc12")):
        for step in (0, 1):
            write_embedding(tmp_path / name / f"step{step}" / process).close()
    assert compared(tmp_path, verify=False).compared == 2


def test_entries_without_a_counterpart_are_listed(tmp_path):
    for name in ("a", "b"):
        write_embedding(tmp_path / name).close()
    edited(tmp_path / "b", lambda data: data.pop("Functional.embedding.0.forward"))
    notes = compared(tmp_path, verify=False).unmatched
    assert [(note.folder, note.entry) for note in notes] == [
        (str(tmp_path / "a"), "Functional.embedding.0.forward")
    ]


def test_the_given_mode_is_judged(tmp_path):
    write_embedding(tmp_path / "a").close()
    reading = read_dump(tmp_path / "a", soc="Ascend910B1", release="9.1", deterministic=True)
    (call,) = reading.calls
    assert reading.deterministic
    assert not call.timing
    assert call.verdicts == {"grad_weight": "unreachable"}


def test_a_dump_has_one_target(tmp_path):
    # 40 and 48 cores sum dgamma in different orders; y and dx do not tell the SoC.
    writer = Writer(tmp_path / "a")
    target = {"soc": "Ascend910B3", "deterministic": True}
    for number, rows in enumerate((130, 3)):
        call = calls.rms_norm(rows, 64, "fp32")
        forward = npu_sim.run("rms_norm", x=call["x"], gamma=call["gamma"], **target).outputs
        call["rstd"] = forward["rstd"]
        gradient = npu_sim.run("rms_norm_grad", **call, **target).outputs
        writer.call(
            f"NPU.npu_rms_norm.{number}",
            (call["x"], call["gamma"], 1e-6),
            (forward["y"], forward["rstd"]),
            (call["dy"], None),
            (gradient["dx"], gradient["dgamma"]),
        )
    writer.close()
    reading = read_dump(tmp_path / "a", release="9.1", deterministic=True)
    assert reading.soc == "Ascend910B3"
    statuses = {status for call in reading.calls for status in call.verdicts.values()}
    assert statuses == {"equal"}


def write_norm(folder, call, forward, dx, dgamma):
    """Write a dump of one RmsNorm and its gradient."""
    writer = Writer(folder)
    writer.call(
        "NPU.npu_rms_norm.0",
        (call["x"], call["gamma"], 1e-6),
        (forward["y"], forward["rstd"]),
        (call["dy"], None),
        (dx, dgamma),
    )
    writer.close()


def test_a_dump_that_is_impossible_everywhere_has_the_target_of_the_other(tmp_path):
    call = calls.rms_norm(130, 64, "fp32")
    target = {"soc": "Ascend910B3", "deterministic": True}
    forward = npu_sim.run("rms_norm", x=call["x"], gamma=call["gamma"], **target).outputs
    call["rstd"] = forward["rstd"]
    gradient = npu_sim.run("rms_norm_grad", **call, **target).outputs
    wrong = gradient["dx"].copy()
    wrong[:9] = 1e6
    for name, dx in (("a", gradient["dx"]), ("b", wrong)):
        write_norm(tmp_path / name, call, forward, dx, gradient["dgamma"])
    reading = compared(tmp_path, release="9.1", deterministic=True)
    assert (reading.soc, reading.other_target) == ("Ascend910B3", "")
    statuses = {
        name: status for call in reading.other_calls for name, status in call.verdicts.items()
    }
    assert (statuses["dx"], statuses["dgamma"]) == ("unreachable", "equal")


def test_dumps_of_different_devices_are_told(tmp_path):
    call = calls.rms_norm(130, 64, "fp32")
    forward = npu_sim.run("rms_norm", x=call["x"], gamma=call["gamma"]).outputs
    call["rstd"] = forward["rstd"]
    for name, soc in (("a", "Ascend910B1"), ("b", "Ascend910B3")):
        target = {"soc": soc, "deterministic": True}
        gradient = npu_sim.run("rms_norm_grad", **call, **target).outputs
        write_norm(tmp_path / name, call, forward, gradient["dx"], gradient["dgamma"])
    reading = compared(tmp_path, release="9.1", deterministic=True)
    assert reading.soc == "Ascend910B1"
    assert "Ascend910B3" in reading.other_target
    (found,) = reading.differences
    assert found.can_differ is False
    assert "different devices" in found.reason


def test_one_damaged_side_does_not_hide_impossible_values_of_the_other(tmp_path):
    def change(gradient):
        gradient[3:9] *= np.float32(1.0001)

    write_embedding(tmp_path / "a", change=change).close()
    write_embedding(tmp_path / "b", seed=2).close()
    path = tmp_path / "b" / "dump_tensor_data" / f"{EMBEDDING}.output.0.npy"
    path.write_bytes(path.read_bytes()[:90])
    found, *_ = compared(tmp_path, **DEVICE).differences
    assert found.can_differ is False


def test_a_missing_tensor_file_is_named(tmp_path, capsys, monkeypatch):
    writer = write_embedding(tmp_path / "a")
    writer.close()
    (tmp_path / "a" / "dump_tensor_data" / f"{EMBEDDING}.input.0.npy").unlink()
    (call,) = read_dump(tmp_path / "a", **DEVICE).calls
    assert call.unverified == f"{EMBEDDING}.input.0.npy is missing"
    shown = command(capsys, monkeypatch, "dump", str(tmp_path / "a"))
    assert "not verified" in shown.out


def test_dtypes_that_differ_are_told(tmp_path):
    for name, dtype in (("a", np.float32), ("b", np.float16)):
        writer = Writer(tmp_path / name)
        values = np.ones(3, dtype)
        writer.call("Torch.cos.0", (values,), (np.cos(values),))
        writer.close()
    (found,) = compared(tmp_path).differences
    assert "input 0: float32 against float16" in found.reason
    assert found.differs == ("output 0: float32 against float16",)


def write_module(folder, factor=1.0, parameter="Linear", task="tensor"):
    """Write a dump of level L0 with an embedding module and another one."""
    writer = write_embedding(folder, task)
    forward = writer.data.pop("Functional.embedding.0.forward")
    backward = writer.data.pop(EMBEDDING)
    indices, weight = forward["input_args"]
    scaled = np.asarray(np.arange(12), np.float32)
    other = weight if parameter == "tied" else writer.value("Module.head.weight", scaled)
    gradient = np.asarray(np.arange(12) * factor, np.float32)
    writer.data |= {
        "Module.table.Embedding.forward.0": {
            "input_args": [indices],
            "input_kwargs": {},
            "output": forward["output"],
            "parameters": {"weight": weight},
        },
        "Module.head.Linear.forward.0": {
            "input_args": forward["output"],
            "output": [],
            "parameters": {"weight": other},
        },
        "Module.head.Linear.parameters_grad.0": {
            "weight": [writer.value("Module.head.grad", gradient)]
        },
        "Module.table.Embedding.backward.0": {"input": backward["input"], "output": []},
        "Module.table.Embedding.parameters_grad": {"weight": backward["output"]},
    }
    writer.close()


def test_gradients_of_parameters_are_a_call_and_compared(tmp_path):
    write_module(tmp_path / "a")
    write_module(tmp_path / "b", 1.001)
    reading = compared(tmp_path, **DEVICE)
    assert reading.unnamed_files == 0
    assert [(call.entry, dict(call.verdicts)) for call in reading.calls] == [
        ("Module.table.Embedding.parameters_grad", {"grad_weight": "reachable"})
    ]
    (found,) = reading.differences
    assert (found.entry, found.outputs) == ("Module.head.Linear.parameters_grad.0", ("weight",))
    assert found.inputs == "equal"


def test_a_shared_weight_is_no_call_of_its_embedding(tmp_path):
    write_module(tmp_path / "a", parameter="tied")
    assert read_dump(tmp_path / "a", verify=False).calls == ()


BAD = [
    ("shape", [float("inf")]),
    ("shape", [-1, 4]),
    ("shape", [2**40, 2**40]),
    ("shape", "3x4"),
    ("Max", 10**401),
    ("Max", [1]),
    ("Max", "large"),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_entry_is_listed_and_the_others_are_read(tmp_path, key, value):
    write_model(tmp_path / "d", "statistics")
    entry = "NPU.npu_rms_norm.0.backward"
    edited(tmp_path, lambda data: data[entry]["output"][0].update({key: value}))
    reading = read_dump(tmp_path, verify=False)
    (note,) = reading.unreadable
    assert note.entry == entry
    assert key in note.reason
    assert "rms_norm" in {call.operator for call in reading.calls}


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        ("NPU.npu_rms_norm.0.forward", {"input_kwargs": [1]}),
        ("NPU.npu_rms_norm.0.forward", {"output": {"a": 1}}),
        ("Functional.embedding.0.forward", {"input_kwargs": {"padding_idx": {"a": "b"}}}),
        ("Functional.embedding.0.forward", {"input_kwargs": {"padding_idx": "x"}}),
        ("Functional.embedding.0.forward", {"input_args": [1, 2]}),
    ],
)
def test_arguments_of_another_kind_are_listed(tmp_path, entry, change):
    write_model(tmp_path / "d", "statistics")
    edited(tmp_path, lambda data: data[entry].update(change))
    (note,) = read_dump(tmp_path, verify=False).unreadable
    assert note.entry == entry


@pytest.mark.parametrize(
    "value", ["x", {"type": "torch.Tensor", "shape": [3], "dtype": "torch.int32"}, [1], -1, 1e400]
)
def test_an_odd_epsilon_ends_nothing(tmp_path, value):
    write_model(tmp_path / "d", "statistics")
    calls = len(read_dump(tmp_path, verify=False).calls)
    entry = "NPU.npu_rms_norm.0.forward"
    edited(tmp_path, lambda data: data[entry]["input_args"].__setitem__(2, value))
    assert len(read_dump(tmp_path, verify=False).calls) == calls


@pytest.mark.parametrize("place", [0, 1, 2])
def test_odd_arguments_of_a_refused_call_end_nothing(tmp_path, place):
    """x is refused, before epsilon, a tensor without statistics, is looked at."""
    write_model(tmp_path / "d", "statistics")
    odd = {"type": "torch.Tensor", "shape": [3], "dtype": "torch.int32"}

    def change(data):
        arguments = data["NPU.npu_rms_norm.0.forward"]["input_args"]
        arguments[0]["dtype"] = "torch.bool"
        arguments[place] = odd

    edited(tmp_path, change)
    assert read_dump(tmp_path, verify=False).calls


@pytest.mark.parametrize("value", ["\ud800", [{"type": "torch.Tensor", "shape": [3]}]])
def test_odd_arguments_are_data_in_json(tmp_path, value):
    write_model(tmp_path / "d", "statistics")
    entry = "NPU.npu_rms_norm.0.forward"
    edited(tmp_path, lambda data: data[entry]["input_args"].__setitem__(0, value))
    assert json.dumps(read_dump(tmp_path, verify=False).as_dict())


def test_a_number_in_place_of_a_tensor_ends_no_comparison(tmp_path):
    for name in ("a", "b"):
        write_embedding(tmp_path / name, "statistics").close()
        edited(tmp_path / name, lambda data: data[EMBEDDING]["input"].__setitem__(0, 1.5))
    edited(tmp_path / "b", lambda data: data[EMBEDDING]["output"][0].update({"Max": 9.0}))
    (found,) = compared(tmp_path, verify=False).differences
    assert not found.can_differ


def test_indices_without_finite_statistics_are_outside(tmp_path):
    write_model(tmp_path / "d", "statistics")
    change = {"Max": float("inf"), "Min": float("nan")}
    entry = "Functional.embedding.0.forward"
    edited(tmp_path, lambda data: data[entry]["input_args"][0].update(change))
    assert "nan" in json.dumps(read_dump(tmp_path, verify=False).as_dict()["calls"])


def test_a_truncated_tensor_file_is_the_reason_of_its_call_alone(tmp_path):
    for name in ("a", "b"):
        write_embedding(tmp_path / name).close()
    path = tmp_path / "b" / "dump_tensor_data" / f"{EMBEDDING}.output.0.npy"
    path.write_bytes(path.read_bytes()[:90])
    reading = compared(tmp_path, **DEVICE)
    assert [bool(call.verdicts) for call in reading.calls] == [True]
    assert [bool(call.unverified) for call in reading.other_calls] == [True]
    assert [note.entry for note in reading.unmatched] == [EMBEDDING]


def test_statistics_are_listed_in_the_order_of_the_dump():
    first, second = (
        StoredTensor("float32", (2,), dict.fromkeys(("Max", "Min", "Mean", "Norm"), value))
        for value in (1.0, 2.0)
    )
    text = compare_tensors(first, second).text
    assert [part.split()[0] for part in text.split(", ")] == ["Max", "Min", "Mean", "Norm"]


def test_statistics_that_differ_behind_six_digits_look_different():
    first, second = (
        StoredTensor("float32", (2,), {"Max": 1.0, "Norm": norm})
        for norm in (123456.125, 123456.1875)
    )
    assert compare_tensors(first, second).text == "Norm 123456.1 against 123456.2"
