"""Rows that are normalised: orders of their sums, bounds of rstd, frameworks' forms, and dumps.

Sources: specification pages ``rms_norm`` and ``rms_norm_950``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt

import numpy as np

from npu_sim.framework.vocabulary import Array, Case, TensorSpec, Text, to_fp32
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.open_rules import moved
from npu_sim.operators.shared.study import Claim, Function, StudyCall, Values, trees
from npu_sim.operators.shared.unfused import FP64, Ends, ends_of
from npu_sim.tiling.ascend_950.rms_norm import SPLIT_ALIGNMENT_BYTES

RMS_NORM = Function(("npu_rms_norm", "RmsNorm"), ("x", "gamma", "epsilon"), ("x", "gamma"))
"""Function of torch_npu whose calls are RmsNorm, and whose gradients are RmsNormGrad, in dumps."""
PROBED_ROWS = 64
"""Rows of random numbers that compare the kernel with the declared tree."""
Root = Callable[[Array], Array]
"""Returns 1/sqrt of fp32 numbers."""
ROOT_UNITS = 2
"""Units in the last place of fp32 by which rstd may differ (page, below the table of evidence)."""
ROOT_IN_FP32 = (
    "root and quotient in fp32 are taken as correctly rounded: a device may differ by two units in "
    "the last place of rstd"
)
NORM_TOLERANCE = 1 + 2.0**-6
"""Norms are computed in the tensor's own dtype: those of 16-bit tensors are good to 2^-8."""


def row_claim(call: StudyCall, tree: trees.Tree | None, root: Root | None = None) -> Claim:
    """Return the claim of the sum of squares of a row.

    ``root`` rounds as the kernel does; None for a square root and a division, both rounded.
    """
    case = call.case
    return Claim(
        output="rstd",
        element=tuple(0 for _ in case.specs["rstd"].shape),
        elements=case.row.row,
        terms=tuple(
            Text("x^2 of column {column}", column=column) for column in range(case.row.col)
        ),
        tree=tree,
        evaluates=partial(_agrees, call, tree, root or _plain_root),
    )


def _plain_root(mean: Array) -> Array:
    return np.asarray(np.float32(1) / np.sqrt(mean))


def _agrees(call: StudyCall, tree: trees.Tree | None, root: Root) -> bool:
    """Return whether the kernel has the bits of the declared tree on random numbers.

    Squares cannot cancel, so probes would add nothing.
    """
    case, gamma = call.case, call.tensors["gamma"]
    first, *others = (name for name in case.operator.input_names if name != "gamma")
    dtype, average = case.specs[first].dtype, np.float32(case.tiling.average_factor)
    x = normal(np.random.default_rng(0), TensorSpec((PROBED_ROWS, case.row.col), dtype))
    # AddRmsNorm adds zeros, which changes nothing, and on A2 divides every square.
    zeros = dict.fromkeys(others, np.zeros_like(x))
    rstd = call.outputs(**{first: x}, **zeros, gamma=np.ones(case.row.col, gamma.dtype))["rstd"]
    squares = np.ascontiguousarray((x.astype(np.float32) ** 2).T)
    scales_squares = bool(others) and not case.operator.family
    mean = trees.evaluate(tree, squares * average if scales_squares else squares)
    mean = mean if scales_squares else mean * average
    return np.array_equal(rstd.reshape(-1), root(mean + to_fp32(case.arguments.epsilon)))


def ends_of_rstd(rstd: Array) -> Ends:
    """Return the smallest and largest rstd that a device may compute."""
    largest = np.finfo(np.float32).max
    # Saturated, it stands for inf.
    low, high = (
        np.where(rstd == largest, rstd, moved(rstd, units)) for units in (-ROOT_UNITS, ROOT_UNITS)
    )
    return low, high


def normalised(x: Array, gamma: Array, epsilon: float) -> Array:
    """Return x*rstd in fp64."""
    x = x.astype(FP64)
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    mean = np.mean(x * x, axis=axes, keepdims=True)
    return np.asarray(x / np.sqrt(mean + epsilon))


def scaled_after_rounding(x: Array, gamma: Array, epsilon: float) -> Ends:
    """Return y of a norm whose root is rounded in another order: one of two values before gamma."""
    exact = normalised(x, gamma, epsilon)
    ends = ends_of(exact, np.abs(exact), x.dtype)
    products = [
        ends_of(end.astype(FP64) * gamma.astype(FP64), np.zeros(1), x.dtype)[0] for end in ends
    ]
    wide = [product.astype(FP64) for product in products]
    swapped = wide[0] > wide[1]
    return np.where(swapped, products[1], products[0]), np.where(swapped, *products)


def scaled_by_more(x: Array, gamma: Array, epsilon: float) -> Ends:
    """Return y with 1 + gamma in place of gamma, in fp32."""
    exact = normalised(x, gamma, epsilon) * (1 + gamma.astype(FP64))
    return ends_of(exact, np.abs(exact), x.dtype)


def contradictions(arguments: Values, results: Values) -> Iterator[str]:
    """Yield what the statistics of rstd and y cannot be."""
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


def whole_tree(case: Case) -> trees.Tree | None:
    """Return the tree of whole rows on Ascend 950."""
    columns, fold = list(range(case.row.col)), case.tiling.fold
    if fold < trees.LANES:
        return trees.tree64(columns)
    register_sums = [
        trees.tree64(register) for register in trees.registers(trees.fold(columns, fold))
    ]
    first, second = register_sums[: trees.LANES], register_sums[trees.LANES :]
    return trees.tree64(trees.added(first, second) if second else first)


def pieces_tree(case: Case) -> trees.Tree | None:
    """Return the tree of rows in pieces on Ascend 950."""
    columns, tiling = list(range(case.row.col)), case.tiling
    piece, half = tiling.ub_factor, tiling.ub_factor // 2
    step = SPLIT_ALIGNMENT_BYTES // case.specs[case.operator.input_names[0]].itemsize
    begin = 0

    def taken(count: int, power: int) -> trees.Tree | None:
        nonlocal begin
        piece, begin = columns[begin : begin + count], begin + count
        return trees.paired(piece, -(-count // step) * step, power)

    pairs, tail = divmod(case.row.col - tiling.ub_loop * piece, piece)
    slots = []
    for number in range(tiling.ub_loop):
        if number < pairs:
            slots.append(trees.join(taken(piece, piece), taken(piece, piece)))
        elif number == pairs and tail > half:
            slots.append(trees.join(taken(piece, piece), taken(tail, half)))
        elif number == pairs and tail > 0:
            slots.append(trees.join(taken(half + tail, half), taken(half, half)))
        else:
            slots.append(taken(piece, piece))
    return trees.level(slots)


def refined_root(mean: Array) -> Array:
    """Return 1/sqrt(mean) by the fused steps of key 5000, for positive normal means."""
    from npu_sim.kernels.vectors.lanes import fused_multiply_add

    unit = np.float32(1)
    r = unit / mean
    root = np.sqrt(r)
    first = root * fused_multiply_add((mean * np.float32(-0.5)) * root, root, np.float32(1.5))
    error = fused_multiply_add(
        mean, fused_multiply_add(-first, first, r), fused_multiply_add(-mean, r, unit)
    )
    refined: Array = fused_multiply_add(error * first, np.float32(0.5), first)
    return refined
