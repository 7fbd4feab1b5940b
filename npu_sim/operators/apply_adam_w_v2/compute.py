"""ApplyAdamWV2: scalars of a step, computation, formula and generated data.

Source: specification pages ``apply_adam_w_v2`` and ``apply_adam_w_v2_950``, section "Kernel".
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import Caveat, Run, caveat
from npu_sim.numbers.values import normal
from npu_sim.tiling.apply_adam_w_v2 import CAST, path_of, rounded

if TYPE_CHECKING:
    from npu_sim.kernels.apply_adam_w_v2 import Scalars

F = np.float32
ONE = F(1)
STATE = ("var", "m", "v", "max_grad_norm")
"""The tensors that a step updates."""
VANISHING = {"float32": 0.0, "float16": 2.0**-25, "bfloat16": 2.0**-134}
"""Largest second moment that is stored as 0, by dtype."""
EXACT_STEPS = 1 << 24
"""From here on fp32 does not hold every step."""
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


def power_950(x: np.float32, y: np.float32) -> np.float32:
    """Return x to the power of y, rounded once (page ``apply_adam_w_v2_950``)."""
    return F(np.power(np.float64(x), np.float64(y)))


def step_number(step: np.ndarray) -> np.float32:
    """Return the number of this update in fp32: step + 1."""
    return F(step.reshape(-1)[0]) + ONE


Powers = tuple[np.float32, np.float32]


def powers_of(
    arguments: Any, step: np.ndarray, function: Callable[[np.float32, np.float32], np.float32]
) -> Powers:
    """Return beta1 and beta2 to the power of the number of this update."""
    with np.errstate(all="ignore"):
        t = step_number(step)
        return function(rounded(arguments.beta1), t), function(rounded(arguments.beta2), t)


@np.errstate(all="ignore")
def scalars_of(arguments: Any, powers: Powers, v_dtype: str) -> "Scalars":
    """Return the scalars of a step in the order of operations of A2 and A3."""
    from npu_sim.kernels.apply_adam_w_v2 import Scalars

    lr, beta1, beta2 = (rounded(arguments[name]) for name in ("lr", "beta1", "beta2"))
    return Scalars(
        sign=F(-1 if arguments.maximize else 1),
        beta1=beta1,
        rest1=ONE - beta1,
        beta2=beta2,
        rest2=ONE - beta2,
        decay=ONE - lr * rounded(arguments.weight_decay),
        root=ONE / np.sqrt(ONE - powers[1]),
        eps=rounded(arguments.eps),
        size=lr / (ONE - powers[0]),
        vanishing=F(VANISHING[v_dtype]).view(np.uint32),
    )


def compute(run: "Run") -> None:
    """Compute the state after the step in the order of operations of A2 and A3."""
    powers = powers_of(run.case.arguments, run.tensors["step"], power)
    scalars = scalars_of(run.case.arguments, powers, run.case.specs["v"].dtype)
    compute_step(run, powers, scalars, is_950=False)


def compute_step(run: "Run", powers: Powers, scalars: "Scalars", *, is_950: bool) -> None:
    """Compute the state after the step; on the cast path around a kernel of fp32 tensors."""
    with run.watch.stage("load"):
        from npu_sim.kernels.apply_adam_w_v2 import State, apply_adam_w
        from npu_sim.kernels.elementwise import narrow_array, widen_array
    amsgrad, is_cast = run.case.row.amsgrad, path_of(run.case.row) == CAST
    names = STATE if amsgrad else STATE[:-1]
    read = (lambda name: widen_array(run.tensors[name])) if is_cast else run.stored
    with run.watch.stage("compute"):
        grad = read("grad").reshape(-1)
        inputs = [read(name).reshape(-1) for name in names]
        results = [
            np.empty_like(array) if is_cast else run.written(f"{name}_out").reshape(-1)
            for name, array in zip(names, inputs, strict=True)
        ]
        no_norm = () if amsgrad else (grad[:0],)
        old, new = State(*inputs, *no_norm), State(*results, *no_norm)
        counts = apply_adam_w(old, grad, scalars, is_950, new)
        if is_cast:
            for name, array in zip(names, results, strict=True):
                out = run.outputs[f"{name}_out"]
                narrow_array(array.reshape(out.shape), out.dtype, out=out)
        if run.case.row.with_norm and not amsgrad:
            np.copyto(run.outputs["max_grad_norm_out"], run.tensors["max_grad_norm"])
    run.caveats = (*_data_caveats(run, *counts), *scalar_caveats(run, powers))


def _data_caveats(run: "Run", overflows: int, underflows: int, moments: int) -> Iterator[Caveat]:
    """Yield the warnings that depend on the elements (page, "Warnings a plan gives")."""
    step = float(run.tensors["step"].reshape(-1)[0])
    if step >= 1 and moments == 0:
        yield caveat(
            "step_counts_from_zero",
            "step",
            "step = {step} while all of m and v is 0, as before a first update: the kernel adds 1 "
            "to step, and the first update wants step = 0",
            step=f"{step:g}",
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


def uncertainties(arguments: Any, powers: Powers) -> dict[str, float]:
    """Return what an error of one unit of the powers changes, relative to each scalar.

    Source: page ``apply_adam_w_v2``, "What the model costs".
    """
    with np.errstate(all="ignore"):
        units = [float(np.spacing(value)) for value in map(abs, powers)]
        rests = [abs(float(ONE - value)) for value in powers]
        first, second = (
            unit / rest if rest > 0 else 0.0 for unit, rest in zip(units, rests, strict=True)
        )
    return {"size": first, "inv_root": second / 2}


def scalar_caveats(run: "Run", powers: Powers) -> Iterator[Caveat]:
    """Yield the warnings that depend on the value of step."""
    step = run.tensors["step"]
    if step.dtype == np.int64 and abs(int(step.reshape(-1)[0])) >= EXACT_STEPS:
        yield caveat(
            "step_beyond_fp32",
            "step",
            "step = {step} is not below 2^24: the kernel rounds it to fp32, where steps coincide",
            step=int(step.reshape(-1)[0]),
        )
    if step_number(step) == 0:
        yield caveat(
            "correction_is_zero",
            "step",
            "step + 1 is 0: both powers are 1, and var is nan everywhere",
        )
    for name, value in uncertainties(run.case.arguments, powers).items():
        if value > UNCERTAIN:
            yield caveat(
                "early_steps_uncertain",
                "step",
                "an error of one unit of the power function changes {name} by {value} (relative), "
                "and var with it",
                name=name,
                value=f"{value:.1e}",
            )


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the state after the step by its formula (page, "Formula")."""
    var, m, v, g = (tensors[name].astype(precision) for name in ("var", "m", "v", "grad"))
    lr, beta1, beta2, decay, eps = (
        precision.type(rounded(arguments[name]))
        for name in ("lr", "beta1", "beta2", "weight_decay", "eps")
    )
    t = precision.type(tensors["step"].reshape(-1)[0]) + precision.type(1)
    with np.errstate(all="ignore"):
        g = -g if arguments.maximize else g
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        results = {"m_out": m, "v_out": v}
        if "max_grad_norm" in tensors:
            norm = tensors["max_grad_norm"].astype(precision)
            results["max_grad_norm_out"] = np.maximum(norm, v) if arguments.amsgrad else norm
        second = results["max_grad_norm_out"] if arguments.amsgrad else v
        size = lr / (1 - beta1**t)
        step = size * m / (np.sqrt(second) / np.sqrt(1 - beta2**t) + eps)
        results["var_out"] = var * (1 - lr * decay) - step
    return {f"{name}_out": results[f"{name}_out"] for name in STATE if f"{name}_out" in results}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
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
