"""Checking files of calls before anything runs: one JSON object a line.

A line names the operator (or a vendor kernel, for its raw planner) and the inputs, and may name what it is for::

    {"op": "rms_norm_grad", "product": "atlas_a2", "deterministic": true, "count": 65, "name": "model.layers.*.input_layernorm",
     "inputs": {"dy": "4096x8192:bf16", "gamma": "8192:bf16"}}

``expect`` (any of ``status``, ``block_dim``, ``tiling_key``, ``workspace_bytes``, ``schedule_mode``, ``path`` and, for a kernel,
``tiling``) is compared with the result. A line may also be the head of a recording, which says what its calls do not cover.

:func:`check_line` answers one line, :func:`check_file` a file for several products, SoCs and releases at once.
"""

from npu_sim.questions.preflight.answers import FAILED, MALFORMED, REFUSED, Checked
from npu_sim.questions.preflight.checking import check_line, check_lines
from npu_sim.questions.preflight.matrix import Fault, Matrix, Row, check_file
from npu_sim.questions.preflight.policy import FAULTS, Policy, policy_of
from npu_sim.questions.preflight.summary import Summary
from npu_sim.questions.preflight.targets import Target, chosen_targets

__all__ = [
    "FAILED",
    "FAULTS",
    "MALFORMED",
    "REFUSED",
    "Checked",
    "Fault",
    "Matrix",
    "Policy",
    "Row",
    "Summary",
    "Target",
    "check_file",
    "check_line",
    "check_lines",
    "chosen_targets",
    "policy_of",
]
