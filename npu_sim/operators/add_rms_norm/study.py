"""Studies of AddRmsNorm: its sum of squares, what decides its bits, and what it replaces.

Source: specification page ``add_rms_norm``.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import Case, Result, Text
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.operators.add_rms_norm.compute import arithmetic_of, computed, split_of
from npu_sim.operators.add_rms_norm.plan import PATHS, template_of
from npu_sim.operators.shared.normalised_rows.study import (
    ROOT_IN_FP32,
    contradictions,
    ends_of_rstd,
    row_claim,
    scaled_after_rounding,
    scaled_by_more,
)
from npu_sim.operators.shared.open_rules import between
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    Experiment,
    Function,
    InDumps,
    OpenRule,
    RowCount,
    RowCounts,
    Shown,
    StudyCall,
    Values,
    WrappedCall,
    different,
    single_terms,
    study_call,
    trees,
)
from npu_sim.operators.shared.unfused import Ends, Formulas, is_16_bit, short

if TYPE_CHECKING:
    from npu_sim.kernels.add_rms_norm import Arithmetic
    from npu_sim.kernels.shared.square_sums import Split


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of squares of a row, where a call gives rstd."""
    columns = range(call.case.row.col)
    piece = split_of(call.case).piece_columns
    pieces = [trees.lane_sum(columns[start : start + piece]) for start in columns[::piece]]
    if "rstd" in call.case.specs:
        yield row_claim(call, trees.left_fold(pieces))


terms = single_terms(y="(x1+x2)*rstd*gamma", rstd="1/sqrt(mean(x^2)+epsilon)", x="x1+x2")
"""No output is a sum."""


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of rstd, which contains a root and a quotient, and of y."""
    yield from rules_of_root(call, result, split_of, arithmetic_of)


def rules_of_root(
    call: StudyCall,
    result: Result,
    split: Callable[[Case], "Split"],
    arithmetic: Callable[[Case], "Arithmetic"],
) -> Iterator[OpenRule]:
    """Yield the bounds of rstd and y, with the kernel's arguments on a product."""
    case = call.case
    if case.empty:
        return
    rounding, shape = arithmetic(case), (case.row.row, case.row.col)
    ends = ends_of_rstd(computed(case, call.tensors, split(case), rounding)["rstd"])
    if "rstd" in result.outputs:
        yield between(result, "rstd", ends, ROOT_IN_FP32)
    dtype = case.specs["x1"].dtype
    stored = partial(narrow_array, dtype=dtype, saturate=call.profile.saturates)
    x1, x2 = (widen_array(call.tensors[name]).reshape(shape) for name in ("x1", "x2"))
    gamma = widen_array(call.tensors["gamma"]).reshape(-1)
    with np.errstate(all="ignore"):
        x = x1 + x2
        if rounding.squares_rounded or rounding.rereads:
            x = widen_array(stored(x))
        if rounding.rereads and rounding.clears_sign:
            x = x + np.float32(0)
        scaled = [x * end[:, np.newaxis] for end in ends]
        if rounding.rounds_twice:
            scaled = [widen_array(stored(product)) for product in scaled]
        low, high = (product * gamma for product in scaled)
    yield between(result, "y", (low, high), ROOT_IN_FP32, stored)


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield y and rstd as Add and RmsNorm give them, and y as frameworks compute it."""
    if output in ("y", "rstd"):
        yield (Text("x1 + x2 rounded, then RmsNorm"), lambda: (add_and_norm(call)[output],) * 2)
        cores = call.case.device.vector_cores
        is_few = call.case.row.row <= cores
        text = (
            Text("these rows in a call of more rows than cores, as in prefill")
            if is_few
            else Text("these rows in calls of no more rows than cores, as in decode")
        )
        yield text, lambda: (in_call_of(call, cores + is_few)[output],) * 2
    if output != "y":
        return
    operands = _sum_of(call), call.tensors["gamma"].reshape(-1), float(call.arguments.epsilon)
    if is_16_bit(operands[0]):
        text = Text(
            "x1 + x2 rounded, then x*rstd rounded to {dtype} before gamma, as transformers and "
            "PyTorch do",
            dtype=short(operands[0].dtype),
        )
        yield text, partial(_shaped, call, scaled_after_rounding, operands)
    yield (
        Text("x1 + x2 rounded, then gamma + 1 in fp32, as in Gemma (GemmaRmsNorm, not modelled)"),
        partial(_shaped, call, scaled_by_more, operands),
    )


def _sum_of(call: StudyCall) -> np.ndarray:
    """Return x1 + x2, rounded once, as rows."""
    x1, x2 = (widen_array(call.tensors[name]) for name in ("x1", "x2"))
    total = narrow_array(x1 + x2, call.case.specs["x1"].dtype)
    return total.reshape(call.case.row.row, call.case.row.col)


def _shaped(call: StudyCall, formula: Callable[..., Ends], operands: Any) -> Ends:
    low, high = (end.reshape(call.tensors["x1"].shape) for end in formula(*operands))
    return low, high


def _outputs(call: StudyCall, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of the call among these, in its shapes."""
    return {
        output.output: values[output.output].reshape(call.case.specs[output.name].shape)
        for output in call.case.outputs
    }


def add_and_norm(call: StudyCall) -> dict[str, np.ndarray]:
    """Return what Add and then RmsNorm of the product give, in the shapes of the call."""
    total = _sum_of(call)
    norm = {"x": total, "gamma": call.tensors["gamma"].reshape(-1)}
    options = {"product": call.profile, "epsilon": call.arguments.epsilon}
    return _outputs(call, {**study_call("rms_norm", {**norm, **options}).run().outputs, "x": total})


def in_call_of(call: StudyCall, rows: int) -> dict[str, np.ndarray]:
    """Return the outputs of the rows of the call as in a call of so many rows."""
    case = call.case.changed(row=rows)
    values = computed(call.case, call.tensors, split_of(case), arithmetic_of(case))
    return _outputs(call, values)


class AddThenNorm(StudyCall):
    """The call as Add and RmsNorm of the product."""

    def run(self) -> Result:
        """Compute the call."""
        whole = StudyCall.run(self)
        return Result(add_and_norm(self), whole.plan, whole.order_dependent)


def variants(call: StudyCall) -> Iterator[tuple[str, str, StudyCall]]:
    """Yield the call, and the call as Add and RmsNorm."""
    dtype = call.case.specs["x1"].dtype
    yield "fused", dtype, call
    yield "Add and RmsNorm", dtype, AddThenNorm(*call.parts)


def _row_counts(call: StudyCall) -> RowCounts:
    """Return the numbers of rows on both sides of the cores, and Add and RmsNorm."""
    counts = []
    for rows in (1, call.case.device.vector_cores + 1):
        case = call.case.changed(row=rows)
        path, key = PATHS[template_of(case)], case.tiling.tiling_key
        text = Text("{path}, tiling key {key}", path=Text(path), key=key)
        bits = split_of(case), arithmetic_of(case)
        counts.append(RowCount(rows, text, partial(in_call_of, call, rows), bits))
    advice = Text(
        "For the same bits in any number of rows, call Add and RmsNorm, or keep the rows of all "
        "calls within one line of the table."
    )
    instead = RowCount(1, Text("Add and RmsNorm"), partial(add_and_norm, call))
    return RowCounts(call.case.row.row, counts, advice=advice, instead=instead)


CHANGES = Changes(row_counts=_row_counts)

ADD_RMS_NORM = Function(
    ("npu_add_rms_norm",), ("x1", "x2", "gamma", "epsilon"), ("x1", "x2", "gamma")
)
"""The function of torch_npu, in dumps."""


def _in_dump(wrapped: WrappedCall) -> tuple[Values, Values]:
    results = {name: wrapped.output(place) for place, name in enumerate(("y", "rstd", "x"))}
    return wrapped.pick("x1", "x2", "gamma", epsilon=1e-6), results


IN_DUMPS = InDumps((ADD_RMS_NORM,), _in_dump, contradictions=contradictions)

ROWS, COLUMNS = 64, 4096
"""Shape of x1 of the experiments; more rows than a product has cores."""
FEW = 16
"""Rows of a step of decoding."""


def _call(rows: int, dtype: str = "bfloat16") -> StudyCall:
    random = np.random.default_rng(0)
    x1, x2 = (random.standard_normal((ROWS, COLUMNS), np.float32)[:rows] for _ in range(2))
    gamma = (1 + 0.1 * random.standard_normal(COLUMNS)).astype(np.float32)
    arrays = {"x1": x1, "x2": x2, "gamma": gamma}
    narrowed = {name: narrow_array(array, dtype) for name, array in arrays.items()}
    return study_call("add_rms_norm", {**narrowed, "product": "atlas_a2"})


def _decode_against_prefill() -> Shown:
    """Compare the first rows of a prefill with the same rows alone."""
    many, few = _call(ROWS).run().outputs, _call(FEW).run().outputs
    shares = {
        name: different(many[name][:FEW], few[name]) / few[name].size for name in ("y", "rstd", "x")
    }
    return shares, [
        Text(
            "{rows} of {all} rows alone: {y} of y, {rstd} of rstd and {x} of x have other bits",
            rows=FEW,
            all=ROWS,
            **{name: f"{100 * share:.1f} %" for name, share in shares.items()},
        )
    ]


def _against_add_and_norm() -> Shown:
    """Compare y with Add and RmsNorm of the product."""
    shares = {}
    for dtype in ("bfloat16", "float16", "float32"):
        call = _call(ROWS, dtype)
        y = call.run().outputs["y"]
        shares[dtype] = different(y, add_and_norm(call)["y"]) / y.size
    return shares, [
        Text(
            "{dtype}: {percent} of y differ from Add and RmsNorm",
            dtype=dtype,
            percent=f"{100 * share:.1f} %",
        )
        for dtype, share in shares.items()
    ]


CAVEATS = (
    Experiment(
        "not_batch_invariant",
        "bf16 rows wider than 2000 columns have other bits in decode than in prefill",
        "public sources, AddRmsNorm, templates of the planner",
        _decode_against_prefill,
    ),
    Experiment(
        "differs_from_add_and_rms_norm",
        "AddRmsNorm does not give the bits of Add and RmsNorm",
        "public sources, AddRmsNorm, rounding of x and y",
        _against_add_and_norm,
    ),
)
