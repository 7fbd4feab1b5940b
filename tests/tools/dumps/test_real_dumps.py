"""Dumps that the real msprobe wrote on a CPU, see ci/write_dumps.py."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from npu_sim import read_dump

DATA = Path(__file__).parents[2] / "data" / "dumps"
VERSIONS = ("26.2.0", "8.3.3")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return a folder with the dumps of every version."""
    folder = tmp_path_factory.mktemp("real")
    for version in VERSIONS:
        with zipfile.ZipFile(DATA / f"{version}.zip") as archive:
            archive.extractall(folder / version)
    return folder


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["l1", "mix"])
def test_gradients_of_functions_are_found_and_equal(real, version, level):
    # A backward entry lists the gradients of the autograd node, not of positional arguments.
    calls = read_dump(real / version / f"tensor_{level}").calls
    found = {call.entry: (dict(call.verdicts), call.arguments.get("padding_idx")) for call in calls}
    assert found["Functional.embedding.0.backward"] == ({"grad_weight": "equal"}, -1)
    assert found["Functional.embedding.1.backward"] == ({"grad_weight": "equal"}, 11)
    verdicts, _ = found["Torch.conv_tbc.0.backward"]
    assert verdicts.keys() == {"grad_input", "grad_weight", "grad_bias"}
    assert "unreachable" not in verdicts.values()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_calls_are_found_without_tensors(real, version, mode):
    calls = read_dump(real / version / f"{mode}_l1").calls
    assert [call.operator for call in calls].count("embedding_dense_backward") == 2
    assert not any(call.contradictions for call in calls)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["l0", "mix"])
def test_gradients_of_an_embedding_module_are_a_call(real, version, level):
    reading = read_dump(real / version / f"tensor_{level}")
    (call,) = (one for one in reading.calls if ".parameters_grad" in one.entry)
    assert (call.entry.removesuffix(".0"), dict(call.verdicts)) == (
        "Module.table.Embedding.parameters_grad",
        {"grad_weight": "equal"},
    )
    assert (reading.unnamed_files, reading.unreadable) == (0, ())


@pytest.mark.parametrize("level", ["l0", "l1"])
@pytest.mark.parametrize("first", ["tensor", "statistics", "md5", "xor"])
@pytest.mark.parametrize("second", ["tensor", "statistics", "md5"])
def test_the_same_step_is_the_same_in_every_mode_and_version(real, level, first, second):
    one = real / "26.2.0" / f"{first}_{level}"
    other = real / "8.3.3" / f"{second}_{level}"
    reading = read_dump(one, against=other, verify=False)
    assert reading.differences == ()
    comparable = first != "xor" or second == "tensor"
    assert reading.nothing_compared is not comparable
    # flatten and ones_like are wrapped by the older version alone
    missing = {note.entry.split(".")[1] for note in reading.unmatched}
    assert missing <= {"flatten", "ones_like"}


def test_a_gradient_of_parameters_that_differs_is_named(real, tmp_path):
    other = tmp_path / "b"
    shutil.copytree(real / "26.2.0" / "statistics_l0", other)
    entry = "Module.table.Embedding.parameters_grad.0"
    path = next(other.rglob("dump.json"))
    document = json.loads(path.read_text("utf-8"))
    described = document["data"][entry]["weight"][0]
    described |= {key: 1.001 * described[key] for key in ("Max", "Min", "Mean", "Norm")}
    path.write_text(json.dumps(document), "utf-8")
    (found,) = read_dump(real / "8.3.3" / "statistics_l0", against=other).differences
    assert found.entry == entry.removesuffix(".0")
    assert found.outputs == ("grad_weight",)
    assert "timing does not explain it" in found.reason
