"""AddRmsNorm: computation, formula and generated data.

Source: specification page ``add_rms_norm``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import FORMATS, Case, Run, to_fp32, unsupported_values
from npu_sim.numbers.formats import kernel_input
from npu_sim.numbers.values import normal
from npu_sim.operators.add_rms_norm.plan import UNROUNDED, template_of
from npu_sim.operators.shared.normalised_rows.compute import (
    BLOCK_ELEMENTS,
    draw_gamma,
    overflowing_rows,
)
from npu_sim.status import NotModelledError
from npu_sim.tiling import add_rms_norm as tiler
from npu_sim.tiling.common import BF16, FP16, FP32

if TYPE_CHECKING:
    from npu_sim.kernels.add_rms_norm import Arithmetic
    from npu_sim.kernels.shared.square_sums import Split


def split_of(case: Case) -> "Split":
    """Return the kernel's argument for the summation of a row: 64 lanes, in pieces."""
    from npu_sim.kernels.shared.square_sums import PIECES, Split

    is_split = template_of(case) == tiler.KEY_SPLIT_D
    return Split(PIECES, case.tiling.ub_factor if is_split else case.row.col)


def arithmetic_of(case: Case) -> "Arithmetic":
    """Return where the product rounds (page, "Kernels and accumulation order")."""
    from npu_sim.kernels.add_rms_norm import Arithmetic

    key, dtype = template_of(case), case.row.dtype
    largest = FORMATS[case.specs["x1"].dtype].largest_finite if case.profile.saturates else np.inf
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


def compute_rows(run: Run, rows: int, split: "Split", arithmetic: "Arithmetic") -> None:
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
    with run.watch.stage("load"):
        from npu_sim.kernels.add_rms_norm import add_rms_norm
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape = (case.row.row, case.row.col)
        x1, x2 = (run.stored(name).reshape(shape)[:rows] for name in ("x1", "x2"))
        y = run.written("y").reshape(shape)[:rows]
        x = run.written("x").reshape(shape)[:rows] if "x" in run.outputs else x1[:0]
        is_given = "rstd" in run.outputs
        rstd = run.written("rstd").reshape(-1) if is_given else np.empty(rows, np.float32)
        gamma, epsilon = run.stored("gamma").reshape(-1), to_fp32(case.arguments.epsilon)
        add_rms_norm(x1, x2, gamma, split, arithmetic, epsilon, y, rstd, x)
    sums = run.outputs["x" if "x" in run.outputs else "y"].reshape(shape)[:rows]
    run.caveats += overflowing_rows(sums, rstd)


def inverse_roots(
    case: Case, tensors: Mapping[str, np.ndarray], split: "Split", arithmetic: "Arithmetic"
) -> np.ndarray:
    """Return rstd of every row, of a call that does not give it too."""
    from npu_sim.kernels.add_rms_norm import add_rms_norm

    shape = (case.row.row, case.row.col)
    x1, x2 = (kernel_input(tensors[name]).reshape(shape) for name in ("x1", "x2"))
    gamma, epsilon = kernel_input(tensors["gamma"]).reshape(-1), to_fp32(case.arguments.epsilon)
    rstd, y = np.empty(case.row.row, np.float32), np.empty_like(x1)
    add_rms_norm(x1, x2, gamma, split, arithmetic, epsilon, y, rstd, x1[:0])
    return rstd


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return y, rstd and x by their formulas (page, "Formula")."""
    gamma = tensors["gamma"].astype(precision).reshape(-1)
    x1, x2 = (tensors[name].reshape(-1, gamma.size) for name in ("x1", "x2"))
    x, y, rstd = np.empty(x1.shape, precision), np.empty(x1.shape, precision), []
    step = max(1, BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, len(x1), step):
        rows = slice(begin, begin + step)
        x[rows] = x1[rows].astype(precision) + x2[rows].astype(precision)
        mean = np.mean(x[rows] * x[rows], axis=1)
        rstd.append(1 / np.sqrt(mean + precision.type(arguments.epsilon)))
        y[rows] = x[rows] * rstd[-1][:, None] * gamma
    shape, rank = tensors["x1"].shape, tensors["gamma"].ndim
    results = {"y": y.reshape(shape)}
    if arguments.outputs == "full":
        leading = shape[: len(shape) - rank]
        results["rstd"] = np.concatenate(rstd).reshape(leading + (1,) * rank)
    if arguments.outputs != "y_only":
        results["x"] = x.reshape(shape)
    return results


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as in a trained network: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = draw_gamma(random, arguments.gamma)
    return {"x1": normal(random, arguments.x1), "x2": normal(random, arguments.x2), "gamma": gamma}
