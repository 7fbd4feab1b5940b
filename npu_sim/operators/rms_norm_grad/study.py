"""Studies of RmsNormGrad: contributions to dgamma, trees of dgamma and of the row mean."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Array,
    Arrays,
    Case,
    Index,
    Order,
    Result,
    Text,
    kernel_input,
    numpy_dtype,
)
from npu_sim.kernels.rms_norm_grad import LANES, PIECES, contributions
from npu_sim.operators.rms_norm_grad.compute import split_of
from npu_sim.operators.shared.normalised_rows.study import RMS_NORM
from npu_sim.operators.shared.study import (
    Claim,
    Experiment,
    FoundCall,
    InDumps,
    NamedTerms,
    Parts,
    Shown,
    Spread,
    StudyCall,
    Values,
    WrappedCall,
    count_units,
    different,
    fold_in_arrival_order,
    miscounted_calls,
    plan,
    probe_terms,
    run,
    spread_of_sums,
    surviving_units,
    trees,
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
from npu_sim.tiling.rms_norm_grad import GROUP_ROWS, PIECE_COLUMNS


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradients of a norm that is rounded before gamma, as by autograd."""
    x = call.tensors["x"]
    if is_16_bit(x):
        text = "gradient of the unfused chain: x*rstd rounded to {dtype} before gamma"
        yield Text(text, dtype=short(x.dtype)), partial(_unfused_gradient, call, output)


def _unfused_gradient(call: StudyCall, output: str) -> Ends:
    x, dtype = call.tensors["x"].astype(FP64), call.tensors["x"].dtype
    dy, gamma, rstd = (call.tensors[name].astype(FP64) for name in ("dy", "gamma", "rstd"))
    leading = x.ndim - gamma.ndim
    rstd = rstd.reshape((*x.shape[:leading], *(1,) * gamma.ndim))
    if output == "dgamma":
        products = rounded(dy * rounded(x * rstd, dtype), dtype)
        rows = tuple(range(leading))
        total, sizes = (terms.sum(axis=rows) for terms in (products, np.abs(products)))
        low, high = ends_of(total, sizes, dtype)
        return low.astype(np.float32), high.astype(np.float32)
    scaled, axes = rounded(dy * gamma, dtype), tuple(range(leading, x.ndim))
    means = (np.mean(terms, axis=axes, keepdims=True) for terms in (scaled * x, np.abs(scaled * x)))
    of_mean, of_sizes = (x * rstd**3 * mean for mean in means)
    return ends_of(scaled * rstd - of_mean, np.abs(scaled * rstd) + np.abs(of_sizes), dtype)


def rstd_of_forward(call: StudyCall) -> Array:
    """Return rstd as RmsNorm computes it on the same device, with its default epsilon."""
    tensors: dict[str, Any] = {name: call.tensors[name] for name in ("x", "gamma")}
    rstd: Array = run("rms_norm", product=call.profile, **tensors).outputs["rstd"]
    return rstd


COMPLETED = {"rstd": rstd_of_forward}
"""Inputs that the forward operator gives."""


def parts(call: StudyCall, result: Result, output: str) -> Iterator[Parts]:
    """Yield the cores' contributions to dgamma, one part per piece of columns with one order."""
    case = call.case
    split = split_of(case)
    shape = (case.row.row, case.row.col)
    inputs = [kernel_input(call.tensors[name]) for name in ("dy", "x", "rstd", "gamma")]
    cores, values = contributions(
        inputs[0].reshape(shape),
        inputs[1].reshape(shape),
        inputs[2].reshape(-1),
        inputs[3].reshape(-1),
        split,
    )
    step = PIECE_COLUMNS if split.path == PIECES else shape[1]
    terms = np.array(
        [len(rows) for _, rows in _rows_of_contributions(case, split.path == PIECES)], np.int64
    )
    for key, begin in enumerate(range(0, shape[1], step)):
        yield Parts(
            output=output,
            values=np.ascontiguousarray(values[:, begin : begin + step]),
            starts=np.array([0, cores.size], np.int64),
            cores=cores,
            keys=np.array([key], np.int64),
            factors=np.ones(1, np.float32),
            terms=terms,
            columns_together=1,
            locate=partial(_locate, call.tensors["gamma"].shape, begin),
            describe=partial(_describe, cores),
        )


def _locate(gamma_shape: tuple[int, ...], begin: int, part: int, column: int) -> tuple[int, ...]:
    return tuple(int(at) for at in np.unravel_index(begin + column, gamma_shape))


def _describe(cores: Array, place: int) -> str:
    return Text(
        "contribution {place} of core {cores}",
        place=place - int(np.searchsorted(cores, cores[place])),
        cores=cores[place],
    )


def miscounted(
    call: StudyCall, output: str, index: Index, difference: Array
) -> Iterator[tuple[str, StudyCall]]:
    """Yield calls with a row added twice to dgamma, or missing; see the hook of the declaration."""
    if output != "dgamma":
        return
    rows, gamma = call.case.row.row, call.tensors["gamma"]
    sampled = {name: call.tensors[name].reshape(rows, *gamma.shape) for name in ("dy", "x")}
    sampled["rstd"] = call.tensors["rstd"].reshape(rows, *[1] * gamma.ndim)
    dy, x, rstd = (array.astype(np.float64) for array in sampled.values())
    terms = (dy * x * rstd).reshape(rows, -1)
    yield from miscounted_calls(call, sampled, np.arange(rows), terms, difference.reshape(-1))


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a column of dgamma for every piece, and of the row mean in dx."""
    case, columns = call.case, call.case.row.col
    pieces = split_of(case).path == PIECES
    step = PIECE_COLUMNS if pieces else columns
    for key, begin in enumerate(range(0, columns, step)):
        width = min(step, columns - begin)
        tree = _dgamma_tree(case, pieces, call.order, key)
        yield dgamma_claim(call, range(begin, begin + width), tree)
    if columns > 2:
        yield mean_claim(call, _mean_tree(case, pieces))


def dgamma_claim(call: StudyCall, columns: range, tree: trees.Tree | None) -> Claim:
    """Return the claim that the rows of some columns of dgamma are added as a tree."""
    return Claim(
        output="dgamma",
        element=_locate(call.tensors["gamma"].shape, columns.start, 0, 0),
        elements=len(columns),
        terms=tuple(Text("dy*xh of row {row}", row=row) for row in range(call.case.row.row)),
        tree=tree,
        outside=partial(_dgamma_outside, call, columns),
    )


def mean_claim(call: StudyCall, tree: trees.Tree | None) -> Claim:
    """Return the claim that the products of a row are added as a tree, for the mean in dx."""
    row = call.case.row
    return Claim(
        output="dx",
        element=tuple(0 for _ in call.tensors["x"].shape),
        elements=row.row * row.col,
        terms=tuple(
            Text("dy*gamma*xh of column {column}", column=column) for column in range(row.col)
        ),
        tree=tree,
        outside=partial(_mean_outside, call, call.case),
    )


def _rows_of_contributions(case: Case, pieces: bool) -> Iterator[tuple[int, range]]:
    """Yield core and rows of every contribution to dgamma, in program order of the cores."""
    for core, first in enumerate(range(0, case.row.row, case.tiling.block_factor)):
        rows = range(first, min(case.row.row, first + case.tiling.block_factor))
        size = GROUP_ROWS if pieces else len(rows)
        yield from ((core, rows[begin : begin + size]) for begin in range(0, len(rows), size))


def _dgamma_tree(case: Case, pieces: bool, order: Order, key: int) -> trees.Tree | None:
    contributions = [
        (core, trees.left_fold(rows)) for core, rows in _rows_of_contributions(case, pieces)
    ]
    if case.deterministic:
        by_core = groupby(contributions, key=lambda contribution: contribution[0])
        return trees.left_fold(
            [trees.left_fold([part for _, part in parts]) for _, parts in by_core]
        )
    return fold_in_arrival_order(contributions, order, key)


def _mean_tree(case: Case, pieces: bool) -> trees.Tree | None:
    columns: Sequence[int] = range(case.row.col)
    if pieces:
        return trees.left_fold(
            [
                trees.halving(columns[begin : begin + PIECE_COLUMNS])
                for begin in range(0, len(columns), PIECE_COLUMNS)
            ]
        )
    return trees.lane_sum(columns) if split_of(case).path == LANES else trees.halving(columns)


def _ones(call: StudyCall) -> Arrays:
    return {name: np.ones_like(values) for name, values in call.tensors.items()}


def _dgamma_outside(call: StudyCall, columns: range, codes: Array) -> Array:
    """Run one probe per column: with xh = 1 the terms of dgamma are dy."""
    terms = "dy", (call.case.row.row, call.case.row.col), slice(None)
    return surviving_units(
        call, terms, columns, lambda outputs: outputs["dgamma"].reshape(-1), codes, **_ones(call)
    )


def _mean_outside(call: StudyCall, case: Case, codes: Array) -> Array:
    """Run one probe per row and read dx where dy is one unit.

    With xh = gamma = 1, dx is dy minus the mean of dy.
    """
    total, columns = case.row.row, case.row.col
    dtype, counts = case.specs["x"].dtype, np.empty(codes.shape[0], np.int64)
    for first in range(0, codes.shape[0], total):
        piece = codes[first : first + total]
        dy = np.zeros((total, columns), numpy_dtype(dtype))
        dy[: piece.shape[0]] = probe_terms(piece, dtype)
        outputs = call.outputs(**{**_ones(call), "dy": dy.reshape(call.tensors["dy"].shape)})
        dx = outputs["dx"].reshape(total, columns)[: piece.shape[0]]
        unit_column = np.argmax(piece == 0, axis=1)
        rows = np.arange(piece.shape[0])
        sums = (
            dy[rows, unit_column].astype(np.float64) - dx[rows, unit_column].astype(np.float64)
        ) * columns
        counts[first : first + total] = count_units(sums, dtype)
    return counts


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an output element in float64, by name."""
    tensors = call.tensors
    gamma = tensors["gamma"].astype(np.float64).reshape(-1)
    dy, x = (tensors[name].astype(np.float64).reshape(-1, gamma.size) for name in ("dy", "x"))
    rstd = tensors["rstd"].astype(np.float64).reshape(-1)
    if output == "dgamma":
        column = int(np.ravel_multi_index(index, tensors["gamma"].shape))
        return [
            (Text("dy*xh of row {row}", row=row), value)
            for row, value in enumerate((dy[:, column] * x[:, column] * rstd).tolist())
        ]
    row, column = divmod(int(np.ravel_multi_index(index, tensors["x"].shape)), gamma.size)
    normed = x[row] * rstd[row]
    return [
        ("dy*gamma*rstd", dy[row, column] * gamma[column] * rstd[row]),
        ("-xh*mean*rstd", -normed[column] * float(np.mean(dy[row] * gamma * normed)) * rstd[row]),
    ]


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {"dy": wrapped.output_gradient(), "rstd": wrapped.output(1)}
    results = {"dx": wrapped.gradients.get("x"), "dgamma": wrapped.gradients.get("gamma")}
    return arguments | wrapped.pick("x", "gamma"), results


def _spread(arguments: Values) -> Mapping[str, Spread]:
    tensors = [arguments[name] for name in ("dy", "x", "rstd")]
    largest = prod(tensor.largest for tensor in tensors)
    term = prod(tensor.root_mean_square for tensor in tensors)
    return {"dgamma": spread_of_sums(arguments["rstd"].size, largest, term)}


IN_DUMPS = InDumps((RMS_NORM,), _in_dump, spread=_spread)


OPERATOR = "rms_norm_grad"
LATER = "ascend_950"


def _wrap() -> Shown:
    rows, sizes = 400, {}
    for columns in (1_300_000, 1_350_000):
        spec: dict[str, Any] = {
            "dy": f"{rows}x{columns}:fp32",
            "x": f"{rows}x{columns}:fp32",
            "rstd": f"{rows}:fp32",
            "gamma": f"{columns}:fp32",
        }
        tiling = plan(OPERATOR, deterministic=True, **spec).tiling
        total = rows * columns * 8 + rows * 4 + columns * 4
        facts = {"bytes": total, "bytes_32_bit": total % 2**32}
        sizes[columns] = {**facts, "need_chunk": tiling["need_chunk"]}
    return {"rows": rows, "columns": sizes}, [
        *(
            Text(
                "{rows} x {columns}: {bytes} bytes, {bytes_32_bit} in 32 bits: need_chunk "
                "{need_chunk}",
                rows=rows,
                columns=columns,
                **size,
            )
            for columns, size in sizes.items()
        ),
        "beyond 4 GiB a larger tensor is planned as a small one: the reduction of dgamma is not "
        "cut into chunks",
    ]


LEFT_OUT_COLUMNS = (8192, 8193, 8194)


def _last_column() -> Shown:
    differing = {}
    for columns in LEFT_OUT_COLUMNS:
        ones = np.ones((1, columns), np.float32)
        changed = ones.copy()
        changed[0, -1] = 1000
        call: dict[str, Any] = {"x": ones, "rstd": np.ones(1, np.float32), "gamma": ones[0]}
        first, second = (
            run(OPERATOR, product=LATER, dy=dy, **call).outputs["dx"] for dy in (ones, changed)
        )
        differing[columns] = different(first[0, :-1], second[0, :-1])
    return {"product": LATER, "different": differing}, [
        *(
            Text(
                "{columns} columns: a larger dy in the last one changes {count} other elements of "
                "dx",
                columns=columns,
                count=count,
            )
            for columns, count in differing.items()
        ),
        "with 2^k + 1 columns, from 8193 on, the mean of a row leaves out the last column; read in "
        "the public sources, not run on a device",
    ]


def _no_rows() -> Shown:
    empty = np.ones((0, 4), np.float32)
    call: dict[str, Any] = {"dy": empty, "x": empty, "rstd": np.ones(0, np.float32)}
    outputs = run(OPERATOR, product=LATER, **call, gamma=np.ones(4, np.float32)).outputs
    dgamma = outputs["dgamma"].tolist()
    return {"product": LATER, "dgamma": dgamma}, [
        Text(
            "dgamma of 0 rows on {product}: {values}",
            product=LATER,
            values=", ".join(map(str, dgamma)),
        ),
        "a sum of no terms is 0, which the formula gives; read in the public sources, not run on a "
        "device",
    ]


BEFORE, SINCE = "9.1.1", "9.2"
"""Releases between which dx becomes one fused multiply-add on Ascend 950."""


def _inferred_release() -> Shown:
    rng = np.random.default_rng(0)
    dy, x = (rng.standard_normal((64, 512)).astype(np.float32) for _ in range(2))
    call: dict[str, Any] = {"dy": dy, "x": x, "rstd": np.ones(64, np.float32)}
    gamma = np.ones(512, np.float32)
    first, second = (
        run(OPERATOR, product=LATER, release=release, **call, gamma=gamma).outputs["dx"]
        for release in (BEFORE, SINCE)
    )
    numbers = {"elements": first.size, "different": different(first, second)}
    return {"product": LATER, **numbers}, [
        Text(
            "dx of {product} differs in {different} of {elements} elements between releases "
            "{before} and {since}",
            product=LATER,
            before=BEFORE,
            since=SINCE,
            **numbers,
        ),
        "the step is fused in single files of the sources; that the later release ships them is "
        "inferred, so there a plan is a model",
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "inferred_release",
        "What release 9.2 changes was read in single files of the sources",
        "public sources of September to November 2026, RmsNormGrad, dx on Ascend 950",
        _inferred_release,
        ("release_inferred",),
    ),
    Experiment(
        "last_column",
        "On Ascend 950 the mean of RmsNormGrad may leave out the last column",
        "public sources of summer 2026, RmsNormGrad, rows of 2^k + 1 columns",
        _last_column,
        ("last_column_left_out_of_mean",),
    ),
    Experiment(
        "no_rows",
        "On Ascend 950 dgamma of RmsNormGrad without rows is nan",
        "public sources of summer 2026, RmsNormGrad, tiling key 8000",
        _no_rows,
        ("dgamma_is_nan",),
    ),
    Experiment(
        "wrap",
        "RmsNormGrad sizes its work in 32 bits",
        "RmsNormGrad, deterministic, beyond 4 GiB",
        _wrap,
        ("total_size_wraps",),
    ),
)
