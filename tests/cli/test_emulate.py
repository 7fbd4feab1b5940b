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
    outcome = cli("emulate", "--fused", "rms_norm", script(), "1")
    assert "as atlas_a2: nothing;" in outcome.out
    assert "no call was replaced" not in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fused", "rmsnorm"), "did you mean rms_norm"),
        (("--compare", "some"), "one of: first, all, none"),
        (("--product", "A9"), "A9"),
        (("--ablate", "--strict", "--out", "calls.jsonl"), "--ablate has no --out, --strict"),
        (("--steps", "3"), "--steps is an option of --ablate"),
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


TRAINING = """
import os
import sys
import torch
from torch.nn import functional

os.chdir("/")
words = torch.nn.Linear(8, 64)
optimizer = torch.optim.AdamW(words.parameters(), fused=True)
for step in range(int(sys.argv[1])):
    gate, up = words(torch.randn(6, 8)).chunk(2, -1)
    loss = functional.cross_entropy(functional.silu(gate) * up, torch.randint(32, (6,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step)
"""


def test_a_script_is_run_once_for_each_operator(cli, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    options = ("emulate", "--ablate", "--steps", "3", "--json", "--report", "page.html")
    outcome = cli(*options, "train.py", "9")
    assert outcome.code == 0, outcome.err
    assert outcome.data["schema"] == "npu_sim.ablation/1"
    assert outcome.data["steps"] == 3
    assert [row["name"] for row in outcome.data["rows"]] == [
        "cross_entropy_loss_grad",
        "swi_glu",
        "apply_adam_w_v2",
        "all",
    ]
    assert outcome.data["control"]["gradient"] > 0
    assert outcome.err.count("step 0") == 1
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "stands out" in page
    assert "npu-sim emulate --soc Ascend910B1 --release 9.1 --ablate --steps 3" in page


def test_a_script_that_does_not_train_cannot_be_compared(cli, tmp_path):
    (tmp_path / "train.py").write_text("print('nothing')", encoding="utf-8")
    outcome = cli("emulate", "--ablate", "train.py")
    assert outcome.code == 64
    assert "no step of an optimizer" in outcome.err


WITHOUT_LOSS = """
import torch
from torch.nn import functional

gate, up = (torch.nn.Parameter(torch.randn(4, 8)) for _ in range(2))
optimizer = torch.optim.SGD([gate, up])
for _ in range(2):
    (functional.silu(gate) * up).backward(torch.full((4, 8), float("inf")))
    optimizer.step()
"""


def test_json_has_no_number_that_json_does_not_know(cli, tmp_path):
    (tmp_path / "train.py").write_text(WITHOUT_LOSS, encoding="utf-8")
    outcome = cli("emulate", "--ablate", "--json", "train.py")
    answer = json.loads(outcome.out, parse_constant=pytest.fail)
    assert answer["losses"] == [None, None]
    assert answer["missing"][0].startswith("no loss at 2 of 2 steps")


def test_a_script_without_a_call_has_nothing_to_compare(cli, tmp_path):
    script = "import torch\nw = torch.ones(2, requires_grad=True)\nw.sum().backward()\n"
    (tmp_path / "train.py").write_text(script + "torch.optim.SGD([w]).step()\n", encoding="utf-8")
    outcome = cli("emulate", "--ablate", "train.py")
    assert outcome.code == 64
    assert "there is no operator to compare" in outcome.err
    assert "Warning" not in outcome.err
