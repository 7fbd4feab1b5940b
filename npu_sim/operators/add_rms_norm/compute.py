"""AddRmsNorm: computation, formula and generated data.

Source: specification page ``add_rms_norm``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import FORMATS, Case, Run, to_fp32, unsupported_values
from npu_sim.kernels.add_rms_norm import INFINITY, Arithmetic, Rows, add_rms_norm
from npu_sim.kernels.shared.square_sums import PIECES, Split
from npu_sim.numbers.formats import kernel_input, storage_view
from npu_sim.numbers.values import normal
from npu_sim.operators.add_rms_norm.plan import UNROUNDED, template_of
from npu_sim.operators.shared.normalised_rows.compute import (
    draw_gamma,
    normalised_rows,
    overflowing_rows,
)
from npu_sim.status import NotModelledError
from npu_sim.tiling import add_rms_norm as tiler
from npu_sim.tiling.common import BF16, FP16, FP32


def split_of(case: Case) -> Split:
    """Return the kernel's argument for the summation of a row: 64 lanes, in pieces."""
    is_split = template_of(case) == tiler.KEY_SPLIT_D
    return Split(PIECES, case.tiling.ub_factor if is_split else case.row.col)


def arithmetic_of(case: Case) -> Arithmetic:
    """Return where the product rounds (page, "Kernels and accumulation order")."""
    key, dtype = template_of(case), case.row.dtype
    largest = INFINITY
    if case.profile.saturates:
        largest = np.float32(FORMATS[case.specs["x1"].dtype].largest_finite)
    return Arithmetic(
        squares_rounded=dtype == FP16 or (dtype == BF16 and key not in UNROUNDED),
        rereads=key == tiler.KEY_SPLIT_D,
        rounds_twice=dtype != FP32,
        scales_squares=True,
        clears_sign=dtype == FP32 and key in UNROUNDED,
        largest=largest,
    )


def compute(run: Run) -> None:
    """Compute y, rstd and x."""
    compute_rows(run, run.case.row.row, split_of(run.case), arithmetic_of(run.case))


def compute_rows(run: Run, rows: int, split: Split, arithmetic: Arithmetic) -> None:
    """Compute the outputs of the first rows; what a call does not ask for is not kept."""
    case = run.case
    if case.row.last_axis != case.row.col and case.arguments.outputs != "full":
        raise NotModelledError(
            "gamma",
            "gamma has {given} columns and x1 {columns} (gamma_not_checked): npu_sim does not "
            "compute such a call",
            "gamma of the columns of x1",
            given=case.row.col,
            columns=case.row.last_axis,
        )
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape = (case.row.row, case.row.col)
        y = run.written("y").reshape(shape)[:rows]
        x = run.written("x").reshape(shape)[:rows] if "x" in run.outputs else y[:0]
        is_given = "rstd" in run.outputs
        rstd = run.written("rstd").reshape(-1) if is_given else np.empty(rows, np.float32)
        _write_rows(case, run.stored, split, arithmetic, (y, rstd, x))
    sums = run.outputs["x" if "x" in run.outputs else "y"].reshape(shape)[:rows]
    run.caveats += overflowing_rows(sums, rstd)


def _write_rows(
    case: Case,
    stored: Callable[[str], np.ndarray],
    split: Split,
    arithmetic: Arithmetic,
    outputs: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Write y, rstd and x of as many rows as y has, from storage arrays by name."""
    shape, (y, rstd, x) = (case.row.row, case.row.col), outputs
    x1, x2 = (stored(name).reshape(shape)[: len(y)] for name in ("x1", "x2"))
    rows = Rows(x1, x2, stored("gamma").reshape(-1), y, rstd, x)
    add_rms_norm(rows, split, arithmetic, to_fp32(case.arguments.epsilon))


def computed(
    case: Case, tensors: Mapping[str, np.ndarray], split: Split, arithmetic: Arithmetic
) -> dict[str, np.ndarray]:
    """Return y, rstd and x as rows, also those that a call does not ask for."""
    stored = {name: kernel_input(tensor) for name, tensor in tensors.items()}
    y, x = (np.empty((case.row.row, case.row.col), tensors["x1"].dtype) for _ in range(2))
    rstd = np.empty(case.row.row, np.float32)
    outputs = storage_view(y), rstd, storage_view(x)
    _write_rows(case, stored.__getitem__, split, arithmetic, outputs)
    return {"y": y, "rstd": rstd, "x": x}


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return y, rstd and x by their formulas (page, "Formula")."""
    gamma, shape = tensors["gamma"], tensors["x1"].shape
    x = np.add(tensors["x1"], tensors["x2"], dtype=precision)
    rows = x.reshape(-1, gamma.size)
    y, rstd = normalised_rows(rows, gamma.reshape(-1), arguments.epsilon, precision)
    results = {"y": y.reshape(shape)}
    if arguments.outputs == "full":
        results["rstd"] = rstd.reshape(shape[: len(shape) - gamma.ndim] + (1,) * gamma.ndim)
    if arguments.outputs != "y_only":
        results["x"] = x
    return results


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as in a trained network: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = draw_gamma(random, arguments.gamma)
    return {"x1": normal(random, arguments.x1), "x2": normal(random, arguments.x2), "gamma": gamma}
