"""Studies of ConvTbcBackward: the contributions of cores to gradWeight and gradBias.

The order of additions inside a block of the cube unit is not published.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FORMULA,
    Array,
    Index,
    Result,
    Text,
    arguments_of,
    canonical_dtype,
    kernel_input,
)
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.conv_tbc_backward.weight import visits_by_core
from npu_sim.kernels.shared.elementwise import narrow_array, round_to_hf32, widen_array
from npu_sim.operators.conv_tbc_backward.compute import roundings, splits_of
from npu_sim.operators.conv_tbc_backward.declaration import CUBE_MATH_TYPES, compute_dtype
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.open_rules import any_order
from npu_sim.operators.shared.study import (
    Experiment,
    FoundCall,
    Function,
    InDumps,
    NamedTerms,
    Numbers,
    OpenRule,
    Parts,
    Shown,
    StudyCall,
    WrappedCall,
    formula_results,
    no_claims,
    run,
)

BATCH_ELEMENTS = 1 << 24
"""fp32 elements of partial sums held at a time: 64 MiB, unless one tap needs more."""


def parts(call: StudyCall, result: Result, output: str) -> Iterator[Parts]:
    """Yield the contributions of the cores to gradWeight or gradBias."""
    return _bias_parts(call) if output == "grad_bias" else _weight_parts(call, result)


def _bias_parts(call: StudyCall) -> Iterator[Parts]:
    """Yield the sums of the cores for gradBias, as one part: all elements arrive in one order."""
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
        terms=np.diff(np.minimum(np.arange(len(sums) + 1, dtype=np.int64) * rows, count)),
        columns_together=sums.shape[1],
        locate=lambda part, column: (column,),
        describe=lambda place: Text(
            "rows {start} to {stop} of grad_output",
            start=place * rows,
            stop=min((place + 1) * rows, count),
        ),
    )


def _weight_parts(call: StudyCall, result: Result) -> Iterator[Parts]:
    """Yield the sums of the cores for gradWeight, a part for each row (tap, input channel).

    Taps are computed in batches.
    """
    case = call.case
    row = case.row
    split, _ = splits_of(case)
    by_core = visits_by_core(split)
    operand, _ = roundings(case)
    grad, x = kernel_input(call.tensors["grad_output"]), kernel_input(call.tensors["input"])
    channels, columns = row.Cin, row.Cout
    dependent = result.order_dependent["grad_weight"].mask
    step = max(1, BATCH_ELEMENTS // (len(by_core) * channels * columns))
    for tap in range(0, row.K, step):
        taps = range(tap, min(row.K, tap + step))
        places = range(taps.start * channels, taps.stop * channels)
        rows = [place for place in places if dependent[divmod(place, channels)].any()]
        if not rows:
            continue
        values = np.empty((len(by_core), len(taps) * channels, columns), np.float32)
        for core, visits in enumerate(by_core):
            (sample, start, stop), group = visits[0], len(visits)
            part = np.ascontiguousarray(grad[start:stop, sample : sample + group])
            samples = np.ascontiguousarray(x[:, sample : sample + group])
            one_core = kernels.Reduction(
                kernels.ReductionSplit(group, group, stop - start, stop - start)
            )
            whole = np.empty((row.K, channels, columns), np.float32)
            # A part of the time axis that starts at `start` reads input from there: shift the pad.
            shift = row.pad - start
            kernels.grad_weight(samples, part, shift, 1, operand, whole, one_core)
            values[core] = whole[taps.start : taps.stop].reshape(-1, columns)
        chosen = [place - tap * channels for place in rows]
        terms = [
            _terms_of_visits(visits, at // channels - row.pad, len(x))
            for at in rows
            for visits in by_core
        ]
        yield Parts(
            output="grad_weight",
            values=np.ascontiguousarray(values[:, chosen].transpose(1, 0, 2)).reshape(-1, columns),
            starts=np.arange(len(rows) + 1, dtype=np.int64) * len(by_core),
            cores=np.tile(np.arange(len(by_core), dtype=np.int64), len(rows)),
            keys=np.array(rows, np.int64),
            factors=np.ones(len(rows), np.float32),
            terms=np.array(terms, np.int64),
            columns_together=columns,
            locate=partial(_locate, channels, rows),
            describe=partial(_describe, by_core),
        )


def _terms_of_visits(visits: list[tuple[int, int, int]], shift: int, times: int) -> int:
    """Return the number of products that a core adds up.

    These are the output times whose input, ``shift`` later, is one of the ``times`` of the input.
    """
    return sum(max(0, min(stop, times - shift) - max(start, -shift)) for _, start, stop in visits)


def _locate(channels: int, rows: list[int], part: int, column: int) -> tuple[int, int, int]:
    return rows[part] // channels, rows[part] % channels, column


def _describe(by_core: list[list[tuple[int, int, int]]], place: int) -> str:
    visits = by_core[place % len(by_core)]
    _, start, stop = visits[0]
    return Text(
        "samples {first} to {visits}, output time {start} to {stop}",
        first=visits[0][0],
        visits=visits[-1][0] + 1,
        start=start,
        stop=stop,
    )


claims = no_claims
"""Without the order inside a block of the cube unit, no tree can be certified."""


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of the three gradients: the order of their fp32 sums is not published."""
    case = call.case
    if case.empty:
        return
    operand, rounding = roundings(case)
    rounded = {
        name: _rounded(array, operand).astype(np.float64) for name, array in call.tensors.items()
    }
    rounded_bias = {**rounded, "grad_output": call.tensors["grad_output"].astype(np.float64)}
    formula, double = call.operator.hook(FORMULA), np.dtype(np.float64)
    row = case.row
    counts = {
        "grad_input": row.K * row.Cout,
        "grad_weight": row.To * row.B,
        "grad_bias": row.To * row.B,
    }
    reason: str = (
        "the order of the fp32 sums of the cube unit, and of gradBias, is not published: any order "
        "is allowed, within the bound of fp32 sums"
    )
    for name, count in counts.items():
        tensors = rounded_bias if name == "grad_bias" else rounded
        sizes = {key: np.abs(array) for key, array in tensors.items()}
        sums = (
            formula(call.arguments, tensors, double)[name],
            formula(call.arguments, sizes, double)[name],
        )
        # Two more operations: the rounding of a product, and that of the sum.
        rule = any_order(
            name, result.outputs[name], sums, count + 2, reason, case.profile.saturates
        )
        if rounding != kernels.EXACT and name != "grad_bias":
            # Results of converted calls are rounded to fp16 first.
            spare = np.abs(sums[0]) * 2.0**-11 + 2.0**-25
            rule = replace(rule, lowest=rule.lowest - spare, highest=rule.highest + spare)
        yield rule


def _rounded(array: Array, operand: int) -> Array:
    """Return an input as the cube unit reads it, as fp32."""
    wide = widen_array(array)
    if operand == kernels.TO_HF32:
        return round_to_hf32(wide)
    if operand == kernels.EXACT:
        return wide
    return widen_array(narrow_array(wide, "float16", saturate=operand == kernels.TO_FP16_SATURATED))


def variants(call: StudyCall) -> Iterator[tuple[str, str, StudyCall]]:
    """Yield form, dtype of the results and changed call for every cubeMathType."""
    dtype = canonical_dtype(call.tensors["input"].dtype)
    for code in range(len(CUBE_MATH_TYPES)):
        computed = compute_dtype(dtype, code, call.profile.product.cube_dtypes)
        changed = call.with_attributes(cube_math_type=code)
        yield Text("cubeMathType {code}", code=code), computed or dtype, changed


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an output element in float64, by name."""
    grad, x, weight = (
        call.tensors[name].astype(np.float64) for name in ("grad_output", "input", "weight")
    )
    pad = call.arguments.pad
    if output == "grad_bias":
        rows = np.ndenumerate(grad[:, :, index[0]])
        return [(f"grad_output[{t}, {b}]", float(value)) for (t, b), value in rows]
    products: NamedTerms = []
    if output == "grad_weight":
        tap, row, column = index
        for time in range(grad.shape[0]):
            at = time + tap - pad
            if 0 <= at < x.shape[0]:
                for b, value in enumerate(x[at, :, row] * grad[time, :, column]):
                    products.append((f"input[{at}, {b}]*grad_output[{time}, {b}]", float(value)))
        return products
    time, sample, row = index
    for tap in range(weight.shape[0]):
        at = time + pad - tap
        if 0 <= at < grad.shape[0]:
            for o, value in enumerate(grad[at, sample] * weight[tap, row]):
                name = f"grad_output[{at}, {sample}, {o}]*weight[{tap}, {row}, {o}]"
                products.append((name, float(value)))
    return products


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = wrapped.pick("input", "weight", "bias", pad=0)
    results = {f"grad_{name}": wrapped.gradients.get(name) for name in ("input", "weight", "bias")}
    return {"grad_output": wrapped.output_gradient(), **arguments}, results


IN_DUMPS = InDumps(
    (Function(("conv_tbc",), ("input", "weight", "bias", "pad"), ("input", "weight", "bias")),),
    _in_dump,
)


OPERATOR = "conv_tbc_backward"


def _conversion() -> Shown:
    rng = np.random.default_rng(0)
    shape = {"grad_output": (24, 4, 64), "input": (24, 4, 48), "weight": (1, 48, 64), "bias": (64,)}
    tensors = {name: rng.standard_normal(sizes).astype(np.float32) for name, sizes in shape.items()}
    arguments = arguments_of(load_operator(OPERATOR), {**tensors, "cube_math_type": 0})
    golden, errors = formula_results(OPERATOR, arguments, tensors), {}
    for code, name in enumerate(CUBE_MATH_TYPES):
        call: dict[str, Any] = {**tensors, "cube_math_type": code}
        outputs = run(OPERATOR, **call).outputs
        errors[Text("{code} {name}", code=code, name=name)] = {
            output: float(np.abs(outputs[output] - golden[output]).max())
            / float(np.abs(golden[output]).max())
            for output in ("grad_weight", "grad_bias")
        }
    return {"relative_errors": errors}, [
        *(
            Text(
                "cubeMathType {name}: largest error of gradWeight {grad_weight} of its largest, of "
                "gradBias {grad_bias}",
                name=name,
                **{output: f"{largest:.1e}" for output, largest in error.items()},
            )
            for name, error in errors.items()
        ),
        "hf32 keeps 11 bits after the point, fp16 keeps 10 and a narrow range; gradBias is never "
        "converted",
    ]


def _empty_bias() -> Shown:
    tensors = {"grad_output": (5, 3, 2), "input": (5, 3, 0), "weight": (1, 0, 2), "bias": (2,)}
    arrays: dict[str, Any] = {
        name: np.full(shape, 0.25, np.float32) for name, shape in tensors.items()
    }
    bias = run(OPERATOR, **arrays).outputs["grad_bias"].tolist()
    numbers: Numbers = {"grad_bias": bias, "sum_of_grad_output": 0.25 * 15}
    return numbers, [
        Text(
            "with an empty input gradBias is {grad_bias}, the constant batch * time, not the sum "
            "of grad_output ({sum_of_grad_output})",
            **numbers,
        )
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "conversion",
        "conv gradients in fp32 carry 11 or 10 bits",
        "ConvTbcBackward, cubeMathType",
        _conversion,
        ("hf32_precision", "fp16_conversion"),
    ),
    Experiment(
        "empty_bias",
        "an empty input gives a constant gradBias",
        "ConvTbcBackward, empty tensors",
        _empty_bias,
        ("grad_bias_constant",),
    ),
)
