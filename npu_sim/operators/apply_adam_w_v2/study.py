"""Studies of ApplyAdamWV2: what is not published of its arithmetic, and moments that never fall.

There are no sums, and every element depends on its own inputs and the scalars of the step alone.

Source: specification page ``apply_adam_w_v2``, "What the model costs".
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Arrays, Result, Text, numpy_dtype, to_fp32
from npu_sim.kernels.shared.elementwise import narrow_array
from npu_sim.operators.apply_adam_w_v2.compute import (
    ONE,
    F,
    Powers,
    power,
    powers_of,
    scalars_of,
    uncertainties,
)
from npu_sim.operators.shared.open_rules import between
from npu_sim.operators.shared.study import (
    Experiment,
    Numbers,
    OpenRule,
    Shown,
    StudyCall,
    no_claims,
    run,
    single_terms,
)
from npu_sim.operators.shared.unfused import (
    FP64,
    Ends,
    Formulas,
    ends_of,
    is_16_bit,
    rounded,
    short,
)
from npu_sim.tiling.apply_adam_w_v2 import CAST, STATE, path_of

RELATIVE = 2.0**-22
"""What root, division and an error of ln change of the step, besides one unit of the powers."""

claims = no_claims
terms = single_terms(**{f"{name}_out": name for name in STATE})


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of var_out on A2 and A3 (page, "What the model costs")."""
    if call.case.empty:
        return
    arguments, powers = call.arguments, powers_of(call.arguments, call.tensors["step"], power)
    scalars = scalars_of(arguments, powers, call.case.specs["v"].dtype)
    old = state_of(call, scalars)
    first = (old["grad"] - old["m"]) * (ONE - scalars["beta1"]) + old["m"]
    second = old["v"] * scalars["beta2"] + old["grad"] * old["grad"] * (ONE - scalars["beta2"])
    root = np.sqrt(largest(old, second)) * scalars["root"] + scalars["eps"]
    # A compiler may fuse product and difference of the decay.
    fused = F(1 - np.float64(to_fp32(arguments.lr)) * np.float64(to_fp32(arguments.weight_decay)))
    decayed = [old["var"] * decay for decay in (scalars["decay"], fused)]
    steps = steps_between(first, first / root * scalars["size"], powers, 2.0**-148)
    yield rule_of_var(call, result, decayed, steps, rounds_half_away=path_of(call.case.row) != CAST)


def state_of(call: StudyCall, scalars: Mapping[str, Any]) -> Arrays:
    """Return the state before the step in fp32, with the sign of the gradient."""
    names = ("grad", *STATE) if call.arguments.amsgrad else ("grad", *STATE[:3])
    old = {name: call.tensors[name].astype(np.float32) for name in names}
    return {**old, "grad": old["grad"] * scalars["sign"]}


def largest(old: Arrays, second: Array) -> Array:
    """Return the second moments under the root: with amsgrad the largest so far."""
    return np.maximum(old["max_grad_norm"], second) if "max_grad_norm" in old else second


def steps_between(
    first: Array, step: Array, powers: Powers, vanishing: float
) -> tuple[Array, Array]:
    """Return both ends of the step in float64, given its value in the kernel's order.

    - ``first``: the first moment, the numerator of the step: a zero stays one.
    - ``vanishing``: magnitude below which a step may be lost as a subnormal number.
    """
    error, exact = 2 * sum(uncertainties(powers).values()) + RELATIVE, step.astype(np.float64)
    radius = np.abs(exact) * error + vanishing if error < 1 else np.full(exact.shape, np.inf)
    radius = np.where(first == 0, 0.0, radius)
    return exact - radius, exact + radius


def rule_of_var(
    call: StudyCall,
    result: Result,
    decayed: Sequence[Array],
    steps: tuple[Array, Array],
    *,
    rounds_half_away: bool,
) -> OpenRule:
    """Return the rule of var_out: the decayed variables minus the steps, rounded as it is stored.

    - ``decayed``, ``steps``: both ends of each; those of ``decayed`` may be one.
    """
    ends = [(one.astype(np.float64) - step).astype(np.float32) for one in decayed for step in steps]
    breaks_ties = rounds_half_away and result.outputs["var_out"].dtype == numpy_dtype("bfloat16")
    return between(
        result,
        "var_out",
        (np.minimum.reduce(ends), np.maximum.reduce(ends)),
        "the power function, root and division in fp32 are taken as correctly rounded; values are "
        "possible that differ by a few units in the last place of the step",
        away_from_zero if breaks_ties else None,
    )


def away_from_zero(values: Array) -> Array:
    """Return fp32 values in bf16, rounded to nearest, ties away from zero."""
    bits = values.view(np.uint32)
    return narrow_array(
        (bits | (bits >> np.uint32(15) & np.uint32(1))).view(np.float32), "bfloat16"
    )


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the steps of PyTorch's AdamW, and of Adam, whose decay is part of the gradient."""
    if output not in ("var_out", "m_out", "v_out"):
        return
    yield "PyTorch's AdamW with fused=True: scalars in double", partial(_of_pytorch, call, output)
    if call.arguments.weight_decay:
        text = "weight decay added to the gradient: Adam, not AdamW"
        yield text, partial(_with_decay_in_gradient, call, output)
    var = call.tensors["var"]
    if is_16_bit(var) and not call.arguments.amsgrad:
        text = "PyTorch's AdamW, every operation rounded to {dtype}"
        yield Text(text, dtype=short(var.dtype)), partial(_operation_by_operation, call, output)


def _in_double(call: StudyCall) -> tuple[Arrays, dict[str, float]]:
    """Return the state and the scalars of PyTorch in fp64."""
    arguments = call.arguments
    state = {name: call.tensors[name].astype(FP64) for name in (*STATE[:3], "grad")}
    if arguments.maximize:
        state["grad"] = -state["grad"]
    names = ("lr", "beta1", "beta2", "eps", "weight_decay")
    scalars = {name: float(arguments[name]) for name in names}
    t = float(call.tensors["step"].reshape(-1)[0]) + 1
    return state, {
        **scalars,
        "rest1": 1 - scalars["beta1"] ** t,
        "rest2": 1 - scalars["beta2"] ** t,
    }


@np.errstate(all="ignore")
def _of_pytorch(call: StudyCall, output: str) -> Ends:
    old, s = _in_double(call)
    grad, m, v = old["grad"], old["m"], old["v"]
    new_m, new_v = m + (grad - m) * (1 - s["beta1"]), v * s["beta2"] + grad**2 * (1 - s["beta2"])
    largest_v = new_v
    if call.arguments.amsgrad:
        largest_v = np.maximum(call.tensors["max_grad_norm"].astype(FP64), new_v)
    root = np.sqrt(largest_v) / np.sqrt(s["rest2"]) + s["eps"]
    step, decayed = (
        s["lr"] / s["rest1"] * new_m / root,
        old["var"] * (1 - s["lr"] * s["weight_decay"]),
    )
    sizes_m = np.abs(m) + np.abs(grad) * (1 - s["beta1"])
    values, sizes = {
        "m_out": (new_m, sizes_m),
        "v_out": (new_v, new_v),
        "var_out": (
            decayed - step,
            np.abs(decayed) + 4 * np.abs(step) + 4 * s["lr"] / s["rest1"] * sizes_m / root,
        ),
    }[output]
    return ends_of(values, sizes, call.tensors[output.removesuffix("_out")].dtype, 2.0**-23)


def _with_decay_in_gradient(call: StudyCall, output: str) -> Ends:
    grad, var = (call.tensors[name].astype(np.float32) for name in ("grad", "var"))
    decay = np.float32(call.arguments.weight_decay) * (-1 if call.arguments.maximize else 1)
    changed = (grad + decay * var).astype(call.tensors["grad"].dtype)
    result = call.with_tensors(grad=changed).with_attributes(weight_decay=0.0).run().outputs[output]
    return result, result


@np.errstate(all="ignore")
def _operation_by_operation(call: StudyCall, output: str) -> Ends:
    old, s = _in_double(call)
    dtype, grad = call.tensors["var"].dtype, old["grad"]
    new_m = old["m"] + (grad - old["m"]) * (1 - s["beta1"])
    new_v = rounded(old["v"] * s["beta2"], dtype) + grad * grad * (1 - s["beta2"])
    m, v = rounded(new_m, dtype), rounded(new_v, dtype)
    root = rounded(rounded(np.sqrt(v), dtype) / np.sqrt(s["rest2"]), dtype)
    root = rounded(root + s["eps"], dtype)
    decayed = rounded(old["var"] * (1 - s["lr"] * s["weight_decay"]), dtype)
    new_var = decayed - s["lr"] / s["rest1"] * m / root
    values = {"m_out": new_m, "v_out": new_v, "var_out": new_var}[output]
    return ends_of(values, np.abs(values), dtype)


UPDATES = 100
"""Updates without gradient of an experiment."""


def _never_decay() -> Shown:
    """Run updates with a zero gradient; count the second moments that stay."""
    moment = np.square(np.random.default_rng(0).standard_normal(4096, np.float32) * 0.01)
    numbers: Numbers = {}
    for dtype in ("float32", "float16", "bfloat16"):
        start = v = moment.astype(numpy_dtype(dtype))
        call: dict[str, Any] = dict.fromkeys(("var", "m", "grad"), np.zeros_like(start))
        for step in np.arange(UPDATES, dtype=np.float32):
            v = run("apply_adam_w_v2", **call, v=v, step=step.reshape(1)).outputs["v_out"]
        numbers[dtype] = float(np.mean(v == start))
    return numbers, [
        Text(
            "{dtype}: {share} of the second moments are as before after {updates} updates without "
            "gradient",
            dtype=dtype,
            share=f"{100 * share:.0f} %",
            updates=UPDATES,
        )
        for dtype, share in numbers.items()
    ]


CAVEATS = (
    Experiment(
        "moments_never_decay",
        "a second moment in 16 bits never falls with the usual beta2",
        "public sources, ApplyAdamWV2, rounding of v",
        _never_decay,
    ),
)
