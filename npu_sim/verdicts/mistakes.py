"""Calls with attributes and inputs as people mistake them, which may explain a measured output."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from npu_sim.framework.arguments import Attribute
from npu_sim.language import Text
from npu_sim.operators.shared.study import StudyCall
from npu_sim.verdicts.answers import UNREACHABLE, OutputVerdict

USUAL: dict[str, tuple[Any, ...]] = {
    "epsilon": (1e-5, 1e-6, 1e-8, 1e-12, 0.0, 2.0**-23, 2.0**-7, 2.0**-10),
    "eps": (1e-8, 1e-6, 1e-5, 1e-7, 1e-10, 1e-15, 1e-4, 1e-3, 1e-2, 0.0),
    "lr": (1e-3, 1e-2, 1e-4, 1e-5, 1e-6, 2e-5, 3e-4, 5e-5, 6e-4, 0.1, 1.0),
    "beta1": (0.9, 0.95, 0.8, 0.85, 0.5, 0.99, 0.0),
    "beta2": (0.999, 0.99, 0.98, 0.95, 0.9, 0.995, 0.9999),
    "weight_decay": (0.0, 0.01, 0.1, 0.05, 0.001, 1e-4, 0.02),
    "mode": (0, 1),
    "dim": (-1, 0, 1, 2, 3),
    "reduction": ("mean", "sum", "none"),
    "ignore_index": (-100, -1, 0),
    "label_smoothing": (0.0, 0.1, 0.05, 0.2),
    "padding_idx": (-1, 0, 1, 2),
}
"""Values in use, by the name of an attribute: defaults of frameworks and of models."""
SCALES = {"lr": (10.0, 0.1, 2.0, 0.5), "weight_decay": (10.0, 0.1)}
"""Factors by which a number is mistaken."""
STEPS = (1, -1, 2)
"""What is added to the number of a step: one counts from 0, the other from 1."""
MOST_LABELS = 4
"""Labels that are tried as the ignored one: those of rows without a gradient."""

Calls = Iterator[tuple[str, StudyCall]]


def mistaken_calls(call: StudyCall, verdict: OutputVerdict) -> Calls:
    """Yield what differs and the call: other attributes, another step, other inputs."""
    for attribute in call.operator.attributes:
        yield from _other_values(call, attribute, verdict)
    yield from _betas_exchanged(call)
    yield from _other_steps(call)
    yield from _inputs_exchanged(call)
    if "sin" in call.tensors:
        yield Text("rotated backwards: sin negated"), call.with_tensors(sin=-call.tensors["sin"])
    if "dim" in call.operator.by_name and verdict.output == "y":
        halves = np.split(call.tensors["x"], 2, axis=int(call.arguments.dim))
        changed = call.with_tensors(x=np.concatenate(halves[::-1], axis=int(call.arguments.dim)))
        yield Text("halves exchanged: the second one is the gate"), changed


def _other_values(call: StudyCall, attribute: Attribute, verdict: OutputVerdict) -> Calls:
    name, given = attribute.name, call.attributes.get(attribute.name, attribute.default)
    if not attribute.required and given != attribute.default:
        changed = call.with_attributes(**{name: attribute.default})
        yield Text("{attribute} ignored", attribute=name), changed
    values = (*USUAL.get(name, ()), *_from_data(call, name, verdict))
    if attribute.kind is bool:
        values = (False, True)
    if isinstance(given, float):
        values = (*values, *(float(f"{given * factor:.12g}") for factor in SCALES.get(name, ())))
    for value in dict.fromkeys(values):
        if value not in (given, attribute.default):
            text = Text(
                "{attribute} {value} instead of {given}", attribute=name, value=value, given=given
            )
            yield text, call.with_attributes(**{name: value})


def _from_data(call: StudyCall, name: str, verdict: OutputVerdict) -> tuple[Any, ...]:
    """Return values of an attribute that the measured output itself suggests."""
    wrong = verdict.elements == UNREACHABLE
    if name == "padding_idx" and verdict.given.ndim == 2:
        cleared = wrong.any(axis=1) & ~verdict.given.any(axis=1)
        return tuple(np.flatnonzero(cleared)[:MOST_LABELS].tolist())
    if name == "ignore_index" and "target" in call.tensors:
        cleared = wrong.any(axis=-1) & ~verdict.given.any(axis=-1)
        return tuple(np.unique(call.tensors["target"][cleared])[:MOST_LABELS].tolist())
    if name == "lr" and verdict.output == "var_out":
        # The update is proportional to lr, the decay too.
        before = call.tensors["var"].astype(np.float64)
        moved = verdict.expected.astype(np.float64) - before
        if not moved.any():
            return ()
        with np.errstate(all="ignore"):
            ratio = np.median(
                (verdict.given.astype(np.float64) - before)[moved != 0] / moved[moved != 0]
            )
        given = float(call.attributes.get("lr", 1e-3)) * ratio
        return tuple(float(f"{given:.{digits}g}") for digits in (1, 2, 3)) if given > 0 else ()
    return ()


def _betas_exchanged(call: StudyCall) -> Calls:
    if {"beta1", "beta2"} <= call.operator.by_name.keys():
        arguments = call.arguments
        changed = call.with_attributes(beta1=arguments.beta2, beta2=arguments.beta1)
        yield Text("beta1 and beta2 exchanged"), changed


def _other_steps(call: StudyCall) -> Calls:
    step = call.tensors.get("step")
    if step is None or step.size != 1:
        return
    (given,) = step.reshape(-1).tolist()
    for more in STEPS:
        other = given + more
        yield (
            Text(
                "step {change}: {value} instead of {given}",
                change=f"{more:+d}".replace("+", "+ ").replace("-", "- "),
                value=f"{other:g}",
                given=f"{given:g}",
            ),
            call.with_tensors(step=(step + step.dtype.type(more)).astype(step.dtype)),
        )
    for value in {0, 1} - {given, *(given + more for more in STEPS)}:
        yield (
            Text(
                "{attribute} {value} instead of {given}",
                attribute="step",
                value=value,
                given=f"{given:g}",
            ),
            call.with_tensors(step=np.full_like(step, value)),
        )


def _inputs_exchanged(call: StudyCall) -> Calls:
    """Yield the call with two floating-point inputs of one shape and dtype exchanged."""
    floating = [name for name in call.operator.floating if name in call.tensors]
    for one, other in combinations(floating, 2):
        first, second = call.tensors[one], call.tensors[other]
        if (first.shape, first.dtype) == (second.shape, second.dtype):
            text = Text("{one} and {other} exchanged", one=one, other=other)
            yield text, call.with_tensors(**{one: second, other: first})
