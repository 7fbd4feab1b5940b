"""Both stages of a call: workspace, executors, settings, messages, threads."""

import inspect
import re
import threading
from contextvars import copy_context

import numpy as np
import pytest

import npu_sim
from npu_sim import aclnn
from npu_sim.aclnn import AclTensor, aclGetRecentErrMsg, device
from npu_sim.language import count_text
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
from tests.aclnn.calls import (
    ARGUMENTS,
    BF16,
    CALLS,
    FP16,
    FP32,
    INT32,
    INT64,
    OUTPUTS,
    TITLES,
    bits,
    conv,
    cross_entropy,
    embedding,
    first_stage,
    moe,
    moe_permute,
    rms_norm,
    rms_norm_grad,
    run,
    second_stage,
    strided,
    unpermute,
    unpermute_grad,
    workspace_of,
)
from tests.cases import every

MISSING, INVALID = 161001, 161002


PROTOTYPES = {
    "embedding_dense_backward": "grad indices numWeights paddingIdx scaleGradByFreq out",
    "conv_tbc_backward": "self input weight bias pad cubeMathType gradInput gradWeight gradBias",
    "rms_norm": "x gamma epsilon yOut rstdOut",
    "add_rms_norm": "x1 x2 gamma epsilon yOut rstdOut xOut",
    "swi_glu": "x dim out",
    "swi_glu_grad": "yGrad x dim out",
    "rotary_position_embedding": "x cos sin mode out",
    "rotary_position_embedding_grad": "dy cos sin xOptional mode dxOut dcosOut dsinOut",
    "apply_adam_w_v2": (
        "varRef mRef vRef maxGradNormOptionalRef grad step lr beta1 beta2 weightDecay eps amsgrad "
        "maximize"
    ),
    "rms_norm_grad": "dy x rstd gamma dxOut dgammaOut",
    "cross_entropy_loss": (
        "input target weightOptional reduction ignoreIndex labelSmoothing lseSquareScaleForZloss "
        "returnZloss lossOut logProbOut zlossOut lseForZlossOut"
    ),
    "cross_entropy_loss_grad": (
        "gradLoss logProb target weightOptional gradZlossOptional lseForZlossOptional reduction "
        "ignoreIndex labelSmoothing lseSquareScaleForZloss xGradOut"
    ),
    "moe_token_permute": "tokens indices numOutTokens paddedMode permuteTokensOut sortedIndicesOut",
    "moe_token_permute_grad": "permutedOutputGrad sortedIndices numTopk paddedModeOptional out",
    "moe_token_unpermute": (
        "permutedTokens sortedIndices probsOptional paddedMode restoreShapeOptional out"
    ),
    "moe_token_unpermute_grad": (
        "permutedTokensOptional unpermutedTokensGrad sortedIndices probsOptional paddedMode "
        "restoreShapeOptional permutedTokensGradOut probsGradOut"
    ),
}
"""Parameters of the product documents ("接口原型"), in their order."""
IMPLIED = {"add_rms_norm": {"outputs", "in_place"}}
"""Arguments that follow from null pointers, and from the name of the function."""


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
def test_parameters_are_those_of_the_product_document(operator):
    first = getattr(aclnn, f"aclnn{TITLES[operator]}GetWorkspaceSize")
    assert list(inspect.signature(first).parameters) == PROTOTYPES[operator].split()
    second = getattr(aclnn, f"aclnn{TITLES[operator]}")
    assert list(inspect.signature(second).parameters) == [
        "workspace",
        "workspaceSize",
        "executor",
        "stream",
    ]
    declared = ARGUMENTS[operator]
    assert list(declared) == PROTOTYPES[operator].split()
    assert set(declared.values()) == {
        argument.name
        for argument in load_operator(operator).arguments
        if not getattr(argument, "in_place", "")
    } - IMPLIED.get(operator, set())


@pytest.mark.parametrize(
    ("missing", "status", "key", "size"),
    [
        ((), 0, 12, 16777728),
        (("rstdOut",), 0, 112, 16778240),
        (("rstdOut", "xOut"), 0, 1012, 16778752),
        (("xOut",), MISSING, None, 0),
        (("yOut",), MISSING, None, 0),
    ],
)
def test_null_pointers_of_outputs_choose_the_mode_of_add_rms_norm(missing, status, key, size):
    call = CALLS["add_rms_norm"](FP16) | dict.fromkeys(missing)
    if "rstdOut" in missing:
        call["gamma"] = AclTensor((1, 128), FP16, data=call["gamma"].array[None])
    found = first_stage("add_rms_norm", call)
    assert (found.status, found.workspaceSize) == (status, size)
    assert key is None or found.executor.plan.tiling_key == key


def test_add_rms_norm_in_place_writes_its_inputs():
    call = CALLS["add_rms_norm"]()
    expected = npu_sim.add_rms_norm(*(call[name].array for name in ("x1", "x2", "gamma")))
    first = aclnn.aclnnInplaceAddRmsNormGetWorkspaceSize
    names = ("x1Ref", "x2Ref", "gamma", "epsilon", "rstdOut")
    assert tuple(inspect.signature(first).parameters) == names
    x1, x2, rstd = call["x1"], call["x2"], call["rstdOut"]
    status, size, executor = first(x1, x2, call["gamma"], 1e-6, rstd)
    assert (status, size, executor.plan.kernel) == (0, 16777472, "InplaceAddRmsNorm")
    assert aclnn.aclnnAddRmsNorm(np.empty(size, "u1"), size, executor, None) == INVALID
    assert aclnn.aclnnInplaceAddRmsNorm(np.empty(size, "u1"), size, executor, None) == 0
    for given, wanted in zip((x1, rstd, x2), expected, strict=True):
        assert np.array_equal(given.array, wanted)
    assert first(x1, x2, call["gamma"], 1e-6, None).status == MISSING
    other = AclTensor((60, 64), FP32, data=np.zeros((60, 64), np.float32))
    assert first(x1, other, call["gamma"], 1e-6, rstd).status == 561002


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
@pytest.mark.long
def test_the_workspace_must_exist_and_be_large_enough(operator):
    call = CALLS[operator]()
    _, size, executor = first_stage(operator, call)
    before = {name: bits(call[name].array) for name in OUTPUTS[operator]}
    memory = workspace_of(size, 0xFF)
    assert second_stage(operator, None, size, executor) == MISSING
    assert second_stage(operator, memory[:-1], size - 1, executor) == INVALID
    assert f"{count_text(size)} bytes" in aclGetRecentErrMsg()
    assert second_stage(operator, memory[:-1], size, executor) == INVALID, (
        "the memory is smaller than its size says"
    )
    assert second_stage(operator, memory, size - 1, executor) == INVALID
    for name, expected in before.items():
        np.testing.assert_array_equal(bits(call[name].array), expected)
    assert (memory == 0xFF).all(), "nothing ran"
    assert second_stage(operator, memory, size, executor) == 0, (
        "an error in the second stage leaves the executor usable"
    )


VARIANTS = [
    *(
        ("embedding_dense_backward", embedding, {"kind": kind, "dim": dim})
        for kind in (FP32, BF16)
        for dim in (24, 600)
    ),
    ("embedding_dense_backward", embedding, {"scale": True}),
    ("embedding_dense_backward", embedding, {"scale": True, "dim": 600, "kind": BF16}),
    ("embedding_dense_backward", embedding, {"index": INT32, "dim": 600}),
    ("embedding_dense_backward", embedding, {"rows": 1, "dim": 600}),
    *(
        ("conv_tbc_backward", conv, {"kind": kind, "math": math})
        for kind, math in ((FP32, 0), (FP32, 2), (BF16, 2))
    ),
    ("conv_tbc_backward", conv, {"steps": 3, "pad": 0}),
    (
        "conv_tbc_backward",
        conv,
        {"steps": 40, "batch": 6, "channels": 40, "out": 33, "taps": 5, "pad": 2},
    ),
    *(
        ("rms_norm", rms_norm, {"kind": kind, "columns": columns})
        for kind in (FP32, BF16)
        for columns in (128, 2500, 13000)
    ),
    *(
        ("rms_norm_grad", rms_norm_grad, {"kind": kind, "columns": columns})
        for kind in (FP32, BF16)
        for columns in (128, 700, 6100)
    ),
    ("rms_norm_grad", rms_norm_grad, {"rows": 2000, "columns": 6100}),
    *(
        (
            "cross_entropy_loss_grad",
            cross_entropy,
            {"kind": kind, "reduction": reduction, "weight": weight},
        )
        for kind, reduction, weight in (
            (FP32, "mean", True),
            (BF16, "mean", False),
            (BF16, "sum", True),
            (FP32, "none", False),
        )
    ),
    *(
        ("moe_token_permute", moe_permute, {"kind": kind, "index": index})
        for kind in (FP32, BF16)
        for index in (INT32, INT64)
    ),
    ("moe_token_permute", moe_permute, {"tokens": 4000, "kept": -20}),
    *(("moe_token_permute_grad", moe, {"kind": kind}) for kind in (FP32, BF16)),
    *(
        ("moe_token_unpermute", unpermute, {"kind": kind, "probs": probs})
        for kind in (FP32, BF16)
        for probs in (None, FP32, BF16)
    ),
    *(
        ("moe_token_unpermute_grad", unpermute_grad, {"kind": kind, "probs": probs})
        for kind in (FP32, BF16)
        for probs in (FP32, BF16)
    ),
]


def arguments_of(operator, call):
    """Return the arguments of the same call for npu_sim.run."""
    names = ARGUMENTS[operator]
    values = {
        names[name]: value.array if isinstance(value, AclTensor) else value
        for name, value in call.items()
    }
    outputs = {names[name] for name in OUTPUTS[operator]}
    return {
        name: value for name, value in values.items() if name not in outputs and value is not None
    }


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("operator", "make", "options"), VARIANTS)
@pytest.mark.long
def test_nan_in_the_workspace_changes_nothing(operator, make, options, deterministic):
    call = make(**options)
    with device(deterministic=deterministic, core_order="round_robin"):
        status, filled = run(operator, call, fill=0xFF)
        assert (status, aclGetRecentErrMsg()) == (0, None)
        _, zeroed = run(operator, call, fill=0)
    plain = npu_sim.run(
        operator,
        deterministic=deterministic,
        core_order="round_robin",
        **arguments_of(operator, call),
    )
    for name, expected in zip(OUTPUTS[operator], plain.outputs.values(), strict=True):
        np.testing.assert_array_equal(filled[name], zeroed[name])
        np.testing.assert_array_equal(filled[name], bits(expected))


@pytest.mark.parametrize(
    ("kind", "dim", "weights", "key"), [(BF16, 520, 101000, 0), (BF16, 512, 102400, 100)]
)
@pytest.mark.long
def test_nan_in_the_workspace_changes_nothing_on_the_native_16_bit_paths(kind, dim, weights, key):
    call = embedding(
        kind, rows=600, dim=dim, weights=weights
    )  # (numel(grad) + numel(out)) * 2 >= 104857600
    call["indices"].array[...] //= 20000  # a few runs, each on many cores
    assert first_stage("embedding_dense_backward", call).executor.plan.tiling_key == key
    status, filled = run("embedding_dense_backward", call)
    assert status == 0
    plain = npu_sim.run(
        "embedding_dense_backward", **arguments_of("embedding_dense_backward", call)
    )
    np.testing.assert_array_equal(filled["out"], bits(plain.outputs["grad_weight"]))


@pytest.mark.parametrize("product", ["atlas_train", "atlas_a2"])
@pytest.mark.parametrize("kind", [FP32, FP16])
@pytest.mark.parametrize("dim", [24, 600])
def test_strided_tensors_are_copied_through_the_workspace(product, kind, dim):
    compact = embedding(kind, dim=dim)
    spread = compact | {
        "grad": strided(60, dim, kind=kind),
        "indices": strided(60, kind=aclnn.AclDataType.ACL_INT64, high=20),
        "out": strided(20, dim, kind=kind),
    }
    with device(product):
        _, expected = run("embedding_dense_backward", compact)
        status, outputs = run("embedding_dense_backward", spread)
    assert status == 0
    np.testing.assert_array_equal(outputs["out"], expected["out"])


@pytest.mark.parametrize("operator", every(5, OPERATOR_NAMES))
def test_an_executor_runs_once_unless_it_is_made_repeatable(operator):
    call = CALLS[operator]()
    _, size, executor = first_stage(operator, call)
    memory = workspace_of(size, 0)
    assert second_stage(operator, memory, size, executor) == 0
    assert second_stage(operator, memory, size, executor) == INVALID
    assert "released" in aclGetRecentErrMsg()
    _, size, executor = first_stage(operator, call)
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    assert [second_stage(operator, memory, size, executor) for _ in range(3)] == [0, 0, 0]
    assert "repeatable=True, released=False" in repr(executor)
    assert "\n" not in repr(executor)
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    assert second_stage(operator, memory, size, executor) == INVALID
    assert "or it was destroyed" in aclGetRecentErrMsg()


def test_the_second_stage_checks_the_executor():
    _, size, executor = first_stage("rms_norm_grad", rms_norm_grad())
    assert second_stage("moe_token_permute_grad", workspace_of(size, 0), size, executor) == INVALID
    assert "aclnnRmsNormGrad" in aclGetRecentErrMsg()
    assert second_stage("rms_norm_grad", workspace_of(size, 0), size, None) == MISSING
    assert aclnn.aclSetAclOpExecutorRepeatable(None) == 561103
    assert aclnn.aclDestroyAclOpExecutor(None) == 561103


def test_a_tensor_without_memory_is_planned_but_not_run():
    call = rms_norm_grad() | {"dy": AclTensor((60, 128), FP32)}
    status, size, executor = first_stage("rms_norm_grad", call)
    assert (status, size) == (0, first_stage("rms_norm_grad", rms_norm_grad()).workspaceSize)
    assert second_stage("rms_norm_grad", workspace_of(size, 0), size, executor) == MISSING


def test_shared_memory_is_an_error():
    shared = embedding()["out"]
    grad = AclTensor((20, 24), FP32, data=shared.array)
    indices = AclTensor.from_array(np.arange(20))
    assert (
        first_stage(
            "embedding_dense_backward",
            embedding() | {"grad": grad, "indices": indices, "out": shared},
        ).status
        == INVALID
    )
    frozen = np.zeros((20, 24), np.float32)
    frozen.flags.writeable = False
    assert (
        first_stage(
            "embedding_dense_backward", embedding() | {"out": AclTensor.from_array(frozen)}
        ).status
        == INVALID
    )
    _, size, executor = first_stage("embedding_dense_backward", embedding())
    memory = workspace_of(size + 1, 0)
    assert second_stage("embedding_dense_backward", memory[1:], size, executor) == INVALID, (
        "its address is odd"
    )


def test_arrays_and_bytes_are_accepted():
    grad, indices, out = (
        np.ones((4, 8), np.float32),
        np.array([1, 1, 2, 0]),
        np.empty((3, 8), np.float32),
    )
    _, size, executor = aclnn.aclnnEmbeddingDenseBackwardGetWorkspaceSize(
        grad, indices, 3, -1, False, out
    )
    assert aclnn.aclnnEmbeddingDenseBackward(bytearray(size), size, executor, None) == 0
    np.testing.assert_array_equal(out[:, 0], [1, 2, 1])


def test_programming_errors_raise():
    with pytest.raises(TypeError):
        aclnn.aclnnRmsNormGradGetWorkspaceSize(1, 2)
    with pytest.raises(TypeError, match="dy is a str"):
        first_stage("rms_norm_grad", rms_norm_grad() | {"dy": "60x128:fp32"})
    with pytest.raises(TypeError):
        first_stage("moe_token_permute_grad", moe() | {"numTopk": 2.5})
    with pytest.raises(AttributeError, match="aclnnRmsNormGard"):
        _ = aclnn.aclnnRmsNormGard


def test_settings_are_read_at_the_first_stage():
    with device("atlas_a2", soc="Ascend910B4", deterministic=True) as settings:
        assert settings is aclnn.current_device()
        _, size, executor = first_stage("rms_norm_grad", rms_norm_grad())
        with device(deterministic=False):
            assert aclnn.current_device().profile.soc == "Ascend910B4"
            assert first_stage("rms_norm_grad", rms_norm_grad()).workspaceSize < size
    assert (executor.plan.soc, executor.plan.deterministic) == ("Ascend910B4", True)
    assert second_stage("rms_norm_grad", workspace_of(size, 0), size, executor) == 0
    assert executor.result.plan.deterministic
    assert aclnn.current_device().profile.name == "atlas_a2"
    assert not aclnn.current_device().deterministic


def test_a_soc_of_another_product_brings_its_product():
    with device(soc="Ascend910_9391") as settings:
        assert settings.profile.name == "atlas_a3"
    with pytest.raises(npu_sim.UsageError, match="no shipped product"), device(soc="Ascend42"):
        pass


def test_the_determinism_switch_under_its_own_name():
    def switched():
        assert aclnn.aclrtCtxSetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC, 1) == 0
        assert aclnn.aclrtCtxGetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC) == (0, 1)
        return first_stage("rms_norm_grad", rms_norm_grad()).executor.plan.deterministic

    assert copy_context().run(switched)
    assert aclnn.aclrtCtxGetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC) == (0, 0), (
        "the switch belongs to its context"
    )
    assert aclnn.aclrtCtxSetSysParamOpt(99, 1) == aclnn.ACL_ERROR_INVALID_PARAM
    assert aclnn.aclrtCtxGetSysParamOpt(99)[0] == aclnn.ACL_ERROR_INVALID_PARAM


def test_core_order_and_seed_reach_the_kernel():
    results = []
    for seed in (1, 2, 1):
        with device(core_order="random", seed=seed):
            results.append(
                run("embedding_dense_backward", embedding(rows=4000, weights=2))[1]["out"]
            )
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[1]).any()


def test_messages_name_the_documents_argument_and_are_read_once():
    first_stage("embedding_dense_backward", embedding() | {"numWeights": -1})
    first_stage("rms_norm_grad", rms_norm_grad() | {"dxOut": None})
    newest, older = aclGetRecentErrMsg().split("aclnnEmbeddingDenseBackwardGetWorkspaceSize")
    assert newest.startswith(
        "aclnnRmsNormGradGetWorkspaceSize (dxOut): 161001 ACLNN_ERR_PARAM_NULLPTR: dxOut is missing"
    )
    assert re.match(r" \(numWeights\): 161002 ", older)
    assert aclGetRecentErrMsg() is None


@pytest.mark.parametrize(
    ("release", "ends"), [("8.5", False), ("9.0", True), ("9.1.1", True), ("9.2", False)]
)
def test_a_missing_out_of_the_rotation_says_where_the_product_does_not_check_it(release, ends):
    rotation = "rotary_position_embedding"
    with device(release=release):
        assert first_stage(rotation, CALLS[rotation]() | {"out": None}).status == 161001
        first_stage(rotation, CALLS[rotation]() | {"x": None})
    other, out = aclGetRecentErrMsg().split("out is missing")
    assert ("the process ends" in out) is ends
    assert "the process ends" not in other


def test_threads_have_their_own_messages_and_settings():
    seen = {}

    def work(number, product):
        with device(product):
            first_stage(
                "rms_norm_grad", rms_norm_grad() | {"dy": None} if number % 2 else rms_norm_grad()
            )
            seen[number] = (aclGetRecentErrMsg() is None, aclnn.current_device().profile.name)

    products = ["atlas_a2", "atlas_a3", "atlas_inference", "atlas_a2"]
    threads = [
        threading.Thread(target=work, args=(number, product))
        for number, product in enumerate(products)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {number: (number % 2 == 0, product) for number, product in enumerate(products)}
    assert aclGetRecentErrMsg() is None


def test_one_executor_in_many_threads_runs_once():
    _, size, executor = first_stage("embedding_dense_backward", embedding())
    statuses = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(
                second_stage("embedding_dense_backward", workspace_of(size, 0), size, executor)
            )
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, statuses)) == [0] + [INVALID] * 7


def test_calls_of_many_threads_do_not_disturb_each_other():
    calls = [embedding(rows=1000 + 100 * number) for number in range(6)]
    expected = [run("embedding_dense_backward", call)[1]["out"] for call in calls]
    results = [None] * len(calls)

    def work(number):
        results[number] = run("embedding_dense_backward", calls[number])[1]["out"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, right)


def test_the_package_has_aclnn_as_an_attribute():
    assert npu_sim.aclnn is aclnn


def test_the_first_stage_loads_no_compiler():
    import subprocess
    import sys

    code = (
        "import sys; from npu_sim import aclnn; from npu_sim.aclnn import AclTensor; "
        "x, rstd, gamma = (AclTensor(shape, 0) for shape in ((60, 128), (60,), (128,))); "
        "stage = aclnn.aclnnRmsNormGradGetWorkspaceSize(x, x, rstd, gamma, x, gamma); "
        "assert stage.status == 0 and 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_executor_shows_its_workspace():
    executor = first_stage("embedding_dense_backward", embedding(FP16, dim=600)).executor
    assert (
        str(executor.workspace).splitlines()[0]
        == f"16.2 MiB ({executor.workspace.total_bytes:,}) of workspace"
    )
    assert [area.name for area in executor.workspace.areas][:2] == [
        "grad as fp32",
        "indices as int32",
    ]
