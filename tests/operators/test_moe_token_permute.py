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
from npu_sim.status import AclnnError
from tests.golden import tiling_lines
from tests.operators.refusals import blame_of, refusal_of
from tests.reference.moe_token_permute import moe_token_permute

OPERATOR = "moe_token_permute"
F = np.float32
LINES = tiling_lines(OPERATOR)


def specs(tokens="30x24:bf16", indices="30x4:int32", **changes):
    return {"tokens": tokens, "indices": indices, **changes}


def plan(**call):
    return npu_sim.plan(OPERATOR, **specs(**call))


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "tokens", {"tokens": None}),
        (161001, "indices", {"indices": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "product", {"product": "atlas_inference", "tokens": "30x24:int8"}),
        (161002, "tokens", {"tokens": "30x24:int8"}),
        (161002, "tokens", {"tokens": "30x24:fp64", "padded_mode": True}),
        (161002, "permuted_tokens", {"permuted_tokens": "120x24:fp32"}),
        (161002, "indices", {"indices": "30x4:uint8"}),
        (161002, "sorted_indices", {"sorted_indices": "120:int64"}),
        (161002, "tokens", {"tokens": "30x24:bf16:FRACTAL_NZ"}),
        (561002, "padded_mode", {"padded_mode": True, "indices": "29x4:int32"}),
        (561002, "tokens", {"tokens": "30:bf16"}),
        (561002, "indices", {"indices": "30x4x1:int32"}),
        (561002, "indices", {"indices": "29x4:int32"}),
        (561002, "permuted_tokens", {"permuted_tokens": "120:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "119x24:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "120x4x5:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "120x24:bf16", "num_out_tokens": 119}),
        (561002, "sorted_indices", {"sorted_indices": "119:int32"}),
        (561002, "sorted_indices", {"sorted_indices": "30x4:int32", "num_out_tokens": 7}),
        (561002, "indices", {"indices": "30x513:int32"}),
        (561002, "indices", {"indices": "30x513:int32", "limits": "hardware"}),
        (561002, "indices", {"indices": "0x513:int32", "tokens": "0x24:bf16"}),
        (561002, "indices", {"tokens": "16777215x1:bf16", "indices": "16777215:int32"}),
        (561002, "indices", {"tokens": "10x24288:fp32", "indices": "10x257:int32"}),
        (
            561002,
            "indices",
            {"tokens": "10x24288:fp32", "indices": "10x257:int32", "limits": "hardware"},
        ),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": "30:int64"},
        {"tokens": "30x4x6:bf16", "permuted_tokens": "120x24:bf16"},
        {"permuted_tokens": "120x4x6:bf16"},
        {"tokens": "30x24:bf16:strided", "indices": "30x4:int32:strided"},
        {"num_out_tokens": -(2**63)},
        {"num_out_tokens": 2**63 - 1},
        {"tokens": "16777214x1:bf16", "indices": "16777214:int32"},
        {"tokens": "10x24288:fp32", "indices": "10x256:int32"},
        {"tokens": "10x24289:fp32", "indices": "10x512:int32"},
        {"tokens": "30x0:bf16"},
        {"indices": "30x512:int32", "release": "8.3"},
    ],
)
def test_calls_that_run(changes):
    tiled = plan(**changes)
    assert tiled.block_dim > 0
    assert all(memory.used_bytes <= memory.capacity_bytes for memory in tiled.memories)
    assert all(order.fixed for order in tiled.order)


def test_the_refusal_without_room_says_what_fits():
    refused = refusal(tokens="10x24288:fp32", indices="10x300:int32")
    assert (
        "nearest legal value: 256 experts; rows of more than 97152 bytes are split" in refused.hint
    )
    assert plan(tokens="10x24288:fp32", indices="10x256:int32").path == "one-core sort, whole rows"


def contract_refuses(line):
    """What the contract refuses although the raw planner takes it (page, "Golden data")."""
    copies = line["expect"]["tiling"]["indexCopyComputeParamsOp"]
    has_ids = 0 not in line["inputs"]["indices_shape"]
    return len(line["inputs"]["tokens_shape"]) < 2 or (has_ids and copies["onceUbTokenNums"] == 0)


def test_every_golden_line_is_planned_or_refused_by_the_contract():
    outcomes = {"planned": 0, "empty": 0, "refused": 0}
    for line in LINES:
        given = line["inputs"]
        tensors = {
            "tokens": (given["tokens_shape"], given["tokens_dtype"]),
            "indices": (given["indices_shape"], given["indices_dtype"]),
            "permuted_tokens": (given["permuted_tokens_shape"], given["tokens_dtype"]),
            "sorted_indices": (given["sorted_indices_shape"], "int32"),
        }
        call = {
            name: npu_sim.TensorSpec(tuple(shape), dtype)
            for name, (shape, dtype) in tensors.items()
        }
        call |= {name: given[name] for name in ("num_out_tokens", "padded_mode")} | {
            "product": load_profile(None, line["soc"])
        }
        if line["expect"]["status"] == "failed" or contract_refuses(line):
            assert int(refusal(**call).status) == 561002
            outcomes["refused"] += 1
            continue
        tiled = plan(**call)
        outcomes["planned" if tiled.block_dim else "empty"] += 1
        expected = (
            line["expect"]
            if tiled.block_dim
            else {"tiling": {}, "tiling_key": None, "schedule_mode": None, "block_dim": 0}
        )
        assert {
            name: getattr(tiled, name)
            for name in ("tiling", "tiling_key", "schedule_mode", "block_dim")
        } == {
            name: expected[name] for name in ("tiling", "tiling_key", "schedule_mode", "block_dim")
        }
        assert tiled.workspace.total_bytes == expected.get("workspace_bytes", 0)
    assert min(outcomes.values()) > 5


@pytest.mark.parametrize(
    ("tokens", "indices"), [((0, 4), (0, 3)), ((5, 4), (5, 0)), ((0, 4), (0,))]
)
def test_no_ids_give_empty_outputs_and_nothing_runs(tokens, indices):
    result = npu_sim.run(
        OPERATOR, tokens=np.ones(tokens, F), indices=np.ones(indices, np.int32), num_out_tokens=9
    )
    assert (result.plan.block_dim, result.plan.workspace.total_bytes, result.plan.kernel) == (
        0,
        0,
        "",
    )
    assert [array.shape for array in result.outputs.values()] == [(0, 4), (0,)]


@pytest.mark.parametrize(("columns", "num_out_tokens"), [(0, 0), (4, -100)])
def test_places_are_computed_where_no_row_is(columns, num_out_tokens):
    result = npu_sim.run(
        OPERATOR,
        tokens=np.ones((3, columns), F),
        indices=np.array([[1, 2], [0, 1], [0, 2]]),
        num_out_tokens=num_out_tokens,
    )
    assert result.outputs["permuted_tokens"].size == 0
    assert result.outputs["sorted_indices"].tolist() == [2, 4, 0, 3, 1, 5]
    assert result.plan.block_dim > 0


def test_the_sample_of_the_product_document():
    tokens = np.arange(12, dtype=F).reshape(3, 4)
    permuted, places = npu_sim.moe_token_permute(
        tokens, np.array([[1, 2], [0, 1], [0, 2]], np.int32)
    )
    assert places.tolist() == [2, 4, 0, 3, 1, 5]
    np.testing.assert_array_equal(permuted, tokens[[1, 2, 0, 1, 0, 2]])


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 5), (7, 2, 3)])
@pytest.mark.parametrize("top_k", [None, 1, 4])
@pytest.mark.parametrize("num_out_tokens", [0, 5, -3, 99])
def test_results_are_those_of_the_reference(shape, top_k, num_out_tokens):
    random = np.random.default_rng(0)
    tokens = random.standard_normal((7, *shape[1:], 2)).astype(ml_dtypes.bfloat16)
    indices = random.integers(0, 3, 7 if top_k is None else (7, top_k))
    permuted, places = npu_sim.moe_token_permute(tokens, indices, num_out_tokens)
    expected, expected_places = moe_token_permute(tokens, indices, num_out_tokens)
    assert permuted.shape == expected.shape
    assert permuted.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(places, expected_places)


def test_strided_inputs_and_given_outputs_change_nothing():
    random = np.random.default_rng(1)
    tokens, indices = (
        random.standard_normal((40, 18)).astype(np.float16),
        random.integers(0, 9, (40, 6)),
    )
    expected = npu_sim.moe_token_permute(
        np.ascontiguousarray(tokens[::2, ::3]), np.ascontiguousarray(indices[::2, ::2])
    )
    outs = np.empty((2, 60, 6), np.float16)[1], np.empty(120, np.int32)[::2]
    npu_sim.moe_token_permute(tokens[::2, ::3], indices[::2, ::2], out=outs)
    for out, right in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, right)


@pytest.mark.parametrize("value", [-1, 2**24 - 1, 2**24, -(2**31) + 1, 2**31 - 2])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_id_that_no_document_allows_is_named(value, dtype):
    indices = np.zeros((5, 3), dtype)
    indices[2, 1] = value
    out = np.full((15, 2), 7, F), np.full(15, 7, np.int32)
    with pytest.raises(AclnnError, match=rf"indices\[2, 1\] = {value} is outside") as refused:
        npu_sim.moe_token_permute(np.ones((5, 2), F), indices, out=out)
    assert (int(refused.value.status), refused.value.argument) == (361001, "indices")
    assert all((array == 7).all() for array in out)
    assert npu_sim.moe_token_permute(np.ones((5, 2), F), indices, limits="hardware")[1][7] == (
        0 if value < 0 else 14
    )


@pytest.mark.parametrize(
    ("dtype", "value", "runs"),
    [
        *(
            (dtype, value, True)
            for dtype in ("int32", "int64")
            for value in (0, 2**24 - 2, -(2**31), 2**31 - 1)
        ),
        *(("int64", value, True) for value in (-(2**63), 2**63 - 1)),
        *(("int64", value, False) for value in (-(2**63) + 1, 2**32)),
    ],
)
def test_ids_that_the_documents_allow(dtype, value, runs):
    call = {"tokens": np.ones((2, 2), F), "indices": np.array([3, value], dtype)}
    if runs:
        assert npu_sim.run(OPERATOR, **call).caveats == ()
    else:
        with pytest.raises(AclnnError, match=r"indices\[1\]"):
            npu_sim.run(OPERATOR, **call)


def test_ids_that_are_rounded_are_told():
    ids = np.array([5, 16777218, 16777217, 16777216, -16777217], np.int64)
    result = npu_sim.run(OPERATOR, tokens=np.ones((5, 1), F), indices=ids, limits="hardware")
    assert result.outputs["sorted_indices"].tolist() == [1, 3, 4, 2, 0]
    (caveat,) = result.caveats
    assert caveat.code == "ids_rounded"
    assert caveat.message.startswith(
        "2 ids are not representable in fp32 and were rounded, the first at position 2"
    )
    assert "; 1 of them moved to another place" in caveat.message


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("barrier_without_schedule_mode", {"release": "8.3"}),
        ("barrier_without_schedule_mode", {"release": "8.5"}),
        ("index_buffer_overrun", {"release": "8.3"}),
        ("index_read_without_wait", {"tokens": "30x50000:bf16"}),
        ("rows_of_no_bytes", {"tokens": "30x0:bf16"}),
    ],
)
def test_warnings_of_a_plan(code, changes):
    assert code in {caveat.code for caveat in plan(**changes).caveats}
    assert plan().caveats == ()


def test_a_buffer_in_pieces_is_not_overrun_and_one_core_waits_for_nobody():
    codes = {caveat.code for caveat in plan(tokens="30x50000:bf16", release="8.3").caveats}
    assert codes == {"barrier_without_schedule_mode", "index_read_without_wait"}
    alone = plan(tokens="1x24:bf16", indices="1x4:int32", release="8.3")
    assert (alone.block_dim, [caveat.code for caveat in alone.caveats]) == (
        1,
        ["index_buffer_overrun"],
    )


def test_no_bit_depends_on_release_soc_or_determinism():
    data = generate(
        OPERATOR, arguments_of(load_operator(OPERATOR), specs("3000x5:fp32", "3000x4:int64")), 1
    )
    first = npu_sim.run(OPERATOR, **data, num_out_tokens=-7)
    for options in (
        {"release": "8.3"},
        {"soc": "Ascend910B4"},
        {"product": "atlas_a3"},
        {"deterministic": True},
    ):
        for name, array in npu_sim.run(
            OPERATOR, **data, num_out_tokens=-7, **options
        ).outputs.items():
            assert array.tobytes() == first.outputs[name].tobytes()


@pytest.mark.parametrize(
    "name", ["one-core sort", "whole rows", "positions of a token fit", "all rows kept"]
)
def test_a_flip_turns_its_decision_around(name):
    flipped = 0
    for tokens, columns, top_k, kept in (
        (30, 24, 4, 0),
        (5000, 48500, 100, 7),
        (760, 60000, 8, 0),
        (8, 48570, 250, 2000),
        (8, 9, 4, -3),
    ):

        def decided(tokens=tokens, columns=columns, top_k=top_k, kept=kept):
            tiled = plan(
                tokens=f"{tokens}x{columns}:bf16",
                indices=f"{tokens}x{top_k}:int32",
                num_out_tokens=kept,
            )
            return next((decision for decision in tiled.decisions if decision.name == name), None)

        decision = decided()
        for flip in decision.flips if decision else ():
            argument = {
                "num_tokens": "tokens",
                "hidden": "columns",
                "num_topk": "top_k",
                "num_out_tokens": "kept",
            }[flip.argument]
            try:
                changed = decided(**{argument: flip.value})
            except AclnnError:
                assert name == "positions of a token fit"
            else:
                assert changed is None or changed.outcome is not decision.outcome
            flipped += 1
    assert flipped > 0


def what_if(**facts):
    profile = load_profile("atlas_a2")
    chip = profile.chip.model_copy(update=facts)
    return profile.model_copy(
        update={
            "product": profile.product.model_copy(
                update={"socs": {**profile.product.socs, profile.soc: chip}}
            )
        }
    )


@pytest.mark.parametrize(
    ("ub_bytes", "indices", "words"),
    [
        (1024, "30x4:int32", "nothing can be sorted"),
        (131072 + 256 - 32, "3000x4:int32", "a stage needs 131072 bytes"),
        (40000, "30x4:int32", None),
    ],
)
def test_a_what_if_soc_whose_buffer_is_too_small_is_refused(ub_bytes, indices, words):
    call = {
        "tokens": f"{indices.split('x')[0]}x24:bf16",
        "indices": indices,
        "product": what_if(ub_bytes=ub_bytes),
    }
    if words is None:
        assert plan(**call).block_dim == 48
    else:
        refused = refusal(**call)
        assert (int(refused.status), refused.argument) == (561002, "indices")
        assert words in refused.message


def test_the_formula_agrees_with_the_kernel():
    call = arguments_of(
        load_operator(OPERATOR), specs("50x7:fp32", "50x4:int32", num_out_tokens=-30)
    )
    data = generate(OPERATOR, call, 3)
    outputs, golden = (
        npu_sim.run(OPERATOR, **data, num_out_tokens=-30).outputs,
        formula_results(OPERATOR, call, data),
    )
    for name, values in golden.items():
        np.testing.assert_array_equal(outputs[name], values)


@pytest.mark.parametrize(
    "indices", ["4096:int64", "4096x8:int32", "4096x200:int32", "4096x0:int32"]
)
def test_generated_tokens_are_normal_and_no_expert_is_chosen_twice(indices):
    data = generate(
        OPERATOR, arguments_of(load_operator(OPERATOR), specs("4096x30:fp16", indices)), 5
    )
    assert abs(data["tokens"].astype(F).std() - 1) < 0.02
    spec = npu_sim.TensorSpec.of(data["indices"])
    assert (str(spec), data["indices"].min(initial=0)) == (indices, 0)
    ranked = np.sort(data["indices"].reshape(4096, -1), axis=1)
    assert (np.diff(ranked, axis=1) > 0).all()


def test_the_limits_of_the_document_hold_on_hardware_too():
    for axis, largest in (("num_topk", 512), ("num_tokens", 16777214 // 8)):
        table = npu_sim.limits(OPERATOR, axis, product="atlas_a2")
        assert {(row.documented.largest, row.hardware.largest) for row in table.rows} == {
            (largest, largest)
        }


def test_products_list_it():
    assert {
        name for name in shipped_products() if OPERATOR in load_profile(name).product.operators
    } == {"ascend_950", "atlas_a2", "atlas_a3"}
