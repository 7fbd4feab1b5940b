"""Planners at every release against golden results of that release's own planners."""

import json
from collections import Counter

import pytest

from npu_sim.cores import release_names
from npu_sim.tiling import plan_kernel
from tests.golden import release_lines, tiling_lines

KERNELS = (
    "embedding_dense_grad_v2",
    "rms_norm_grad",
    "rms_norm",
    "cross_entropy_loss_grad",
    "add_rms_norm",
)
SAME_AT_EVERY_RELEASE = ("moe_token_permute_grad",)
FP32_ONLY = ("embedding_dense_grad_v2", "8.3")
"""The kernel of this release takes fp32 only: no golden result has 16 bits."""


def key_of(line):
    return line["soc"], json.dumps(line["inputs"], sort_keys=True), line["deterministic"]


def planned(line, release):
    return plan_kernel(
        line["op"], line["soc"], line["inputs"], line["deterministic"], release=release
    )


def missing_kernel(line, release):
    return (line["op"], release) == FP32_ONLY and line["inputs"]["grad_dtype"] != "float32"


def test_the_golden_data_has_every_release_but_the_newest():
    found = {
        kernel: Counter(line["release"] for line in release_lines(kernel)) for kernel in KERNELS
    }
    assert found == {
        "embedding_dense_grad_v2": {"8.3": 123, "8.5": 162},
        "rms_norm_grad": {"8.3": 359, "8.5": 359, "9.0": 359},
        "rms_norm": {"8.3": 368, "8.5": 20},
        "cross_entropy_loss_grad": {"8.3": 129, "8.5": 129},
        "add_rms_norm": {"8.3": 570, "8.5": 150, "9.0": 77},
    }


@pytest.mark.parametrize("release", release_names())
@pytest.mark.parametrize("kernel", [*KERNELS, *SAME_AT_EVERY_RELEASE])
def test_every_golden_line_is_planned_as_its_release_does(kernel, release):
    """A line that is not listed for a release is planned as at the newest."""
    others = () if kernel in SAME_AT_EVERY_RELEASE else release_lines(kernel)
    listed = {key_of(line): line for line in others if line["release"] == release}
    lines = [line for line in tiling_lines(kernel) if not missing_kernel(line, release)]
    assert listed.keys() <= {key_of(line) for line in lines}
    for line in lines:
        assert planned(line, release) == listed.get(key_of(line), line)["expect"], (
            line["soc"],
            line["inputs"],
        )


def test_a_kernel_that_takes_fp32_only_has_no_tiling_for_16_bits():
    kernel, release = FP32_ONLY
    lines = [line for line in tiling_lines(kernel) if missing_kernel(line, release)]
    assert len(lines) > 200
    assert all(planned(line, release) == {"status": "failed"} for line in lines)


def test_the_deterministic_planner_of_convolutions_is_published_from_9_1_on():
    line = next(
        line
        for line in tiling_lines("conv_tbc_grad_weight_deterministic")
        if line["route"] == "planner"
    )
    assert [planned(line, release)["route"] for release in release_names()] == [
        *3 * ["model"],
        *3 * ["planner"],
    ]
