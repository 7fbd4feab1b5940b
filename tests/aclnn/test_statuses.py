"""Every status of the contract pages, returned for a legal call with one change."""

import numpy as np
import pytest

from npu_sim import aclnn
from npu_sim.aclnn import AclDataType, AclFormat, AclTensor, aclGetRecentErrMsg, device
from tests.aclnn.calls import (
    BF16,
    CALLS,
    FP16,
    FP32,
    INT32,
    INT64,
    conv,
    cross_entropy,
    embedding,
    first_stage,
    moe,
    moe_permute,
    rms_norm_grad,
    run,
    tensor,
    unpermute,
    unpermute_grad,
)

MISSING, INVALID, RUNTIME, TILING, HARDWARE = 161001, 161002, 361001, 561002, 561103
NZ, NCL = AclFormat.ACL_FORMAT_FRACTAL_NZ, AclFormat.ACL_FORMAT_NCL
GRAD = "moe_token_unpermute_grad"
INT4, UINT16, DOUBLE = AclDataType.ACL_INT4, AclDataType.ACL_UINT16, AclDataType.ACL_DOUBLE
NINE = (1,) * 9


def integers(values, kind=INT64):
    return AclTensor.from_array(np.array(values, AclDataType(kind).numpy))


# operator, changed arguments, status, device
CASES = [
    # EmbeddingDenseBackward, checks 1 to 8 and the run-time check
    ("embedding_dense_backward", {}, 0, {}),
    ("embedding_dense_backward", {}, 0, {"product": "atlas_train"}),
    ("embedding_dense_backward", {}, 0, {"product": "atlas_a3"}),
    ("embedding_dense_backward", {"grad": None}, MISSING, {}),
    ("embedding_dense_backward", {"indices": None}, MISSING, {}),
    ("embedding_dense_backward", {"out": None}, MISSING, {}),
    ("embedding_dense_backward", {"out": None}, MISSING, {"product": "atlas_inference"}),
    ("embedding_dense_backward", {}, INVALID, {"product": "atlas_inference"}),
    ("embedding_dense_backward", {"grad": tensor(60, 24, kind=INT32, high=5)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(60, 24, kind=DOUBLE)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(60, 24, kind=INT4)}, INVALID, {}),
    ("embedding_dense_backward", embedding(BF16), 0, {}),
    ("embedding_dense_backward", embedding(BF16), INVALID, {"product": "atlas_train"}),
    ("embedding_dense_backward", {"indices": tensor(60, kind=UINT16, high=20)}, INVALID, {}),
    ("embedding_dense_backward", {"indices": tensor(60, kind=DOUBLE, high=20)}, 0, {}),
    ("embedding_dense_backward", {"out": tensor(20, 24, kind=FP16)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(*NINE)}, INVALID, {}),
    ("embedding_dense_backward", {"indices": tensor(*NINE, kind=INT64, high=20)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(24)}, INVALID, {}),
    ("embedding_dense_backward", {"indices": tensor(kind=INT64, high=20)}, INVALID, {}),
    ("embedding_dense_backward", {"indices": tensor(59, kind=INT64, high=20)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(4, 15, 24)}, 0, {}),
    ("embedding_dense_backward", {"out": tensor(21, 24)}, INVALID, {}),
    ("embedding_dense_backward", {"numWeights": 21}, INVALID, {}),
    ("embedding_dense_backward", {"numWeights": -1}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(-60, 24)}, INVALID, {}),
    ("embedding_dense_backward", {"grad": tensor(60, 24, layout=NZ)}, INVALID, {}),
    (
        "embedding_dense_backward",
        {"grad": tensor(0, 24), "indices": tensor(0, kind=INT64, high=20)},
        0,
        {},
    ),
    ("embedding_dense_backward", {"paddingIdx": -1}, 0, {}),
    ("embedding_dense_backward", {"paddingIdx": 2**64 - 1}, 0, {}),
    ("embedding_dense_backward", embedding(dim=9001, scale=True), 0, {"product": "atlas_train"}),
    (
        "embedding_dense_backward",
        embedding(dim=5003, scale=True, index=INT32),
        0,
        {"product": "atlas_train"},
    ),
    (
        "embedding_dense_backward",
        embedding(dim=9002, scale=True),
        TILING,
        {"product": "atlas_train"},
    ),
    (
        "embedding_dense_backward",
        embedding(dim=5004, scale=True, index=INT32),
        TILING,
        {"product": "atlas_train"},
    ),
    (
        "embedding_dense_backward",
        embedding(dim=5004, scale=True, index=INT32),
        0,
        {"product": "atlas_train", "limits": "hardware"},
    ),
    (
        "embedding_dense_backward",
        {"numWeights": 0, "out": tensor(0, 24), "scaleGradByFreq": True},
        TILING,
        {},
    ),
    ("embedding_dense_backward", {"indices": integers([20] + [0] * 59)}, RUNTIME, {}),
    ("embedding_dense_backward", {"indices": integers([0] * 59 + [-1])}, RUNTIME, {}),
    # ConvTbcBackward, checks 1 to 9
    ("conv_tbc_backward", {}, 0, {}),
    *(
        ("conv_tbc_backward", {name: None}, MISSING, {})
        for name, value in conv().items()
        if isinstance(value, AclTensor)
    ),
    ("conv_tbc_backward", {}, INVALID, {"product": "atlas_inference"}),
    (
        "conv_tbc_backward",
        {name: tensor(1, kind=INT32, high=3) for name in ("bias", "gradBias")},
        INVALID,
        {},
    ),
    ("conv_tbc_backward", conv(BF16), 0, {}),
    ("conv_tbc_backward", conv(BF16, math=1), INVALID, {"product": "atlas_train"}),
    ("conv_tbc_backward", {"input": tensor(7, 3, 5, kind=FP16)}, INVALID, {}),
    ("conv_tbc_backward", {"gradInput": tensor(7, 3, 5, kind=FP16)}, INVALID, {}),
    ("conv_tbc_backward", {"gradWeight": tensor(3, 5, 4, kind=FP16)}, INVALID, {}),
    ("conv_tbc_backward", {"gradBias": tensor(4, kind=FP16)}, INVALID, {}),
    (
        "conv_tbc_backward",
        {"self": tensor(7, 3, 4, layout=NCL), "gradInput": tensor(7, 3, 5, layout=NCL)},
        0,
        {},
    ),
    ("conv_tbc_backward", {"bias": tensor(4, layout=NCL)}, INVALID, {}),
    ("conv_tbc_backward", {"weight": tensor(3, 5, 4, layout=NZ)}, INVALID, {}),
    ("conv_tbc_backward", {"gradWeight": tensor(-3, 5, 4)}, INVALID, {}),
    ("conv_tbc_backward", {"self": tensor(0, 3, 4)}, INVALID, {}),
    ("conv_tbc_backward", {"self": tensor(7, 12)}, INVALID, {}),
    ("conv_tbc_backward", {"bias": tensor(1, 4)}, INVALID, {}),
    ("conv_tbc_backward", {"weight": tensor(3, 6, 4), "gradWeight": tensor(3, 6, 4)}, INVALID, {}),
    ("conv_tbc_backward", {"bias": tensor(5), "gradBias": tensor(5)}, INVALID, {}),
    ("conv_tbc_backward", {"pad": -1}, INVALID, {}),
    ("conv_tbc_backward", {"pad": 2}, INVALID, {}),
    ("conv_tbc_backward", conv(steps=300, taps=255, pad=0), 0, {}),
    ("conv_tbc_backward", conv(steps=300, taps=256, pad=0), INVALID, {}),
    ("conv_tbc_backward", conv(pad=255), 0, {}),
    ("conv_tbc_backward", conv(pad=256), INVALID, {}),
    ("conv_tbc_backward", {"gradInput": tensor(7, 3, 6)}, INVALID, {}),
    ("conv_tbc_backward", {"gradWeight": tensor(3, 4, 5)}, INVALID, {}),
    ("conv_tbc_backward", {"gradBias": tensor(5)}, INVALID, {}),
    *(
        ("conv_tbc_backward", {"cubeMathType": kind}, 0 if 0 <= kind <= 3 else INVALID, {})
        for kind in range(-1, 5)
    ),
    *(
        (
            "conv_tbc_backward",
            {"cubeMathType": kind},
            0 if kind in (1, 2) else INVALID,
            {"product": "atlas_train"},
        )
        for kind in range(4)
    ),
    *(("conv_tbc_backward", conv(BF16, math=kind), 0, {}) for kind in range(4)),
    # RmsNormGrad, checks 1 to 4
    ("rms_norm_grad", {}, 0, {}),
    ("rms_norm_grad", {}, 0, {"product": "atlas_inference"}),
    *(("rms_norm_grad", {name: None}, MISSING, {}) for name in rms_norm_grad()),
    ("rms_norm_grad", {}, INVALID, {"product": "atlas_train"}),
    (
        "rms_norm_grad",
        {"x": AclTensor((60, 128), FP32, (256, 2), data=np.zeros((60, 256), np.float32))},
        INVALID,
        {},
    ),
    ("rms_norm_grad", {"dy": tensor(60, 128, kind=DOUBLE)}, INVALID, {}),
    *(
        ("rms_norm_grad", rms_norm_grad(kind, gamma=gamma), 0, {})
        for kind in (FP16, BF16)
        for gamma in (FP32, kind)
    ),
    ("rms_norm_grad", rms_norm_grad(FP16, gamma=BF16), INVALID, {}),
    ("rms_norm_grad", rms_norm_grad(FP16), 0, {"product": "atlas_inference"}),
    ("rms_norm_grad", rms_norm_grad(FP16, gamma=FP32), INVALID, {"product": "atlas_inference"}),
    ("rms_norm_grad", rms_norm_grad(BF16), INVALID, {"product": "atlas_inference"}),
    ("rms_norm_grad", {"rstd": tensor(60, kind=FP16)}, INVALID, {}),
    ("rms_norm_grad", {"dgammaOut": tensor(128, kind=FP16)}, INVALID, {}),
    (
        "rms_norm_grad",
        {"x": tensor(*NINE), "dy": tensor(*NINE), "dxOut": tensor(*NINE)},
        TILING,
        {},
    ),
    ("rms_norm_grad", {"gamma": tensor(1, 60, 128), "dgammaOut": tensor(1, 60, 128)}, TILING, {}),
    ("rms_norm_grad", {"dy": tensor(60, 127)}, TILING, {}),
    ("rms_norm_grad", {"dxOut": tensor(60, 127)}, TILING, {}),
    ("rms_norm_grad", {"dgammaOut": tensor(127)}, TILING, {}),
    ("rms_norm_grad", {"gamma": tensor(127), "dgammaOut": tensor(127)}, TILING, {}),
    ("rms_norm_grad", {"rstd": tensor(59)}, TILING, {}),
    ("rms_norm_grad", {"rstd": tensor(60, 1, 1)}, 0, {}),
    ("rms_norm_grad", rms_norm_grad(rows=0), TILING, {}),
    ("rms_norm_grad", rms_norm_grad(columns=0), TILING, {}),
    ("rms_norm_grad", rms_norm_grad(columns=8), 0, {"product": "atlas_inference"}),
    ("rms_norm_grad", rms_norm_grad(columns=7), TILING, {"product": "atlas_inference"}),
    ("rms_norm_grad", rms_norm_grad(FP16, columns=15), TILING, {"product": "atlas_inference"}),
    # CrossEntropyLossGrad, checks 1 to 5
    *(
        ("cross_entropy_loss_grad", cross_entropy(reduction=reduction, weight=True), 0, {})
        for reduction in ("none", "mean", "sum")
    ),
    *(("cross_entropy_loss_grad", cross_entropy(kind), 0, {}) for kind in (FP16, BF16)),
    *(
        ("cross_entropy_loss_grad", {name: None}, MISSING, {})
        for name in ("gradLoss", "logProb", "target", "xGradOut", "reduction")
    ),
    *(
        ("cross_entropy_loss_grad", {}, INVALID, {"product": product})
        for product in ("atlas_train", "atlas_inference")
    ),
    ("cross_entropy_loss_grad", {"gradLoss": tensor(kind=FP16)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"logProb": tensor(60, 40, kind=DOUBLE)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"xGradOut": tensor(60, 40, kind=FP16)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"target": tensor(60, kind=INT32, high=40)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"weightOptional": tensor(40, kind=FP16)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"gradZlossOptional": tensor(kind=INT32, high=3)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"gradZlossOptional": tensor()}, INVALID, {}),
    ("cross_entropy_loss_grad", {"lseForZlossOptional": tensor(60)}, INVALID, {}),
    ("cross_entropy_loss_grad", {"reduction": "average"}, INVALID, {}),
    ("cross_entropy_loss_grad", {"labelSmoothing": 0.1}, INVALID, {}),
    ("cross_entropy_loss_grad", {"labelSmoothing": 1.5}, INVALID, {}),
    ("cross_entropy_loss_grad", {"lseSquareScaleForZloss": 0.1}, INVALID, {}),
    ("cross_entropy_loss_grad", {"logProb": tensor(60, 40, 1)}, TILING, {}),
    ("cross_entropy_loss_grad", {"logProb": tensor(60, 0), "xGradOut": tensor(60, 0)}, TILING, {}),
    ("cross_entropy_loss_grad", {"target": tensor(59, kind=INT64, high=40)}, TILING, {}),
    ("cross_entropy_loss_grad", {"weightOptional": tensor(41)}, TILING, {}),
    ("cross_entropy_loss_grad", {"gradLoss": tensor(60)}, TILING, {}),
    ("cross_entropy_loss_grad", {"gradLoss": tensor(), "reduction": "none"}, TILING, {}),
    ("cross_entropy_loss_grad", {"xGradOut": tensor(60, 41)}, TILING, {}),
    ("cross_entropy_loss_grad", {"ignoreIndex": 40}, INVALID, {}),
    ("cross_entropy_loss_grad", {"ignoreIndex": -100}, 0, {}),
    ("cross_entropy_loss_grad", cross_entropy(rows=0), 0, {}),
    ("cross_entropy_loss_grad", {"target": integers([40] + [0] * 59)}, RUNTIME, {}),
    ("cross_entropy_loss_grad", {"target": integers([0] * 59 + [-1])}, RUNTIME, {}),
    ("cross_entropy_loss_grad", {"target": integers([0] * 59 + [-1]), "ignoreIndex": -1}, 0, {}),
    # MoeTokenPermute, checks 1 to 8
    *(
        ("moe_token_permute", moe_permute(kind, index=index), 0, {})
        for kind in (FP32, FP16, BF16)
        for index in (INT32, INT64)
    ),
    *(
        ("moe_token_permute", {name: None}, MISSING, {})
        for name in ("tokens", "indices", "permuteTokensOut", "sortedIndicesOut")
    ),
    *(
        ("moe_token_permute", {}, INVALID, {"product": product})
        for product in ("atlas_train", "atlas_inference")
    ),
    ("moe_token_permute", {"sortedIndicesOut": tensor(60, kind=INT64, high=1)}, INVALID, {}),
    ("moe_token_permute", {"paddedMode": True}, TILING, {}),
    ("moe_token_permute", {"permuteTokensOut": tensor(59, 24)}, TILING, {}),
    ("moe_token_permute", moe_permute(tokens=2, topk=513), TILING, {"limits": "hardware"}),
    ("moe_token_permute", moe_permute(tokens=0), 0, {}),
    ("moe_token_permute", moe_permute(hidden=0), 0, {}),
    ("moe_token_permute", {"indices": integers([[0, 1]] * 29 + [[0, -1]])}, RUNTIME, {}),
    (
        "moe_token_permute",
        {"indices": integers([[0, 1]] * 29 + [[0, -1]])},
        0,
        {"limits": "hardware"},
    ),
    # MoeTokenPermuteGrad, checks 1 to 4
    *(("moe_token_permute_grad", moe(kind), 0, {}) for kind in (FP32, FP16, BF16)),
    *(
        ("moe_token_permute_grad", {name: None}, MISSING, {})
        for name in ("permutedOutputGrad", "sortedIndices", "out")
    ),
    *(
        ("moe_token_permute_grad", {}, INVALID, {"product": product})
        for product in ("atlas_train", "atlas_inference")
    ),
    ("moe_token_permute_grad", {"permutedOutputGrad": tensor(60, 24, kind=DOUBLE)}, INVALID, {}),
    ("moe_token_permute_grad", {"out": tensor(30, 24, kind=FP16)}, INVALID, {}),
    ("moe_token_permute_grad", {"sortedIndices": tensor(60, kind=INT64, high=60)}, INVALID, {}),
    ("moe_token_permute_grad", {"paddedModeOptional": True}, INVALID, {}),
    ("moe_token_permute_grad", {"numTopk": 0}, INVALID, {}),
    ("moe_token_permute_grad", {"numTopk": -1}, INVALID, {}),
    ("moe_token_permute_grad", moe(tokens=2, topk=512), 0, {}),
    ("moe_token_permute_grad", moe(tokens=2, topk=513), INVALID, {}),
    ("moe_token_permute_grad", moe(tokens=2, topk=513), 0, {"limits": "hardware"}),
    ("moe_token_permute_grad", {"permutedOutputGrad": tensor(60, 24, 1)}, TILING, {}),
    ("moe_token_permute_grad", {"permutedOutputGrad": tensor(61, 24)}, TILING, {}),
    ("moe_token_permute_grad", {"permutedOutputGrad": tensor(50, 24)}, 0, {}),
    ("moe_token_permute_grad", {"sortedIndices": tensor(30, 2, kind=INT32, high=60)}, TILING, {}),
    ("moe_token_permute_grad", {"numTopk": 7}, TILING, {}),
    ("moe_token_permute_grad", {"out": tensor(30, 25)}, TILING, {}),
    ("moe_token_permute_grad", moe(hidden=0), TILING, {}),
    ("moe_token_permute_grad", moe(tokens=0), 0, {}),
    ("moe_token_permute_grad", {"sortedIndices": integers([0] * 59 + [-1], INT32)}, RUNTIME, {}),
    *(
        ("moe_token_unpermute", unpermute(kind, probs=probs), 0, {})
        for kind in (FP32, FP16, BF16)
        for probs in (None, FP32, FP16, BF16)
    ),
    *(
        ("moe_token_unpermute", {name: None}, MISSING, {})
        for name in ("permutedTokens", "sortedIndices", "out")
    ),
    *(
        ("moe_token_unpermute", {}, INVALID, {"product": product})
        for product in ("atlas_train", "atlas_inference")
    ),
    ("moe_token_unpermute", {"permutedTokens": tensor(60, 24, kind=DOUBLE)}, INVALID, {}),
    ("moe_token_unpermute", {"out": tensor(30, 24, kind=FP16)}, INVALID, {}),
    ("moe_token_unpermute", {"sortedIndices": tensor(60, kind=INT64, high=60)}, INVALID, {}),
    ("moe_token_unpermute", {"probsOptional": tensor(30, 2, kind=DOUBLE)}, INVALID, {}),
    ("moe_token_unpermute", {"paddedMode": True}, INVALID, {}),
    ("moe_token_unpermute", {"restoreShapeOptional": [30, 24]}, 0, {}),
    ("moe_token_unpermute", unpermute(tokens=2, topk=512), 0, {}),
    *(
        ("moe_token_unpermute", unpermute(tokens=2, topk=513), TILING, {"limits": limits})
        for limits in ("documented", "hardware")
    ),
    ("moe_token_unpermute", {"permutedTokens": tensor(60, 24, 1)}, TILING, {}),
    ("moe_token_unpermute", {"permutedTokens": tensor(61, 24)}, TILING, {}),
    ("moe_token_unpermute", {"permutedTokens": tensor(50, 24)}, 0, {}),
    ("moe_token_unpermute", {"sortedIndices": tensor(30, 2, kind=INT32, high=60)}, TILING, {}),
    ("moe_token_unpermute", {"probsOptional": tensor(30, 3)}, TILING, {}),
    ("moe_token_unpermute", {"probsOptional": tensor(60)}, TILING, {}),
    ("moe_token_unpermute", {"probsOptional": None}, TILING, {}),
    ("moe_token_unpermute", {"out": tensor(30, 25)}, TILING, {}),
    ("moe_token_unpermute", unpermute(hidden=0), TILING, {}),
    ("moe_token_unpermute", unpermute(tokens=0), 0, {}),
    ("moe_token_unpermute", unpermute(tokens=0, probs=None), 0, {}),
    ("moe_token_unpermute", {"sortedIndices": integers([0] * 59 + [-1], INT32)}, RUNTIME, {}),
    *(
        (GRAD, unpermute_grad(kind, probs=probs), 0, {})
        for kind in (FP32, FP16, BF16)
        for probs in (None, FP32, FP16, BF16)
    ),
    *(
        (GRAD, {name: None}, MISSING, {})
        for name in (
            "permutedTokensOptional",
            "unpermutedTokensGrad",
            "sortedIndices",
            "permutedTokensGradOut",
            "probsGradOut",
        )
    ),
    (GRAD, unpermute_grad(probs=None) | {"permutedTokensOptional": None}, 0, {}),
    (GRAD, unpermute_grad(probs=None) | {"probsGradOut": None}, MISSING, {}),
    (GRAD, unpermute_grad(probs=None) | {"probsGradOut": tensor(3, 4, 5, kind=BF16)}, 0, {}),
    (GRAD, unpermute_grad(probs=None) | {"probsGradOut": tensor(1, kind=DOUBLE)}, INVALID, {}),
    *((GRAD, {}, INVALID, {"product": product}) for product in ("atlas_train", "atlas_inference")),
    (GRAD, {"unpermutedTokensGrad": tensor(30, 24, kind=DOUBLE)}, INVALID, {}),
    (GRAD, {"permutedTokensOptional": tensor(60, 24, kind=FP16)}, INVALID, {}),
    (GRAD, {"probsGradOut": tensor(30, 2, kind=FP16)}, INVALID, {}),
    (GRAD, {"sortedIndices": tensor(60, kind=INT64, high=60)}, INVALID, {}),
    (GRAD, {"paddedMode": True}, INVALID, {}),
    (GRAD, unpermute_grad(tokens=2, topk=512), 0, {}),
    *(
        (GRAD, unpermute_grad(tokens=2, topk=513), TILING, {"limits": limits})
        for limits in ("documented", "hardware")
    ),
    (GRAD, {"permutedTokensOptional": tensor(61, 24)}, TILING, {}),
    (
        GRAD,
        {"permutedTokensOptional": tensor(59, 24), "permutedTokensGradOut": tensor(59, 24)},
        TILING,
        {},
    ),
    (GRAD, {"permutedTokensOptional": tensor(60, 25)}, TILING, {}),
    (GRAD, {"unpermutedTokensGrad": tensor(30, 24, 1)}, TILING, {}),
    (GRAD, {"probsOptional": tensor(30, 3)}, TILING, {}),
    (GRAD, {"probsOptional": tensor(31, 2)}, TILING, {}),
    (GRAD, {"probsGradOut": tensor(30, 3)}, TILING, {}),
    (GRAD, {"permutedTokensGradOut": tensor(60, 25)}, TILING, {}),
    (GRAD, unpermute_grad(hidden=0), TILING, {}),
    (GRAD, unpermute_grad(tokens=0), 0, {}),
    (GRAD, {"sortedIndices": integers([0] * 59 + [-1], INT32)}, RUNTIME, {}),
]


@pytest.mark.parametrize(("operator", "changes", "status", "settings"), CASES)
def test_status(operator, changes, status, settings):
    call = CALLS[operator]() | changes
    with device(**settings):
        stage = first_stage(operator, call)
        if status == RUNTIME:
            assert stage.status == 0
            assert run(operator, call)[0] == status
        else:
            assert stage.status == status
    assert (stage.executor is None) == (stage.status != 0)
    message = aclGetRecentErrMsg()
    assert (message is None) == (status == 0)
    assert message is None or message.startswith(
        f"aclnn{''.join(word.title() for word in operator.split('_'))}"
    )
    assert message is None or f" {status} " in message


def test_a_row_count_at_the_documented_limit_of_cross_entropy():
    for rows, status in ((199999, 0), (200000, TILING)):
        call = cross_entropy(rows=4) | {
            "logProb": AclTensor((rows, 8), FP32),
            "target": AclTensor((rows,), INT64),
            "xGradOut": AclTensor((rows, 8), FP32),
        }
        assert first_stage("cross_entropy_loss_grad", call).status == status
    aclGetRecentErrMsg()


def test_a_combination_that_fits_no_buffer_is_561103(tmp_path):
    from npu_sim.cores import config_directory

    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    lines = [
        line.split("l1_bytes:")[0] + "l1_bytes: 1024" if "l1_bytes:" in line else line
        for line in text.splitlines()
    ]
    profile = tmp_path / "small.yaml"
    profile.write_text("\n".join(lines), encoding="utf-8")
    with device(profile):
        assert first_stage("conv_tbc_backward", conv()).status == HARDWARE
    assert "1024" in aclGetRecentErrMsg()


def test_nothing_is_written_when_the_data_is_out_of_bounds():
    call = embedding() | {"indices": integers([20] + [0] * 59)}
    status, outputs = run("embedding_dense_backward", call)
    assert status == RUNTIME
    assert set(outputs["out"].reshape(-1).tolist()) == set(
        np.array([77], np.float32).view(np.uint32).tolist()
    )
    assert "indices[0] = 20" in aclnn.aclGetRecentErrMsg()
