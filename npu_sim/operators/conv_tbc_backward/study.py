"""ConvTbcBackward in the laboratory: what cores add to gradWeight and gradBias. The cube's order inside a block is not published."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.framework.results import Result
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.conv_tbc_backward.order import visits_by_core
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.numbers.storage import kernel_input
from npu_sim.operators.conv_tbc_backward.compute import roundings, shares_of
from npu_sim.operators.conv_tbc_backward.decisions import CUBE_MATH_TYPES, compute_dtype
from npu_sim.operators.shared.study import StudyCall
from npu_sim.orders.claims import Claim, Parts

BATCH_ELEMENTS = 1 << 24
"""fp32 elements of the partial sums held at a time: 64 MiB, unless one tap needs more."""


def parts(call: StudyCall, first: Result, output: str) -> Iterator[Parts]:
    """Yield what the cores add to gradWeight or gradBias."""
    return _bias_parts(call) if output == "grad_bias" else _weight_parts(call, first)


def _bias_parts(call: StudyCall) -> Iterator[Parts]:
    """Yield the sums of the cores that share gradBias, one part: all elements arrive alike."""
    rows = call.case.tiling.bias_rows
    sums = kernels.core_sums(kernel_input(call.tensors["grad_output"]), rows)
    count = call.case.row.B * call.case.row.To
    yield Parts(
        output="grad_bias",
        values=sums,
        starts=np.array([0, len(sums)], np.int64),
        cores=np.arange(len(sums), dtype=np.int64),
        keys=np.zeros(1, np.int64),
        factors=np.ones(1, np.float32),
        terms=np.array(
            [min((core + 1) * rows, count) - core * rows for core in range(len(sums))], np.int64
        ),
        columns_together=sums.shape[1],
        locate=lambda part, column: (column,),
        describe=lambda place: f"rows {place * rows} to {min((place + 1) * rows, count)} of self",
    )


def _weight_parts(call: StudyCall, first: Result) -> Iterator[Parts]:
    """Yield the sums of the cores that share gradWeight, one part for every row (tap, input channel), some taps at a time."""
    case = call.case
    row = case.row
    shares, _ = shares_of(case)
    by_core = visits_by_core(shares)
    operand, _ = roundings(case)
    grad, x = kernel_input(call.tensors["grad_output"]), kernel_input(call.tensors["input"])
    channels, columns = row.Cin, row.Cout
    dependent = first.order_dependent["grad_weight"].mask
    step = max(1, BATCH_ELEMENTS // (len(by_core) * channels * columns))
    for tap in range(0, row.K, step):
        taps = range(tap, min(row.K, tap + step))
        rows = [
            at * channels + channel
            for at in taps
            for channel in range(channels)
            if dependent[at, channel].any()
        ]
        if not rows:
            continue
        values = np.empty((len(by_core), len(taps) * channels, columns), np.float32)
        for core, visits in enumerate(by_core):
            (sample, start, stop), group = visits[0], len(visits)
            own = np.ascontiguousarray(grad[start:stop, sample : sample + group])
            samples = np.ascontiguousarray(x[:, sample : sample + group])
            alone, whole = (
                kernels.Shares(group, group, stop - start, stop - start),
                np.empty((row.K, channels, columns), np.float32),
            )
            # A share of the time axis that starts later reads input that much later.
            kernels.grad_weight(
                samples, own, row.pad - start, 1, operand, whole, alone, kernels.NO_TAIL, 0, 0
            )
            values[core] = whole[taps.start : taps.stop].reshape(-1, columns)
        chosen = [place - tap * channels for place in rows]
        yield Parts(
            output="grad_weight",
            values=np.ascontiguousarray(values[:, chosen].transpose(1, 0, 2)).reshape(-1, columns),
            starts=np.arange(len(rows) + 1, dtype=np.int64) * len(by_core),
            cores=np.tile(np.arange(len(by_core), dtype=np.int64), len(rows)),
            keys=np.array(rows, np.int64),
            factors=np.ones(len(rows), np.float32),
            terms=np.array(
                [
                    _terms_of_visits(visits, at // channels - row.pad, len(x))
                    for at in rows
                    for visits in by_core
                ],
                np.int64,
            ),
            columns_together=columns,
            locate=partial(_locate, channels, rows),
            describe=partial(_describe, by_core),
        )


def _terms_of_visits(visits: list[tuple[int, int, int]], shift: int, times: int) -> int:
    """Return how many products a core adds up: its output times whose input, ``shift`` later, lies within the input's ``times``."""
    return sum(max(0, min(stop, times - shift) - max(start, -shift)) for _, start, stop in visits)


def _locate(channels: int, rows: list[int], part: int, column: int) -> tuple[int, int, int]:
    return rows[part] // channels, rows[part] % channels, column


def _describe(by_core: list[list[tuple[int, int, int]]], place: int) -> str:
    visits = by_core[place % len(by_core)]
    _, start, stop = visits[0]
    return f"samples {visits[0][0]} to {visits[-1][0] + 1}, output time {start} to {stop}"


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield nothing: the order of additions inside a cube block is not published, so no tree can be certified."""
    return iter(())


def variants(call: StudyCall) -> Iterator[tuple[str, str, StudyCall]]:
    """Yield every cubeMathType: its name, the dtype that results are judged in, and the call with it."""
    dtype = canonical_dtype(call.tensors["input"].dtype)
    for code, name in enumerate(CUBE_MATH_TYPES):
        computed = compute_dtype(dtype, code, call.profile.product.cube_dtypes)
        yield (
            f"cubeMathType {code} {name}",
            computed or dtype,
            call.with_attributes(cube_math_type=code),
        )


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    grad, x, weight = (
        call.tensors[name].astype(np.float64) for name in ("grad_output", "input", "weight")
    )
    pad = call.arguments.pad
    if output == "grad_bias":
        return [
            (f"self[{t}, {b}]", float(value))
            for (t, b), value in np.ndenumerate(grad[:, :, index[0]])
        ]
    found: list[tuple[str, float]] = []
    if output == "grad_weight":
        tap, row, column = index
        for time in range(grad.shape[0]):
            at = time + tap - pad
            if 0 <= at < x.shape[0]:
                found += [
                    (
                        f"input[{at}, {b}]*self[{time}, {b}]",
                        float(x[at, b, row] * grad[time, b, column]),
                    )
                    for b in range(x.shape[1])
                ]
        return found
    time, sample, row = index
    for tap in range(weight.shape[0]):
        at = time + pad - tap
        if 0 <= at < grad.shape[0]:
            products = grad[at, sample] * weight[tap, row]
            found += [
                (f"self[{at}, {sample}, {o}]*weight[{tap}, {row}, {o}]", float(value))
                for o, value in enumerate(products)
            ]
    return found
