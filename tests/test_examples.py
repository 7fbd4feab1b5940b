"""The programs in ``examples/`` print the results of the product documents."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed(program, *arguments):
    """Run a program; return the label and the value of every line."""
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    command = [sys.executable, str(EXAMPLES / program), *arguments]
    process = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert process.stderr == ""
    lines = [line.split(" is: ") for line in process.stdout.splitlines()]
    return [label for label, _ in lines], [float(value) for _, value in lines]


def numbered(name, count):
    return [f"{name}[{position}]" for position in range(count)]


def test_embedding_dense_backward():
    labels, values = printed("embedding_dense_backward.py")
    assert labels == numbered("resultData", 12)
    assert values == [0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0]


def test_conv_tbc_backward():
    labels, values = printed("conv_tbc_backward.py")
    assert labels == [
        *numbered("gradInputResult", 10),
        *numbered("gradWeightResult", 4),
        *numbered("gradBiasResult", 2),
    ]
    assert values == [2] * 10 + [5] * 6


def test_rms_norm_grad():
    labels, values = printed("rms_norm_grad.py")
    assert labels == [*numbered("result", 32), *numbered("result", 16)]
    dy = x = np.arange(1.0, 33).reshape(2, 16)
    rstd, gamma = np.array([[1.0], [2.0]]), np.arange(1.0, 17)
    normalised = x * rstd
    mean = (dy * gamma * normalised).mean(1, keepdims=True)
    expected = [*((dy * gamma - normalised * mean) * rstd).reshape(-1), *(dy * normalised).sum(0)]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_cross_entropy_loss_grad():
    labels, values = printed("cross_entropy_loss_grad.py")
    assert labels == numbered("result", 6)
    documented = [-0.0091, 0.0409, 0.0409] * 2
    assert [round(value, 4) for value in values] == documented
    _, in_bf16 = printed("cross_entropy_loss_grad.py", "bf16")
    for value, right in zip(in_bf16, documented, strict=True):
        spacing = 2.0 ** (math.floor(math.log2(abs(right))) - 7)
        assert abs(value - right) <= spacing, "bf16 keeps 8 bits"


def test_moe_token_permute_grad():
    assert printed("moe_token_permute_grad.py") == (numbered("mean result", 2), [4, 6])


@pytest.mark.parametrize(
    "program", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "acl_program.py")
)
def test_every_program_is_tested(program):
    assert f'"{program}"' in Path(__file__).read_text(encoding="utf-8")


@pytest.mark.long
def test_a_llama_is_trained_with_every_operator_of_a_product():
    pytest.importorskip("transformers", reason="transformers is not installed")
    command = [sys.executable, "-m", "npu_sim", "emulate", "--product", "A2", "--ablate"]
    command += ["--steps", "2", "--json", str(EXAMPLES / "train_llama.py")]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    study = json.loads(process.stdout)
    assert [row["name"] for row in study["rows"]] == [
        "embedding_dense_backward",
        "rms_norm",
        "cross_entropy_loss_grad",
        "swi_glu",
        "rotary_position_embedding",
        "apply_adam_w_v2",
        "all",
    ]
    assert study["emulation"]["left"] == []
