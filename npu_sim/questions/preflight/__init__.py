"""Preflight: check a file of calls without data, one JSON object per line.

A line has the operator (or a vendor kernel, for its raw planner) and its inputs::

    {"op": "rms_norm_grad", "product": "atlas_a2", "deterministic": true, "count": 65,
     "name": "model.layers.*.input_layernorm",
     "inputs": {"dy": "4096x8192:bf16", "gamma": "8192:bf16"}}

``expect`` (any of ``status``, ``block_dim``, ``tiling_key``, ``workspace_bytes``,
``schedule_mode``, ``path`` and, for a kernel, ``tiling``) is compared with the result. The first
line may be the head of a recording, which lists what its calls do not cover.

:func:`check_line` checks one line, :func:`check_file` a file on several products, SoCs and
releases.
"""

from npu_sim.questions.preflight.answers import (
    ACCEPTED,
    ERROR,
    FAILED,
    INFORMATIONAL,
    MALFORMED,
    REFUSED,
    Checked,
    Row,
    Summary,
)
from npu_sim.questions.preflight.checking import check_line, check_lines
from npu_sim.questions.preflight.lines import Column, chosen_columns
from npu_sim.questions.preflight.matrix import Fault, Matrix, check_file
from npu_sim.questions.preflight.policy import (
    CRITERIA,
    Finding,
    Policy,
    policy_of,
    read_baseline,
    write_baseline,
)

__all__ = [
    "ACCEPTED",
    "CRITERIA",
    "ERROR",
    "FAILED",
    "INFORMATIONAL",
    "MALFORMED",
    "REFUSED",
    "Checked",
    "Column",
    "Fault",
    "Finding",
    "Matrix",
    "Policy",
    "Row",
    "Summary",
    "check_file",
    "check_line",
    "check_lines",
    "chosen_columns",
    "policy_of",
    "read_baseline",
    "write_baseline",
]
