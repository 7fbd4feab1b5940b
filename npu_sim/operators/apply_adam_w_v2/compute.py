"""ApplyAdamWV2: scalars of a step, computation, formula and generated data.

Source: specification pages ``apply_adam_w_v2`` and ``apply_adam_w_v2_950``, section "Kernel".
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import FORMATS, Arrays, Caveat, Dtype, Run, caveat, to_fp32
from npu_sim.kernels.apply_adam_w_v2 import Arithmetic, Scalars, State, apply_adam_w
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.numbers.values import normal
from npu_sim.tiling.apply_adam_w_v2 import CAST, STATE, path_of

F = np.float32
ONE = F(1)
VANISHING = {
    name: F(2.0 ** -(kind.bias + kind.mantissa_bits)).view(np.uint32)
    for name, kind in FORMATS.items()
}
"""Bits of half the smallest subnormal number, which rounds to 0; in fp32 it is 0 itself."""
UNCERTAIN = 1e-6
"""Relative uncertainty of a scalar from which on it is reported."""


def power(x: np.float32, y: np.float32) -> np.float32:
    """Return x to the power of y as the vector library computes it (page, "Kernel")."""
    if y == 0 or x == 1:
        return ONE
    logarithm = F(np.log(np.float64(abs(x))))
    value = F(np.exp(np.float64(y * logarithm)))
    if not np.signbit(x):
        return value
    if not np.isfinite(y) or abs(y - np.rint(y)) > 1e-8:
        return F(np.nan) if x < 0 else value
    return -value if int(y) % 2 else value


Powers = tuple[np.float32, np.float32]


@np.errstate(all="ignore")
def powers_of(
    arguments: Any, step: np.ndarray, function: Callable[[np.float32, np.float32], np.float32]
) -> Powers:
    """Return beta1 and beta2 to the power of the number of this update, step + 1."""
    t = F(step.reshape(-1)[0]) + ONE
    return function(to_fp32(arguments.beta1), t), function(to_fp32(arguments.beta2), t)


@np.errstate(all="ignore")
def scalars_of(arguments: Any, powers: Powers, v_dtype: str) -> dict[str, Any]:
    """Return the scalars of a step by name, in the order of operations of A2 and A3."""
    lr = to_fp32(arguments.lr)
    return {
        "sign": F(-1 if arguments.maximize else 1),
        "beta1": to_fp32(arguments.beta1),
        "beta2": to_fp32(arguments.beta2),
        "decay": ONE - lr * to_fp32(arguments.weight_decay),
        "root": ONE / np.sqrt(ONE - powers[1]),
        "eps": to_fp32(arguments.eps),
        "size": lr / (ONE - powers[0]),
        "vanishing": VANISHING[v_dtype],
    }


def compute(run: "Run") -> None:
    """Compute the state after the step in the order of operations of A2 and A3."""
    powers = powers_of(run.case.arguments, run.tensors["step"], power)
    scalars = scalars_of(run.case.arguments, powers, run.case.specs["v"].dtype)
    arithmetic = {"subtracts_products": False, "divides_root": False, "rounds_half_away": True}
    compute_step(run, powers, scalars, **arithmetic)


def compute_step(
    run: "Run", powers: Powers, scalars: Mapping[str, Any], **arithmetic: bool
) -> None:
    """Compute the state after the step; on the cast path around a kernel of fp32 tensors.

    ``scalars`` and ``arithmetic`` are fields of :class:`npu_sim.kernels.apply_adam_w_v2.Scalars`
    and ``Arithmetic``.
    """
    row, is_cast = run.case.row, path_of(run.case.row) == CAST
    names = STATE if row.amsgrad else STATE[:-1]
    with run.watch.stage("compute"):
        grad, *old = (
            (widen_array(run.tensors[name]) if is_cast else run.stored(name)).reshape(-1)
            for name in ("grad", *names)
        )
        new = old if is_cast else [run.written(f"{name}_out").reshape(-1) for name in names]
        no_norm = () if row.amsgrad else (grad[:0],)
        counts = apply_adam_w(
            State(*old, *no_norm),
            grad,
            Scalars(**scalars),
            Arithmetic(**arithmetic),
            State(*new, *no_norm),
        )
        if is_cast:
            for name, array in zip(names, new, strict=True):
                out = run.outputs[f"{name}_out"]
                narrow_array(array.reshape(out.shape), out.dtype, out=out)
        if row.with_norm and not row.amsgrad:
            np.copyto(run.outputs["max_grad_norm_out"], run.tensors["max_grad_norm"])
    run.caveats = tuple(_data_caveats(run, powers, *counts))


def _data_caveats(
    run: "Run", powers: Powers, overflows: int, underflows: int, moments: int
) -> Iterator[Caveat]:
    """Yield the warnings that depend on values (page, "Warnings a plan gives")."""
    step = run.tensors["step"].reshape(-1)[0]
    if step >= 1 and moments == 0:
        yield caveat(
            "step_counts_from_zero",
            "step",
            "step = {step} while all of m and v is 0, as before a first update: the kernel adds 1 "
            "to step, and the first update wants step = 0",
            step=f"{float(step):g}",
        )
    if overflows:
        yield caveat(
            "squares_overflow",
            "grad",
            "{found} finite gradients have an infinite square: their v is inf for good, and var "
            "only decays from then on",
            found=overflows,
        )
    if underflows:
        yield caveat(
            "second_moment_underflows",
            "v",
            "{found} second moments are not 0 and are stored as 0 in {dtype}",
            found=underflows,
            dtype=run.case.specs["v"].dtype,
        )
    if step.dtype == np.int64 and abs(int(step)) >= 1 << 24:
        yield caveat(
            "step_beyond_fp32",
            "step",
            "step = {step} is not below 2^24: the kernel rounds it to fp32, where steps coincide",
            step=int(step),
        )
    if F(step) + ONE == 0:
        yield caveat(
            "correction_is_zero",
            "step",
            "step + 1 is 0: both powers are 1, and var is nan everywhere",
        )
    for name, value in uncertainties(powers).items():
        if value > UNCERTAIN:
            yield caveat(
                "early_steps_uncertain",
                "step",
                "an error of one unit of the power function changes {name} by {value} (relative), "
                "and var with it",
                name=name,
                value=f"{value:.1e}",
            )


@np.errstate(all="ignore")
def uncertainties(powers: Powers) -> dict[str, float]:
    """Return what an error of one unit of the powers changes, relative to each scalar.

    Source: page ``apply_adam_w_v2``, "What the model costs".
    """
    rests = [abs(float(ONE - value)) for value in powers]
    first, second = (
        float(np.spacing(abs(value))) / rest if rest > 0 else 0.0
        for value, rest in zip(powers, rests, strict=True)
    )
    return {"size": first, "inv_root": second / 2}


@np.errstate(all="ignore")
def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the state after the step by its formula (page, "Formula")."""
    values = {name: tensor.astype(precision) for name, tensor in tensors.items()}
    lr, beta1, beta2, decay, eps = (
        precision.type(to_fp32(arguments[name]))
        for name in ("lr", "beta1", "beta2", "weight_decay", "eps")
    )
    t = values["step"].reshape(-1)[0] + precision.type(1)
    g = -values["grad"] if arguments.maximize else values["grad"]
    m = values["m"] + (g - values["m"]) * (1 - beta1)
    v = values["v"] * beta2 + g * g * (1 - beta2)
    second = np.maximum(values["max_grad_norm"], v) if arguments.amsgrad else v
    step = lr / (1 - beta1**t) * m / (np.sqrt(second) / np.sqrt(1 - beta2**t) + eps)
    results = {"var_out": values["var"] * (1 - lr * decay) - step, "m_out": m, "v_out": v}
    if "max_grad_norm" in values:
        results["max_grad_norm_out"] = second if arguments.amsgrad else values["max_grad_norm"]
    return results


def data(arguments: Any, seed: int) -> Arrays:
    """Return a state in training: moments of gradients of order 0.01 after a hundred updates."""
    random = np.random.default_rng(seed)
    tensors = {
        "var": normal(random, arguments.var, 0.02),
        "m": normal(random, arguments.m, 1e-3),
        "v": np.square(normal(random, arguments.v, 1e-2)),
        "grad": normal(random, arguments.grad, 1e-2),
        "step": np.full(arguments.step.shape, 100, arguments.step.dtype),
    }
    if arguments.max_grad_norm is not None:
        tensors["max_grad_norm"] = np.square(normal(random, arguments.max_grad_norm, 1e-2))
    return tensors
