"""Calls in two phases: prepared once, computed as often as one likes."""

import numpy as np
import pytest

import npu_sim

RANDOM = np.random.default_rng(5)


def floats(*shape, dtype="float32"):
    return RANDOM.standard_normal(shape).astype(dtype)


CALLS = {
    "embedding_dense_backward": {
        "grad": floats(40, 8),
        "indices": RANDOM.integers(0, 9, 40),
        "num_weights": 9,
    },
    "conv_tbc_backward": {
        "grad_output": floats(6, 2, 8),
        "input": floats(6, 2, 8),
        "weight": floats(1, 8, 8),
        "bias": floats(8),
    },
    "rms_norm": {"x": floats(5, 64), "gamma": floats(64)},
    "rms_norm_grad": {
        "dy": floats(5, 64),
        "x": floats(5, 64),
        "rstd": abs(floats(5)),
        "gamma": floats(64),
    },
    "cross_entropy_loss_grad": {
        "grad_loss": floats(1)[0],
        "log_prob": -abs(floats(6, 7)),
        "target": RANDOM.integers(0, 7, 6),
    },
    "moe_token_permute_grad": {
        "permuted_output_grad": floats(8, 16),
        "sorted_indices": RANDOM.permutation(8).astype(np.int32),
        "num_topk": 2,
    },
}


def tensors_of(call):
    return {name: value for name, value in call.items() if not isinstance(value, int)}


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.mark.parametrize("operator", CALLS)
def test_a_prepared_call_gives_what_the_function_gives(operator):
    call = npu_sim.prepare(operator, **CALLS[operator])
    expected = as_tuple(getattr(npu_sim, operator)(**CALLS[operator]))
    tensors = tensors_of(CALLS[operator])
    out = tuple(np.empty_like(array) for array in expected)
    for found in (call(*tensors.values()), call(**tensors), call(*tensors.values(), out=out)):
        assert [array.tobytes() for array in as_tuple(found)] == [
            array.tobytes() for array in expected
        ]
    assert [array.tobytes() for array in out] == [array.tobytes() for array in expected]
    assert call.plan == npu_sim.plan(operator, **CALLS[operator])


def test_options_are_those_of_the_prepared_call():
    call = npu_sim.prepare(
        "rms_norm_grad", dy="64x256:fp32", gamma="256:fp32", core_order="random", seed=3
    )
    tensors = floats(64, 256), floats(64, 256), abs(floats(64)), floats(256)
    names = ("dy", "x", "rstd", "gamma")
    expected = npu_sim.rms_norm_grad(
        **dict(zip(names, tensors, strict=True)), core_order="random", seed=3
    )
    assert [array.tobytes() for array in call(*tensors)] == [array.tobytes() for array in expected]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x": floats(6, 64)}, "x is 6x64:fp32, the call was prepared for 5x64:fp32"),
        ({"x": floats(5, 64, dtype="float16")}, "x is 5x64:fp16"),
        ({"x": floats(64, 5).T}, "x is 5x64:fp32:strided"),
        ({"gamma": None}, "gamma is missing"),
        ({"delta": floats(1)}, "delta: no such tensor"),
    ],
)
def test_other_tensors_than_prepared_are_refused(changed, words):
    call = npu_sim.prepare("rms_norm", **CALLS["rms_norm"])
    with pytest.raises(npu_sim.UsageError, match=words) as refused:
        call(**{**CALLS["rms_norm"], **changed})
    assert refused.value.argument == next(iter(changed))


def test_a_tensor_that_was_left_out_stays_out():
    call = npu_sim.prepare("cross_entropy_loss_grad", **CALLS["cross_entropy_loss_grad"])
    with pytest.raises(npu_sim.UsageError, match="prepared without it"):
        call(**CALLS["cross_entropy_loss_grad"], weight=floats(7))


def test_tensors_are_given_once():
    call = npu_sim.prepare("rms_norm", **CALLS["rms_norm"])
    x, gamma = CALLS["rms_norm"].values()
    with pytest.raises(TypeError, match="given twice: x"):
        call(x, x=x, gamma=gamma)
    with pytest.raises(TypeError, match="takes x, gamma"):
        call(x, gamma, gamma)


def test_what_cannot_be_run_cannot_be_prepared():
    with pytest.raises(npu_sim.AclnnError, match="gamma"):
        npu_sim.prepare("rms_norm", x="5x64:fp32", gamma="63:fp32")
