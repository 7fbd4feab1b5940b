"""Small calls, dominated by planning and dispatch (pytest-benchmark).

``python -m pytest benchmarks/test_small_calls.py``; not collected by the normal test run.
``--benchmark-json FILE`` writes the numbers, ``--benchmark-compare`` compares with earlier ones.
"""

import pytest
from cases import Case, build

import npu_sim

SMALL = (
    Case("embedding", (256, 128, 500), "fp32", "zipf"),
    Case("rms_norm", (64, 512), "fp32"),
    Case("cross_entropy", (64, 1000), "fp32"),
    Case("moe", (64, 4, 512), "fp32"),
    Case("moe_permute", (64, 4, 512), "fp32"),
    Case("conv_tbc", (32, 4, 32, 32, 3), "fp32"),
)


@pytest.mark.parametrize("deterministic", [False, True], ids=["default", "deterministic"])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.operator)
def test_run(benchmark, case, deterministic):
    problem = build(case)
    result = benchmark(lambda: problem.run(out=problem.outs, deterministic=deterministic))
    assert result.plan.deterministic == deterministic


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.operator)
def test_plan(benchmark, case):
    problem = build(case)
    plan = benchmark(lambda: npu_sim.plan(problem.operator, **problem.inputs))
    assert plan.block_dim >= 1
