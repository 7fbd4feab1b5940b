import json

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

SCRIPT = """
import os
import sys
import torch
from torch.nn import functional

os.chdir("/")
gate, up = (torch.randn(6, 32).requires_grad_() for _ in range(2))
for _ in range(int(sys.argv[1])):
    (functional.silu(gate) * up).sum().backward()
print("trained", sys.argv[2:])
sys.exit(CODE)
"""


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a training script that ends with a code."""

    def write(code=0):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT.replace("CODE", str(code)), encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_script_runs_with_the_products_arithmetic(cli, script, tmp_path):
    outcome = cli("emulate", "--product", "A3", "--deterministic", script(), "3", "--json")
    assert outcome.code == 0, outcome.err
    assert "trained ['--json']" in outcome.out
    assert "as atlas_a3: swi_glu, swi_glu_grad; as this CPU: " in outcome.out
    assert "--json belong to the script" in outcome.err


def test_the_report_is_also_json_a_page_and_a_file_of_calls(cli, script, tmp_path):
    outcome = cli(
        "emulate", "--json", "--report", "page.html", "--out", "calls.jsonl", script(), "3"
    )
    replaced = {entry["operator"]: entry for entry in outcome.data["replaced"]}
    assert outcome.data["schema"] == "npu_sim.emulation/1"
    assert outcome.data["product"] == "atlas_a2"
    assert {name: entry["count"] for name, entry in replaced.items()} == {
        "swi_glu": 3,
        "swi_glu_grad": 3,
    }
    assert replaced["swi_glu"]["compared"]["elements"] == 6 * 32
    assert "swi_glu_grad" in (tmp_path / "page.html").read_text(encoding="utf-8")
    _, *lines = (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["op"] for line in lines} == {"swi_glu", "swi_glu_grad"}


def test_only_named_operators_are_replaced(cli, script):
    assert (
        "as atlas_a2: swi_glu, swi_glu_grad;"
        in cli("emulate", "--fused", "swi_glu, rms_norm", script(), "1").out
    )
    with pytest.warns(UserWarning, match="no call was replaced"):
        assert "as atlas_a2: nothing;" in cli("emulate", "--fused", "rms_norm", script(), "1").out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fused", "rmsnorm"), "did you mean rms_norm"),
        (("--compare", "some"), "one of: first, all, none"),
        (("--product", "A9"), "A9"),
    ],
)
def test_usage_errors_come_before_the_script_runs(cli, script, options, message):
    outcome = cli("emulate", *options, script(), "1")
    assert outcome.code == 64
    assert message in outcome.err
    assert "trained" not in outcome.out


def test_the_exit_code_is_the_scripts(cli, script):
    assert cli("emulate", script(7), "1").code == 7
    assert cli("emulate", "none.py").code == 64
