"""ApplyAdamWV2: contract, launches, workspace, warnings and studies."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.status import AclnnError

NAME = "apply_adam_w_v2"


def call(shape="64x64", dtype="fp32", **changed):
    state = dict.fromkeys(("var", "m", "v", "grad"), f"{shape}:{dtype}")
    return {**state, "step": "1:fp32", **changed}


def plan(**changed):
    options = {name: changed.pop(name) for name in ("shape", "dtype") if name in changed}
    return npu_sim.plan(NAME, **call(**options, **changed))


def codes(found):
    return {one.code for one in found.caveats}


@pytest.mark.parametrize(
    ("changed", "status", "argument"),
    [
        ({"amsgrad": True}, 161001, "max_grad_norm"),
        ({"m": None}, 161001, "m"),
        ({"product": "atlas_inference"}, 161002, "product"),
        ({"product": "atlas_train"}, 161002, "product"),
        ({"var": "64x64:int32"}, 161002, "var"),
        ({"step": "1:int32"}, 161002, "step"),
        ({"m": "64x63:fp32"}, 161002, "m"),
        ({"v": "4096:fp32"}, 161002, "v"),
        ({"max_grad_norm": "64:fp32"}, 161002, "max_grad_norm"),
        ({"step": "2:fp32"}, 161002, "step"),
        ({"step": "0:fp32"}, 161002, "step"),
        ({"shape": "1x1x1x1x1x1x1x1x2"}, 161002, "var"),
        ({"step": "1x1:fp32", "release": "9.0"}, 561002, "step"),
    ],
    ids=str,
)
def test_refusals(changed, status, argument):
    with pytest.raises(AclnnError) as refused:
        plan(**changed)
    assert (int(refused.value.status), refused.value.argument) == (status, argument)


def test_what_is_taken():
    assert plan(shape="1x1x1x1x1x1x1x1x2", limits="hardware").launches
    assert plan(shape="1x1x1x1x1x1x1x1x2", release="8.5").launches
    assert plan(step="1x1:int64").tiling_key == 106
    assert plan(step="1x1:fp32", product="ascend_950").launches
    empty = plan(shape="0x3")
    assert (empty.launches, empty.workspace.total_bytes) == ((), 0)
    assert npu_sim.limits(NAME, vary="elements", product="atlas_a2")


@pytest.mark.parametrize(
    ("changed", "path", "key"),
    [
        ({}, "native", 105),
        ({"dtype": "bf16"}, "native", 101),
        ({"dtype": "fp16", "step": "1:int64"}, "native", 104),
        ({"grad": "64x64:bf16"}, "mixed", 109),
        ({"grad": "64x64:fp16", "max_grad_norm": "64x64:fp16"}, "mixed", 107),
        ({"grad": "64x64:bf16", "max_grad_norm": "64x64:fp32"}, "cast", 105),
        ({"v": "64x64:bf16"}, "cast", 105),
    ],
    ids=str,
)
def test_paths(changed, path, key):
    found = plan(**changed)
    assert (found.path, found.tiling_key) == (path, key)


def test_launches_and_workspace():
    (launch,) = plan().launches
    assert len(launch.inputs) == 5
    assert plan().workspace.total_bytes == 16777216
    cast = plan(shape="1024x1024", dtype="bf16", grad="1024x1024:fp32")
    kernels = [launch.kernel for launch in cast.launches]
    assert kernels == ["Cast"] * 3 + ["ApplyAdamWV2"] + ["Cast"] * 3
    assert cast.workspace.total_bytes == 29362176
    strided = plan(var="64x64:fp32:strided", grad="64x64:fp32:strided")
    kernels = [launch.kernel for launch in strided.launches]
    assert kernels == ["Contiguous", "Contiguous", "ApplyAdamWV2", "ViewCopy"]
    assert strided.workspace.total_bytes == 16777216 + 2 * (64 * 64 * 4 + 512)


def test_warnings_of_a_plan():
    assert codes(plan(shape="1024x1024")) == {"step_counts_from_zero"}
    assert "cores_idle" in codes(plan(shape="2432x47"))
    assert "cores_idle" not in codes(plan(shape="2432x48"))
    assert {"cast_path", "dtypes_differ_from_document"} <= codes(plan(v="64x64:bf16"))
    assert "moments_never_decay" in codes(plan(dtype="bf16"))
    assert "moments_never_decay" not in codes(plan(dtype="fp16"))
    assert "moments_never_decay" in codes(plan(dtype="fp16", beta2=0.9999))
    assert "max_grad_norm_unused" in codes(plan(max_grad_norm="64x64:fp32"))
    assert "correction_is_zero" in codes(plan(beta1=1 - 1e-9))
    assert "zero_eps" in codes(plan(eps=1e-60))


def test_idle_cores_of_ascend_950():
    def found(elements):
        return plan(shape=str(elements), product="ascend_950")

    assert (found(65536).block_dim, found(65537).block_dim) == (64, 43)
    (warning,) = [one for one in found(65537).caveats if one.code == "cores_idle"]
    assert "98304" in str(warning.message).replace(",", "")
    assert found(98304).block_dim == 64


def test_warnings_of_a_run():
    def found(step=0, dtype=np.float32, **changed):
        zeros = {name: np.zeros(8, dtype) for name in ("var", "m", "v", "grad")}
        tensors = {**zeros, "step": np.array([step], np.int64), **changed}
        return codes(npu_sim.run(NAME, **tensors, beta2=0.95))

    assert found() == set()
    assert found(step=1) == {"step_counts_from_zero"}
    assert "step_counts_from_zero" not in found(step=1, m=np.ones(8, np.float32))
    assert "step_beyond_fp32" in found(step=1 << 24)
    assert "correction_is_zero" in found(step=-1)
    assert found(grad=np.full(8, 2e19, np.float32)) == {"squares_overflow"}
    tiny = {"dtype": np.float16, "grad": np.full(8, 1e-4, np.float16)}
    assert found(**tiny) == {"second_moment_underflows"}
    early = npu_sim.run(
        NAME,
        **{name: np.zeros(8, np.float32) for name in ("var", "m", "v", "grad")},
        step=np.zeros(1, np.float32),
    )
    assert codes(early) == {"early_steps_uncertain"}


def test_an_update_of_a_run():
    random = np.random.default_rng(0)
    var, grad = random.standard_normal((2, 1000), np.float32)
    zero = np.zeros(1000, np.float32)
    step = np.zeros(1, np.float32)
    new, m, v, norm = npu_sim.apply_adam_w_v2(var, zero, zero, grad, step)
    assert norm is None
    assert np.allclose(new, var * (1 - 1e-5) - 1e-3 * np.sign(grad), atol=1e-6)
    assert np.allclose(m, 0.1 * grad, rtol=1e-5)
    assert np.allclose(v, 0.001 * grad**2, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_verify_allows_what_the_power_function_may_do(dtype):
    random = np.random.default_rng(1)
    tensors = {
        name: (random.standard_normal(5000) * scale).astype(dtype)
        for name, scale in (("var", 0.02), ("m", 1e-2), ("grad", 1e-2))
    }
    tensors["v"] = np.abs(random.standard_normal(5000) * 1e-2).astype(dtype)
    tensors["step"] = np.zeros(1, np.float32)
    outputs = npu_sim.run(NAME, **tensors).outputs
    assert npu_sim.verify(NAME, **tensors, **outputs).outputs["m_out"].status == "equal"
    step = tensors["var"].astype(np.float64) - outputs["var_out"].astype(np.float64)
    moved = (tensors["var"].astype(np.float64) - step * (1 + 2e-5)).astype(dtype)
    verdict = npu_sim.verify(NAME, **tensors, **{**outputs, "var_out": moved})
    assert verdict.outputs["var_out"].counts["unreachable"] == 0
    wrong = outputs["m_out"].copy()
    wrong[7] *= dtype(2)
    found = npu_sim.verify(NAME, **tensors, **{**outputs, "m_out": wrong}).outputs["m_out"]
    assert found.counts["unreachable"] == 1
