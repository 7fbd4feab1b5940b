"""Planners of Ascend 950 against golden results of the product's planners."""

import pytest

from npu_sim.registry import OPERATORS
from tests.golden import DATA, not_reproduced, tiling_lines

KERNELS = sorted(path.name.partition(".")[0] for path in (DATA / "tiling" / "ascend_950").iterdir())


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_golden_line_is_reproduced(kernel):
    assert not_reproduced(tiling_lines(f"ascend_950/{kernel}")) == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_golden_data_has_every_kind_of_line(kernel):
    lines = [line["expect"] for line in tiling_lines(f"ascend_950/{kernel}")]
    assert len(lines) >= 420
    assert {line["status"] for line in lines} == {"success", "failed"}
    assert len({line.get("tiling_key") for line in lines}) > 2


def test_every_modelled_kernel_has_golden_lines():
    assert {kernel for one in OPERATORS for kernel in one.kernels_on("ascend_950")} == set(KERNELS)
