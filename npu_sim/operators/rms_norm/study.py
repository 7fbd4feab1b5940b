"""Studies of RmsNorm: the tree of a row's sum of squares, and the terms of an element."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Case, Result, Text
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.operators.rms_norm.compute import split_of
from npu_sim.operators.shared.normalised_rows.study import (
    RMS_NORM,
    ROOT_IN_FP32,
    contradictions,
    ends_of_rstd,
    row_claim,
    scaled_after_rounding,
    scaled_by_more,
)
from npu_sim.operators.shared.open_rules import between
from npu_sim.operators.shared.study import (
    Claim,
    Experiment,
    FoundCall,
    InDumps,
    OpenRule,
    Shown,
    StudyCall,
    WrappedCall,
    single_terms,
    study_call,
    trees,
)
from npu_sim.operators.shared.unfused import Formulas, is_16_bit, short
from npu_sim.tiling import rms_norm as tiler


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row."""
    case = call.case
    yield row_claim(call, _row_tree(case))


def _row_tree(case: Case) -> trees.Tree | None:
    columns, split = range(case.row.col), split_of(case)
    if case.tiling.tiling_key == tiler.KEY_MERGE_N:
        return trees.lane_sum(columns)
    starts = range(0, len(columns), split.piece_columns)
    return trees.left_fold(
        [trees.halving(columns[start : start + split.piece_columns]) for start in starts]
    )


terms = single_terms(y="x*rstd*gamma", rstd="1/sqrt(mean(x^2)+epsilon)")
"""Neither output is a sum."""


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of rstd, which contains a root and a quotient, and of y."""
    if call.case.empty:
        return
    ends = ends_of_rstd(result.outputs["rstd"])
    yield between(result, "rstd", ends, ROOT_IN_FP32)
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
        yield text, partial(scaled_after_rounding, *_operands(call))
    if output == "y":
        text = Text("gamma + 1 in fp32, as in Gemma (GemmaRmsNorm, not modelled)")
        yield text, partial(scaled_by_more, *_operands(call))


def _operands(call: StudyCall) -> tuple[Array, Array, float]:
    return call.tensors["x"], call.tensors["gamma"], float(call.arguments.epsilon)


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    results = {"y": wrapped.output(0), "rstd": wrapped.output(1)}
    return wrapped.pick("x", "gamma", epsilon=1e-6), results


IN_DUMPS = InDumps((RMS_NORM,), _in_dump, contradictions=contradictions)


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
        low, high = scaled_after_rounding(*_operands(call))
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
