"""ConvTbcBackward in the laboratory: the partial sums of gradWeight. The cube's order inside one partial sum is not published."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.conv_tbc_backward_folds import contributions_by_core
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.numbers.storage import kernel_input
from npu_sim.operators.contract.results import Result
from npu_sim.operators.contract.study import StudyCall
from npu_sim.operators.conv_tbc_backward_math import CUBE_MATH_TYPES, compute_dtype
from npu_sim.operators.conv_tbc_backward_run import roundings, shares_of
from npu_sim.orders.claims import Claim
from npu_sim.orders.parts import Parts

BATCH_ELEMENTS = 1 << 24
"""fp32 elements of the partial sums held at a time: 64 MiB, unless one tap needs more."""


def parts(call: StudyCall, first: Result, output: str) -> Iterator[Parts]:
    """Yield the partial sums of gradWeight, one part for every row (tap, input channel), some taps at a time."""
    case = call.case
    row = case.row
    shares, _ = shares_of(case)
    by_core = contributions_by_core(shares)
    cores = np.repeat(np.arange(len(by_core), dtype=np.int64), [len(own) for own in by_core])
    pieces = [piece for own in by_core for piece in own]
    operand, _ = roundings(case)
    grad, x = kernel_input(call.tensors["grad_output"]), kernel_input(call.tensors["input"])
    channels, columns = row.Cin, row.Cout
    dependent = first.order_dependent[output].mask
    step = max(1, BATCH_ELEMENTS // (len(pieces) * channels * columns))
    for tap in range(0, row.K, step):
        taps = range(tap, min(row.K, tap + step))
        rows = [at * channels + channel for at in taps for channel in range(channels) if dependent[at, channel].any()]
        if not rows:
            continue
        values = np.empty((len(pieces), len(taps) * channels, columns), np.float32)
        alone = kernels.Shares(1, 1, row.To, row.To)
        for place, (sample, start, stop) in enumerate(pieces):
            own = np.zeros((row.To, 1, columns), grad.dtype)
            own[start:stop] = grad[start:stop, sample : sample + 1]
            whole = np.empty((row.K, channels, columns), np.float32)
            one = np.ascontiguousarray(x[:, sample : sample + 1])
            kernels.grad_weight(one, own, row.pad, 1, operand, whole, alone, kernels.NO_TAIL, 0, 0)
            values[place] = whole[taps.start : taps.stop].reshape(-1, columns)
        chosen = [place - tap * channels for place in rows]
        yield Parts(
            output=output,
            values=np.ascontiguousarray(values[:, chosen].transpose(1, 0, 2)).reshape(-1, columns),
            starts=np.arange(len(rows) + 1, dtype=np.int64) * len(pieces),
            cores=np.tile(cores, len(rows)),
            keys=np.array(rows, np.int64),
            factors=np.ones(len(rows), np.float32),
            columns_together=columns,
            locate=partial(_locate, channels, rows),
            describe=partial(_describe, pieces),
        )


def _locate(channels: int, rows: list[int], part: int, column: int) -> tuple[int, int, int]:
    return rows[part] // channels, rows[part] % channels, column


def _describe(pieces: list[tuple[int, int, int]], place: int) -> str:
    sample, start, stop = pieces[place % len(pieces)]
    return f"sample {sample}, output time {start} to {stop}"


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield nothing: the order of additions inside a cube block is not published, so no tree can be certified."""
    return iter(())


def variants(call: StudyCall) -> Iterator[tuple[str, str, StudyCall]]:
    """Yield every cubeMathType: its name, the dtype that results are judged in, and the call with it."""
    dtype = canonical_dtype(call.tensors["input"].dtype)
    for code, name in enumerate(CUBE_MATH_TYPES):
        computed = compute_dtype(dtype, code, call.profile.product.cube_dtypes)
        yield f"cubeMathType {code} {name}", computed or dtype, call.with_attributes(cube_math_type=code)


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    grad, x, weight = (call.tensors[name].astype(np.float64) for name in ("grad_output", "input", "weight"))
    pad = call.arguments.pad
    if output == "grad_bias":
        return [(f"self[{t}, {b}]", float(value)) for (t, b), value in np.ndenumerate(grad[:, :, index[0]])]
    found: list[tuple[str, float]] = []
    if output == "grad_weight":
        tap, row, column = index
        for time in range(grad.shape[0]):
            at = time + tap - pad
            if 0 <= at < x.shape[0]:
                found += [(f"input[{at}, {b}]*self[{time}, {b}]", float(x[at, b, row] * grad[time, b, column])) for b in range(x.shape[1])]
        return found
    time, sample, row = index
    for tap in range(weight.shape[0]):
        at = time + pad - tap
        if 0 <= at < grad.shape[0]:
            products = grad[at, sample] * weight[tap, row]
            found += [(f"self[{at}, {sample}, {o}]*weight[{tap}, {row}, {o}]", float(value)) for o, value in enumerate(products)]
    return found
