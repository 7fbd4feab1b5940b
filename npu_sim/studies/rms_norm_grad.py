"""RmsNormGrad in the laboratory: what every core adds to dgamma, and the trees of dgamma and of the row mean."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.dtypes import kernel_input
from npu_sim.formats import numpy_dtype
from npu_sim.kernels.order_study import arrival_of
from npu_sim.kernels.random_order import seed_words
from npu_sim.ops import run
from npu_sim.ops.base import Limits, Order, Result
from npu_sim.ops.rms_norm_grad import Arguments, resolve, split_of
from npu_sim.planning.rms_norm_grad import Case
from npu_sim.studies import trees
from npu_sim.studies.certificate import Claim
from npu_sim.studies.parts import Parts
from npu_sim.studies.probes import count_units, probe_terms

PIECE_COLUMNS = 4096
"""Columns of a piece: random orders are drawn once for each (page, "core_order")."""
GROUP_ROWS = 32
"""Rows of a group on key 2 (page, "Kernels and accumulation order")."""

FLOATING_TENSORS = ("dy", "x", "gamma")
"""Tensors that have the operator's dtype."""
SAMPLE_AXES = {"dy": 0, "x": 0, "rstd": 0, "dx": 0}
"""Axis along which samples lie, for inputs and outputs that have one."""


def order_dependent_parts(
    arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, limits: Limits, first: Result, output: str
) -> Iterator[Parts]:
    """Yield the cores' contributions to dgamma, one part for every piece of columns that shares an order."""
    from npu_sim.kernels.rms_norm_grad import PIECES
    from npu_sim.kernels.rms_norm_grad_contributions import contributions

    case = resolve(arguments, profile, False, limits)
    split = split_of(case)
    shape = (case.rows, case.columns)
    inputs = [kernel_input(tensors[name]) for name in ("dy", "x", "rstd", "gamma")]
    cores, values = contributions(inputs[0].reshape(shape), inputs[1].reshape(shape), inputs[2].reshape(-1), inputs[3].reshape(-1), split)
    pieces = split.path == PIECES
    step = PIECE_COLUMNS if pieces else case.columns
    gamma_shape = tensors["gamma"].shape
    for key, begin in enumerate(range(0, case.columns, step)):
        yield Parts(
            output=output,
            values=np.ascontiguousarray(values[:, begin : begin + step]),
            starts=np.array([0, cores.size], np.int64),
            cores=cores,
            keys=np.array([key], np.int64),
            factors=np.ones(1, np.float32),
            columns_together=1,
            locate=partial(_locate, gamma_shape, begin),
            describe=partial(_describe, cores),
        )


def _locate(gamma_shape: tuple[int, ...], begin: int, part: int, column: int) -> tuple[int, ...]:
    return tuple(int(at) for at in np.unravel_index(begin + column, gamma_shape))


def _describe(cores: np.ndarray, place: int) -> str:
    return f"contribution {place - int(np.searchsorted(cores, cores[place]))} of core {cores[place]}"


def claims(arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, options: Mapping[str, Any]) -> Iterator[Claim]:
    """Declare the tree of a column of dgamma (of every piece), and of the row mean that dx needs."""
    order = Order(options.get("core_order", "sequential"), options.get("seed", 0))
    case = resolve(arguments, profile, options.get("deterministic", False), options.get("limits", "documented"))
    split = split_of(case)
    pieces = _is_in_pieces(case)
    step = PIECE_COLUMNS if pieces else case.columns
    gamma_shape = tensors["gamma"].shape
    for key, begin in enumerate(range(0, case.columns, step)):
        tree = _dgamma_tree(case, split.block_factor, pieces, order, key)
        columns = min(step, case.columns - begin)
        yield Claim(
            output="dgamma",
            element=tuple(int(at) for at in np.unravel_index(begin, gamma_shape)),
            elements=columns,
            terms=tuple(f"dy*xh of row {row}" for row in range(case.rows)),
            tree=tree,
            outside=partial(_dgamma_outside, case, tensors, options, begin, columns),
        )
    if case.columns > 2:
        yield Claim(
            output="dx",
            element=tuple(0 for _ in tensors["x"].shape),
            elements=case.rows * case.columns,
            terms=tuple(f"dy*gamma*xh of column {column}" for column in range(case.columns)),
            tree=_mean_tree(case, pieces),
            outside=partial(_mean_outside, case, tensors, options),
        )


def _is_in_pieces(case: Case) -> bool:
    from npu_sim.kernels.rms_norm_grad import PIECES

    return split_of(case).path == PIECES


def _dgamma_tree(case: Case, block_factor: int, pieces: bool, order: Order, key: int) -> trees.Tree:
    contributions: list[tuple[int, trees.Tree | None]] = []
    for core, first in enumerate(range(0, case.rows, block_factor)):
        rows = range(first, min(case.rows, first + block_factor))
        size = GROUP_ROWS if pieces else len(rows)
        contributions += [(core, trees.left_fold(rows[begin : begin + size])) for begin in range(0, len(rows), size)]
    if case.deterministic:
        cores = sorted({core for core, _ in contributions})
        tree = trees.left_fold([trees.left_fold([part for own, part in contributions if own == core]) for core in cores])
    else:
        numbers = np.array([core for core, _ in contributions], np.int64)
        arrived = arrival_of(order.code, seed_words(order.seed), key, numbers, np.zeros((numbers.size, 1), np.float32), 0, 1)
        tree = trees.left_fold([contributions[place][1] for place in arrived])
    assert tree is not None
    return tree


def _mean_tree(case: Case, pieces: bool) -> trees.Tree:
    from npu_sim.kernels.rms_norm_grad import LANES

    columns: Sequence[int] = range(case.columns)
    if pieces:
        tree = trees.left_fold([trees.halving(columns[begin : begin + PIECE_COLUMNS]) for begin in range(0, len(columns), PIECE_COLUMNS)])
    else:
        tree = trees.lane_sum(columns) if split_of(case).path == LANES else trees.halving(columns)
    assert tree is not None
    return tree


def _run(case: Case, tensors: Mapping[str, np.ndarray], options: Mapping[str, Any], **changed: np.ndarray) -> dict[str, np.ndarray]:
    """Run the operator on ones, with some tensors replaced."""
    inputs: dict[str, Any] = {name: np.ones(tensors[name].shape, tensors[name].dtype) for name in ("dy", "x", "rstd", "gamma")}
    inputs |= {name: values.reshape(tensors[name].shape) for name, values in changed.items()}
    return run("rms_norm_grad", profile=case.profile, **options, **inputs).outputs


def _dgamma_outside(
    case: Case, tensors: Mapping[str, np.ndarray], options: Mapping[str, Any], begin: int, columns: int, codes: np.ndarray
) -> np.ndarray:
    """Run probes, a column each: with xh = 1 the terms of dgamma are dy."""
    dtype, counts = case.dtype, np.empty(codes.shape[0], np.int64)
    for first in range(0, codes.shape[0], columns):
        piece = codes[first : first + columns]
        dy = np.zeros((case.rows, case.columns), numpy_dtype(dtype))
        dy[:, begin : begin + piece.shape[0]] = probe_terms(piece, dtype).T
        dgamma = _run(case, tensors, options, dy=dy)["dgamma"].reshape(-1)
        counts[first : first + columns] = count_units(dgamma[begin : begin + piece.shape[0]], dtype)
    return counts


def _mean_outside(case: Case, tensors: Mapping[str, np.ndarray], options: Mapping[str, Any], codes: np.ndarray) -> np.ndarray:
    """Run probes, a row each: with xh = gamma = 1, dx is dy minus the mean of dy; read where dy is one unit."""
    dtype, counts = case.dtype, np.empty(codes.shape[0], np.int64)
    for first in range(0, codes.shape[0], case.rows):
        piece = codes[first : first + case.rows]
        dy = np.zeros((case.rows, case.columns), numpy_dtype(dtype))
        dy[: piece.shape[0]] = probe_terms(piece, dtype)
        dx = _run(case, tensors, options, dy=dy)["dx"].reshape(case.rows, case.columns)[: piece.shape[0]]
        unit_column = np.argmax(piece == 0, axis=1)
        rows = np.arange(piece.shape[0])
        sums = (dy[rows, unit_column].astype(np.float64) - dx[rows, unit_column].astype(np.float64)) * case.columns
        counts[first : first + case.rows] = count_units(sums, dtype)
    return counts


def terms(arguments: Any, tensors: Mapping[str, np.ndarray], output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    gamma = tensors["gamma"].astype(np.float64).reshape(-1)
    dy, x = (tensors[name].astype(np.float64).reshape(-1, gamma.size) for name in ("dy", "x"))
    rstd = tensors["rstd"].astype(np.float64).reshape(-1)
    if output == "dgamma":
        column = int(np.ravel_multi_index(index, tensors["gamma"].shape))
        values = dy[:, column] * x[:, column] * rstd
        return [(f"dy*xh of row {row}", value) for row, value in enumerate(values.tolist())]
    row, column = divmod(int(np.ravel_multi_index(index, tensors["x"].shape)), gamma.size)
    normed = x[row] * rstd[row]
    mean = float(np.mean(dy[row] * gamma * normed))
    return [("dy*gamma*rstd", dy[row, column] * gamma[column] * rstd[row]), ("-xh*mean*rstd", -normed[column] * mean * rstd[row])]
