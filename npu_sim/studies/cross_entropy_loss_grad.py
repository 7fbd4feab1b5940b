"""CrossEntropyLossGrad in the laboratory: the tree of the sum of weights that ``mean`` divides by. No order is open."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.ops import run
from npu_sim.ops.base import Limits, Result
from npu_sim.ops.cross_entropy_loss_grad import Arguments
from npu_sim.studies import trees
from npu_sim.studies.certificate import Claim
from npu_sim.studies.parts import Parts
from npu_sim.studies.probes import probe_terms
from npu_sim.tiling.integers import ceil_div

FLOATING_TENSORS = ("grad_loss", "log_prob")
"""Tensors that have the operator's dtype."""
SAMPLE_AXES = {"log_prob": 0, "target": 0, "x_grad": 0}
"""Axis along which samples lie, for inputs and outputs that have one."""


def order_dependent_parts(
    arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, limits: Limits, first: Result, output: str
) -> Iterator[Parts]:
    """Yield nothing: every core sums its rows, and all sum the cores' sums in the same order."""
    return iter(())


def claims(arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, options: Mapping[str, Any]) -> Iterator[Claim]:
    """Declare the tree of the sum of weights over the rows; ``sum`` and ``none`` add nothing."""
    rows, columns = tensors["log_prob"].shape
    if arguments.reduction != "mean" or rows < 3:
        return
    cores = profile.device.vector_cores
    # Page "Tiling": the first N % cores cores (all, when that is 0) take a row more than the rest.
    front = rows % cores or cores
    bounds = np.cumsum([0] + [ceil_div(rows, cores) if core < front else rows // cores for core in range(min(cores, rows))])
    parts = [trees.reduce_sum(range(start, stop)) for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    tree = trees.reduce_sum(parts)
    assert tree is not None
    yield Claim(
        output="x_grad",
        element=(0, 0),
        elements=rows * columns,
        terms=tuple(f"weight of row {row}" for row in range(rows)),
        tree=tree,
        outside=partial(_outside, rows, profile, options),
    )


def _outside(rows: int, profile: Profile, options: Mapping[str, Any], codes: np.ndarray) -> np.ndarray:
    """Run a probe at a time: every row has a class of its own, whose weight is the row's term.

    Where log_prob is 0 and the class is not the row's, the gradient of a row of weight 1 is 1/S.
    """
    counts = np.empty(codes.shape[0], np.int64)
    fixed: dict[str, Any] = {"grad_loss": np.float32(1), "log_prob": np.zeros((rows, rows), np.float32), "target": np.arange(rows)}
    for place, code in enumerate(codes):
        unit_row = int(np.argmax(code == 0))
        weight = probe_terms(code, "float32")
        result = run("cross_entropy_loss_grad", weight=weight, reduction="mean", profile=profile, **options, **fixed).outputs["x_grad"]
        gradient = float(result[unit_row, (unit_row + 1) % rows])
        counts[place] = 0 if np.isinf(gradient) else round(1 / gradient)
    return counts


def terms(arguments: Any, tensors: Mapping[str, np.ndarray], output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    from npu_sim.plain.cross_entropy_loss_grad import compute

    full = compute(arguments, {**tensors, "log_prob": np.full(tensors["log_prob"].shape, -np.inf)}, np.dtype(np.float64))
    target = int(tensors["target"][index[0]])
    nll = -float(full["x_grad"][index[0], target]) if 0 <= target < tensors["log_prob"].shape[1] else 0.0
    terms = [("exp(log_prob)*nll", float(np.exp(tensors["log_prob"][index].astype(np.float64))) * nll)]
    return [*terms, ("-nll", -nll)] if index[1] == target else terms
