"""Small legal calls of every operator through the C interface, which the tests vary."""

import inspect
from typing import Any

import numpy as np

from npu_sim import aclnn
from npu_sim.aclnn import AclDataType, AclFormat, AclTensor
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATORS

FP32, FP16, BF16, INT32, INT64 = (
    AclDataType.ACL_FLOAT,
    AclDataType.ACL_FLOAT16,
    AclDataType.ACL_BF16,
    AclDataType.ACL_INT32,
    AclDataType.ACL_INT64,
)
TITLES = {entry.name: entry.title for entry in OPERATORS}
OUTPUTS = {
    name: tuple(output.parameter for output in load_operator(name).outputs) for name in TITLES
}
ARGUMENTS = {
    name: {argument.parameter: argument.name for argument in load_operator(name).prototype}
    for name in TITLES
}
"""Names of arguments in npu_sim by the parameters of the C functions."""


def tensor(
    *shape: int, kind: int = FP32, layout: int = AclFormat.ACL_FORMAT_ND, high: int | None = None
) -> AclTensor:
    """Return a tensor of random values, or of integers below ``high``; equal for equal shapes."""
    dtype = AclDataType(kind).numpy
    if dtype is None or min(shape, default=0) < 0:
        return AclTensor(shape, kind, format=layout)
    rng = np.random.default_rng(abs(hash(shape)) % 1000)
    drawn = rng.integers(0, high, shape) if high is not None else rng.standard_normal(shape)
    return AclTensor(
        shape, kind, format=layout, data=np.ascontiguousarray(np.asarray(drawn).astype(dtype))
    )


def strided(*shape: int, kind: int = FP32, high: int | None = None) -> AclTensor:
    """Return the same tensor with gaps between its elements and an offset."""
    compact = tensor(*shape, kind=kind, high=high)
    memory = np.zeros((*shape[:-1], 2 * shape[-1] + 1), compact.array.dtype)
    memory[..., 1::2] = compact.array
    strides = [step // memory.itemsize for step in memory.strides[:-1]] + [2]
    return AclTensor(shape, kind, strides, 1, data=memory)


def embedding(
    kind: int = FP32,
    rows: int = 60,
    dim: int = 24,
    weights: int = 20,
    scale: bool = False,
    index: int = INT64,
) -> dict[str, Any]:
    return {
        "grad": tensor(rows, dim, kind=kind),
        "indices": tensor(rows, kind=index, high=weights),
        "numWeights": weights,
        "paddingIdx": 3,
        "scaleGradByFreq": scale,
        "out": tensor(weights, dim, kind=kind),
    }


def conv(
    kind: int = FP32,
    steps: int = 7,
    batch: int = 3,
    channels: int = 5,
    out: int = 4,
    taps: int = 3,
    pad: int = 1,
    math: int = 0,
):
    reach = steps + 2 * pad - taps + 1
    return {
        "self": tensor(reach, batch, out, kind=kind),
        "input": tensor(steps, batch, channels, kind=kind),
        "weight": tensor(taps, channels, out, kind=kind),
        "bias": tensor(out, kind=kind),
        "pad": pad,
        "cubeMathType": math,
        "gradInput": tensor(steps, batch, channels, kind=kind),
        "gradWeight": tensor(taps, channels, out, kind=kind),
        "gradBias": tensor(out, kind=kind),
    }


def rms_norm_grad(
    kind: int = FP32, rows: int = 60, columns: int = 128, gamma: int | None = None
) -> dict[str, Any]:
    return {
        "dy": tensor(rows, columns, kind=kind),
        "x": tensor(rows, columns, kind=kind),
        "rstd": tensor(rows),
        "gamma": tensor(columns, kind=kind if gamma is None else gamma),
        "dxOut": tensor(rows, columns, kind=kind),
        "dgammaOut": tensor(columns),
    }


def rms_norm(
    kind: int = FP32, rows: int = 60, columns: int = 128, gamma: int | None = None
) -> dict[str, Any]:
    return {
        "x": tensor(rows, columns, kind=kind),
        "gamma": tensor(columns, kind=kind if gamma is None else gamma),
        "epsilon": 1e-6,
        "yOut": tensor(rows, columns, kind=kind),
        "rstdOut": tensor(rows, 1),
    }


def add_rms_norm(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    return {
        "x1": tensor(rows, columns, kind=kind),
        "x2": tensor(rows, columns, kind=kind),
        "gamma": tensor(columns, kind=kind),
        "epsilon": 1e-6,
        "yOut": tensor(rows, columns, kind=kind),
        "rstdOut": tensor(rows, 1),
        "xOut": tensor(rows, columns, kind=kind),
    }


def rotary(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    return {
        "x": tensor(rows, 1, 4, columns, kind=kind),
        "cos": tensor(rows, 1, 1, columns, kind=kind),
        "sin": tensor(rows, 1, 1, columns, kind=kind),
        "mode": 0,
        "out": tensor(rows, 1, 4, columns, kind=kind),
    }


def rotary_grad(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    turns = {name: tensor(rows, 1, 1, columns, kind=kind) for name in ("cos", "sin")}
    return {
        "dy": tensor(rows, 1, 4, columns, kind=kind),
        **turns,
        "xOptional": tensor(rows, 1, 4, columns, kind=kind),
        "mode": 0,
        "dxOut": tensor(rows, 1, 4, columns, kind=kind),
        "dcosOut": tensor(rows, 1, 1, columns, kind=kind),
        "dsinOut": tensor(rows, 1, 1, columns, kind=kind),
    }


def swi_glu(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    return {
        "x": tensor(rows, 2 * columns, kind=kind),
        "dim": -1,
        "out": tensor(rows, columns, kind=kind),
    }


def apply_adam_w_v2(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    names = ("varRef", "mRef", "vRef", "maxGradNormOptionalRef", "grad")
    return {
        **{name: tensor(rows, columns, kind=kind) for name in names},
        "step": tensor(1, kind=FP32),
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "weightDecay": 0.01,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }


def swi_glu_grad(kind: int = FP32, rows: int = 60, columns: int = 128) -> dict[str, Any]:
    return {
        "yGrad": tensor(rows, columns, kind=kind),
        "x": tensor(rows, 2 * columns, kind=kind),
        "dim": -1,
        "out": tensor(rows, 2 * columns, kind=kind),
    }


def cross_entropy(
    kind: int = FP32,
    rows: int = 60,
    classes: int = 40,
    reduction: str = "mean",
    weight: bool = False,
) -> dict[str, Any]:
    return {
        "gradLoss": tensor(*((rows,) if reduction == "none" else ()), kind=kind),
        "logProb": tensor(rows, classes, kind=kind),
        "target": tensor(rows, kind=INT64, high=classes),
        "weightOptional": tensor(classes) if weight else None,
        "gradZlossOptional": None,
        "lseForZlossOptional": None,
        "reduction": reduction,
        "ignoreIndex": 2,
        "labelSmoothing": 0.0,
        "lseSquareScaleForZloss": 0.0,
        "xGradOut": tensor(rows, classes, kind=kind),
    }


def cross_entropy_loss(
    kind: int = FP32,
    rows: int = 60,
    classes: int = 40,
    reduction: str = "mean",
    weight: bool = False,
) -> dict[str, Any]:
    return {
        "input": tensor(rows, classes, kind=kind),
        "target": tensor(rows, kind=INT64, high=classes),
        "weightOptional": tensor(classes) if weight else None,
        "reduction": reduction,
        "ignoreIndex": 2,
        "labelSmoothing": 0.0,
        "lseSquareScaleForZloss": 0.0,
        "returnZloss": False,
        "lossOut": tensor(rows if reduction == "none" else 1, kind=kind),
        "logProbOut": tensor(rows, classes, kind=kind),
        "zlossOut": tensor(0, kind=kind),
        "lseForZlossOut": tensor(0, kind=kind),
    }


def moe(kind: int = FP32, tokens: int = 30, topk: int = 2, hidden: int = 24) -> dict[str, Any]:
    return {
        "permutedOutputGrad": tensor(tokens * topk, hidden, kind=kind),
        "sortedIndices": tensor(tokens * topk, kind=INT32, high=tokens * topk),
        "numTopk": topk,
        "paddedModeOptional": False,
        "out": tensor(tokens, hidden, kind=kind),
    }


def unpermute(
    kind: int = FP32, tokens: int = 30, topk: int = 2, hidden: int = 24, probs: int | None = FP32
) -> dict[str, Any]:
    topk = topk if probs is not None else 1
    return {
        "permutedTokens": tensor(tokens * topk, hidden, kind=kind),
        "sortedIndices": tensor(tokens * topk, kind=INT32, high=tokens * topk),
        "probsOptional": tensor(tokens, topk, kind=probs) if probs is not None else None,
        "paddedMode": False,
        "restoreShapeOptional": None,
        "out": tensor(tokens, hidden, kind=kind),
    }


def unpermute_grad(
    kind: int = FP32, tokens: int = 30, topk: int = 2, hidden: int = 24, probs: int | None = FP32
) -> dict[str, Any]:
    forward = unpermute(kind, tokens, topk, hidden, probs)
    rows, weights = forward["permutedTokens"], forward["probsOptional"]
    return {
        "permutedTokensOptional": rows,
        "unpermutedTokensGrad": tensor(tokens, hidden, kind=kind),
        **{
            name: forward[name]
            for name in ("sortedIndices", "probsOptional", "paddedMode", "restoreShapeOptional")
        },
        "permutedTokensGradOut": tensor(*rows.shape, kind=kind),
        "probsGradOut": tensor(
            *(weights.shape if weights is not None else (1,)), kind=FP32 if probs is None else probs
        ),
    }


def moe_permute(
    kind: int = FP32,
    tokens: int = 30,
    topk: int = 2,
    hidden: int = 24,
    kept: int = 0,
    index: int = INT64,
) -> dict[str, Any]:
    return {
        "tokens": tensor(tokens, hidden, kind=kind),
        "indices": tensor(tokens, topk, kind=index, high=9),
        "numOutTokens": kept,
        "paddedMode": False,
        "permuteTokensOut": tensor(kept + tokens * topk if kept <= 0 else kept, hidden, kind=kind),
        "sortedIndicesOut": tensor(tokens * topk, kind=INT32, high=1),
    }


CALLS = {
    "embedding_dense_backward": embedding,
    "conv_tbc_backward": conv,
    "rms_norm": rms_norm,
    "rms_norm_grad": rms_norm_grad,
    "add_rms_norm": add_rms_norm,
    "cross_entropy_loss": cross_entropy_loss,
    "cross_entropy_loss_grad": cross_entropy,
    "moe_token_permute": moe_permute,
    "moe_token_permute_grad": moe,
    "moe_token_unpermute": unpermute,
    "moe_token_unpermute_grad": unpermute_grad,
    "swi_glu": swi_glu,
    "swi_glu_grad": swi_glu_grad,
    "rotary_position_embedding": rotary,
    "rotary_position_embedding_grad": rotary_grad,
    "apply_adam_w_v2": apply_adam_w_v2,
}


def first_stage(operator: str, values: dict[str, Any]) -> aclnn.FirstStage:
    """Call the first stage with arguments by position."""
    function = getattr(aclnn, f"aclnn{TITLES[operator]}GetWorkspaceSize")
    assert list(values) == list(inspect.signature(function).parameters)
    return function(*values.values())


def second_stage(operator: str, workspace: Any, size: int, executor: Any) -> int:
    """Call the second stage."""
    return getattr(aclnn, f"aclnn{TITLES[operator]}")(workspace, size, executor, None)


def workspace_of(size: int, fill: int) -> np.ndarray | None:
    """Return memory filled with a byte; 0xff is nan in every floating-point type."""
    _, memory = aclnn.aclrtMalloc(size)
    if memory is not None:
        memory[:] = fill
    return memory


def run(
    operator: str, values: dict[str, Any], fill: int = 0xFF
) -> tuple[int, dict[str, np.ndarray]]:
    """Run both stages in a workspace filled with a byte; return the status and output bits."""
    for name in OUTPUTS[operator]:
        if values[name] is not None and values[name].array is not None:
            values[name].array[...] = 77
    stage = first_stage(operator, values)
    if stage.status:
        return stage.status, {}
    status = second_stage(
        operator, workspace_of(stage.workspaceSize, fill), stage.workspaceSize, stage.executor
    )
    return status, {name: bits(values[name].array) for name in OUTPUTS[operator]}


def bits(array: np.ndarray) -> np.ndarray:
    """Return a copy of an array as unsigned integers, in which nan equals itself."""
    copy = np.ascontiguousarray(array)
    return copy.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[copy.itemsize])
