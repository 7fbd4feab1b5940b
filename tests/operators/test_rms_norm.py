from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile, shipped_products
from npu_sim.framework.inference import arguments_of
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate
from npu_sim.operators.shared.study import formula_results
from tests.operators.refusals import blame_of, refusal_of

OPERATOR = "rms_norm"
F = np.float32


def specs(shape="60x128", columns="128", dtype="fp32", gamma_dtype=None, **changes):
    return {"x": f"{shape}:{dtype}", "gamma": f"{columns}:{gamma_dtype or dtype}", **changes}


def plan(product="atlas_a2", soc=None, limits="documented", deterministic=False, **call):
    return npu_sim.plan(
        OPERATOR,
        product=product,
        soc=soc,
        limits=limits,
        deterministic=deterministic,
        **specs(**call),
    )


refusal = partial(refusal_of, plan)


NINE = "1x1x1x1x1x1x1x60x128"
INFERENCE = {"product": "atlas_inference"}


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "x", {"x": None}),
        (161001, "gamma", {"gamma": None}),
        (161001, "x", {"x": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "x", {"dtype": "fp64"}),
        (161002, "gamma", {"dtype": "fp32", "gamma_dtype": "fp16"}),
        (161002, "gamma", {"dtype": "bf16", "gamma_dtype": "fp16"}),
        (161002, "y", {"y": "60x128:fp16"}),
        (161002, "rstd", {"rstd": "60x1:fp16"}),
        (161002, "x", {"dtype": "bf16", **INFERENCE}),
        (161002, "gamma", {"dtype": "fp16", "gamma_dtype": "fp32", **INFERENCE}),
        (561002, "x", {"x": "60x128:fp32:FRACTAL_NZ"}),
        (561002, "x", {"shape": NINE}),
        (561002, "x", {"shape": "scalar"}),
        (561002, "gamma", {"columns": "scalar"}),
        (561002, "gamma", {"columns": "1x60x128"}),
        (561002, "gamma", {"columns": "127"}),
        (561002, "y", {"y": "60x127:fp32"}),
        (561002, "rstd", {"rstd": "60x1x1:fp32"}),
        (561002, "rstd", {"rstd": "1:fp32"}),
        (561002, "rstd", {"rstd": "1x1:fp32"}),
        (561002, "gamma", {"shape": "60x0", "columns": "0"}),
        (561002, "x", {"shape": "60x7", "columns": "7", **INFERENCE}),
        (561002, "x", {"shape": "60x7", "columns": "7", "limits": "hardware", **INFERENCE}),
        (561002, "x", {"shape": "60x8x4", "columns": "8x4", **INFERENCE}),
        (561002, "epsilon", {"epsilon": -1e-6}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bf16", "gamma_dtype": "fp32"},
        {"rstd": "60:fp32"},
        {"shape": "3x20x4x32", "columns": "4x32", "rstd": "3x20x1x1:fp32"},
        {"shape": "3x20x4x32", "columns": "4x32", "rstd": "3x20x1:fp32"},
        {"shape": "128", "rstd": "1:fp32"},
        {"shape": "60x8", "columns": "8", **INFERENCE},
        {"x": "60x128:fp32:strided", "gamma": "128:fp32:strided", "y": "60x128:fp32:strided"},
        *({"epsilon": epsilon} for epsilon in (0.0, -1e-50, float("inf"), float("nan"))),
    ],
)
def test_calls_that_run(changes):
    assert plan(**changes).block_dim > 0


def test_no_rows_give_empty_outputs_and_epsilon_is_not_looked_at():
    empty = plan(shape="0x128", epsilon=-1.0)
    assert (empty.block_dim, empty.workspace.total_bytes, empty.kernel) == (0, 0, "")
    outputs = npu_sim.run(OPERATOR, x=np.ones((0, 4), F), gamma=np.ones(4, F), epsilon=-1.0).outputs
    assert (outputs["y"].shape, outputs["rstd"].shape) == ((0, 4), (0, 1))


@pytest.mark.parametrize(
    ("shape", "columns", "rstd"),
    [("2x3x8", "8", (2, 3, 1)), ("2x3x8", "3x8", (2, 1, 1)), ("8", "8", (1,))],
)
def test_rstd_has_a_one_for_every_axis_of_gamma(shape, columns, rstd):
    data = generate(OPERATOR, arguments_of(load_operator(OPERATOR), specs(shape, columns)))
    assert npu_sim.run(OPERATOR, **data).outputs["rstd"].shape == rstd


@pytest.mark.parametrize(
    ("columns", "dtype", "gamma", "product", "path", "key"),
    [
        (2000, "bf16", "bf16", "atlas_a2", "merge N", 2),
        (2000, "bf16", "bf16", "atlas_a3", "merge N", 2),
        (2001, "fp32", "fp32", "atlas_a2", "normal", 0),
        (10241, "fp32", "fp32", "atlas_a2", "split D", 1),
        (12288, "fp16", "fp16", "atlas_a2", "normal", 0),
        (12289, "fp16", "fp16", "atlas_a2", "split D", 1),
        (12160, "bf16", "fp32", "atlas_a2", "normal", 0),
        (12161, "bf16", "fp32", "atlas_a3", "single row", 3),
        (13905, "bf16", "fp32", "atlas_a2", "split D", 1),
        (128, "fp16", "fp16", "atlas_inference", "normal", 0),
    ],
)
def test_paths_and_keys(columns, dtype, gamma, product, path, key):
    tiled = plan(
        shape=f"60x{columns}", columns=str(columns), dtype=dtype, gamma_dtype=gamma, product=product
    )
    assert (tiled.path, tiled.tiling_key) == (path, key)
    assert tiled.memories[0].used_bytes <= tiled.memories[0].capacity_bytes
    assert tiled.workspace.total_bytes == 16777472
    assert all(order.fixed for order in tiled.order)


def test_the_inference_series_merges_rows_of_128_columns_in_sixteens():
    merged = plan(shape="64x128", dtype="fp16", **INFERENCE)
    assert (merged.tiling_key, merged.tiling["is_performance"], merged.tiling["block_factor"]) == (
        2,
        1,
        8,
    )
    assert plan(shape="65x128", dtype="fp16", **INFERENCE).tiling_key == 0


@pytest.mark.parametrize("name", ["merge N", "whole rows"])
def test_a_flip_turns_its_decision_around(name):
    for columns in (100, 2000, 2001, 9000, 12288, 12289, 30000):
        tiled = plan(shape=f"60x{columns}", columns=str(columns), dtype="fp16")
        decision = next((item for item in tiled.decisions if item.name == name), None)
        for flip in decision.flips if decision else ():
            assert flip.argument == "col"
            changed = plan(shape=f"60x{flip.value}", columns=str(flip.value), dtype="fp16")
            assert (
                next((item.outcome for item in changed.decisions if item.name == name), True)
                is not decision.outcome
            )
            step = 1 if flip.value > columns else -1
            before = plan(
                shape=f"60x{flip.value - step}", columns=str(flip.value - step), dtype="fp16"
            )
            assert (
                next((item.outcome for item in before.decisions if item.name == name), True)
                is decision.outcome
            )


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("element_offset_wraps", {"shape": "5000000x1000", "columns": "1000"}),
        ("rstd_cleared_by_neighbour", {"shape": "100x256", "columns": "256", **INFERENCE}),
        ("rstd_written_behind_end", {"shape": "3x256", "columns": "256", **INFERENCE}),
        ("zero_rows_without_epsilon", {"epsilon": 0.0}),
    ],
)
def test_warnings_of_a_plan(code, changes):
    assert code in {caveat.code for caveat in plan(**changes).caveats}
    assert code not in {caveat.code for caveat in plan().caveats}


def test_a_row_whose_squares_overflow_is_told():
    x = np.ones((3, 4), F)
    x[1, 2] = 2e19
    result = npu_sim.run(OPERATOR, x=x, gamma=np.ones(4, F))
    assert [caveat.code for caveat in result.caveats] == ["squares_overflow"]
    assert result.outputs["rstd"][1, 0] == 0
    x[1, 2] = np.inf
    assert npu_sim.run(OPERATOR, x=x, gamma=np.ones(4, F)).caveats == ()


def test_special_values_on_the_inference_series_saturate():
    result = npu_sim.run(
        OPERATOR, x=np.zeros((2, 8), F), gamma=np.ones(8, F), epsilon=0.0, product="atlas_inference"
    )
    assert (result.outputs["rstd"] == np.finfo(F).max).all()
    assert (result.outputs["y"] == 0).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("columns", [5, 128, 700, 2500, 13000])
def test_results_are_those_of_the_formula(dtype, columns):
    call = arguments_of(load_operator(OPERATOR), specs(f"7x{columns}", str(columns), dtype))
    data = generate(OPERATOR, call, 3)
    outputs, golden = npu_sim.run(OPERATOR, **data).outputs, formula_results(OPERATOR, call, data)
    tolerance = {"fp32": 1e-6, "bf16": 2**-8, "fp16": 2**-11}[dtype]
    np.testing.assert_allclose(
        outputs["y"].astype(np.float64), golden["y"], rtol=tolerance, atol=1e-7
    )
    np.testing.assert_allclose(outputs["rstd"], golden["rstd"], rtol=1e-6)


def test_a_row_does_not_depend_on_its_batch():
    x = np.random.default_rng(0).standard_normal((50, 300)).astype(ml_dtypes.bfloat16)
    gamma = np.ones(300, ml_dtypes.bfloat16)
    whole = npu_sim.run(OPERATOR, x=x, gamma=gamma).outputs
    alone = npu_sim.run(OPERATOR, x=x[17:18], gamma=gamma, soc="Ascend910B4").outputs
    assert (whole["y"][17].view(np.uint16) == alone["y"][0].view(np.uint16)).all()
    assert whole["rstd"][17] == alone["rstd"][0]


def test_the_limits_of_the_document_and_of_the_chip_are_the_same():
    table = npu_sim.limits(
        OPERATOR, "col", product="atlas_inference", dtype="fp32", gamma_dtype="fp32"
    )
    assert {(row.documented.smallest, row.hardware.smallest) for row in table.rows} == {(8, 8)}


def test_products_list_it():
    having = {
        name for name in shipped_products() if OPERATOR in load_profile(name).product.operators
    }
    assert having == {"ascend_350", "ascend_950", "atlas_a2", "atlas_a3", "atlas_inference"}
