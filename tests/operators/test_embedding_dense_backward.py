from functools import partial

import pytest

import npu_sim
from npu_sim.plans.answers import Evidence
from tests.operators.refusals import blame_of, refusal_of

OPERATOR = "embedding_dense_backward"
GOOD = {"grad": "1000x64:fp32", "indices": "1000:int32", "num_weights": 5000}


def plan(product="atlas_a2", soc=None, deterministic=False, limits="documented", **changes):
    return npu_sim.plan(
        OPERATOR,
        product=product,
        soc=soc,
        deterministic=deterministic,
        limits=limits,
        **{**GOOD, **changes},
    )


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "grad", {"grad": None}),
        (161001, "indices", {"indices": None}),
        (161001, "grad", {"grad": None, "product": "atlas_inference"}),
        (161002, "product", {"product": "atlas_inference"}),
        (161002, "product", {"product": "atlas_inference", "grad": "1000x64:fp64"}),
        (161002, "grad", {"grad": "1000x64:fp64"}),
        (161002, "grad", {"grad": "1000x64:int32"}),
        (161002, "grad", {"grad": "1000x64:bf16", "product": "atlas_train"}),
        (161002, "indices", {"indices": "1000:bf16"}),
        (161002, "out", {"out": "5000x64:fp16"}),
        (161002, "grad", {"grad": "1x1x1x1x1x1x1x1000x64:fp32"}),
        (161002, "indices", {"indices": "1x1x1x1x1x1x1x1x1000:int32"}),
        (161002, "grad", {"grad": "1000:fp32"}),
        (161002, "indices", {"indices": "scalar:int32"}),
        (161002, "indices", {"indices": "999:int32"}),
        (161002, "out", {"out": "5000x65:fp32"}),
        (161002, "out", {"out": "4999x64:fp32"}),
        (161002, "grad", {"grad": "1000x64:fp32:FRACTAL_NZ"}),
        (161002, "num_weights", {"num_weights": -1}),
        (561002, "num_weights", {"num_weights": 0, "scale_grad_by_freq": True}),
        (
            561002,
            "grad",
            {
                "grad": "1000x5001:fp32",
                "num_weights": 1000,
                "scale_grad_by_freq": True,
                "product": "atlas_train",
            },
        ),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    "dtype", ["fp32", "fp16", "fp64", "int32", "int64", "int16", "int8", "uint8", "bool"]
)
def test_nine_index_dtypes_are_planned(dtype):
    assert plan(indices=f"1000:{dtype}").block_dim == 48


@pytest.mark.parametrize(
    "changes",
    [{"grad": "0x64:fp32", "indices": "0:int32"}, {"grad": "1000x0:fp32"}, {"grad": "3x0:fp32"}],
)
def test_empty_tensors_succeed_without_a_kernel(changes):
    empty = plan(**changes, scale_grad_by_freq=True)
    assert (empty.kernel, empty.block_dim, empty.workspace.total_bytes) == ("", 0, 0)


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 16777728),
        ({"grad": "2x3:fp32", "indices": "2:int64", "num_weights": 4, "padding_idx": 0}, 16778240),
        ({"grad": "1000x64:fp16", "indices": "1000:int64", "scale_grad_by_freq": True}, 18338816),
        ({"grad": "1000x1024:fp16", "indices": "1000:int64"}, 41362944),
    ],
)
def test_worked_workspace_totals(changes, total):
    workspace = plan(**changes).workspace
    assert workspace.total_bytes == total
    assert sum(part.bytes for part in workspace.parts) == total


def test_copies_of_strided_tensors_are_counted():
    strided = plan(
        grad="1000x64:fp32:strided", indices="1000:int32:strided", out="5000x64:fp32:strided"
    )
    names = {part.name for part in strided.workspace.parts}
    assert {"contiguous grad", "contiguous indices", "result"} <= names


@pytest.mark.parametrize(
    ("changes", "key", "fixed"),
    [
        ({}, 100, False),
        ({"grad": "1000x512:fp32"}, 100, False),
        ({"grad": "1000x513:fp32"}, 0, False),
        ({"num_weights": 16777217}, 0, False),
        ({"deterministic": True}, 10, True),
        ({"scale_grad_by_freq": True}, 101, False),
        ({"scale_grad_by_freq": True, "deterministic": True}, 11, True),
        ({"grad": "1000x1024:bf16", "num_weights": 60000}, 0, True),
        ({"grad": "1000x1024:bf16", "num_weights": 60000, "deterministic": True}, 0, True),
        ({"grad": "1x64:fp32", "indices": "1:int32"}, 100, True),
    ],
)
def test_path_and_determinism(changes, key, fixed):
    planned = plan(**changes)
    assert (planned.tiling_key, planned.order[0].fixed) == (key, fixed)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grad": "1000x1024:fp32"},
        {"deterministic": True},
        {"grad": "1000x40:bf16"},
        {"grad": "1000x40:bf16", "num_weights": 1500000},
        {"grad": "600x700:fp16", "indices": "600:int32", "num_weights": 100000},
    ],
)
def test_every_flip_changes_the_outcome_of_its_decision(changes):
    columns = {"rows": 0, "dim": 1}
    base = {**GOOD, **changes}
    for decision in plan(**changes).decisions:
        for flip in decision.flips:
            flipped = dict(base)
            shape, dtype = base["grad"].split(":")
            sizes = [int(size) for size in shape.split("x")]
            if flip.argument in columns:
                sizes[columns[flip.argument]] = flip.value
                flipped |= {
                    "grad": f"{sizes[0]}x{sizes[1]}:{dtype}",
                    "indices": f"{sizes[0]}:int32",
                }
            elif flip.argument == "numWeights":
                flipped["num_weights"] = flip.value
            elif flip.argument == "deterministic":
                flipped["deterministic"] = flip.value == "true"
            outcome = {x.name: x.outcome for x in plan(**flipped).decisions}[decision.name]
            assert outcome is not decision.outcome, f"{decision.name} does not flip at {flip}"


@pytest.mark.parametrize("num_weights", [1000, 32000, 1000000])
def test_the_bound_of_the_atlas_training_series_is_exact(num_weights):
    counts = num_weights // 32 + num_weights % 32
    largest = max(dim for dim in range(1, 6000) if 36 * dim + 4 * counts < 180192)
    call = {
        "product": "atlas_train",
        "soc": "Ascend910A",
        "num_weights": num_weights,
        "scale_grad_by_freq": True,
    }
    assert plan(grad=f"1000x{largest}:fp32", **call).block_dim == 32
    refused = refusal(grad=f"1000x{largest + 1}:fp32", **call)
    assert int(refused.status) == 561002
    hardware = max(dim for dim in range(1, 9000) if 36 * dim + 32 <= 262144 - 16384 - 4 * counts)
    for fact in (
        "36*embeddingDim + 4*countsSize",
        str(36 * (largest + 1) + 4 * counts),
        "180192",
        f"= {counts}",
    ):
        assert fact in refused.message
    assert f"{largest} documented, {hardware} by the Unified Buffer" in refused.hint
    assert plan(grad=f"1000x{hardware}:fp32", limits="hardware", **call).block_dim == 32
    assert (
        int(refusal(grad=f"1000x{hardware + 1}:fp32", limits="hardware", **call).status) == 561002
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"grad": "2147483648x64:fp32", "indices": "2147483648:int32"}, "rows_above_int32"),
        ({"num_weights": 2147483648}, "weights_above_int32"),
        ({"grad": "2139095041x64:fp32", "indices": "2139095041:int32"}, "indices_above_sortable"),
        (
            {"grad": "16777217x64:fp32", "indices": "16777217:int32", "scale_grad_by_freq": True},
            "counter_stops",
        ),
        ({"padding_idx": 5000}, "padding_matches_nothing"),
        ({"grad": "1000x9000:fp32", "product": "atlas_train"}, "dim_split"),
    ],
)
def test_caveats_are_warnings_of_the_plan(changes, code):
    assert code in [caveat.code for caveat in plan(**changes).caveats]
    assert plan().caveats == ()


def test_beyond_int32_the_older_kernel_is_planned_as_a_model():
    planned = plan(num_weights=2147483648)
    assert (planned.kernel, planned.evidence) == ("EmbeddingDenseGrad", Evidence.MODEL)


def test_a_made_up_chip_plans(tmp_path):
    from npu_sim.cores import config_directory

    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    text = text.replace("vector_core_count: 48", "vector_core_count: 7", 1).replace(
        "  ub_bytes: 196608", "  ub_bytes: 65536"
    )
    path = tmp_path / "seven.yaml"
    path.write_text(text, encoding="utf-8")
    planned = plan(product=str(path))
    assert planned.block_dim == 7
    assert planned.memories[0].capacity_bytes == 65280
    assert 0 < planned.memories[0].used_bytes <= 65280
