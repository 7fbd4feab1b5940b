"""Calls in a dump, what their statistics say, and the first difference of two dumps."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import npu_sim as npu_sim_package
from npu_sim import UsageError, read_dump
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.registry import OPERATOR_NAMES
from tests.cli.runner import npu_sim
from tests.studies import calls
from tests.tools.dumps.msprobe import Writer, write_model

DEVICE = {"soc": "Ascend910B1", "release": "9.1"}


WRAPPED = set(OPERATOR_NAMES) - {"apply_adam_w_v2"}
"""Operators in dumps: tools wrap no function of an optimizer."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder / "step0" / "rank0")
    return folder


def edited(folder, change):
    """Change the data of the dump.json in a folder."""
    path = next(folder.rglob("dump.json"))
    document = json.loads(path.read_text("utf-8"))
    change(document["data"])
    path.write_text(json.dumps(document), "utf-8")


def test_every_operator_is_found_and_runs(model):
    reading = read_dump(model, verify=False)
    assert {call.operator for call in reading.calls} == WRAPPED
    assert {(call.operator, call.outcome, call.message) for call in reading.calls} == {
        (name, "runs", "") for name in WRAPPED
    }
    assert reading.not_modelled == {"Torch.cos": 1}
    assert reading.places == ("step0/rank0",)
    assert not any(call.contradictions for call in reading.calls)


def test_a_negative_padding_idx_of_the_functional_counts_from_the_end(tmp_path):
    writer = Writer(tmp_path / "d", "statistics")
    weight, grad = np.ones((10, 4), np.float32), np.ones((3, 4), np.float32)
    for name, inputs, gradients in (
        ("Functional.embedding.0", (np.arange(3), weight, -1), (weight,)),
        ("Torch.embedding.0", (weight, np.arange(3), -1), (weight,)),
        ("Functional.embedding.1", (np.arange(3), weight), (weight,)),
    ):
        writer.call(name, inputs, (grad,), (grad,), gradients)
    writer.close()
    padding = [call.arguments["padding_idx"] for call in read_dump(tmp_path, verify=False).calls]
    assert padding == [9, -1, -1]


@pytest.mark.parametrize(
    ("entry", "side", "place", "statistics", "told"),
    [
        ("NPU.npu_rms_norm.0.forward", "output", 1, {"Max": 1e9}, "rstd goes from"),
        ("NPU.npu_rms_norm.0.forward", "output", 0, {"Norm": 1e9}, "y has the norm"),
        (
            "NPU.npu_moe_token_permute.0.forward",
            "output",
            0,
            {"Max": 1e9},
            "Max of permuted_tokens",
        ),
        ("Functional.embedding.0.forward", "input_args", 0, {"Max": 40}, "indices goes from"),
    ],
)
def test_impossible_statistics_are_found(tmp_path, entry, side, place, statistics, told):
    write_model(tmp_path / "d", "statistics")
    edited(tmp_path, lambda data: data[entry][side][place].update(statistics))
    texts = [
        text for call in read_dump(tmp_path, verify=False).calls for text in call.contradictions
    ]
    assert any(text.startswith(told) for text in texts), texts


def test_nan_that_arose_in_a_call_is_noted(tmp_path):
    write_model(tmp_path / "d", "statistics")
    values = {"Max": float("nan"), "Min": float("nan")}
    entry = "NPU.npu_rms_norm.0.backward"
    edited(tmp_path, lambda data: data[entry]["output"][0].update(values))
    noted = {
        call.operator: call.remarks
        for call in read_dump(tmp_path, verify=False).calls
        if call.remarks
    }
    assert noted == {"rms_norm_grad": ("dx has inf or nan, the inputs have none",)}


@pytest.mark.long
def test_every_result_of_random_orders_is_possible(model):
    statuses = {
        (call.operator, output): status
        for call in read_dump(model, **DEVICE).calls
        for output, status in call.verdicts.items()
    }
    assert {operator for operator, _ in statuses} == WRAPPED
    assert set(statuses.values()) <= {"equal", "reachable"}
    assert statuses["rms_norm_grad", "dx"] == "equal"


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "operator", "output"),
    [
        ("NPU.npu_rms_norm.0.backward.output.0", "rms_norm_grad", "dx"),
        ("NPU.npu_rms_norm.0.forward.output.0", "rms_norm", "y"),
        ("NPU.npu_moe_token_permute.0.backward.output.0", "moe_token_permute_grad", "input_grad"),
    ],
)
def test_a_flipped_bit_is_unreachable(tmp_path, file, operator, output):
    path = write_model(tmp_path / "d").folder / "dump_tensor_data" / f"{file}.npy"
    values = np.load(path)
    values.view(np.uint32).reshape(-1)[7] ^= 1 << 16
    np.save(path, values)
    calls_in_dump = read_dump(tmp_path, **DEVICE).calls
    found = [
        (call.operator, name)
        for call in calls_in_dump
        for name, status in call.verdicts.items()
        if status == "unreachable"
    ]
    assert (operator, output) in found


def embedding_gradients():
    """Gradients of an embedding that the product cannot have produced, by their explanation."""
    random = np.random.default_rng(0)
    rows = np.arange(2400, dtype=np.int32)
    wide = random.standard_normal((2400, 600)).astype(np.float32)
    wide_call = {"grad": wide, "indices": rows // 25, "num_weights": 96}
    call = {**wide_call, "grad": wide[:, :16]}
    bfloat16 = {**call, "grad": call["grad"].astype(numpy_dtype("bfloat16"))}
    twice = {**call, "grad": np.insert(call["grad"], 8, call["grad"][7], axis=0)}
    twice["indices"] = np.insert(call["indices"], 8, call["indices"][7])
    kept = {**bfloat16, "grad": bfloat16["grad"].astype(np.float32)}
    return {
        "row 7 added twice": (call, twice, {}),
        "fp32 results that were not rounded to 16 bits": (bfloat16, kept, {}),
        "release 8.3": (wide_call, wide_call, {"release": "8.3"}),
    }


@pytest.mark.parametrize("explanation", embedding_gradients())
def test_a_result_that_is_impossible_is_explained(tmp_path, explanation):
    call, computed, target = embedding_gradients()[explanation]
    gradient = npu_sim_package.run("embedding_dense_backward", **computed, **DEVICE | target)
    writer = Writer(tmp_path)
    writer.call(
        "Functional.embedding.0",
        (call["indices"], np.ones((96, call["grad"].shape[1]), call["grad"].dtype)),
        (call["grad"],),
        (call["grad"],),
        (gradient.outputs["grad_weight"],),
    )
    writer.close()
    (found,) = read_dump(tmp_path, **DEVICE).calls
    assert found.verdicts == {"grad_weight": "unreachable"}
    assert explanation in found.explanations
    assert found.impossible


def test_a_gradient_that_was_cast_is_compared_after_the_cast(tmp_path):
    call = calls.rms_norm(300, 128, "bf16")
    # Sums that cancel: their rounding errors differ between orders, in bfloat16 as well.
    call["x"][150:], call["dy"][150:] = call["x"][:150], -call["dy"][:150]
    forward = npu_sim_package.run("rms_norm", x=call["x"], gamma=call["gamma"]).outputs
    call["rstd"] = forward["rstd"]
    gradient, random = (
        npu_sim_package.run("rms_norm_grad", core_order=order, **call, **DEVICE).outputs
        for order in ("reverse", "random")
    )
    dtype = call["x"].dtype
    for cast, status in (
        (gradient["dgamma"].astype(dtype), "equal"),
        (random["dgamma"].astype(dtype), "reachable"),
        (np.ones(128, dtype), "unreachable"),
    ):
        writer = Writer(tmp_path / status)
        writer.call(
            "NPU.npu_rms_norm.0",
            (call["x"], call["gamma"], 1e-6),
            (forward["y"], forward["rstd"]),
            (call["dy"], None),
            (gradient["dx"], cast),
        )
        writer.close()
        found = read_dump(tmp_path / status, **DEVICE).calls[-1]
        assert found.verdicts == {"dx": "equal", "dgamma": status}


@pytest.mark.parametrize(("task", "inputs"), [("tensor", "equal"), ("md5", "equal")])
def test_the_first_difference_is_a_call_that_depends_on_timing(tmp_path, task, inputs):
    for name, seed in (("a", 1), ("b", 2)):
        write_model(tmp_path / name, task, seed)
    # the search goes on behind it
    found, *others = read_dump(tmp_path / "a", against=tmp_path / "b", verify=False).differences
    assert [other.operator for other in others] == ["rms_norm_grad"]
    assert (found.entry, found.operator) == (
        "Functional.embedding.0.backward",
        "embedding_dense_backward",
    )
    assert (found.outputs, found.inputs) == (("grad_weight",), inputs)
    assert found.can_differ is None  # the values were not checked
    assert "depends on the order of cores" in found.reason


def test_equal_statistics_of_the_inputs_are_no_proof(tmp_path):
    for name in ("a", "b"):
        write_model(tmp_path / name, "statistics")
    change = {"Max": 2.0}
    entry = "NPU.npu_rms_norm.0.backward"
    edited(tmp_path / "b", lambda data: data[entry]["output"][0].update(change))
    (found,) = read_dump(tmp_path / "a", against=tmp_path / "b", verify=False).differences
    assert (found.entry, found.inputs, found.can_differ) == (entry, "similar", False)


def test_a_difference_of_the_inputs_comes_from_outside(tmp_path):
    for name, value in (("a", 1), ("b", 2)):
        writer = Writer(tmp_path / name, "md5")
        values = np.full(3, value, np.float32)
        writer.call("Torch.cos.0", (values,), (np.cos(values),))
        writer.close()
    (found,) = read_dump(tmp_path / "a", against=tmp_path / "b", verify=False).differences
    assert (found.inputs, found.operator, found.can_differ) == ("different", None, None)


def test_equal_dumps_have_no_difference(tmp_path, model):
    write_model(tmp_path / "d")
    assert read_dump(tmp_path, against=model, verify=False).differences == ()


def test_files_without_an_entry_are_counted(tmp_path):
    write_model(tmp_path / "d")
    edited(tmp_path, lambda data: data.pop("Torch.cos.0.forward"))
    assert read_dump(tmp_path, verify=False).unnamed_files == 2


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"data": 3}', '{"data": {"a": 3, "b": {"output": [[]]', "[" * 10**5],
)
def test_a_damaged_dump_is_an_error(tmp_path, content):
    (tmp_path / "dump.json").write_text(content, "utf-8")
    with pytest.raises(UsageError, match=r"dump\.json is not a dump"):
        read_dump(tmp_path, verify=False)


TENSOR = {"type": "torch.Tensor", "shape": [3, 4], "dtype": "torch.float32"}


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ([], "refused"),
        ([None, None], "refused"),
        ([TENSOR, 7, "x"], "refused"),
        ([TENSOR, {"type": "torch.Tensor", "shape": [4], "dtype": "float8"}], "unreadable"),
        ([TENSOR, {"type": "torch.Tensor"}], "unreadable"),
    ],
)
def test_calls_with_other_arguments_are_listed_with_the_reason(tmp_path, arguments, outcome):
    entry = {"input_args": arguments, "input_kwargs": {}, "output": [TENSOR]}
    data = {"NPU.npu_rms_norm.0.forward": entry}
    (tmp_path / "dump.json").write_text(json.dumps({"data": data}), "utf-8")
    (call,) = read_dump(tmp_path, verify=False).calls
    assert call.outcome == outcome
    assert call.message


def test_links_to_folders_are_followed_once(tmp_path, model):
    (tmp_path / "step1").mkdir()
    (tmp_path / "step0").symlink_to(model / "step0", target_is_directory=True)
    (tmp_path / "step1" / "up").symlink_to(tmp_path, target_is_directory=True)
    assert read_dump(tmp_path, verify=False).places == read_dump(model, verify=False).places


@pytest.mark.parametrize("folder", ["rank1", "rank0/dump_tensor_data"])
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, model, monkeypatch, folder):
    place = tmp_path / "step0"
    shutil.copytree(model / "step0", place)
    (place / "rank1").mkdir(exist_ok=True)

    def refusing(listing):
        def listed(path):
            if Path(path) == place / folder:
                raise PermissionError(errno.EACCES, "denied", str(path))
            return listing(path)

        return listed

    monkeypatch.setattr("os.scandir", refusing(os.scandir))
    monkeypatch.setattr("os.listdir", refusing(os.listdir))
    with pytest.raises(UsageError, match="cannot be read") as error:
        read_dump(tmp_path)
    assert folder in error.value.message


def test_dumps_without_a_common_place_are_refused(tmp_path):
    for name, places in (("a", (0, 1)), ("b", (2, 3))):
        for place in places:
            Writer(tmp_path / name / f"rank{place}", "statistics").close()
    with pytest.raises(UsageError, match="no step and rank in common"):
        read_dump(tmp_path / "a", against=tmp_path / "b", verify=False)


def test_the_command_lists_calls_and_ends_with_1_at_a_difference(
    tmp_path, model, capsys, monkeypatch
):
    shown = npu_sim(capsys, monkeypatch, "dump", "--no-verify", str(model))
    assert shown.code == 0
    assert "NPU.npu_rms_norm.0.backward" in shown.out
    write_model(tmp_path / "b", seed=5)
    shown = npu_sim(
        capsys, monkeypatch, "dump", "--no-verify", str(model), "--against", str(tmp_path / "b")
    )
    assert shown.code == 1
    assert "Functional.embedding.0.backward" in shown.out
    answer = npu_sim(capsys, monkeypatch, "dump", "--no-verify", str(model), "--json").data
    assert {call["operator"] for call in answer["calls"]} == WRAPPED


def test_the_report_has_the_calls_in_order_and_what_is_not_equal(
    tmp_path, model, capsys, monkeypatch
):
    call = calls.permutation(20, 4, 16)
    forward = npu_sim_package.run("moe_token_permute", **call).outputs
    wrong = forward["permuted_tokens"].copy()
    wrong[3, 5] += 1
    for name, tokens in (("a", wrong), ("b", forward["permuted_tokens"])):
        writer = Writer(tmp_path / name)
        writer.call(
            "NPU.npu_moe_token_permute.0",
            (call["tokens"], call["indices"]),
            (tokens, forward["sorted_indices"]),
        )
        writer.close()
    path = tmp_path / "report.html"
    shown = npu_sim(
        *(capsys, monkeypatch, "dump", str(tmp_path / "a"), "--against", str(tmp_path / "b")),
        *("--soc", "910B1", "--release", "9.1", "--report", str(path)),
    )
    assert shown.code == 1
    page = path.read_text("utf-8")
    for text in (
        "2 calls, 1 with values that the product cannot have written, 1 proved possible",
        "first difference",
        "permuted_tokens unreachable, sorted_indices equal",
        f"{wrong.size - 1} equal, 1 unreachable",
        ">3, 5</td>",
    ):
        assert text in page, text


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no such folder"), ("dump.json", "is not a folder")]
)
def test_a_missing_folder_and_a_file_are_no_folder(tmp_path, name, message):
    (tmp_path / "dump.json").write_text("{}")
    with pytest.raises(UsageError, match=message):
        read_dump(tmp_path / name)
