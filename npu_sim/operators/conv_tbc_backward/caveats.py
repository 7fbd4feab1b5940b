"""Documented caveats of ConvTbcBackward as experiments."""

from typing import Any

import numpy as np

from npu_sim.framework.inference import arguments_of
from npu_sim.language import Text
from npu_sim.operators import run
from npu_sim.operators.shared.study import Caveat, Numbers, formula_results
from npu_sim.registry import load_operator

OPERATOR = "conv_tbc_backward"


def _conversion() -> Numbers:
    rng = np.random.default_rng(0)
    shape = {"grad_output": (24, 4, 64), "input": (24, 4, 48), "weight": (1, 48, 64), "bias": (64,)}
    tensors = {name: rng.standard_normal(sizes).astype(np.float32) for name, sizes in shape.items()}
    arguments = arguments_of(load_operator(OPERATOR), {**tensors, "cube_math_type": 0})
    golden, errors = formula_results(OPERATOR, arguments, tensors), {}
    for code, name in enumerate(
        ("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")
    ):
        call: dict[str, Any] = {**tensors, "cube_math_type": code}
        outputs = run(OPERATOR, **call).outputs
        scale = float(np.abs(golden["grad_weight"]).max())
        errors[Text("{code} {name}", code=code, name=name)] = {
            "grad_weight": float(np.abs(outputs["grad_weight"] - golden["grad_weight"]).max())
            / scale,
            "grad_bias": float(np.abs(outputs["grad_bias"] - golden["grad_bias"]).max())
            / float(np.abs(golden["grad_bias"]).max()),
        }
    return {"relative_errors": errors}


def _explain_conversion(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "cubeMathType {name}: largest error of gradWeight {grad_weight} of its largest, of "
            "gradBias {grad_bias}",
            name=name,
            grad_weight=f"{errors['grad_weight']:.1e}",
            grad_bias=f"{errors['grad_bias']:.1e}",
        )
        for name, errors in numbers["relative_errors"].items()
    ]
    return [
        *lines,
        "hf32 keeps 11 bits after the point, fp16 keeps 10 and a narrow range; gradBias is never "
        "converted",
    ]


def _empty_bias() -> Numbers:
    tensors = {"grad_output": (5, 3, 2), "input": (5, 3, 0), "weight": (1, 0, 2), "bias": (2,)}
    arrays: dict[str, Any] = {
        name: np.full(shape, 0.25, np.float32) for name, shape in tensors.items()
    }
    outputs = run(OPERATOR, **arrays).outputs
    return {"grad_bias": outputs["grad_bias"].tolist(), "sum_of_self": 0.25 * 15}


def _explain_empty_bias(numbers: Numbers) -> list[str]:
    return [
        Text(
            "with an empty input gradBias is {grad_bias}, the constant batch * time, not the sum "
            "of self ({sum_of_self})",
            grad_bias=numbers["grad_bias"],
            sum_of_self=numbers["sum_of_self"],
        )
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "conversion",
        "conv gradients in fp32 carry 11 or 10 bits",
        "ConvTbcBackward, cubeMathType",
        _conversion,
        _explain_conversion,
        ("hf32_precision", "fp16_conversion"),
    ),
    Caveat(
        "empty-bias",
        "an empty input gives a constant gradBias",
        "ConvTbcBackward, empty tensors",
        _empty_bias,
        _explain_empty_bias,
        ("grad_bias_constant",),
    ),
)
