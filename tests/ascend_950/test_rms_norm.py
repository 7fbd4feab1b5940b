"""RmsNorm on Ascend 950: orders, warnings, and what differs from A2."""

import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.studies.certificate import certify
from tests.cases import every

A5 = "ascend_950"
FULL_LOAD = (1, 17, 32, 63, 64, 65, 72, 100, 128, 129, 137, 1000, 2048, 4097, 8192, 8193, 12288)
SPLIT = (16385, 20480, 20481, 24577, 28673, 32768, 70001)


def call(rows, columns, dtype="float32", gamma_dtype=None):
    random = np.random.default_rng([rows, columns])
    x = random.standard_normal((rows, columns), np.float32).astype(numpy_dtype(dtype))
    gamma = random.normal(1, 0.2, columns).astype(numpy_dtype(gamma_dtype or dtype))
    return {"x": x, "gamma": gamma}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", FULL_LOAD)
def test_the_kernel_adds_as_its_declared_tree(columns, dtype):
    (certificate,) = certify("rms_norm", product=A5, **call(1, columns, dtype))
    assert certificate.agrees is True


@pytest.mark.parametrize(
    ("columns", "dtype"), every(4, zip(SPLIT, 4 * ("float32", "float16"), strict=False))
)
def test_pieces_are_added_as_their_declared_tree(columns, dtype):
    assert npu_sim.plan("rms_norm", product=A5, **call(1, columns, dtype)).path == "split"
    (certificate,) = certify("rms_norm", product=A5, **call(1, columns, dtype))
    assert certificate.agrees is True


@pytest.mark.parametrize(
    ("columns", "dtype", "gamma_dtype", "key"),
    [
        (12536, "float32", "float32", 5000),
        (12537, "float32", "float32", 2001),
        (16384, "float16", "float16", 5000),
        (16385, "bfloat16", "bfloat16", 2001),
        (16384, "bfloat16", "float32", 5000),
    ],
)
def test_the_widest_row_of_a_key(columns, dtype, gamma_dtype, key):
    specs = {"x": f"64x{columns}:{dtype}", "gamma": f"{columns}:{gamma_dtype}"}
    plan = npu_sim.plan("rms_norm", product=A5, **specs)
    assert plan.tiling_key == key
    assert plan.outcome == "runs"
    assert plan.workspace.total_bytes == 16777472
    assert all(order.fixed for order in plan.order)


def test_rows_do_not_depend_on_rows_and_cores():
    inputs = call(130, 1000, "bfloat16")
    whole = npu_sim.run("rms_norm", soc="Ascend950DT_9591", **inputs).outputs
    one = npu_sim.run(
        "rms_norm", soc="Ascend950PR_950z", x=inputs["x"][77:78], gamma=inputs["gamma"]
    )
    assert whole["rstd"][77] == one.outputs["rstd"][0]
    assert np.array_equal(whole["y"][77].view(np.uint16), one.outputs["y"][0].view(np.uint16))


def test_zero_rows_without_epsilon_and_overflowing_squares():
    x = np.zeros((3, 100), np.float32)
    x[1], x[2] = 1e30, 1
    found = npu_sim.run("rms_norm", product=A5, x=x, gamma=np.ones(100, np.float32), epsilon=0)
    assert found.outputs["rstd"].ravel().tolist() == [np.inf, 0, 1]
    assert {caveat.code for caveat in found.caveats} >= {"squares_overflow"}
    assert "zero_rows_without_epsilon" in {caveat.code for caveat in found.plan.caveats}


@pytest.mark.parametrize(
    ("shape", "codes"),
    [
        ("4096x4096", {"rstd_differs_between_products"}),
        ("262144x20000", {"rstd_differs_between_products", "row_offset_wraps"}),
    ],
)
def test_warnings(shape, codes):
    columns = shape.partition("x")[2]
    plan = npu_sim.plan("rms_norm", product=A5, x=f"{shape}:bf16", gamma=f"{columns}:bf16")
    assert {caveat.code for caveat in plan.caveats} == codes
    assert "not run on a device" in plan.rules_source


@pytest.mark.parametrize(("x", "gamma"), [("4x100:fp16", "100:fp32"), ("4x3:bf16", "3:bf16")])
def test_the_contract_of_a2_without_the_rule_of_32_bytes(x, gamma):
    assert npu_sim.plan("rms_norm", product=A5, x=x, gamma=gamma).outcome == "runs"


@pytest.mark.parametrize(("columns", "pipe"), [(4096, "MTE2"), (40000, "MTE2")])
def test_the_bound_is_that_of_the_copies(columns, pipe):
    from npu_sim.cores import load_profile
    from npu_sim.operators.timelines import steps, timeline

    plan = npu_sim.plan("rms_norm", product=A5, x=f"4096x{columns}:bf16", gamma=f"{columns}:bf16")
    bound = timeline(plan, load_profile(A5))
    assert bound.bound_us > 0
    assert bound.binding_pipe == pipe
    assert "reduce_repeat float32" in bound.unknown_rates
    assert bound.read_bytes >= 4096 * columns * 2
    assert steps(plan)["tiles"]
