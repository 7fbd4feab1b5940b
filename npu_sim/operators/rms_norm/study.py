"""Studies of RmsNorm: the tree of a row's sum of squares, and the terms of an element."""

from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Case, Result, TensorSpec, Text, to_fp32
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.numbers.values import normal
from npu_sim.operators.rms_norm.compute import split_of
from npu_sim.operators.shared.normalised_rows.study import RMS_NORM
from npu_sim.operators.shared.open_rules import between, moved
from npu_sim.operators.shared.study import (
    Claim,
    Experiment,
    InDumps,
    OpenRule,
    Shown,
    StudyCall,
    Values,
    WrappedCall,
    single_terms,
    study_call,
    trees,
)
from npu_sim.operators.shared.unfused import FP64, Ends, Formulas, ends_of, is_16_bit, short
from npu_sim.tiling import rms_norm as tiler

PROBED_ROWS = 64
"""Rows of random numbers that compare the kernel with the declared tree."""
Root = Callable[[np.ndarray], np.ndarray]
"""Returns 1/sqrt of fp32 numbers."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row."""
    case = call.case
    yield row_claim(call, case, _row_tree(case))


def row_claim(
    call: StudyCall, case: Case, tree: trees.Tree | None, root: Root | None = None
) -> Claim:
    """Return the claim of the sum of squares of a row.

    ``root`` rounds as the kernel does; None for a square root and a division, both rounded.
    """
    return Claim(
        output="rstd",
        element=tuple(0 for _ in case.specs["rstd"].shape),
        elements=case.row.row,
        terms=tuple(
            Text("x^2 of column {column}", column=column) for column in range(case.row.col)
        ),
        tree=tree,
        evaluates=partial(_agrees, call, case, tree, root or _plain_root),
    )


def _row_tree(case: Case) -> trees.Tree | None:
    columns, split = range(case.row.col), split_of(case)
    if case.tiling.tiling_key == tiler.KEY_MERGE_N:
        return trees.lane_sum(columns)
    starts = range(0, len(columns), split.piece_columns)
    return trees.left_fold(
        [trees.halving(columns[start : start + split.piece_columns]) for start in starts]
    )


def _plain_root(mean: np.ndarray) -> np.ndarray:
    return np.asarray(np.float32(1) / np.sqrt(mean))


def _agrees(call: StudyCall, case: Case, tree: trees.Tree | None, root: Root) -> bool:
    """Return whether the kernel has the bits of the declared tree on random numbers.

    Squares cannot cancel, so probes would add nothing.
    """
    x = normal(
        np.random.default_rng(0), TensorSpec((PROBED_ROWS, case.row.col), case.specs["x"].dtype)
    )
    ones = np.ones(case.row.col, call.tensors["gamma"].dtype)
    rstd = call.outputs(x=x, gamma=ones)["rstd"].reshape(-1)
    wide = x.astype(np.float32)
    total = trees.evaluate(tree, np.ascontiguousarray((wide * wide).T))
    mean = total * np.float32(case.tiling.average_factor)
    return np.array_equal(rstd, root(mean + to_fp32(case.arguments.epsilon)))


terms = single_terms(y="x*rstd*gamma", rstd="1/sqrt(mean(x^2)+epsilon)")
"""Neither output is a sum."""


ROOT_UNITS = 2
"""Units in the last place of fp32 by which rstd may differ (page, below the table of evidence)."""
ROOT_IN_FP32 = (
    "root and quotient in fp32 are taken as correctly rounded: a device may differ by two units in "
    "the last place of rstd"
)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of rstd, which contains a root and a quotient, and of y."""
    if call.case.empty:
        return
    rstd, largest = result.outputs["rstd"], np.finfo(np.float32).max
    ends = tuple(
        # Saturated, it stands for inf.
        np.where(rstd == largest, rstd, moved(rstd, units))
        for units in (-ROOT_UNITS, ROOT_UNITS)
    )
    yield between(result, "rstd", (ends[0], ends[1]), ROOT_IN_FP32)
    x, gamma = widen_array(call.tensors["x"]), widen_array(call.tensors["gamma"])
    stored = partial(
        narrow_array, dtype=str(result.outputs["y"].dtype), saturate=call.profile.saturates
    )
    low, high = ((x * end) * gamma for end in ends)
    yield between(result, "y", (low, high), ROOT_IN_FP32, stored)


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield y as frameworks compute it: rounded before gamma, and with 1 + gamma."""
    if output == "y" and is_16_bit(call.tensors["x"]):
        dtype = short(call.tensors["x"].dtype)
        text = Text(
            "x*rstd rounded to {dtype} before gamma, as transformers and PyTorch do", dtype=dtype
        )
        yield text, partial(_scaled_after_rounding, call)
        yield Text("gamma + 1 in fp32, as Gemma does"), partial(_scaled_by_more, call)
    elif output == "y":
        yield Text("gamma + 1 in fp32, as Gemma does"), partial(_scaled_by_more, call)


def _normalised(call: StudyCall) -> np.ndarray:
    """Return x*rstd in fp64."""
    x, gamma = call.tensors["x"].astype(FP64), call.tensors["gamma"]
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    mean = np.mean(x * x, axis=axes, keepdims=True)
    return np.asarray(x / np.sqrt(mean + float(call.arguments.epsilon)))


def _scaled_after_rounding(call: StudyCall) -> Ends:
    """Return y of a norm whose root is rounded in another order: one of two values before gamma."""
    x, gamma = call.tensors["x"], call.tensors["gamma"].astype(FP64)
    exact = _normalised(call)
    ends = ends_of(exact, np.abs(exact), x.dtype)
    products = [ends_of(end.astype(FP64) * gamma, np.zeros(1), x.dtype)[0] for end in ends]
    wide = [product.astype(FP64) for product in products]
    swapped = wide[0] > wide[1]
    return np.where(swapped, products[1], products[0]), np.where(swapped, *products)


def _scaled_by_more(call: StudyCall) -> Ends:
    exact = _normalised(call) * (1 + call.tensors["gamma"].astype(FP64))
    return ends_of(exact, np.abs(exact), call.tensors["x"].dtype)


NORM_TOLERANCE = 1 + 2.0**-6
"""Norms are computed in the tensor's own dtype: those of 16-bit tensors are good to 2^-8."""


def _in_dump(wrapped: WrappedCall) -> tuple[Values, Values]:
    results = {"y": wrapped.output(0), "rstd": wrapped.output(1)}
    return wrapped.pick("x", "gamma", epsilon=1e-6), results


def _contradictions(arguments: Values, results: Values) -> Iterator[str]:
    epsilon, rstd = float(arguments["epsilon"]), results.get("rstd")
    if rstd is not None and epsilon > 0:
        least, most = rstd.extremes
        # rstd = 1/sqrt(mean of squares + epsilon), and the mean is not negative.
        if least <= 0 or most > NORM_TOLERANCE / sqrt(epsilon):
            yield Text(
                "rstd goes from {least} to {most}; possible: above 0, to {limit}, the inverse "
                "root of epsilon",
                least=f"{least:.4g}",
                most=f"{most:.4g}",
                limit=f"{1 / sqrt(epsilon):.4g}",
            )
    y, gamma = results.get("y"), arguments.get("gamma")
    if y is None or gamma is None or "Norm" not in y.statistics:
        return
    limit = sqrt(y.size) * gamma.largest  # x*rstd of a row has a norm of at most sqrt(columns)
    if y.statistics["Norm"] > limit * NORM_TOLERANCE:
        yield Text(
            "y has the norm {norm}; at most {limit} is possible with this gamma",
            norm=f"{y.statistics['Norm']:.4g}",
            limit=f"{limit:.4g}",
        )


IN_DUMPS = InDumps((RMS_NORM,), _in_dump, contradictions=_contradictions)


ROWS, COLUMNS = 64, 2048
"""Shape of x of the experiment."""


def _norm_fused() -> Shown:
    """Compare y with what the separate kernels of frameworks give, as ``unfused`` states it."""
    from npu_sim.kernels.shared.elementwise import ulp_distance

    random, numbers = np.random.default_rng(0), dict[str, Any]()
    x = random.standard_normal((ROWS, COLUMNS), np.float32)
    gamma = (1 + 0.1 * random.standard_normal(COLUMNS)).astype(np.float32)
    for dtype in ("float16", "bfloat16"):
        call = study_call(
            "rms_norm", {"x": narrow_array(x, dtype), "gamma": narrow_array(gamma, dtype)}
        )
        low, high = _scaled_after_rounding(call)
        y = call.run().outputs["y"]
        apart = np.minimum(ulp_distance(y, low, dtype), ulp_distance(y, high, dtype))
        numbers[dtype] = {
            "share": float(np.count_nonzero(apart)) / apart.size,
            "largest_ulp": int(apart.max()),
        }
    return numbers, [
        Text(
            "{dtype}: {percent} of the elements differ from x*rstd rounded to {dtype} before "
            "gamma, by up to {largest_ulp} ulp",
            dtype=dtype,
            percent=f"{100 * found['share']:.1f} %",
            largest_ulp=found["largest_ulp"],
        )
        for dtype, found in numbers.items()
    ]


CAVEATS = (
    Experiment(
        "fused_norm_differs",
        "RmsNorm rounds once: a norm that rounds before gamma, as frameworks do, disagrees with it",
        "public sources, RmsNorm, rounding of y",
        _norm_fused,
    ),
)
