from functools import partial

import numpy as np
import pytest

import npu_sim
from npu_sim.status import AclnnError
from tests.operators.refusals import blame_of, refusal_of
from tests.reference.moe_token_unpermute import unpermute_grad

OPERATOR = "moe_token_unpermute_grad"
GOOD = {
    "permuted_tokens": "65536x2048:bf16",
    "unpermuted_tokens_grad": "8192x2048:bf16",
    "sorted_indices": "65536:int32",
    "probs": "8192x8:fp32",
}
FEWER = {"permuted_tokens": "65000x2048:bf16"}
NO_PROBS = {"probs": None, "unpermuted_tokens_grad": "65536x2048:bf16"}


def plan(**changes):
    return npu_sim.plan(OPERATOR, **{**GOOD, **changes})


refusal = partial(refusal_of, plan)


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (
            161001,
            "unpermuted_tokens_grad",
            {"unpermuted_tokens_grad": None, "permuted_tokens": None},
        ),
        (161001, "sorted_indices", {"sorted_indices": None, "product": "atlas_train"}),
        (161001, "permuted_tokens", {"permuted_tokens": None, "product": "atlas_train"}),
        (161001, "permuted_tokens", {**NO_PROBS, "permuted_tokens": None, "release": "9.0"}),
        (161002, "product", {"product": "atlas_inference"}),
        (161002, "unpermuted_tokens_grad", {"unpermuted_tokens_grad": "8192x2048:fp64"}),
        (161002, "permuted_tokens", {"permuted_tokens": "65536x2048:fp16"}),
        (161002, "permuted_tokens_grad", {"permuted_tokens_grad": "65536x2048:fp16"}),
        (161002, "sorted_indices", {"sorted_indices": "65536:int64"}),
        (161002, "probs", {"probs": "8192x8:fp64"}),
        (161002, "probs_grad", {"probs_grad": "8192x8:bf16"}),
        (161002, "probs_grad", {**NO_PROBS, "probs_grad": "1:int32"}),
        (161002, "padded_mode", {"padded_mode": True}),
        (561002, "unpermuted_tokens_grad", {"unpermuted_tokens_grad": "8192x1x2048:bf16"}),
        (
            561002,
            "unpermuted_tokens_grad",
            {"unpermuted_tokens_grad": "8192x0:bf16", "permuted_tokens": "65536x0:bf16"},
        ),
        (561002, "sorted_indices", {"sorted_indices": "8192x8:int32"}),
        (561002, "sorted_indices", {"sorted_indices": "65537:int32"}),
        (561002, "probs", {"probs": "8191x8:fp32"}),
        (561002, "probs", {"probs": "8192x513:fp32"}),
        (561002, "probs", {"probs": "8192x513:fp32", "limits": "hardware"}),
        (561002, "permuted_tokens", FEWER),
        (561002, "permuted_tokens", {"permuted_tokens": "65537x2048:bf16"}),
        (561002, "permuted_tokens", {"permuted_tokens": "65537x2048:bf16", "release": "9.0"}),
        (561002, "permuted_tokens", {"permuted_tokens": "65536x2047:bf16"}),
        (561002, "permuted_tokens_grad", {"permuted_tokens_grad": "65536x2047:bf16"}),
        (561002, "probs_grad", {"probs_grad": "8192x7:fp32"}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


def test_why_fewer_rows_are_refused_at_9_1():
    assert "reads and writes behind" in str(refusal(**FEWER))
    for release in ("8.3", "8.5", "9.0"):
        made = plan(**FEWER, release=release)
        assert made.tiling["numOutTokens"] == 65000
        assert [caveat.code for caveat in made.caveats] == ["tokens_dropped"]


def test_without_probs_tokens_may_be_left_out():
    made = plan(**NO_PROBS, permuted_tokens=None)
    assert made.tiling == plan(**NO_PROBS).tiling
    assert (made.tiling_key, [order.output for order in made.order]) == (
        0,
        ["permuted_tokens_grad"],
    )
    assert plan(**NO_PROBS, probs_grad="3x3:bf16").tiling == made.tiling


def test_no_tokens_succeed_without_a_kernel():
    empty = {
        "permuted_tokens": "0x8:bf16",
        "unpermuted_tokens_grad": "0x8:bf16",
        "sorted_indices": "0:int32",
        "probs": "0x2:fp32",
    }
    assert (plan(**empty).kernel, plan(**empty).workspace.total_bytes) == ("", 0)


@pytest.mark.parametrize("hidden", [1, 64, 3585, 6129, 7937, 40000])
@pytest.mark.parametrize("probs", [None, "fp32", "fp16"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_plan_hangs_together(hidden, dtype, probs):
    tokens = 3001 if probs else 24008
    weights = None if probs is None else f"{tokens}x8:{probs}"
    made = plan(
        permuted_tokens=f"24008x{hidden}:{dtype}",
        unpermuted_tokens_grad=f"{tokens}x{hidden}:{dtype}",
        sorted_indices="24008:int32",
        probs=weights,
    )
    (memory,) = made.memories
    assert memory.used_bytes <= memory.capacity_bytes
    assert made.cores[-1].ranges["tokens"][1] == tokens
    (whole, *_) = made.decisions
    assert whole.outcome == (made.tiling["hiddenSizeLoopTimes"] == 1)
    for flip in whole.flips:
        other = plan(
            permuted_tokens=f"24008x{flip.value}:{dtype}",
            unpermuted_tokens_grad=f"{tokens}x{flip.value}:{dtype}",
            sorted_indices="24008:int32",
            probs=weights,
        )
        assert other.decisions[0].outcome != whole.outcome


def data(tokens=100, top_k=4, hidden=24, seed=0):
    random = np.random.default_rng(seed)
    count = tokens * top_k
    return {
        "permuted_tokens": random.standard_normal((count, hidden), np.float32),
        "unpermuted_tokens_grad": random.standard_normal((tokens, hidden), np.float32),
        "sorted_indices": random.permutation(count).astype(np.int32),
        "probs": random.random((tokens, top_k), np.float32),
    }


def test_the_worked_example():
    tokens, g = np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 10]], np.float32)
    gradients = npu_sim.moe_token_unpermute_grad(
        tokens, g, np.array([1, 0], np.int32), np.array([[0.5, 2]], np.float32)
    )
    assert [gradient.tolist() for gradient in gradients] == [[[2, 20], [0.5, 5]], [[43, 21]]]


def test_a_negative_index_is_a_run_time_failure_and_nothing_is_written():
    call = data()
    call["sorted_indices"][7] = -1
    outs = np.full((400, 24), 7, np.float32), np.full((100, 4), 7, np.float32)
    with pytest.raises(AclnnError, match=r"sorted_indices\[7\] = -1") as refused:
        npu_sim.run(OPERATOR, out=outs, **call)
    assert int(refused.value.status) == 361001
    assert all((out == 7).all() for out in outs)


@pytest.mark.parametrize("order", ["sequential", "reverse", "round_robin", "random"])
def test_of_duplicate_indices_the_last_write_wins_and_variable_rows_are_marked(order):
    """48 cores: the first 4 take 3 tokens, the others 2."""
    call = data()
    indices = call["sorted_indices"] = np.arange(400, dtype=np.int32)
    indices[1] = indices[2] = 0  # within a core
    indices[[12, 13, 399]] = 5  # tokens 1, 3 and 99, on cores 0, 1 and 47
    result = npu_sim.run(OPERATOR, core_order=order, seed=3, **call)
    gradient, g, probs = (
        result.outputs["permuted_tokens_grad"],
        call["unpermuted_tokens_grad"],
        call["probs"].reshape(-1),
    )
    assert np.array_equal(gradient[0], g[0] * probs[2])
    written = {"sequential": [399], "reverse": [5], "round_robin": [13], "random": [5, 13, 399]}[
        order
    ]
    assert any(np.array_equal(gradient[5], g[entry // 4] * probs[entry]) for entry in written)
    assert np.flatnonzero(result.order_dependent["permuted_tokens_grad"].mask).tolist() == [5]
    assert result.order_dependent["probs_grad"].count == 0
    assert [caveat.code for caveat in result.caveats] == ["rows_not_written", "duplicate_indices"]
    assert "2 rows are named more than once, 1 of them by two cores" in result.caveats[1].message
    assert not gradient[[1, 2, 12, 13, 399]].any()


@pytest.mark.parametrize(
    ("index", "value", "codes"),
    [
        (None, None, []),
        (9, 400, ["tokens_dropped", "rows_not_written"]),
        (9, np.nan, ["tokens_dropped", "rows_not_written", "dropped_prob_grad_not_zero"]),
    ],
)
def test_warnings_that_only_the_data_can_give(index, value, codes):
    call = data()
    if index is not None:
        call["sorted_indices"][index] = 400
        call["unpermuted_tokens_grad"][index // 4, 3] = value
    assert [caveat.code for caveat in npu_sim.run(OPERATOR, **call).caveats] == codes


def test_strided_inputs_and_given_outputs():
    call = data()
    expected = unpermute_grad(
        *(
            call[name]
            for name in ("permuted_tokens", "unpermuted_tokens_grad", "sorted_indices", "probs")
        )
    )
    apart = {name: np.stack([array, array], axis=-1)[..., 1] for name, array in call.items()}
    outs = np.zeros((24, 400), np.float32).T, np.zeros((4, 100), np.float32).T
    outputs = npu_sim.run(OPERATOR, out=outs, **apart).outputs
    for array, out, right in zip(outputs.values(), outs, expected, strict=True):
        assert array is out
        assert np.array_equal(out, right)
